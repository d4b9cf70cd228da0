"""Measuring configs: the contract, and the settings of each kind of measurer as a study file spells them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from ..errors import SearchlabError
from ..records import Measurement, Trial
from ..space import Config, Space
from ..target import Target, available_cores

Cache = MutableMapping[str, Measurement]
"""Measurements by program hash, of one target and one protocol: what need not be measured again."""


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """How programs are built and timed, wherever they run.

    A program is run ``number`` times a repeat, more often where that takes less than ``min_repeat_ms``, and
    ``repeat`` times over. One whose first reading is more than ``stop_factor`` times the best of its run so far is not
    repeated; 0 repeats all. Timeouts are in seconds. A candidate may take ``memory_limit_mb`` of memory, no matter how
    much if 0; of the memory of a GPU it may take all. ``workers`` build processes, or one a core if 0.
    """

    number: int = 1
    repeat: int = 3
    min_repeat_ms: int = 10
    stop_factor: float = 3.0
    build_timeout: float = 15.0
    run_timeout: float = 15.0
    check: bool = True
    memory_limit_mb: int = 4096
    workers: int = 0

    def __post_init__(self) -> None:
        self._at_least(1, "number", "repeat")
        self._at_least(0, "min_repeat_ms", "memory_limit_mb", "workers")
        self._more_than_0_seconds("build_timeout", "run_timeout")
        if not (self.stop_factor == 0 or self.stop_factor > 1):
            raise ValueError(f"stop_factor must be more than 1, or 0 to repeat all, not {self.stop_factor}")

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def _more_than_0_seconds(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)}")


class LocalSettings(RunSettings, frozen=True, tag="local"):
    """Measure in worker processes on this machine.

    The first program of a run that runs is timed again every ``sentinel`` batches, and at the end of a run the fastest
    ``finalists`` are, in turn; 0 leaves that out. Neither touches the measurements of trials.
    """

    sentinel: int = 4
    finalists: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "sentinel", "finalists")


class RpcSettings(RunSettings, frozen=True, kw_only=True, tag="rpc"):
    """Measure on the devices that are registered as ``key`` at TVM's RPC tracker at ``tracker``, ``"host:port"``.

    A device has ``connect_timeout`` seconds to take a connection and the inputs of a program, and only then the time of
    that begins; what waits for a device is not timed. Where a device vanishes, the trial is given to another, up to
    ``retries`` times; where none has been at the tracker for ``device_timeout`` seconds, the run ends. ``cc`` is the
    compiler that links a program for a device that can only load a shared library: one of this machine if "".
    """

    tracker: str
    key: str
    connect_timeout: float = 10.0
    device_timeout: float = 60.0
    retries: int = 3
    cc: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(0, "retries")
        self._more_than_0_seconds("connect_timeout")
        if self.device_timeout < 0:
            raise ValueError(f"device_timeout must be at least 0 seconds, not {self.device_timeout}")
        if self.key.split() != [self.key]:
            raise ValueError(f"key must be one word, the key that the devices are registered as, not {self.key!r}")
        host, _, port = self.tracker.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"tracker must be host:port, as 10.0.0.1:9190, not {self.tracker!r}")


class TableSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="table", omit_defaults=True
):
    """Answer from recorded logs: a file, a directory of logs, or several of them, relative to the study file.

    A config that they do not hold is refused, or answered by the ``nearest`` one that they do; with ``noise`` the
    repeats of a measurement are drawn anew from those recorded, from the seed of the run.
    """

    path: str | list[str]
    missing: Literal["refuse", "nearest"] = "refuse"
    noise: bool = False

    def paths(self, base: Path) -> list[Path]:
        return [base / path for path in ([self.path] if isinstance(self.path, str) else self.path)]


Settings = LocalSettings | RpcSettings | TableSettings

_ASIDE = (
    *("workers", "sentinel", "finalists"),
    *("tracker", "connect_timeout", "device_timeout", "retries", "cc"),
)
"""Settings that change no measurement of a trial."""


class CannotMeasure(Exception):
    """A program that was measured before fails now; the text says how."""


class Measurer(ABC):
    """Measures configs; a context manager, since it may hold processes."""

    workers: int = 1
    """How many programs are built at the same time."""

    repeatable: bool = False
    """Whether measuring again gives the same, at once: such a log need not survive a failure of the machine."""

    sentinel: int = 0
    """Every how many batches a run shall have its first program timed again, by :meth:`again`; 0 for never."""

    finalists: int = 0
    """How many of its fastest programs a run shall have measured again at its end, by :meth:`again`."""

    def begin(self, seed: int) -> None:
        """A run from ``seed`` is about to be measured."""

    @abstractmethod
    def measure(self, space: Space, configs: Sequence[Config], best: float = math.inf) -> Iterator[Measurement]:
        """One measurement a config, in order, each as soon as it is there.

        best: the least cost that the run has had so far, in seconds; what is much slower need not be measured well.
        A failure of the config is a Measurement; an exception is a failure of the measurer.
        """

    def again(self, space: Space, trials: Sequence[Trial], rounds: int) -> list[tuple[float, ...]]:
        """Seconds of each trial's program, timed once more in each of ``rounds``: in turn, so that drift hits all.

        Of a measurer with a ``sentinel`` or ``finalists``. Raises CannotMeasure where one of them fails now.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of every process; the measurer is not used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def protocol(settings: Settings) -> dict[str, Any]:
    """What of ``settings`` decides the numbers that come out: the log's ``measure``."""
    fields: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: value for name, value in fields.items() if name not in _ASIDE}


def default_target(settings: Settings, base: Path = Path()) -> str | dict[str, Any]:
    """What :func:`~searchlab.target.resolve_target` is given where no target is: this machine, or a table's own."""
    if isinstance(settings, TableSettings):
        from .table import table_target

        return table_target(settings.paths(base))
    if isinstance(settings, RpcSettings):
        raise SearchlabError(
            f"measuring on the devices {settings.key!r} needs a target, which says what they are: an LLVM CPU as "
            f'"cortex-a72", or {{"kind": "llvm", "mtriple": ..., "mcpu": ..., "num-cores": ...}}; "native" for those '
            f"that are as this machine"
        )
    return "native"


def make_measurer(settings: Settings, target: Target, cache: Cache, base: Path = Path()) -> Measurer:
    """The measurer for ``settings``; ``base`` is what a table's relative path starts from."""
    if isinstance(settings, TableSettings):
        from .table import TableMeasurer

        return TableMeasurer(settings.paths(base), settings.missing, settings.noise)
    if isinstance(settings, RpcSettings):
        from .rpc.measurer import RpcMeasurer

        return RpcMeasurer(settings, target, cache, settings.workers or available_cores())
    from .local import LocalMeasurer

    return LocalMeasurer(settings, target, cache, settings.workers or available_cores())
