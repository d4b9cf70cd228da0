"""The append-only log of one run: JSON Lines, a header and then a line for each trial, in order.

A run may end and be extended later. After its last trial lines of other kinds may follow: why the run ended, though it
might have had more trials, as when its policy had nothing more to propose; and the fastest trials, measured again. A
log that is only read may be compressed, ``*.jsonl.gz``. Reading a log executes nothing that it holds.

All readers use :func:`scan`: :func:`read_log` raises at the first problem, and :func:`searchlab.log.writer.examine`
collects all problems. Only :class:`~searchlab.log.writer.LogWriter` writes.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from ..arrays import Floats, Ints
from ..console import one_line
from ..costmodel.quality import ModelQuality
from ..errors import SearchlabError
from ..plugins import Plugin
from ..records import Failure, Measurement, Statistic, Trial, cost_of
from ..schema import UNREADABLE
from ..space import Config
from ..workload import parse_workload

FORMAT = "1.0"
"""The version of the log format: see docs/design/log-format.md."""

DRAFT = 1
"""The format before 1.0, in which the tables of suite v1 are sealed: its lines have no ``kind`` and no ``batch``."""
TABLE = "table"
"""The label of the runs that measure every config of a table."""


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """How the programs of a table were timed: all of them in each of ``count`` passes, in another random order.

    Times are in seconds, and times of day count from the beginning of the first pass.
    sentinel: for each block of ``block`` programs, when it was timed, and the median seconds of one program that was
        timed between them. again: the number of blocks that were timed again, since the sentinel deviated.
    finalists, rounds: the number of the fastest programs that were timed again, in turn, and of the rounds.
    """

    count: int
    block: int
    sentinel: tuple[tuple[float, float], ...]
    again: int = 0
    finalists: int = 0
    rounds: int = 0


class RandomDraws(msgspec.Struct, frozen=True):
    """What random draws find in a space of which a complete table holds every config, in logarithms of seconds.

    expected: of the lowest latency after 1, 2, ... draws. median: of the configs that work, as often as they are drawn.
    slowest: of the slowest config that works.
    """

    expected: tuple[float, ...]
    median: float
    slowest: float


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """Facts about a run. Those in ``IDENTITY`` must be the same when the run resumes."""

    searchlab_log: str | int = FORMAT
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
    """Other facts about the machine as the run began: see :func:`~searchlab.machine.host.machine`."""
    starts: str = ""
    """What is drawn with the seed, so that the run has a start of its own; empty where all share what a seed draws."""
    warm_start: tuple[str, ...] = ()
    """Digests of the logs that the run started from, in order."""
    label: str = ""
    space_label: str = ""
    space_size: int | None = None  # None if its configs were not counted
    optimum: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The least cost of any config of the space, in seconds, if a complete table answered; None if it is not known."""
    random: RandomDraws | None = None
    """What random search finds in as many trials as the run was to have, if a complete table answered."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """The pairs of strategies, by name, whose comparison the study had registered when the run began."""
    effective: dict[str, Any] = {}
    """Options of the policy whose value it could not use, defaults too, with the values that it used."""
    workers: Annotated[int, msgspec.Meta(ge=1)] = 1
    versions: dict[str, str] = {}
    created: Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)] = 0.0  # a clock may be wrong
    passes: Passes | None = None
    """How a table was timed; None for the log of a run."""

    @property
    def name(self) -> str:
        """The name of this run's strategy in pictures and tables."""
        return one_line(self.label or self.policy.name)

    @property
    def is_table(self) -> bool:
        """Whether `searchlab table build` made the log."""
        return self.label == TABLE or self.passes is not None

    @property
    def table(self) -> str:
        """The name of the table of a suite that answered, without the version of the suite; empty if none did."""
        return str(self.measure.get("name", "")).rpartition("/")[2]

    @property
    def measured_on(self) -> str:
        """The machine that was measured: its CPU, and its GPU; of a fleet the key of its devices; else empty."""
        return one_line(", ".join(map(str, self.host.values())) or str(self.measure.get("key", "")))

    @property
    def space_name(self) -> str:
        """The name of its space there."""
        return one_line(self.space_label or self.space.name)


IDENTITY = (
    "workload", "space", "target", "fingerprint", "policy", "cost_model", "features", "seed", "batch", "measure",
    "host", "warm_start", "starts",
)  # fmt: skip


def batch_starts(batches: Ints, lengths: Sequence[int]) -> list[int]:
    """The places of the first trials of all batches.

    Args:
        batches: The number of the batch of each trial, shape (trials,).
        lengths: The number of trials of each run.
    """
    begins = np.zeros(len(batches) + 1, dtype=np.bool_)
    begins[np.cumsum(lengths) - lengths] = True  # of an empty run, where the next run begins
    begins[1:-1] |= batches[1:] != batches[:-1]
    starts: list[int] = np.flatnonzero(begins[:-1]).tolist()
    return starts


def charged(spent: Floats, starts: Sequence[int], workers: Sequence[int], lengths: Sequence[int]) -> Floats:
    """Seconds charged for proposing, training, building and running each trial: shape (trials, 4).

    spent: the seconds that these took. starts: see :func:`batch_starts`. workers: of each run. A batch is built by at
    most as many workers as it has programs; the seconds of building are divided by their number.
    """
    sizes = np.diff(np.append(np.asarray(starts, dtype=np.int64), len(spent)))
    charges = spent.copy()
    charges[:, 2] /= np.minimum(_of_each_trial(workers, lengths), np.repeat(sizes, sizes))
    return charges


def _of_each_trial(numbers: Sequence[int], lengths: Sequence[int]) -> Ints:
    """A number of each run, for each of its trials. A log may say any number; one for all its trials is enough."""
    bounded = [number if 0 < number < trials else trials for number, trials in zip(numbers, lengths, strict=True)]
    return np.repeat(np.array(bounded, dtype=np.int64), lengths)


_Measured = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)]
"""Seconds of one execution. Beyond these bounds it is not a plausible time, and arithmetic would overflow."""

_Spent = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
"""Seconds that something else took."""

SPENT = ("propose_seconds", "train_seconds", "build_seconds", "run_seconds", "connect_seconds")
"""The fields of a record that hold seconds of this kind."""

_Scalar = bool | int | float | str | None

ConfigJson = dict[str, _Scalar | list[_Scalar]]
"""A config as a log has it."""

GAIN = 0.01
"""How much higher the best throughput must be, as a share, to count as a gain where a run stops without one."""

STARTS = (b'{"kind":"header","searchlab_log":', b'{"searchlab_log":')
"""How a log begins; the second is that of the draft."""

UNPACK = "SEARCHLAB_UNPACK_MB"
"""The environment variable that says how large a file may be that was compressed."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="kind", tag="trial"
):  # it holds no cycle
    """One line: a trial, and its share of the seconds that the policy took to train and to propose the batch.

    batch: the number of its batch, from 0; None in the draft of the format, where every batch has as many trials as the
    policy was asked for.
    model: on the last record of a batch, how well the cost model predicted the batch; None without a cost model.
    sentinel: on the first record of some batches, the seconds that the run's first program took before the batch.
    at: of a table that was timed in passes, when each of the seconds was read, from the beginning of the first pass.
    statistic: of the seconds, which is the cost; the same on all lines of a run, as the ``measure`` of its header says.
    """

    index: int
    batch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] | None = None
    config: ConfigJson
    seconds: tuple[_Measured, ...] = ()
    at: tuple[float, ...] = ()
    failure: Failure | None = None
    message: str = ""
    build_seconds: _Spent = 0.0
    run_seconds: _Spent = 0.0
    connect_seconds: _Spent = 0.0
    program: str = ""
    reused: bool = False
    nearest: bool = False
    pruned: bool = False
    statistic: Statistic = "median"
    propose_seconds: _Spent = 0.0
    train_seconds: _Spent = 0.0
    time: float = 0.0
    model: ModelQuality | None = None
    sentinel: _Measured | None = None

    @classmethod
    def of(
        cls,
        trial: Trial,
        propose_seconds: float,
        train_seconds: float,
        model: ModelQuality | None = None,
        sentinel: float | None = None,
        batch: int | None = None,
    ) -> Self:
        m = trial.measurement
        config = trial.config.to_json()
        config |= {name: list(v) for name, v in config.items() if isinstance(v, tuple)}  # as it is read
        return cls(
            index=trial.index, batch=batch, config=config, seconds=m.seconds, failure=m.failure, message=m.message,
            build_seconds=m.build_seconds, run_seconds=m.run_seconds, program=m.program, reused=m.reused,
            nearest=m.nearest, pruned=m.pruned, statistic=m.statistic, propose_seconds=round(propose_seconds, 7),
            train_seconds=round(train_seconds, 7), connect_seconds=m.connect_seconds, time=round(time.time(), 3),
            model=model, sentinel=sentinel,
        )  # fmt: skip

    @property
    def cost(self) -> float:
        """The cost of the trial: see :attr:`~searchlab.records.Measurement.cost`."""
        return cost_of(self.seconds, self.failure, self.statistic)

    @property
    def trial(self) -> Trial:
        return Trial(self.index, Config(self.config), self.measurement)

    @property
    def measurement(self) -> Measurement:
        return Measurement(
            self.seconds, self.failure, self.message, self.build_seconds, self.run_seconds, self.program, self.reused,
            self.nearest, self.pruned, self.statistic, self.connect_seconds,
        )  # fmt: skip


class Finalist(msgspec.Struct, frozen=True):
    """A trial that was measured again: ``seconds`` has one value for each round."""

    index: int
    seconds: tuple[_Measured, ...]


class Final(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finalists"):
    """The line after a number of ``trials``: the fastest of them, measured again in turn."""

    trials: int
    finalists: tuple[Finalist, ...]
    time: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="ended"):
    """The line after a number of ``trials``: the run ended there, though it might have had more trials.

    seconds, stop_after: the part of its budget that was spent; see :class:`~searchlab.log.plan.Budget`. Without
    either, the policy was asked for more, and had nothing more to propose: the space is exhausted, or the strategy
    stops by itself.
    """

    trials: int
    time: float = 0.0
    seconds: float | None = None
    stop_after: int | None = None

    @property
    def by_policy(self) -> bool:
        """Whether the policy ended the run, and no budget: then it has no more trials, whatever the budget."""
        return self.seconds is None and self.stop_after is None

    @property
    def reason(self) -> str:
        """Why the run ended, a clause."""
        if self.seconds is not None:
            return f"the budget of {self.seconds:g} seconds was spent"
        if self.stop_after is not None:
            return f"{self.stop_after} trials had brought no gain over {100 * GAIN:g} %"
        return "the policy had nothing more to propose"


ITEMS = msgspec.json.Decoder(Record | Final | Ended)
"""Reads a line after the header."""

DRAFT_RECORD = msgspec.json.Decoder(Record)
"""Reads such a line of the draft, which has only trials: alone, a struct needs no ``kind``."""


@dataclass(frozen=True)
class Log:
    """The content of a log."""

    path: Path
    header: Header
    records: tuple[Record, ...]
    final: Final | None = None
    """The finalists of all these records; None if they were not measured again."""
    ended: Ended | None = None
    """Why the run ended after these records; None if it did not, or if it had all trials of its budget."""
    size: int = field(default=0, compare=False)
    """Bytes of its complete lines, uncompressed."""

    def __repr__(self) -> str:
        return f"<Log {self.path.name}: {len(self.records)} trials>"

    @cached_property
    def trials(self) -> list[Trial]:
        return [record.trial for record in self.records]

    @cached_property
    def costs(self) -> Floats:
        """Cost of each trial in seconds, infinity if it failed: shape (trials,)."""
        return np.array([record.cost for record in self.records], dtype=np.float64)

    @cached_property
    def charged(self) -> Floats:
        """See :func:`~searchlab.log.format.charged`: shape (trials, 4).

        A reused measurement is charged at its recorded time, so that the second run has no advantage.
        """
        spent = [(r.propose_seconds, r.train_seconds, r.build_seconds, r.run_seconds) for r in self.records]
        array = np.array(spent, dtype=np.float64).reshape(-1, 4)
        return charged(array, self.starts, [self.header.workers], [len(self.records)])

    @cached_property
    def starts(self) -> list[int]:
        """Where its batches begin: see :func:`~searchlab.log.format.batch_starts`."""
        return batch_starts(batch_numbers(self.records, self.header.batch), [len(self.records)])

    @cached_property
    def sentinels(self) -> Floats:
        """The reading of the sentinel before each trial, NaN where there is none: shape (trials,)."""
        return np.array([record.sentinel for record in self.records], dtype=np.float64)  # None becomes NaN

    @cached_property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial: shape (trials,)."""
        return np.cumsum(self.charged.sum(axis=1))

    @cached_property
    def flops(self) -> int:
        return parse_workload(self.header.workload).flops

    @cached_property
    def unit(self) -> str:
        """The unit of throughputs: see :attr:`~searchlab.workload.Workload.unit`."""
        return parse_workload(self.header.workload).unit

    def first(self, trials: int, ended: Ended | None = None) -> Self:
        """Its first ``trials``, fewer than it has. ended: why the run ended there."""
        return replace(self, records=self.records[:trials], final=None, ended=ended)


def batch_numbers(records: Sequence[Record], size: int) -> Ints:
    """The number of the batch of each of ``records``: shape (records,).

    Args:
        records: Trials of one run.
        size: The most trials of a batch, as the header has it; a header may hold any number.
    """
    size = size if 0 < size < len(records) else 1 + max((record.index for record in records), default=0)
    numbers = [record.index // size if record.batch is None else record.batch for record in records]
    return np.array(numbers, dtype=np.int64)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a log: its number from 1, its bytes, and its content (None if it is damaged).

    problem: what is wrong with the line, as a text that follows "line 3: "; empty if nothing is wrong.
    torn: whether it is the last line, cut off when the run was killed.
    """

    number: int
    data: bytes
    item: Header | Record | Final | Ended | None
    problem: str = ""
    torn: bool = False


def scan(data: bytes, first: int = 1, trials: int = 0) -> Iterator[Line]:
    """Every line of a log, with its problem if it has one.

    first, trials: the number of the first line of ``data``, and of the trials before it, if these were read before.
    """
    *whole, rest = data.split(b"\n")
    expected, lost = trials, 0  # index of the next trial; damaged lines before it, each of which may have been a trial
    batch = -1
    decode = ITEMS.decode
    for number, line in enumerate(whole, first):
        if number == 1:
            header = _header(line)
            if isinstance(header.item, Header) and header.item.searchlab_log == DRAFT:
                decode = DRAFT_RECORD.decode
            yield header
            continue
        try:
            item = decode(line)
            if not isinstance(item, Record):
                check_follows(item, expected)
                yield Line(number, line, item)
                continue
        except UNREADABLE as error:
            lost += 1
            yield Line(number, line, None, f"it is damaged: {error}")
            continue
        problem = ""
        if not expected <= item.index <= expected + lost:
            problem = f"it holds trial {item.index} instead of trial {expected + lost}"
        elif item.batch is not None and item.batch < batch:
            problem = f"its batch is {item.batch}, after batch {batch}"
        expected, lost, batch = item.index + 1, 0, max(batch, item.batch or 0)
        yield Line(number, line, item, problem)
    if rest:
        number = first + len(whole)
        problem = "it is torn: its end is missing; the run " + (
            "drops it when it resumes" if number > 1 else "rewrites it"
        )
        yield Line(number, rest, None if number > 1 else _header(rest).item, problem, torn=True)


def _header(line: bytes) -> Line:
    try:
        fields = msgspec.json.decode(line)
        version = fields.get("searchlab_log") if isinstance(fields, dict) else None
        if version is None:
            return Line(1, line, None, "it is no header: the file is not a searchlab log, or its first line is lost")
        if version not in (FORMAT, DRAFT):
            return Line(1, line, None, f"its log format is {version!r}; this searchlab reads format {FORMAT}")
        header = msgspec.json.decode(line, type=Header)
    except UNREADABLE as error:
        return Line(1, line, None, f"the header is damaged: {error}")
    return Line(1, line, header)


def check_follows(item: Final | Ended, trials: int) -> None:
    """Raise msgspec.ValidationError where a line that is no trial cannot follow ``trials`` trials."""
    if item.trials != trials:
        raise msgspec.ValidationError(f"it says {item.trials} trials, but {trials} precede it")
    if isinstance(item, Ended):
        return
    if not item.finalists or not all(0 <= one.index < trials and one.seconds for one in item.finalists):
        raise msgspec.ValidationError("it names no trial before it, or a trial without times")
    if len({len(one.seconds) for one in item.finalists}) > 1:
        raise msgspec.ValidationError("its trials were not measured in the same rounds")


def read_bytes(path: Path) -> bytes:
    """The bytes of the log at ``path``, uncompressed. Raises SearchlabError."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a ValueError if no file can have this name, as one with a zero byte
        raise SearchlabError(f"cannot read the log {path}: {getattr(error, 'strerror', None) or error}") from None
    return unpacked(path, data) if path.suffix == ".gz" else data


def unpacked(path: Path, data: bytes) -> bytes:
    """The content of the gzip file at ``path``, whose bytes are ``data``.

    Raises:
        SearchlabError: If it is damaged, if it unpacks to more than ``SEARCHLAB_UNPACK_MB`` megabytes (an environment
            variable, 1024 by default), or if one of its lines is longer than a sixteenth of that.
    """
    given = os.environ.get(UNPACK, "")
    if given and not given.isdecimal():
        raise SearchlabError(f"{UNPACK} is a number of megabytes, not {given!r}")
    limit = int(given or 1024) << 20
    pieces, size, line = [], 0, 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while piece := file.read(1 << 20):
                pieces.append(piece)
                size += len(piece)
                line = len(piece) - piece.rfind(b"\n") - 1 if b"\n" in piece else line + len(piece)
                if size > limit or line > limit // 16:
                    what = f"to more than {limit >> 20} MB" if size > limit else f"a line of {line >> 20} MB"
                    raise SearchlabError(
                        f"{path} has {len(data) >> 10} kB and unpacks {what}, which no searchlab file does; set the "
                        f"environment variable {UNPACK} to a larger number of megabytes if it is one"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise SearchlabError(f"cannot read {path}: the gzip file is damaged ({error}); fetch it again") from None
    return b"".join(pieces)


def find_logs(path: Path) -> list[Path]:
    """The log at ``path``; or, if it is a directory, the logs under it, ``*.jsonl`` and ``*.jsonl.gz``, in order."""
    if not path.is_dir():
        return [path]
    return sorted(log for log in path.rglob("*.jsonl*") if log.name.endswith((".jsonl", ".jsonl.gz")))


def read_header(path: str | Path) -> Header:
    """The header of the log at ``path``. Raises SearchlabError as :func:`read_log` does, except for trials."""
    path = Path(path)
    first, ending, _ = read_bytes(path).partition(b"\n")
    return decode_log(path, first + ending).header


def read_log(path: str | Path) -> Log:
    """The log at ``path``, without a torn last line. The log is not locked.

    Raises SearchlabError, which names the line, if the log is unreadable, foreign or damaged.
    """
    path = Path(path)
    return decode_log(path, read_bytes(path))


def read_held(path: Path) -> Log | None:
    """The log that a run at ``path`` resumes; None if there is none, or only a torn header, or if it is compressed.

    The log is not locked. Raises SearchlabError if it is foreign or damaged.
    """
    if path.suffix == ".gz" or not path.is_file():
        return None
    data = read_bytes(path)
    if b"\n" not in data and any(data.startswith(start) or start.startswith(data) for start in STARTS):
        return None
    return decode_log(path, data)


def decode_log(path: Path, data: bytes) -> Log:
    """The log whose bytes are ``data``. Raises SearchlabError at the first problem."""
    if b'"searchlab_log"' not in data.partition(b"\n")[0] and not any(start.startswith(data) for start in STARTS):
        raise SearchlabError(f'{path} is not a searchlab log: its first line has no "searchlab_log"')
    header: Header | None = None
    records: list[Record] = []
    final: Final | None = None
    ended: Ended | None = None
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
        elif isinstance(item, Ended):
            ended = item
        elif isinstance(item, Header):
            header = item
    if header is None:
        raise SearchlabError(f"{path} holds no header yet, so there is nothing to read")
    final = final if final and final.trials == len(records) else None
    ended = ended if ended and ended.trials == len(records) else None
    return Log(path, header, tuple(records), final, ended, data.rfind(b"\n") + 1)


PAUSE = 600.0
"""Seconds between two trials from which on the run was interrupted between them: no trial takes so long."""


class Follower:
    """The log at ``path``, as far as it was read.

    header: None before it is there. trials, failed: the number of trials, and of those that failed. steps: each trial
    that was the fastest so far, and its cost in seconds. ended: as of a :class:`~searchlab.log.format.Log`. charged:
    as the last of :attr:`~searchlab.log.format.Log.elapsed`. waited, waits: seconds by the clock that trials took, and
    the number of trials that this is of. updated: the time of the last trial. problem: why the log cannot be followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None  # inode, size
        self._begin()

    def _begin(self) -> None:
        self.header: Header | None = None
        self.trials = self.failed = 0
        self.steps: list[tuple[int, float]] = []
        self.ended: Ended | None = None
        self.charged = self.waited = self.updated = 0.0
        self.waits = 0
        self.problem = ""
        self.flops, self.unit = 1, ""
        self._offset = self._lines = 0
        self._before = 0.0  # seconds charged before the last batch
        self._batch: list[Record] = []

    def look(self) -> bool:
        """Read what was appended. Whether anything has changed since the last look."""
        try:
            status = os.stat(self.path)
        except OSError:
            gone = self._file is not None
            self._file = None
            if gone:
                self._begin()
            return gone
        now = status.st_ino, status.st_size
        if now == self._file:
            return False
        if self._file is None or now[0] != self._file[0] or now[1] < self._offset or self.path.suffix == ".gz":
            self._begin()  # it is another file than before, or it was rewritten
        self._file = now
        try:
            return self._read()
        except SearchlabError as error:
            self.problem = str(error)
            return True

    def _read(self) -> bool:
        if self.problem:
            return False
        data = self._appended()
        data = data[: data.rfind(b"\n") + 1]  # what comes after may be half a line
        if not data:
            return False
        self._offset += len(data)
        records: list[Record] = []
        for line in scan(data, self._lines + 1, self.trials):
            self._lines = line.number
            if line.problem:
                self.problem = f"line {line.number}: {line.problem}"
                break
            if isinstance(line.item, Header):
                self.header = line.item
                workload = parse_workload(line.item.workload)
                self.flops, self.unit, self.updated = workload.flops, workload.unit, line.item.created
            elif isinstance(line.item, Record):
                records.append(line.item)
                self.ended = None
            elif isinstance(line.item, Ended):
                self.ended = line.item
        self._take(records)
        return True

    def _appended(self) -> bytes:
        if self.path.suffix == ".gz":
            return read_bytes(self.path)
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                return file.read()
        except OSError as error:
            raise SearchlabError(f"it cannot be read: {error.strerror}") from None

    def _take(self, records: Sequence[Record]) -> None:
        if not records or self.header is None:
            return
        best = self.steps[-1][1] if self.steps else math.inf
        for record in records:
            if record.cost < best:
                best = record.cost
                self.steps.append((record.index, best))
            self.failed += record.failure is not None
            if 0 <= record.time - self.updated < PAUSE:
                self.waited += record.time - self.updated
                self.waits += 1
            self.updated = record.time
        self.trials += len(records)
        records = [*self._batch, *records]
        last = batch_starts(batch_numbers(records, self.header.batch), [len(records)])[-1]
        self._before += self._charged(records[:last])
        self._batch = records[last:]
        self.charged = self._before + self._charged(self._batch)

    def _charged(self, records: Sequence[Record]) -> float:
        assert self.header is not None
        return float(Log(self.path, self.header, tuple(records)).elapsed[-1]) if records else 0.0
