"""The append-only log of one run: JSON Lines, a header and then one line a trial, in order.

Reading a log executes nothing that is in it.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from .errors import SearchlabError
from .records import Failure, Measurement, Trial
from .space import Config
from .workload import parse_workload

FORMAT = 1
_FIRST = b'{"searchlab_log":'


class Plugin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A space, policy or cost model by name, with the options it was given."""

    name: str
    options: dict[str, Any] = {}

    def spelled(self) -> Plugin:
        """As a log can hold it, a function as ``"module:name"``. Raises SearchlabError for what has no spelling."""
        spelled = {
            name: f"{value.__module__}:{value.__qualname__}" if callable(value) else value
            for name, value in self.options.items()
        }
        try:
            return Plugin(self.name, msgspec.to_builtins(spelled))
        except TypeError as error:
            raise SearchlabError(f"the options of {self.name!r} must be plain values or functions: {error}") from None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is. ``IDENTITY`` must agree for a log to be resumed; the rest is there to judge it by."""

    searchlab_log: int = FORMAT
    workload: str
    space: Plugin
    fingerprint: str
    policy: Plugin
    cost_model: Plugin | None = None
    features: str = "knob"
    seed: int
    batch: int
    target: dict[str, Any]
    measure: dict[str, Any]
    host: dict[str, Any] = {}
    label: str = ""
    space_label: str = ""
    workers: Annotated[int, msgspec.Meta(ge=1)] = 1
    versions: dict[str, str] = {}
    created: float = 0.0

    @property
    def name(self) -> str:
        """What pictures and tables call this run's strategy."""
        return self.label or self.policy.name

    @property
    def space_name(self) -> str:
        """What they call its space."""
        return self.space_label or self.space.name


IDENTITY = (
    "workload", "space", "fingerprint", "policy", "cost_model", "features", "seed", "batch", "target", "measure",
    "host",
)  # fmt: skip


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a trial, and the seconds the policy took to train and to propose it (its share of the batch)."""

    index: int
    config: dict[str, Any]
    seconds: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()
    failure: Failure | None = None
    message: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    program: str = ""
    reused: bool = False
    propose_seconds: float = 0.0
    train_seconds: float = 0.0
    time: float = 0.0

    @classmethod
    def of(cls, trial: Trial, propose_seconds: float, train_seconds: float) -> Self:
        m = trial.measurement
        return cls(
            index=trial.index, config=trial.config.to_json(), seconds=m.seconds, failure=m.failure, message=m.message,
            build_seconds=m.build_seconds, run_seconds=m.run_seconds, program=m.program, reused=m.reused,
            propose_seconds=propose_seconds, train_seconds=train_seconds, time=time.time(),
        )  # fmt: skip

    @property
    def trial(self) -> Trial:
        return Trial(self.index, Config(self.config), self.measurement)

    @property
    def measurement(self) -> Measurement:
        return Measurement(
            self.seconds, self.failure, self.message, self.build_seconds, self.run_seconds, self.program, self.reused
        )


@dataclass(frozen=True)
class Log:
    """A log as it was read."""

    path: Path
    header: Header
    records: tuple[Record, ...]

    @cached_property
    def trials(self) -> list[Trial]:
        return [record.trial for record in self.records]

    @cached_property
    def costs(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Median seconds of each trial, infinity where it failed: shape (trials,)."""
        return np.array([record.measurement.cost for record in self.records], dtype=np.float64)

    @cached_property
    def elapsed(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds charged up to the end of each trial: training, proposing, running, and building on all workers.

        A reused measurement is charged at its recorded time, so that nobody gains from going second.
        """
        return np.cumsum([
            r.train_seconds + r.propose_seconds + r.build_seconds / self.header.workers + r.run_seconds
            for r in self.records
        ])  # fmt: skip

    @cached_property
    def flops(self) -> int:
        return parse_workload(self.header.workload).flops


def _split(path: Path, data: bytes) -> tuple[list[bytes], int]:
    """The whole lines of a log, and how many bytes they are; what follows them was torn by a kill."""
    if not data.startswith(_FIRST) and not _FIRST.startswith(data):
        raise SearchlabError(f"{path} is not a searchlab log: its first line does not start with {_FIRST.decode()}")
    whole = data.rfind(b"\n") + 1
    return data[:whole].splitlines(), whole


def _decode(path: Path, lines: list[bytes]) -> tuple[Header, tuple[Record, ...]]:
    version = msgspec.json.decode(lines[0], type=dict[str, Any]).get("searchlab_log") if _is_json(lines[0]) else None
    if version is not None and version != FORMAT:
        raise SearchlabError(f"{path} has log format {version}; this searchlab reads format {FORMAT}")
    records: list[Record] = []
    number = 1
    try:
        header = msgspec.json.decode(lines[0], type=Header)
        decoder = msgspec.json.Decoder(Record)
        for number, line in enumerate(lines[1:], 2):
            record = decoder.decode(line)
            if record.index != len(records):
                raise SearchlabError(f"{path}, line {number}: trial {record.index} where {len(records)} should be")
            records.append(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SearchlabError(f"{path}, line {number} is damaged: {error}") from None
    return header, tuple(records)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except msgspec.DecodeError:
        return False


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SearchlabError(f"cannot read the log {path}: {error.strerror}") from None


def read_log(path: str | Path) -> Log:
    """The log at ``path``, without a last line that a kill tore.

    Raises SearchlabError, naming the line, where it is unreadable, foreign or damaged.
    """
    path = Path(path)
    lines, _ = _split(path, _read_bytes(path))
    if not lines:
        raise SearchlabError(f"{path} holds no header yet; it is no log to read")
    return Log(path, *_decode(path, lines))


class LogWriter:
    """A log open for appending by this process alone; made where it does not exist.

    ``records`` is what it held already. Raises SearchlabError for a foreign or damaged log, one that another
    process writes, or one of a run that differs from ``header`` in anything of ``IDENTITY``.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b", buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise SearchlabError(f"cannot write the log {self.path}: {error.strerror}") from None
        try:
            self._open(header)
        except BaseException:
            self._file.close()
            raise

    def _open(self, header: Header) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SearchlabError(f"another process is writing {self.path}; wait for it or choose another log") from None
        lines, whole = _split(self.path, _read_bytes(self.path))
        if lines:
            self.header, self.records = _decode(self.path, lines)
            _check_identity(self.path, self.header, header)
            self._file.truncate(whole)
        else:
            self._file.truncate(0)
            self.header, self.records = header, ()
            self._write(header)
            self.sync()

    def append(self, record: Record) -> None:
        self._write(record)

    def _write(self, item: Header | Record) -> None:
        line = msgspec.json.encode(item) + b"\n"
        try:
            while line:  # an unbuffered write may be short
                line = line[self._file.write(line) :]
        except OSError as error:
            raise SearchlabError(
                f"cannot write the log {self.path}: {error.strerror}; free space and run again"
            ) from None

    def sync(self) -> None:
        """Force what was appended to the disk: called once a batch."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _check_identity(path: Path, old: Header, new: Header) -> None:
    for name in IDENTITY:
        before, now = (msgspec.to_builtins(getattr(header, name)) for header in (old, new))
        if before != now:
            raise SearchlabError(
                f"{path} is the log of another run: its {name} is {_shown(before)}, not {_shown(now)}; "
                f"choose another log file, or ask for what this one was made with"
            )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
