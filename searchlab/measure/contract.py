"""The contract of a measurer, and the settings by which programs are built and timed, wherever they run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec

from ..arrays import Floats
from ..records import Measurement, Statistic, Trial
from ..space import Config, Space

KnownPrograms = MutableMapping[str, Measurement]
"""Measurements by program hash, of one target and one protocol: these programs need not be measured again."""


class CannotMeasure(Exception):
    """A program that was measured before fails now; the text says how."""


@dataclass(frozen=True, eq=False)
class Whole:
    """A space of which every config was measured.

    costs: in seconds, infinite for a failure, shape (N,). weights: how often a random draw gives each config, of any
    sum, shape (N,).
    """

    costs: Floats
    weights: Floats


class Measurer(ABC):
    """Measures configs; a context manager, since it may hold processes."""

    workers: int = 1
    """How many programs are built at the same time."""

    repeatable: bool = False
    """Whether measuring again gives the same, at once: such a log need not survive a failure of the machine."""

    def begin(self, seed: int) -> None:
        """A run from ``seed`` is about to be measured."""

    @abstractmethod
    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        """One measurement a config, in order, each as soon as it is there.

        best: the least cost that the run has had so far, in seconds; a program that is much slower need not be
        repeated. A failure of the config is a Measurement; an exception is a failure of the measurer.
        """

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        """The ``features`` (d,) of each config, extracted by idle processes of this measurer; None if it has none."""
        return None

    def extract_seconds(self) -> float:
        """Seconds of the CPU that :meth:`extract` has taken in other processes, divided by those that shared them."""
        return 0.0

    def whole(self, space: Space) -> Whole | None:
        """Every config of ``space``, the same object at each call; None if it is not known."""
        return None

    def optimum(self, space: Space) -> float | None:
        """The least cost of any config of ``space``, in seconds; None if it is not known, or if every config fails."""
        return None

    def close(self) -> None:
        """Let go of every process; the measurer is not used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Remeasurer(Measurer):
    """A measurer that can also time programs again which it has measured before."""

    sentinel: int = 0
    """Every how many batches a run shall have its first program timed again; 0 for never."""

    finalists: int = 0
    """How many of its fastest programs a run shall have measured again at its end."""

    @abstractmethod
    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        """Seconds of each trial's program, timed once more in each of ``rounds``: in turn, so that drift hits all.

        Raises CannotMeasure where one of the programs fails now.
        """


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """How programs are built and timed, wherever they run.

    A program is run ``number`` times a repeat, more often where that takes less than ``min_repeat_ms``, and
    ``repeat`` times over. One whose first reading is more than ``prune_factor`` times the best of its run so far is not
    repeated; 0 repeats all. Timeouts are in seconds. A candidate may take ``memory_limit_mb`` of memory, no matter how
    much if 0; of the memory of a GPU it may take all. ``workers`` build processes, or one a core if 0. The cost of a
    trial is the ``statistic`` of its repeats.
    """

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 10
    prune_factor: float = 3.0
    build_timeout: float = 15.0
    run_timeout: float = 15.0
    check: bool = True
    memory_limit_mb: int = 4096
    workers: int = 0
    statistic: Statistic = "median"

    aside: ClassVar[tuple[str, ...]] = ("workers",)
    """The settings that change no measurement of a trial."""

    def __post_init__(self) -> None:
        self._at_least(1, "number", "repeat")
        self._at_least(0, "min_repeat_ms", "memory_limit_mb", "workers")
        self._more_than_0_seconds("build_timeout", "run_timeout")
        if not (self.prune_factor == 0 or self.prune_factor > 1):
            raise ValueError(f"prune_factor must be more than 1, or 0 to repeat all, not {self.prune_factor}")

    def identity(self) -> dict[str, Any]:
        """The settings that decide the numbers which come out: the log's ``measure``."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name not in self.aside}

    def is_known(self, program: str, known: KnownPrograms, best: float) -> bool:
        """Whether ``known`` holds ``program``, repeated, or so slow that this run would prune it too.

        best: the least cost that the run has had so far, in seconds.
        """
        measured = known.get(program)
        return measured is not None and not (measured.pruned and not measured.cost > self.prune_factor * best)

    def for_worker(self) -> RunSettings:
        """These settings without those that a kind of measurement adds: what a worker process is sent."""
        return RunSettings(*(getattr(self, name) for name in RunSettings.__struct_fields__))

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def _more_than_0_seconds(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)}")
