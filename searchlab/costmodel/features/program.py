"""Features of the scheduled program of a config: MetaSchedule's, of each store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...arrays import Floats
from ...metaschedule import tune_context
from ...space import Config, Space
from .base import Features

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

COLUMNS_PER_STORE = 164
"""How many features MetaSchedule's PerStoreFeature has of each store."""


KEPT = 50_000
"""How many rows are kept, about 150 MB; when there are so many, all are forgotten."""

Elsewhere = Callable[[Space, str, Sequence[Config]], list[Floats] | None]
"""Extracts in other processes what :meth:`ScheduledFeatures.extract` does in this one; None if that is not worth it."""

_elsewhere: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)


@contextmanager
def extracted_by(elsewhere: Elsewhere) -> Iterator[None]:
    """Within this context, all features of programs are extracted by ``elsewhere``, where it takes them.

    The features of a policy's own cost models are among them. The rows are the same by any route.
    """
    token = _elsewhere.set(elsewhere)
    try:
        yield
    finally:
        _elsewhere.reset(token)


class ScheduledFeatures(Features):
    """Features of the scheduled program. A config that makes no program has a row of NaN.

    A row is a function of the space and the config alone. It is kept, since it takes milliseconds.
    """

    builds_programs = True
    width: ClassVar[int] = 0
    """How many columns a matrix has at least."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._rows: dict[Config, Floats] = {}
        self._of_program: dict[int, Floats] = {}

    @abstractmethod
    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        """The features (d,) of each scheduled program, where d may differ."""

    def __call__(self, configs: Sequence[Config]) -> Floats:
        if len(self._rows) > KEPT:
            self._rows.clear()
        new = [config for config in dict.fromkeys(configs) if config not in self._rows]
        if new:
            elsewhere = _elsewhere.get()
            extracted = elsewhere(self.space, self.name, new) if elsewhere else None
            self._rows.update(zip(new, self.extract(new) if extracted is None else extracted, strict=True))
        rows = [self._rows[config] for config in configs]
        matrix = np.full((len(rows), max([self.width, *map(len, rows)])), self.absent)
        for filled, row in zip(matrix, rows, strict=True):
            if len(row):
                filled[: len(row)] = row
            else:
                filled[:] = np.nan
        return matrix

    def extract(self, configs: Sequence[Config]) -> list[Floats]:
        """The features (d,) of each config, in this process; empty for one that makes no program."""
        from tvm_ffi import structural_hash

        self.prepare()
        if len(self._of_program) > KEPT:
            self._of_program.clear()
        hashes: list[int | None] = []
        new: dict[int, Schedule] = {}
        for config in configs:
            try:
                program = self.space.schedule(config)
            except Exception:  # whatever comes out of a plug-in: measured, it is the failure of this trial alone
                hashes.append(None)
                continue
            hashed: int = structural_hash(program.mod)
            hashes.append(hashed)
            if hashed not in self._of_program:
                new[hashed] = program
        self._of_program.update(zip(new, self._rows_of(list(new.values())), strict=True))
        rows = [np.empty(0) if program is None else self._of_program[program] for program in hashes]
        return [self.completed(row, config) if len(row) else row for row, config in zip(rows, configs, strict=True)]

    def prepare(self) -> None:
        """Import what extraction needs, which takes seconds."""
        from tvm.s_tir import meta_schedule  # noqa: F401

    def completed(self, row: Floats, config: Config) -> Floats:
        """The ``row`` of the program of ``config``, with what the choices themselves add."""
        return row

    def _rows_of(self, programs: Sequence[Schedule]) -> list[Floats]:
        """:meth:`rows`; empty for a program that they cannot be extracted from, which spoils no other row."""
        try:
            return self.rows(programs) if programs else []
        except Exception:
            if len(programs) == 1:
                return [np.empty(0)]
            return [row for program in programs for row in self._rows_of([program])]

    def stores(self, programs: Sequence[Schedule]) -> list[Floats]:
        """MetaSchedule's features of each program, a row (164,) for each of its stores, in the order of the program."""
        from tvm.s_tir import meta_schedule as ms

        context = tune_context(self.space.workload.module, self.space.target.tvm)
        candidates = [ms.MeasureCandidate(program, []) for program in programs]
        extracted = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
        return [stores.numpy().astype(np.float64) for stores in extracted]


class ProgramFeatures(ScheduledFeatures):
    """MetaSchedule's features of the scheduled program (164 per store), as the maximum and mean over its stores.

    Source: Zheng et al., "Ansor" (OSDI 2020), appendix B; PerStoreFeature in ``tvm.s_tir.meta_schedule``.
    """

    name = "program"
    width = 2 * COLUMNS_PER_STORE

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [np.concatenate([stores.max(axis=0), stores.mean(axis=0)]) for stores in self.stores(programs)]


class PerStoreFeatures(ScheduledFeatures):
    """MetaSchedule's features of each store (164 numbers), one store after the other, with NaN after the last.

    Only cost models that add up stores, such as ``pack-sum``, can learn from them. Source: as for ``program``.
    """

    name = "per-store"
    width = COLUMNS_PER_STORE
    columns_per_store = COLUMNS_PER_STORE

    def rows(self, programs: Sequence[Schedule]) -> list[Floats]:
        return [stores.reshape(-1) for stores in self.stores(programs)]
