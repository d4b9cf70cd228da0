"""Features of the scheduled program of a config: MetaSchedule's, of each store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...errors import InvalidConfig
from ...metaschedule import tune_context
from ...space import Config, Space
from ..contract import Array
from .base import Features, widened

STORE_WIDTH = 164
"""How many features MetaSchedule's PerStoreFeature has of each store."""


class ScheduledFeatures(Features):
    """Features of the scheduled program. A config that makes no program has a row of NaN.

    Rows are kept, since each takes a scheduled program. A row is a function of the space and the config alone.
    """

    builds_programs = True
    width: ClassVar[int] = 0
    """How many columns a matrix has at least."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._rows: dict[Config, Array] = {}

    @abstractmethod
    def rows(self, programs: Sequence[Any]) -> list[Array]:
        """The features (d,) of each scheduled program, where d may differ."""

    def __call__(self, configs: Sequence[Config]) -> Array:
        new = [config for config in dict.fromkeys(configs) if config not in self._rows]
        if new:
            self._rows.update(zip(new, self.extract(new), strict=True))
        rows = [self._rows[config] for config in configs]
        width = max([self.width, *map(len, rows)])
        nothing = np.full(width, np.nan)
        matrix = [widened(row[np.newaxis], width, self.absent)[0] if len(row) else nothing for row in rows]
        return np.stack(matrix) if matrix else np.empty((0, width))

    def extract(self, configs: Sequence[Config]) -> list[Array]:
        """The features (d,) of each config; empty for one that makes no program."""
        rows = [np.empty(0)] * len(configs)
        programs = {}
        for index, config in enumerate(configs):
            try:
                programs[index] = self.space.schedule(config)
            except InvalidConfig:
                continue
        for index, row in zip(programs, self.rows(list(programs.values())), strict=True):
            rows[index] = row
        return rows

    def stores(self, programs: Sequence[Any]) -> list[Array]:
        """MetaSchedule's features of each program, a row (164,) for each of its stores, in the order of the program."""
        from tvm.s_tir import meta_schedule as ms

        context = tune_context(self.space.workload.module, self.space.target.tvm)
        candidates = [ms.MeasureCandidate(program, []) for program in programs]
        extracted = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
        return [stores.numpy().astype(np.float64) for stores in extracted]


class ProgramFeatures(ScheduledFeatures):
    """MetaSchedule's per-store features of the scheduled module (164 a store), as their maximum and mean.

    Source: Zheng et al., "Ansor" (OSDI 2020), appendix B; ``tvm.s_tir.meta_schedule`` PerStoreFeature.
    """

    name = "program"
    width = 2 * STORE_WIDTH

    def rows(self, programs: Sequence[Any]) -> list[Array]:
        return [np.concatenate([stores.max(axis=0), stores.mean(axis=0)]) for stores in self.stores(programs)]


class StoreFeatures(ScheduledFeatures):
    """MetaSchedule's features of every store (164 numbers each), one store after the other; NaN past the last.

    Only a cost model that sums over stores can learn from them: :attr:`~searchlab.costmodel.CostModel.per_store`.
    Source: as for :class:`ProgramFeatures`.
    """

    name = "store"
    width = STORE_WIDTH
    store_width = STORE_WIDTH

    def rows(self, programs: Sequence[Any]) -> list[Array]:
        return [stores.reshape(-1) for stores in self.stores(programs)]
