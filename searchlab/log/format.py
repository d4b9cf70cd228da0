"""The append-only log of one run: JSON Lines, a header and then one line a trial, in order.

A run may end and be extended later. Where it ended, a line of another kind may follow: the fastest trials, measured
again. A log that is only read may be compressed, ``*.jsonl.gz``. Reading a log executes nothing that is in it.

:func:`scan` is the one reader: :func:`read_log` raises at the first problem that it finds, and
:func:`searchlab.log.repair.examine` collects all of them. :class:`~searchlab.log.writer.LogWriter` is the one writer.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from ..costmodel.quality import ModelQuality
from ..errors import SearchlabError
from ..plugins import Plugin
from ..records import Failure, Measurement, Trial
from ..space import Config
from ..workload import parse_workload

FORMAT = 1
_FIRST = b'{"searchlab_log":'
_FINAL = b'{"final":'


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
    machine: dict[str, Any] = {}
    """What else of the machine bears on its times, as the run began: see :func:`~searchlab.machine.host.machine`."""
    warm_start: tuple[str, ...] = ()
    """Digests of the logs it started from, in order."""
    label: str = ""
    space_label: str = ""
    space_size: int | None = None  # where the run counted its configs
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
    "host", "warm_start",
)  # fmt: skip


RENAMED = {"stop_factor": "prune_factor"}
"""Settings of measuring that the headers of logs of 0.1 hold by another name: that name, and today's."""


def in_todays_words(measure: Mapping[str, Any]) -> dict[str, Any]:
    """The ``measure`` of a header, with its settings by the names that they have today."""
    return {RENAMED.get(name, name): value for name, value in measure.items()}


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):  # it holds no cycle
    """One line: a trial, and the seconds the policy took to train and to propose it (its share of the batch).

    model: on the last record of a batch, how well the cost model that proposed it predicted it; None without one.
    sentinel: on the first record of some batches, the seconds that the run's first program took just before it.
    """

    index: int
    config: dict[str, Any]
    seconds: tuple[Annotated[float, msgspec.Meta(gt=0)], ...] = ()
    failure: Failure | None = None
    message: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    program: str = ""
    reused: bool = False
    nearest: bool = False
    pruned: bool = False
    stopped: bool = False  # what logs of 0.1 call pruned: it is read, and never written
    propose_seconds: float = 0.0
    train_seconds: float = 0.0
    time: float = 0.0
    model: ModelQuality | None = None
    sentinel: Annotated[float, msgspec.Meta(gt=0)] | None = None

    @classmethod
    def of(
        cls,
        trial: Trial,
        propose_seconds: float,
        train_seconds: float,
        model: ModelQuality | None = None,
        sentinel: float | None = None,
    ) -> Self:
        m = trial.measurement
        config = trial.config.to_json()
        config |= {name: list(v) for name, v in config.items() if isinstance(v, tuple)}  # as it is read
        return cls(
            index=trial.index, config=config, seconds=m.seconds, failure=m.failure, message=m.message,
            build_seconds=m.build_seconds, run_seconds=m.run_seconds, program=m.program, reused=m.reused,
            nearest=m.nearest, pruned=m.pruned, propose_seconds=round(propose_seconds, 7),
            train_seconds=round(train_seconds, 7), time=round(time.time(), 3), model=model, sentinel=sentinel,
        )  # fmt: skip

    @property
    def trial(self) -> Trial:
        return Trial(self.index, Config(self.config), self.measurement)

    @property
    def measurement(self) -> Measurement:
        return Measurement(
            self.seconds, self.failure, self.message, self.build_seconds, self.run_seconds, self.program, self.reused,
            self.nearest, self.pruned or self.stopped,
        )  # fmt: skip


class Finalist(msgspec.Struct, frozen=True):
    """A trial that was measured again: one value in ``seconds`` a round."""

    index: int
    seconds: tuple[Annotated[float, msgspec.Meta(gt=0)], ...]


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """A line after the ``final``-th trial: the fastest trials up to there, measured again, in turn."""

    final: int
    finalists: tuple[Finalist, ...]
    time: float = 0.0


@dataclass(frozen=True)
class Log:
    """A log as it was read."""

    path: Path
    header: Header
    records: tuple[Record, ...]
    final: Final | None = None
    """What the finalists of all these records gave; None where they were not measured again."""
    size: int = field(default=0, compare=False)
    """Bytes of its whole lines, unpacked."""

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


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a log: its number from 1, its bytes, and what it says; None where it is damaged.

    problem: what is wrong with it, in words that follow "line 3: "; empty where nothing is.
    torn: whether it is the last one, cut off by a kill.
    """

    number: int
    data: bytes
    item: Header | Record | Final | None
    problem: str = ""
    torn: bool = False


def scan(data: bytes) -> Iterator[Line]:
    """Every line of a log, whatever is wrong with it; none where ``data`` is empty."""
    *whole, rest = data.split(b"\n")
    expected = lost = 0  # the trial that should be next, and the damaged lines since the last: each may have been one
    decode = msgspec.json.Decoder(Record).decode
    for number, line in enumerate(whole, 1):
        if number == 1:
            yield _header(line)
            continue
        try:
            if line.startswith(_FINAL):
                final = msgspec.json.decode(line, type=Final)
                _check_final(final, expected)
                yield Line(number, line, final)
                continue
            record = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            lost += 1
            yield Line(number, line, None, f"it is damaged: {error}")
            continue
        problem = ""
        if not expected <= record.index <= expected + lost:
            problem = f"it is of trial {record.index} where {expected + lost} should be"
        expected, lost = record.index + 1, 0
        yield Line(number, line, record, problem)
    if rest:
        problem = "it is torn: it has no end; the run " + ("cuts it off when it goes on" if whole else "writes it anew")
        yield Line(len(whole) + 1, rest, None if whole else _header(rest).item, problem, torn=True)


def _header(line: bytes) -> Line:
    try:
        fields = msgspec.json.decode(line)
        version = fields.get("searchlab_log") if isinstance(fields, dict) else None
        if version is None:
            return Line(1, line, None, "it is no header: this is not a searchlab log, or its first line is lost")
        if version != FORMAT:
            return Line(1, line, None, f"its log format is {version!r}; this searchlab reads format {FORMAT}")
        header = msgspec.json.decode(line, type=Header)
        parse_workload(header.workload)
    except (msgspec.DecodeError, UnicodeDecodeError, SearchlabError) as error:
        return Line(1, line, None, f"the header is damaged: {error}")
    return Line(1, line, header)


def _check_final(final: Final, trials: int) -> None:
    """Raise msgspec.ValidationError where ``final`` cannot stand after so many trials."""
    if final.final != trials:
        raise msgspec.ValidationError(f"it is of {final.final} trials, and {trials} precede it")
    if not final.finalists or not all(0 <= one.index < trials and one.seconds for one in final.finalists):
        raise msgspec.ValidationError("it names no trial that precedes it, or no time of one")
    if len({len(one.seconds) for one in final.finalists}) > 1:
        raise msgspec.ValidationError("its trials were not measured in the same rounds")


def read_bytes(path: Path) -> bytes:
    """What the log at ``path`` holds, unpacked. Raises SearchlabError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SearchlabError(f"cannot read the log {path}: {error.strerror}") from None
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise SearchlabError(
            f"cannot read the log {path}: it is not whole as a gzip file ({error}); fetch it again"
        ) from None


def find_logs(path: Path) -> list[Path]:
    """The log at ``path``, or those under the directory that it is, ``*.jsonl`` and ``*.jsonl.gz``, in order."""
    if not path.is_dir():
        return [path]
    return sorted(log for log in path.rglob("*.jsonl*") if log.name.endswith((".jsonl", ".jsonl.gz")))


def read_header(path: str | Path) -> Header:
    """The header of the log at ``path``. Raises SearchlabError as :func:`read_log` does, but for damaged trials."""
    path = Path(path)
    first, ending, _ = read_bytes(path).partition(b"\n")
    return _decode(path, first + ending).header


def read_log(path: str | Path) -> Log:
    """The log at ``path``, without a last line that a kill tore. The log is not locked.

    Raises SearchlabError, naming the line, where it is unreadable, foreign or damaged.
    """
    path = Path(path)
    return _decode(path, read_bytes(path))


def read_held(path: Path) -> Log | None:
    """The log that a run at ``path`` goes on with; None where there is none, or no more than a torn header.

    The log is not locked. Raises SearchlabError where it is foreign or damaged.
    """
    if not path.is_file():
        return None
    data = read_bytes(path)
    if b"\n" not in data and (_FIRST.startswith(data) or data.startswith(_FIRST)):
        return None
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> Log:
    """What the bytes of the log at ``path`` say. Raises SearchlabError at the first problem."""
    if not data.startswith(_FIRST) and not _FIRST.startswith(data):
        raise SearchlabError(f"{path} is not a searchlab log: its first line does not start with {_FIRST.decode()}")
    header: Header | None = None
    records: list[Record] = []
    final: Final | None = None
    for line in scan(data):
        if line.problem:
            if line.torn:
                break
            raise SearchlabError(f"{path}, line {line.number}: {line.problem}")
        item = line.item
        if type(item) is Record:
            records.append(item)
        elif isinstance(item, Final):
            final = item
        else:
            header = item
    if header is None:
        raise SearchlabError(f"{path} holds no header yet; it is no log to read")
    final = final if final and final.final == len(records) else None
    return Log(path, header, tuple(records), final, data.rfind(b"\n") + 1)
