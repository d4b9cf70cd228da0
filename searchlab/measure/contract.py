"""The contract of measurers, and the settings of building and timing programs on any device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import msgspec

from ..arrays import Floats
from ..records import Measurement, Statistic, Trial
from ..space import Config, Space

KnownPrograms = MutableMapping[str, Measurement]
"""Measurements by program hash, for one target and one protocol. These programs are not measured again."""


class CannotMeasure(Exception):
    """A program that has been measured before fails now; the text says how."""


@dataclass(frozen=True, eq=False)
class Whole:
    """A space in which every config has been measured.

    Attributes:
        costs: The cost of each config in seconds, infinity for a failure; shape (N,).
        weights: The relative frequency of each config in a random draw; shape (N,). They need not sum to 1.
    """

    costs: Floats
    weights: Floats


class Measurer(ABC):
    """Measures configs. It may hold processes, so it is a context manager.

    Attributes:
        workers: The number of programs that are built at the same time.
        repeatable: Whether measuring again returns the same result at once. Such a log is not forced to disk.
    """

    workers: int = 1
    repeatable: bool = False

    def begin(self, seed: int) -> None:
        """Prepare for a run with this ``seed``."""

    @abstractmethod
    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        """Yield the measurement of each config, in order, as soon as it is available.

        A failure of a config is a Measurement; an exception is a failure of the measurer.

        Args:
            space: The space of the configs.
            configs: The configs to measure.
            best: The lowest cost of the run so far, in seconds. A program that is much slower need not be repeated.
        """

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        """Return the ``features`` of each config, shape (d,), extracted by idle build workers if there are any."""
        return None

    def extract_seconds(self) -> float:
        """Return the CPU time of :meth:`extract` in other processes, divided by the number of those that shared it."""
        return 0.0

    def whole(self, space: Space) -> Whole | None:
        """Return the costs of all configs of ``space``, always the same object.

        None if they are not known, or if every config fails.
        """
        return None

    def optimum(self, space: Space) -> float | None:
        """Return the lowest cost in ``space``, in seconds; None as for :meth:`whole`."""
        whole = self.whole(space)
        return float(whole.costs.min()) if whole else None

    def close(self) -> None:
        """End all processes. The measurer must not be used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Remeasurer(Measurer):
    """A measurer that can also time programs again that it has already measured.

    Attributes:
        sentinel: A run times its first program again every so many batches; never if 0.
        finalists: The number of fastest programs that a run measures again at its end.
    """

    sentinel: int = 0
    finalists: int = 0

    @abstractmethod
    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        """Time each trial's program once more in each round; return the seconds per trial and round.

        The programs take turns, so that a drift of the machine affects all of them.

        Raises:
            CannotMeasure: If one of the programs fails now.
        """


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """How programs are built and timed, on any device.

    Attributes:
        number: Executions per repeat.
        repeat: Repeats per program.
        min_repeat_ms: The minimum length of a repeat in milliseconds; shorter repeats get more executions.
        prune_factor: A program whose first time exceeds the best of its run by this factor is not repeated. 0 repeats
            all programs.
        build_timeout: Time limit of scheduling a program, and of compiling it, in seconds.
        run_timeout: Time limit of checking and timing a program, in seconds.
        check: Whether the result of each program is compared with numpy's.
        memory_limit_mb: Memory that a candidate may take, in MB; no limit if 0. GPU memory does not count.
        workers: The number of build processes; one per core if 0.
        statistic: The statistic of the repeats that is used as the cost of a trial.
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

    aside: ClassVar[tuple[str, ...]] = ("workers",)  # settings that affect no measurement of a trial
    replays: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        self._at_least(1, "number", "repeat")
        self._at_least(0, "min_repeat_ms", "memory_limit_mb", "workers")
        self._more_than_0_seconds("build_timeout", "run_timeout")
        if not (self.prune_factor == 0 or self.prune_factor > 1):
            raise ValueError(f"prune_factor must be more than 1, or 0 to repeat all programs, not {self.prune_factor}")

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the measurements: ``measure`` in the header of a log."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in fields.items() if name not in self.aside}

    def measurable(self, base: Path = Path()) -> None:
        return None

    def is_known(self, program: str, known: KnownPrograms, best: float) -> bool:
        """Return whether ``known`` contains a measurement of ``program`` that this run can use.

        A pruned measurement can be used if the run would prune the program too: ``best`` is its lowest cost so far.
        """
        measured = known.get(program)
        return measured is not None and not (measured.pruned and not measured.cost > self.prune_factor * best)

    def for_worker(self) -> RunSettings:
        """Return the settings that a worker process needs: those that all kinds of measurement share."""
        return RunSettings(*(getattr(self, name) for name in RunSettings.__struct_fields__))

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def _more_than_0_seconds(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)}")
