"""The log of a single run, in JSON Lines format: a header, followed by a line for each trial, in order.

After the last trial, there may be other kinds of lines. They record why the run ended before its budget of trials was
spent, and the times of the fastest trials when they were measured again. The run can still be extended after these
lines. Logs that are only read may be compressed (``*.jsonl.gz``), or be Parquet files: see :mod:`searchlab.log.table`.
Reading a log never executes anything in it.

All readers of lines use :func:`scan`. :func:`read_log` raises an error at the first problem, and
:func:`searchlab.log.writer.check_log` collects all problems. Logs are written only by
:class:`~searchlab.log.writer.LogWriter`.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import re
import time
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np

from ..arrays import Floats, Ints
from ..console import one_line
from ..costmodel.quality import ModelQuality
from ..errors import MAX_TEXT, SearchlabError, warn
from ..files import check_unpacked, find_files, read_bytes, read_each
from ..parquet import PARQUET
from ..plugins import Plugin
from ..records import ExecutionSeconds, Failure, Measurement, Statistic, StepSeconds, Trial, cost_of
from ..schema import UNREADABLE, drop_unknown_keys
from ..space import Config
from ..stats.random_search import RandomDraws
from ..workload import Workload, parse_workload, restore_workload
from .table import decode_header, decode_table

T = TypeVar("T")

FORMAT = "1.2"
"""The version of the log format; see docs/design/log-format.md.

Logs with a later minor version can be read, but not continued: their unknown fields and kinds of lines are ignored.
"""

START = b'{"kind":"header","searchlab_log":'
"""The first bytes of a log."""

TABLE = "table"
"""The label of a run that measures every config in a table."""

GAIN = 0.01
"""The relative increase in the best throughput that counts as a gain for a budget with stop_after."""

LOGS = (".jsonl", ".jsonl.gz", PARQUET)
"""The file-name endings of logs."""

RUNS = f".runs{PARQUET}"
"""The file-name ending of the files that contain a strategy's runs over the tables of a suite, which are not logs."""

RESULT = f"result{RUNS}"
"""The name of this file in a directory that ``suite run --out`` writes."""

MAX_LINES = 10_000_000
"""The maximum number of lines in a log."""

DEFAULT_CONFIG = "default"
"""What stands for the space's default config among the digests in a header's warm_start."""

WRITABLE = ".jsonl"
"""The ending of logs that runs write and resume."""


Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A number of something. Every JSON parser, and float64, represents numbers below this limit exactly."""

Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Any other integer, such as the value of a knob."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
"""A name, or the value of a knob."""

Message = Annotated[str, msgspec.Meta(max_length=6 * MAX_TEXT)]
"""A failure message of at most MAX_TEXT characters, each of which may have been escaped as six."""

Moment = Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)]
"""A time of day, in seconds since 1970, from a clock that may be wrong."""

MAX_NUMBER = 10**300
"""The largest number in a header. The size of a space may exceed 2^63, but it must be a finite float64."""

MAX_NESTING = 20
"""The number of levels to which a header's options may be nested."""


class Passes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a table's programs were timed: in ``count`` passes, each of which times all programs in random order.

    Attributes:
        block: The number of programs between two readings of the sentinel.
        sentinel: For each reading, the time since the first pass began, and the median; both in seconds.
        again: The number of blocks that were timed again because the sentinel deviated.
        finalists: The number of fastest programs that were timed again, in turn.
        rounds: The number of rounds in which the finalists were timed.
    """

    count: Number
    block: Number
    sentinel: tuple[tuple[StepSeconds, StepSeconds], ...]
    again: Number = 0
    finalists: Number = 0
    rounds: Number = 0


class Computation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts about a plug-in's workload that are needed to read a log.

    Attributes:
        content: The workload's content; see :meth:`~searchlab.workload.Workload.content`.
    """

    flops: Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
    unit: str = "GFLOPS"
    cluster: str = ""
    content: str = ""

    @classmethod
    def from_workload(cls, workload: Workload) -> Computation:
        return cls(workload.flops, workload.unit, workload.cluster, workload.content())


BUILTIN_KINDS = ("gemm", "conv2d", "kernel")
"""The kinds of workloads that the format itself defines, for which a header contains no computation."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="header"):
    """A log's header: the facts about its run. The facts in ``IDENTITY`` must not change when the run resumes.

    Attributes:
        machine: Facts about the machine; see :func:`searchlab.machine.host.machine_facts`.
        starts: The text hashed into the seed so that a strategy draws its own first configs, or "" if strategies share
            them.
        warm_start: Digests of the logs from which the run started, in order. :data:`DEFAULT_CONFIG` comes first if the
            run's first trial is the default config of its space.
        space_size: The number of configs in the space, or None if they were not counted.
        optimum: The lowest cost of any config in the space, in seconds, if the run used a complete table; None if
            unknown.
        random: The results of random search within the trial budget, if the run used a complete table.
        contrasts: The pairs of strategies, by name, that the study registered for comparison before the run began.
        effective: Options that the policy could not use as specified (or by default), with the values that it used
            instead.
        code: The digests of the source code that decides the run, by role; see :func:`~searchlab.run.plan.code_of`.
        defaults: The values of the options that were not specified, by role.
        passes: How the log was timed, if it is a table that was timed in passes.
        computation: The facts about the workload, or None for the kinds of workloads in BUILTIN_KINDS.
    """

    searchlab_log: str = FORMAT
    workload: str
    space: Plugin
    fingerprint: str
    policy: Plugin
    cost_model: Plugin | None = None
    features: str = "knob"
    seed: Integer
    batch: Number
    target: dict[str, Any]
    measure: dict[str, Any]
    host: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    starts: str = ""
    warm_start: tuple[str, ...] = ()
    label: str = ""
    space_label: str = ""
    space_size: int | None = None
    optimum: ExecutionSeconds | None = None
    random: RandomDraws | None = None
    contrasts: tuple[tuple[str, str], ...] = ()
    effective: dict[str, Any] = {}
    workers: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)] = 1
    versions: dict[str, str] = {}
    code: dict[str, str] = {}
    defaults: dict[str, dict[str, Any]] = {}
    created: Moment = 0.0
    passes: Passes | None = None
    computation: Computation | None = None

    @property
    def name(self) -> str:
        """The strategy's name in figures and tables."""
        return one_line(self.label or self.policy.title)

    @property
    def space_name(self) -> str:
        """The space's name in figures and tables."""
        return one_line(self.space_label or self.space.title)

    @property
    def is_table(self) -> bool:
        """Whether `searchlab table build` wrote the log."""
        return self.label == TABLE or self.passes is not None

    @property
    def table(self) -> str:
        """The name of the suite table that the run used, without the suite's version, or "" if it used none."""
        return str(self.measure.get("name", "")).rpartition("/")[2]

    @property
    def measured_on(self) -> str:
        """The measured CPU (and GPU) or, for a fleet, the key of its devices; "" if neither is recorded."""
        return one_line(", ".join(map(str, self.host.values())) or str(self.measure.get("key", "")))


IDENTITY = (
    "workload",
    "space",
    "target",
    "fingerprint",
    "policy",
    "cost_model",
    "features",
    "seed",
    "batch",
    "measure",
    "host",
    "warm_start",
    "starts",
)

SPENT = ("propose_seconds", "train_seconds", "build_seconds", "run_seconds", "connect_seconds")
"""The fields of a record with this type. All except the last are charged."""

PARTS = ("feature_seconds", "check_seconds")
"""The fields of a record with parts of the times in SPENT: of those of the policy, and of the time for running."""

_MEASURED = [field.name for field in dataclasses.fields(Measurement)]

_Scalar = bool | Integer | float | Text | None

ConfigJson = dict[Text, _Scalar | list[_Scalar]]
"""A config in a log."""


class Record(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    gc=False,  # it holds no cycle
    tag_field="kind",
    tag="trial",
):
    """A trial's line: a :class:`~searchlab.records.Trial` with its measurement, and facts about its batch.

    Attributes:
        batch: The number of the trial's batch. If it is None, batches have the requested size.
        at: When each of its times was measured, in a table that was timed in passes.
        fill_in: Whether its config was drawn at random because the policy had proposed too few; see
            :class:`~searchlab.policy.Policy`.
        propose_seconds: The trial's share of the CPU time that the policy used to propose the batch.
        train_seconds: The trial's share of the CPU time that the policy used to learn from the previous batch.
        feature_seconds: The part of both that the cost model used to extract features.
        model: In a batch's last record: how well the batch was predicted.
        sentinel: In some batches' first record: the time of the run's first program just before.
    """

    index: Number
    batch: Number | None = None
    config: ConfigJson
    seconds: tuple[ExecutionSeconds, ...] = ()
    at: tuple[StepSeconds, ...] = ()
    failure: Failure | None = None
    message: Message = ""
    build_seconds: StepSeconds = 0.0
    run_seconds: StepSeconds = 0.0
    check_seconds: StepSeconds = 0.0
    connect_seconds: StepSeconds = 0.0
    program: Text = ""
    reused: bool = False
    nearest: bool = False
    pruned: bool = False
    fill_in: bool = False
    statistic: Statistic = "median"
    propose_seconds: StepSeconds = 0.0
    train_seconds: StepSeconds = 0.0
    feature_seconds: StepSeconds = 0.0
    time: Moment = 0.0
    model: ModelQuality | None = None
    sentinel: ExecutionSeconds | None = None

    @classmethod
    def from_trial(
        cls,
        trial: Trial,
        *,
        batch: int | None = None,
        fill_in: bool = False,
        propose_seconds: float = 0.0,
        train_seconds: float = 0.0,
        feature_seconds: float = 0.0,
        model: ModelQuality | None = None,
        sentinel: float | None = None,
    ) -> Self:
        """Return the record of ``trial``, which was measured just now. The other arguments are its fields."""
        config = trial.config.to_json()
        config |= {name: list(v) for name, v in config.items() if isinstance(v, tuple)}  # the same as when read back
        return cls(
            index=trial.index,
            batch=batch,
            config=config,
            fill_in=fill_in,
            propose_seconds=round(propose_seconds, 7),
            train_seconds=round(train_seconds, 7),
            feature_seconds=round(feature_seconds, 7),
            time=round(time.time(), 3),
            model=model,
            sentinel=sentinel,
            **{name: getattr(trial.measurement, name) for name in _MEASURED},
        )

    @property
    def cost(self) -> float:
        """See :attr:`searchlab.records.Measurement.cost`."""
        return cost_of(self.seconds, self.failure, self.statistic)

    @property
    def trial(self) -> Trial:
        return Trial(self.index, Config(self.config), self.measurement)

    @property
    def measurement(self) -> Measurement:
        return Measurement(*[getattr(self, name) for name in _MEASURED])


class Changed(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
    tag="changed",
):
    """The line that records that the code or the libraries have changed since the first ``trials`` trials.

    A replay with the new code has reproduced these trials. Later trials belong to it.
    """

    trials: Number
    code: dict[Text, Text]
    versions: dict[Text, Text] = {}
    time: Moment = 0.0


class Finalist(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial that was measured again. ``seconds`` contains one value for each round."""

    index: Number
    seconds: tuple[ExecutionSeconds, ...]


class Final(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="finalists"):
    """The line that records the finalists: the fastest of the preceding ``trials`` trials, measured again in turn."""

    trials: Number
    finalists: tuple[Finalist, ...]
    time: Moment = 0.0


class Ended(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
    tag="ended",
):
    """The line that records why a run ended after ``trials`` trials, possibly fewer than its budget allowed.

    ``seconds`` or ``stop_after`` is the limit that was reached; see :class:`~searchlab.log.budget.Budget`. If neither
    is set, the policy had nothing more to propose: the space is exhausted, or the strategy stops by itself.
    """

    trials: Number
    time: Moment = 0.0
    seconds: StepSeconds | None = None
    stop_after: Number | None = None

    @property
    def by_policy(self) -> bool:
        """Whether the policy ended the run, so that no larger budget can extend it."""
        return self.seconds is None and self.stop_after is None

    @property
    def reason(self) -> str:
        """Why the run ended, as a clause."""
        if self.seconds is not None:
            return f"the budget of {self.seconds:g} seconds was spent"
        if self.stop_after is not None:
            return f"{self.stop_after} trials had brought no gain of more than {100 * GAIN:g} %"
        return "the policy had nothing more to propose"


def version_spans(header: Header, changes: Sequence[Changed]) -> list[tuple[int, dict[str, str]]]:
    """Return the versions of the libraries in a log, each time with the first trial to which they apply."""
    spans = [(0, header.versions)]
    for change in changes:
        if change.versions != spans[-1][1]:
            spans.append((change.trials, change.versions))
    return spans


def workload_of(header: Header, path: Path = Path("the log")) -> Workload:
    """Return the workload in ``header``, which is the header of the log at ``path``. See :func:`restore_workload`."""
    content = header.computation.content if header.computation else ""
    return _builtin_workload(header.workload) or restore_workload(header.workload, content, path)


def computation_of(header: Header) -> Computation:
    """Return the facts about the workload in ``header``, which are derived from its name if they were not recorded.

    Raises SearchlabError if the workload is unknown.
    """
    return header.computation or Computation.from_workload(workload_of(header))


def workload_name(header: Header) -> str:
    """Return the canonical name of the workload. Raises SearchlabError if it is unknown."""
    return header.workload if header.computation else str(workload_of(header))


@lru_cache(1024)
def _builtin_workload(workload: str) -> Workload | None:
    return parse_workload(workload) if workload.partition(":")[0] in BUILTIN_KINDS else None


class UnknownLine(msgspec.Struct, frozen=True):
    """A line of a kind that this version of searchlab does not know."""

    kind: str


KINDS = ("header", "trial", "finalists", "ended", "changed")
"""The kinds of lines."""

_LINES = Record | Final | Ended | Changed
_ITEMS = msgspec.json.Decoder(_LINES)


class LoggedTrials:
    """The base class of logs and their columns, with the time charged for each trial and the unit of throughput.

    Attributes:
        batches: Each trial's batch number, shape (trials,).
        spent: Seconds spent on proposing, training, building and running, shape (trials, 4).
        parts: The seconds of these that were spent on features and on checking, shape (trials, 2).
    """

    header: Header
    batches: Ints
    spent: Floats
    parts: Floats

    @cached_property
    def starts(self) -> list[int]:
        """The position of each batch's first trial."""
        starts: list[int] = np.flatnonzero(np.diff(self.batches, prepend=self.batches[:1] - 1)).tolist()
        return starts

    @cached_property
    def charged(self) -> Floats:
        """The seconds charged for proposing, training, building and running each trial, shape (trials, 4).

        The building time is divided by the number of build workers, or by the batch size if that is smaller. Reused
        measurements are charged at their recorded time, so that later runs have no advantage.
        """
        sizes = np.diff([*self.starts, len(self.spent)])
        workers = min(self.header.workers, len(self.spent))  # a log may contain an arbitrarily large number
        charges = self.spent.copy()
        charges[:, 2] /= np.repeat(np.minimum(sizes, workers), sizes)
        return charges

    @cached_property
    def elapsed(self) -> Floats:
        """The seconds charged up to the end of each trial, shape (trials,)."""
        return np.cumsum(self.charged.sum(axis=1))

    @cached_property
    def computation(self) -> Computation:
        return computation_of(self.header)

    @property
    def flops(self) -> int:
        return self.computation.flops

    @property
    def unit(self) -> str:
        """The unit of throughput."""
        return self.computation.unit


@dataclass(frozen=True)
class Log(LoggedTrials):
    """The content of a log.

    Attributes:
        final: The finalists, or None unless they were chosen from exactly these records.
        ended: Why the run ended, or None unless it ended after exactly these records.
        changes: The changes of code and libraries, in order.
        size: The uncompressed size of its complete lines, in bytes.
    """

    path: Path
    header: Header
    records: tuple[Record, ...]
    final: Final | None = None
    ended: Ended | None = None
    changes: tuple[Changed, ...] = ()
    size: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<Log {self.path.name}: {len(self.records)} trials>"

    @property
    def code(self) -> dict[str, str]:
        """The digests of the code that reproduces all trials; see :attr:`Header.code`."""
        return self.changes[-1].code if self.changes else self.header.code

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the libraries with which the last trials were proposed."""
        return self.changes[-1].versions if self.changes else self.header.versions

    @cached_property
    def trials(self) -> list[Trial]:
        return [record.trial for record in self.records]

    @cached_property
    def costs(self) -> Floats:
        """The cost of each trial in seconds, or infinity if it failed, shape (trials,)."""
        return np.array([record.cost for record in self.records], dtype=np.float64)

    @cached_property
    def batches(self) -> Ints:  # type: ignore[override]
        records, size = self.records, self.header.batch
        size = size if 0 < size < len(records) else 1 + max((record.index for record in records), default=0)
        numbers = [record.index // size if record.batch is None else record.batch for record in records]
        return np.array(numbers, dtype=np.int64)

    @cached_property
    def spent(self) -> Floats:  # type: ignore[override]
        return np.array(list(map(attrgetter(*SPENT[:4]), self.records)), dtype=np.float64).reshape(-1, 4)

    @cached_property
    def parts(self) -> Floats:  # type: ignore[override]
        return np.array(list(map(attrgetter(*PARTS), self.records)), dtype=np.float64).reshape(-1, 2)

    @cached_property
    def sentinels(self) -> Floats:
        """The sentinel reading before each trial, or NaN if there is none, shape (trials,)."""
        return np.array([record.sentinel for record in self.records], dtype=np.float64)  # None becomes NaN

    def head(self, trials: int, ended: Ended | None = None) -> Self:
        """Return this log, shortened to its first ``trials`` trials. ``ended`` states why the run ended there."""
        changes = tuple(change for change in self.changes if change.trials <= trials)
        return replace(self, records=self.records[:trials], final=None, ended=ended, changes=changes)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a log.

    Attributes:
        number: The line's number, from 1.
        item: The line's content, or None if the line is damaged.
        problem: The message to print after "line 3: ", or "" if nothing is wrong.
        torn: Whether the line is an incomplete last line, written when the run was killed.
        unknown: A clause for each field that this version does not know and has ignored.
    """

    number: int
    data: bytes
    item: Header | Record | Final | Ended | Changed | UnknownLine | None
    problem: str = ""
    torn: bool = False
    unknown: tuple[str, ...] = ()


def minor_version(version: Any) -> int | None:
    """Return N if ``version`` is ``"1.N"``, or None if it cannot be read."""
    match = re.fullmatch(r"1\.(0|[1-9][0-9]{0,8})", version) if isinstance(version, str) else None
    return int(match[1]) if match else None


def is_newer(header: Header) -> bool:
    """Return whether the log's format is newer than :data:`FORMAT`, so that it may contain unknown fields and lines."""
    return (minor_version(header.searchlab_log) or 0) > (minor_version(FORMAT) or 0)


def scan(path: Path, data: bytes) -> Iterator[Line]:
    """Yield every line of the log at ``path`` whose bytes are ``data``, with its problem if it has one.

    Raises SearchlabError if the log is a damaged table.
    """
    return _scan_table(path, data) if path.suffix == PARQUET else _scan_lines(data)


def _scan_table(path: Path, data: bytes) -> Iterator[Line]:
    try:
        first, notes, trials = decode_table(path, data)
        header, batch = header_line(first), -1
        yield header
        records = msgspec.convert(trials, list[Record])
        for record in records:
            yield Line(record.index + 2, b"", record, _problem(record, batch))
            batch = max(batch, record.batch or 0)
        minor = minor_version(header.item.searchlab_log) if isinstance(header.item, Header) else None
        for number, note in enumerate(msgspec.json.decode(notes, type=list[msgspec.Raw]), len(records) + 2):
            item, unknown = _decode_known_fields(bytes(note), Final | Ended | Changed, minor or 0)
            if not isinstance(item, UnknownLine):
                _check_follows(item, min(item.trials, len(records)))
            yield Line(number, bytes(note), item, unknown=unknown)
    except UNREADABLE as error:
        raise SearchlabError(f"cannot read the table {path}: it is damaged ({error}); download it again") from None


def _scan_lines(data: bytes) -> Iterator[Line]:
    *lines, torn_line = data.split(b"\n")
    expected, damaged = 0, 0  # the next trial's index; the number of damaged lines since, each of which may be a trial
    batch = minor = -1
    for number, line in enumerate(lines, 1):
        if number == 1:
            header = header_line(line)
            if isinstance(header.item, Header):
                minor = minor_version(header.item.searchlab_log) or 0
            yield header
            continue
        unknown: tuple[str, ...] = ()
        try:
            try:
                item: Record | Final | Ended | Changed | UnknownLine = _ITEMS.decode(line)
            except msgspec.ValidationError:
                item, unknown = _decode_known_fields(line, _LINES, minor)
            if not isinstance(item, Record):
                if not isinstance(item, UnknownLine):
                    _check_follows(item, expected)
                yield Line(number, line, item, unknown=unknown)
                continue
        except UNREADABLE as error:
            damaged += 1
            yield Line(number, line, None, f"it is damaged: {error}")
            continue
        problem = _problem(item, batch)
        if not expected <= item.index <= expected + damaged:
            problem = f"it contains trial {item.index} instead of trial {expected + damaged}"
        elif problem:
            problem = "; ".join((problem, *unknown))
        expected, damaged, batch = item.index + 1, 0, max(batch, item.batch or 0)
        yield Line(number, line, item, problem, unknown=unknown)
    if torn_line:
        number = 1 + len(lines)
        remedy = "resuming the run discards it" if number > 1 else "the run rewrites it"
        torn_header = None if number > 1 else header_line(torn_line).item
        yield Line(number, torn_line, torn_header, f"it is incomplete: its end is missing; {remedy}", torn=True)


def _problem(record: Record, batch: int) -> str:
    """Return what is wrong with a trial that follows a trial of this batch, or "" if nothing is."""
    if record.batch is not None and record.batch < batch:
        return f"its batch is {record.batch}, after batch {batch}"
    if not record.seconds and record.failure is None:
        return "the trial has neither times (seconds) nor a failure"
    return ""


def _decode_known_fields(line: bytes, kind: Any, minor: int) -> tuple[Any, tuple[str, ...]]:
    """Decode ``line`` as ``kind``, ignoring unknown fields, for each of which a clause is returned.

    If ``minor``, the minor version of the log's format, is newer, a line may be of an unknown kind. Raises the errors
    in ``UNREADABLE``.
    """
    data = msgspec.json.decode(line)
    name = data.get("kind") if isinstance(data, dict) else None
    if minor > (minor_version(FORMAT) or 0) and isinstance(name, str) and name not in KINDS:
        return UnknownLine(name), ()
    known_fields, unknown = drop_unknown_keys(data, kind)
    return msgspec.convert(known_fields, kind), unknown


def header_line(line: bytes) -> Line:
    """Return the first line of a log, whose bytes are ``line``, with its problem if it has one."""
    try:
        fields = msgspec.json.decode(line)
        version = fields.get("searchlab_log") if isinstance(fields, dict) else None
        if version is None:
            return Line(
                1, line, None, "it is not a header: the file is not a searchlab log, or its first line is missing"
            )
        if minor_version(version) is None:
            return Line(1, line, None, f"its log format is {version!r}; this version of searchlab reads formats 1.x")
        known_fields, unknown = drop_unknown_keys(fields, Header)
        return Line(1, line, _check_bounds(msgspec.convert(known_fields, Header)), unknown=unknown)
    except UNREADABLE as error:
        return Line(1, line, None, f"the header is damaged: {error}")


def _check_bounds(header: Header) -> Header:
    """Return ``header``. Raises msgspec.ValidationError if a name or number in it is too large, or it is too deep."""
    _check_plain(msgspec.structs.replace(header, computation=None, random=None))
    if header.computation:
        _check_plain(msgspec.structs.replace(header.computation, content=""))
    return header


def _check_plain(value: Any, depth: int = 0) -> None:
    """Raise msgspec.ValidationError if ``value`` contains a long name, a huge number, or is nested too deeply."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise msgspec.ValidationError(
                f"{value[:20]!r}... has {len(value):,} characters; at most {MAX_TEXT:,} are read"
            )
    elif isinstance(value, int | float):
        if abs(value) > MAX_NUMBER:
            raise msgspec.ValidationError(f"it contains a number of {len(str(value)):,} digits")
    elif value is not None:
        if depth > MAX_NESTING:
            raise msgspec.ValidationError(f"it is nested more than {MAX_NESTING} levels deep")
        if isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        for item in chain(value, value.values()) if isinstance(value, dict) else value:
            _check_plain(item, depth + 1)


def _check_follows(item: Final | Ended | Changed, trials: int) -> None:
    """Raise msgspec.ValidationError if ``item`` cannot follow ``trials`` trials."""
    if item.trials != trials:
        raise msgspec.ValidationError(f"it follows {trials} trials, but refers to {item.trials} trials")
    if not isinstance(item, Final):
        return
    if not item.finalists or not all(0 <= finalist.index < trials and finalist.seconds for finalist in item.finalists):
        raise msgspec.ValidationError("it lists no trials, a trial that does not precede it, or a trial without times")
    if len({len(finalist.seconds) for finalist in item.finalists}) > 1:
        raise msgspec.ValidationError("its trials were not measured in the same rounds")


def read_log_bytes(path: Path, under: Path | None = None) -> bytes:
    """Return the bytes of the log at ``path``, unpacked by gzip and with spaces in place of a byte order mark.

    Raises SearchlabError if the log cannot be read, is no regular file, is outside ``under``, or has too many lines.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    data = read_bytes(path, under=under, kind="the log", limit=memory // 2)
    if path.suffix == PARQUET:
        return data
    data = unpack(path, data) if path.suffix == ".gz" else data
    if (lines := data.count(b"\n")) > MAX_LINES:
        raise SearchlabError(f"cannot read the log {path}: it has {lines:,} lines, and at most {MAX_LINES:,} are read")
    return b" " * len(BOM_UTF8) + data[len(BOM_UTF8) :] if data.startswith(BOM_UTF8) else data


def unpack(path: Path, data: bytes) -> bytes:
    """Return the content of the gzip file at ``path``, whose bytes are ``data``.

    Raises SearchlabError if the file is damaged, or too large; see :func:`~searchlab.files.check_unpacked`.
    """
    pieces, size, line = [], 0, 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while piece := file.read(1 << 20):
                pieces.append(piece)
                size += len(piece)
                line = len(piece) - piece.rfind(b"\n") - 1 if b"\n" in piece else line + len(piece)
                check_unpacked(path, len(data), size, line)
    except (OSError, EOFError, zlib.error) as error:
        raise SearchlabError(f"cannot read {path}: the gzip file is damaged ({error}); download it again") from None
    return b"".join(pieces)


def find_logs(path: Path) -> list[Path]:
    """Return ``path`` if it is not a directory. Otherwise, return the logs in it; see :func:`files.find_files`."""
    if not path.is_dir():
        return [path]
    return [log for log in find_files(path, LOGS) if not log.name.endswith(RUNS)]


def read_logs_in(paths: Sequence[Path], read: Callable[[Path], T]) -> list[T]:
    """Return ``read(log)`` for each log in ``paths``, which are logs or directories of logs.

    A log in a directory that cannot be read is skipped with a SearchlabWarning.

    Raises:
        SearchlabError: If a log in ``paths`` cannot be read, if none can be read, or if there are no logs.
    """
    log_paths = dict.fromkeys(log_path for path_or_directory in paths for log_path in find_logs(path_or_directory))
    if not log_paths:
        raise no_logs(paths)
    return read_each(log_paths, read, required=paths)


def no_logs(paths: Iterable[Path]) -> SearchlabError:
    """Return the error to raise if there are no logs in ``paths``."""
    where = ", ".join(map(str, paths)) or "an empty list of logs"
    return SearchlabError(f"no logs (*.jsonl) in {where}; pass logs, or directories of logs")


def read_header(path: str | Path) -> Header:
    """Read only a log's header. Raises SearchlabError in the same cases as :func:`read_log`."""
    path = Path(path)
    data = read_log_bytes(path)
    if path.suffix == PARQUET:
        return _collect(path, [header_line(decode_header(path, data))], 0).header
    first, ending, _ = data.partition(b"\n")
    return decode_log(path, first + ending).header


def read_log(path: str | Path) -> Log:
    """Read the log at ``path``, ignoring an incomplete last line. The log is not locked.

    Raises SearchlabError if the file cannot be read, is not a log, or is damaged. The error names the damaged line.
    """
    path = Path(path)
    return decode_log(path, read_log_bytes(path))


def read_existing_log(path: Path) -> Log | None:
    """Read the log at ``path`` for a run that may resume it.

    Returns None if the log does not exist, contains only an incomplete header, or is compressed. Raises SearchlabError
    in the same cases as :func:`read_log`.
    """
    if path.suffix in (".gz", PARQUET) or not path.is_file():
        return None
    data = read_log_bytes(path)
    if b"\n" not in data and (data.startswith(START) or START.startswith(data)):
        return None
    return decode_log(path, data)


def decode_log(path: Path, data: bytes) -> Log:
    """Decode the log whose bytes are ``data``. Raises SearchlabError at the first problem."""
    is_table = path.suffix == PARQUET
    if not is_table and b'"searchlab_log"' not in data.partition(b"\n")[0] and not START.startswith(data):
        raise SearchlabError(
            f'{path} is not a searchlab log: its first line has no "searchlab_log"; convert the files of other tuners '
            f"with `searchlab import`"
        )
    return _collect(path, scan(path, data), len(data) if is_table else data.rfind(b"\n") + 1)


def _collect(path: Path, lines: Iterable[Line], size: int) -> Log:
    records: list[Record] = []
    changes: list[Changed] = []
    latest: dict[type, Any] = {}  # the latest line of each other kind
    unknown_fields: list[str] = []
    for line in lines:
        if line.torn:
            break
        if line.problem:
            raise SearchlabError(f"{path}, line {line.number}: {line.problem}")
        unknown_fields += [f"line {line.number}: {clause}" for clause in line.unknown]
        if type(line.item) is Record:
            records.append(line.item)
        elif isinstance(line.item, Changed):
            changes.append(line.item)
        elif not isinstance(line.item, UnknownLine):
            latest[type(line.item)] = line.item
    if Header not in latest:
        raise SearchlabError(f"{path} has no header yet, so it cannot be read")
    header = latest[Header]
    if unknown_fields and not is_newer(header):
        more = f" (and {len(unknown_fields) - 1} more)" if len(unknown_fields) > 1 else ""
        warn(f"{path}, {unknown_fields[0]}; it is ignored{more}")
    final, ended = (note if note and note.trials == len(records) else None for note in map(latest.get, (Final, Ended)))
    return Log(path, header, tuple(records), final, ended, tuple(changes), size)
