"""The contract for measurers, and the settings for building and timing programs on any device."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec

from ..arrays import Floats
from ..machine.host import host_model
from ..machine.lock import MACHINE
from ..options import Between, Megabytes, Milliseconds, Repeats, TimeLimit
from ..records import Measurement, Statistic, Trial
from ..schema import check_fields
from ..space import Config, Space
from ..target import Target

MeasurementsByProgram = MutableMapping[str, Measurement]
"""Measurements by program hash, all under the same conditions. These programs are not measured again."""

Conditions = bytes
"""The host, the target and the settings of measurements in JSON. Only equal conditions make times comparable."""


def encode_conditions(host: Mapping[str, Any], target: Mapping[str, Any], measure: Mapping[str, Any]) -> Conditions:
    """Return the conditions of measurements. The arguments are the fields of a log's header."""
    return msgspec.json.encode([host, target, measure], order="deterministic")


class CannotMeasure(Exception):
    """A program that was measured successfully before now fails. The message says how."""


@dataclass(frozen=True, eq=False)
class SpaceCosts:
    """The costs of all configs in a space that has been measured completely.

    Attributes:
        costs: The cost of each config in seconds, or infinity if it failed, shape (N,).
        weights: The relative frequency with which each config is drawn at random, shape (N,). The sum need not be 1.
    """

    costs: Floats
    weights: Floats

    @property
    def optimum(self) -> float:
        """The lowest cost."""
        return float(self.costs.min())


class Measurer(ABC):
    """A component that measures configs. It may own processes, and is therefore a context manager.

    Attributes:
        workers: The number of programs that are built in parallel.
        repeatable: Whether measuring a config again returns the same result immediately. If so, the log is not forced
            to disk.
    """

    workers: int = 1
    repeatable: bool = False
    _release_machine: Callable[[], object] | None = None  # releases the lock on this machine

    def begin(self, seed: int) -> None:
        """Prepare for a run with the given ``seed``."""

    @abstractmethod
    def measure(self, space: Space, configs: Sequence[Config], best_cost: float = math.inf) -> Iterator[Measurement]:
        """Yield each config's measurement, in order, as soon as it is available.

        A config's failure is reported as a Measurement. An exception means that the measurer itself has failed.

        Args:
            space: The space to which the configs belong.
            configs: The configs to measure.
            best_cost: The lowest cost in the run so far, in seconds. Programs that are much slower may be timed only
                once.
        """

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        """Return each config's ``features``, shape (d,), or None if this measurer has no workers to extract them."""
        return None

    def extract_seconds(self) -> float:
        """Return the CPU time in seconds that :meth:`extract` has used in worker processes, averaged over them."""
        return 0.0

    def program_hashes(self, space: Space, configs: Sequence[Config]) -> list[str] | None:
        """Return the hash of each config's program, "" for configs without one, or None without build processes."""
        return None

    def all_costs(self, space: Space) -> SpaceCosts | None:
        """Return the costs of all configs in ``space``, or None if they are unknown or every config fails.

        Repeated calls return the same object.
        """
        return None

    def acquire_machine(self) -> None:
        """Wait until no other process measures this machine, and keep it until this measurer is closed or deleted."""
        if self._release_machine is None:
            self._release_machine = weakref.finalize(self, MACHINE.acquire())

    def close(self) -> None:
        """End all processes. The measurer must not be used again."""
        if self._release_machine is not None:
            self._release_machine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Remeasurer(Measurer):
    """A measurer that can also time previously measured programs again.

    Attributes:
        sentinel_every: The interval, in batches, at which a run times its first working program again, or 0 for never.
        finalists: The maximum number of fastest programs to measure again at the end of a run.
    """

    sentinel_every: int = 0
    finalists: int = 0

    @abstractmethod
    def remeasure(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        """Time each trial's program once per round, and return the seconds for each trial and round.

        The programs take turns so that any drift in the machine's speed affects all of them.

        Raises:
            CannotMeasure: If one of the programs now fails.
        """


class MeasureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base class for the settings of a kind of measurement, specified under ``measure`` in a study file.

    In all methods, ``base_dir`` is the directory that relative paths start from.

    Attributes:
        exclusive: Whether this machine is measured, so that simultaneous runs would disturb each other.
        replays: Whether recorded measurements are returned instead of new ones.
        not_identity: The names of the settings that do not affect trials' measurements.
    """

    exclusive: ClassVar[bool] = False
    replays: ClassVar[bool] = False
    not_identity: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_fields(self)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the measurements; log headers record them as ``measure``."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in values.items() if name not in self.not_identity}

    def default_target(self, base_dir: Path = Path()) -> str | dict[str, Any]:
        """Return the target to use if none is specified, as :func:`~searchlab.target.resolve_target` accepts it."""
        return "native"

    def measurable_spaces(self, base_dir: Path = Path()) -> set[tuple[str, str]] | None:
        """Return the workload and space fingerprint of each run that can be measured, or None if all can."""
        return None

    def machine_name(self, target: Target, base_dir: Path = Path()) -> str:
        """Return the name of the measured machine, as in :attr:`Header.measured_on`, or "" if it is unknown."""
        return ", ".join(host_model(target.kind).values())

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> Measurer:
        """Create the measurer. Programs in ``measurements`` are not measured again."""
        raise NotImplementedError


class RunSettings(MeasureSettings, frozen=True):
    """The settings for building and timing programs on any device.

    Attributes:
        number: The number of executions per repeat.
        repeat: The number of repeats per program.
        min_repeat_ms: The minimum duration of a repeat, in milliseconds. The number of executions is increased until
            a repeat takes this long.
        prune_factor: A program is timed only once if its first time exceeds the best time of the run by more than this
            factor. Pass 0 to repeat all programs.
        build_timeout: The time limit for scheduling a program, and separately for compiling it, in seconds.
        run_timeout: The time limit for checking and timing a program, in seconds.
        check: Whether to compare each program's result with NumPy's.
        memory_limit_mb: The amount of memory that a candidate may use, in MB, or 0 for no limit. GPU memory does not
            count.
        workers: The number of build processes, or 0 for one per core.
        statistic: The statistic over the repeats that is used as a trial's cost.
        cache: Whether a program's arguments are in the caches from its previous execution (``"warm"``), or are removed
            before each execution (``"cold"``). On CPUs, the first argument always stays in the caches: in a model, the
            previous layer has just written it. If arguments are removed, ``min_repeat_ms`` includes the time for this.
        confirm: Whether a program that is faster than the run's best is timed once more, with as many repeats. All
            repeats count, so a program that was only lucky is not mistaken for the best.
    """

    number: Repeats = 1
    repeat: Repeats = 3
    min_repeat_ms: Milliseconds = 10
    prune_factor: Annotated[float, Between(0, 1e9)] = 3.0
    build_timeout: TimeLimit = 15.0
    run_timeout: TimeLimit = 15.0
    check: bool = True
    memory_limit_mb: Megabytes = 4096
    workers: Annotated[int, Between(0, 1024)] = 0
    statistic: Statistic = "median"
    cache: Literal["warm", "cold"] = "warm"
    confirm: bool = False

    not_identity: ClassVar[tuple[str, ...]] = ("workers",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.prune_factor == 0 or self.prune_factor > 1):
            raise ValueError(f"prune_factor must be more than 1, or 0 to repeat all programs, not {self.prune_factor}")

    def is_known(self, program_hash: str, measurements: MeasurementsByProgram, best_cost: float) -> bool:
        """Check whether ``measurements`` contains a measurement of a program that this run can use.

        A pruned measurement can be used only if this run would also prune the program, given ``best_cost``, the run's
        lowest cost so far, and one that is to be confirmed only if another run has done so.
        """
        measurement = measurements.get(program_hash)
        if measurement is None or (measurement.pruned and not measurement.cost > self.prune_factor * best_cost):
            return False
        return len(measurement.seconds) > self.repeat or not self.is_confirmed(measurement.cost, best_cost)

    def is_confirmed(self, cost: float, best_cost: float) -> bool:
        """Check whether a program with this ``cost`` is timed once more, given the run's lowest cost so far."""
        return self.confirm and cost < best_cost < math.inf

    def for_worker(self) -> RunSettings:
        """Return only the settings that a worker process needs, namely those that all kinds of measurement share."""
        return RunSettings(*(getattr(self, name) for name in RunSettings.__struct_fields__))
