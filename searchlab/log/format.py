"""The content of a log: the header of a run, a record for each trial, in order, and the lines that may follow them.

After the last trial, there may be other kinds of lines. They record why the run ended before its budget of trials was
spent, and the times of the fastest trials when they were measured again. The run can still be extended after these
lines. :mod:`searchlab.log.read` reads logs, and :class:`~searchlab.log.writer.LogWriter` writes them.

The keys of a format never change. Where a field has a clearer name than its key, ``rename`` maps the field to the key;
this applies to all files and JSON of searchlab.
"""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from ..arrays import Floats, Ints
from ..console import escape_to_one_line
from ..costmodel.quality import ModelQuality
from ..errors import MAX_TEXT_LENGTH
from ..plugins import Plugin
from ..records import ExecutionSeconds, Failure, Measurement, Statistic, StepSeconds, Trial, compute_cost
from ..space import Config
from ..stats.random_search import RandomDraws
from ..workload import Workload, parse_workload, restore_workload

MINOR_VERSION = 2
FORMAT_VERSION = f"1.{MINOR_VERSION}"
"""The version of the log format; see docs/design/log-format.md.

Logs with a later minor version can be read, but not continued: their unknown fields and kinds of lines are ignored.
"""

TABLE_LABEL = "table"
"""The label of a run that measures every config in a table."""

MIN_GAIN = 0.01
"""The relative increase in the best throughput that counts as a gain for a budget with stop_after."""

DEFAULT_CONFIG_MARKER = "default"
"""What stands for the space's default config among the digests in a header's warm_start."""


Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""A number of something. Every JSON parser, and float64, represents numbers below this limit exactly."""

Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Any other integer, such as the value of a knob."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_LENGTH)]
"""A name, or the value of a knob."""

Message = Annotated[str, msgspec.Meta(max_length=6 * MAX_TEXT_LENGTH)]
"""A failure message of at most MAX_TEXT_LENGTH characters, each of which may have been escaped as six."""

Moment = Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)]
"""A time of day, in seconds since 1970, from a clock that may be wrong."""


def parse_minor_version(version: Any) -> int | None:
    """Return N if ``version`` is ``"1.N"``, or None if it cannot be read."""
    match = re.fullmatch(r"1\.(0|[1-9][0-9]{0,8})", version) if isinstance(version, str) else None
    return int(match[1]) if match else None


class Passes(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={
        "block_size": "block",
        "sentinel_readings": "sentinel",
        "repeated_block_count": "again",
        "finalist_count": "finalists",
        "round_count": "rounds",
    },
    kw_only=True,
):
    """How a table's programs were timed: in ``count`` passes, each of which times all programs in random order.

    Attributes:
        block_size: The number of programs between two readings of the sentinel.
        sentinel_readings: For each reading, the time since the first pass began, and the median; both in seconds.
        repeated_block_count: The number of blocks that were timed again because the sentinel deviated.
        finalist_count: The number of fastest programs that were timed again, in turn.
        round_count: The number of rounds in which the finalists were timed.
    """

    count: Number
    block_size: Number
    sentinel_readings: tuple[tuple[StepSeconds, StepSeconds], ...]
    repeated_block_count: Number = 0
    finalist_count: Number = 0
    round_count: Number = 0


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


BUILTIN_WORKLOAD_KINDS = ("gemm", "conv2d", "kernel")
"""The kinds of workloads that the format itself defines, for which a header contains no computation."""


class Header(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={
        "format_version": "searchlab_log",
        "start_salt": "starts",
        "random_draws": "random",
        "effective_options": "effective",
        "code_digests": "code",
        "default_options": "defaults",
        "created_at": "created",
    },
    kw_only=True,
    tag_field="kind",
    tag="header",
):
    """A log's header: the facts about its run. Those in :data:`IDENTITY_FIELDS` must not change when the run resumes.

    Attributes:
        machine: Facts about the machine; see :func:`searchlab.machine.host.read_machine_facts`.
        start_salt: The text hashed into the seed so that a strategy draws its own first configs, or "" if strategies
            share them.
        warm_start: Digests of the logs from which the run started, in order. :data:`DEFAULT_CONFIG_MARKER` comes first
            if the run's first trial is the default config of its space.
        space_size: The number of configs in the space, or None if they were not counted.
        optimum: The lowest cost of any config in the space, in seconds, if the run used a complete table; None if
            unknown.
        random_draws: The results of random search within the trial budget, if the run used a complete table.
        contrasts: The pairs of strategies, by name, that the study registered for comparison before the run began.
        effective_options: Options that the policy could not use as specified (or by default), with the values that it
            used instead.
        code_digests: The digests of the source code that decides the run, by role; see
            :func:`~searchlab.run.plan.digest_code`.
        default_options: The values of the options that were not specified, by role.
        passes: How the log was timed, if it is a table that was timed in passes.
        computation: The facts about the workload, or None for the kinds of workloads in BUILTIN_WORKLOAD_KINDS.
    """

    format_version: str = FORMAT_VERSION
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
    start_salt: str = ""
    warm_start: tuple[str, ...] = ()
    label: str = ""
    space_label: str = ""
    space_size: int | None = None
    optimum: ExecutionSeconds | None = None
    random_draws: RandomDraws | None = None
    contrasts: tuple[tuple[str, str], ...] = ()
    effective_options: dict[str, Any] = {}
    workers: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)] = 1
    versions: dict[str, str] = {}
    code_digests: dict[str, str] = {}
    default_options: dict[str, dict[str, Any]] = {}
    created_at: Moment = 0.0
    passes: Passes | None = None
    computation: Computation | None = None

    @property
    def name(self) -> str:
        """The strategy's name in figures and tables."""
        return escape_to_one_line(self.label or self.policy.title)

    @property
    def space_name(self) -> str:
        """The space's name in figures and tables."""
        return escape_to_one_line(self.space_label or self.space.title)

    @property
    def has_newer_format(self) -> bool:
        """Whether the log's format is newer than this version's, so that it may contain unknown fields and lines."""
        return (parse_minor_version(self.format_version) or 0) > MINOR_VERSION

    @property
    def is_table(self) -> bool:
        """Whether `searchlab table build` wrote the log."""
        return self.label == TABLE_LABEL or self.passes is not None

    @property
    def table(self) -> str:
        """The name of the suite table that the run used, without the suite's version, or "" if it used none."""
        return str(self.measure.get("name", "")).rpartition("/")[2]

    @property
    def measured_on(self) -> str:
        """The measured CPU (and GPU) or, for a fleet, the key of its devices; "" if neither is recorded."""
        return escape_to_one_line(", ".join(map(str, self.host.values())) or str(self.measure.get("key", "")))


IDENTITY_FIELDS = (
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
"""The keys of a header in a log that must not change when the run resumes."""

SPENT_FIELDS = ("propose_seconds", "train_seconds", "build_seconds", "run_seconds", "connect_seconds")
"""The fields of a record with this type. All except the last are charged."""

_MEASUREMENT_FIELDS = [field.name for field in dataclasses.fields(Measurement)]

_Scalar = bool | Integer | float | Text | None

ConfigJson = dict[Text, _Scalar | list[_Scalar]]
"""A config in a log."""


class Record(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={
        "batch_number": "batch",
        "measured_at": "at",
        "recorded_at": "time",
        "model_quality": "model",
        "sentinel_seconds": "sentinel",
    },
    kw_only=True,
    omit_defaults=True,
    gc=False,  # it holds no cycle
    tag_field="kind",
    tag="trial",
):
    """A trial's line: a :class:`~searchlab.records.Trial` with its measurement, and facts about its batch.

    Attributes:
        batch_number: The number of the trial's batch. If it is None, batches have the requested size.
        measured_at: When each of its times was measured, in a table that was timed in passes.
        fill_in: Whether its config was drawn at random because the policy had proposed too few; see
            :class:`~searchlab.policy.Policy`.
        propose_seconds: The trial's share of the CPU time that the policy used to propose the batch.
        train_seconds: The trial's share of the CPU time that the policy used to learn from the previous batch.
        feature_seconds: The part of both that the cost model used to extract features.
        model_quality: In a batch's last record: how well the batch was predicted.
        sentinel_seconds: In some batches' first record: the time of the run's first program just before.
    """

    index: Number
    batch_number: Number | None = None
    config: ConfigJson
    seconds: tuple[ExecutionSeconds, ...] = ()
    measured_at: tuple[StepSeconds, ...] = ()
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
    recorded_at: Moment = 0.0
    model_quality: ModelQuality | None = None
    sentinel_seconds: ExecutionSeconds | None = None

    @classmethod
    def from_trial(
        cls,
        trial: Trial,
        *,
        batch_number: int | None = None,
        fill_in: bool = False,
        propose_seconds: float = 0.0,
        train_seconds: float = 0.0,
        feature_seconds: float = 0.0,
        model_quality: ModelQuality | None = None,
        sentinel_seconds: float | None = None,
    ) -> Self:
        """Return the record of ``trial``, which was measured just now. The other arguments are its fields."""
        config = trial.config.to_json()
        config |= {name: list(v) for name, v in config.items() if isinstance(v, tuple)}  # the same as when read back
        return cls(
            index=trial.index,
            batch_number=batch_number,
            config=config,
            fill_in=fill_in,
            propose_seconds=round(propose_seconds, 7),
            train_seconds=round(train_seconds, 7),
            feature_seconds=round(feature_seconds, 7),
            recorded_at=round(time.time(), 3),
            model_quality=model_quality,
            sentinel_seconds=sentinel_seconds,
            **{name: getattr(trial.measurement, name) for name in _MEASUREMENT_FIELDS},
        )

    @property
    def cost(self) -> float:
        """See :attr:`searchlab.records.Measurement.cost`."""
        return compute_cost(self.seconds, self.failure, self.statistic)

    @property
    def trial(self) -> Trial:
        return Trial(self.index, Config(self.config), self.measurement)

    @property
    def measurement(self) -> Measurement:
        return Measurement(*[getattr(self, name) for name in _MEASUREMENT_FIELDS])


class CodeChange(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"trial_count": "trials", "code_digests": "code", "recorded_at": "time"},
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
    tag="changed",
):
    """The line that records that the code or the libraries have changed since the first ``trial_count`` trials.

    A replay with the new code has reproduced these trials. Later trials belong to it.
    """

    trial_count: Number
    code_digests: dict[Text, Text]
    versions: dict[Text, Text] = {}
    recorded_at: Moment = 0.0


class Finalist(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trial that was measured again. ``seconds`` contains one value for each round."""

    index: Number
    seconds: tuple[ExecutionSeconds, ...]


class FinalistTimes(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"trial_count": "trials", "recorded_at": "time"},
    kw_only=True,
    tag_field="kind",
    tag="finalists",
):
    """The line that records the finalists: the fastest of the ``trial_count`` trials before it, measured again."""

    trial_count: Number
    finalists: tuple[Finalist, ...]
    recorded_at: Moment = 0.0


class RunEnd(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"trial_count": "trials", "recorded_at": "time"},
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
    tag="ended",
):
    """The line that records why a run ended after ``trial_count`` trials, possibly fewer than its budget allowed.

    ``seconds`` or ``stop_after`` is the limit that was reached; see :class:`~searchlab.log.budget.Budget`. If neither
    is set, the policy had nothing more to propose: the space is exhausted, or the strategy stops by itself.
    """

    trial_count: Number
    recorded_at: Moment = 0.0
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
            return f"{self.stop_after} trials had brought no gain of more than {100 * MIN_GAIN:g} %"
        return "the policy had nothing more to propose"


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
    return parse_workload(workload) if workload.partition(":")[0] in BUILTIN_WORKLOAD_KINDS else None


class LoggedTrials:
    """The base class of logs and their columns, with the time charged for each trial and the unit of throughput.

    Attributes:
        changes: The changes of code and libraries, in order.
        costs: The cost of each trial in seconds, or infinity if it failed, shape (trials,).
        batch_numbers: Each trial's batch number, shape (trials,).
        spent_seconds: Seconds spent on proposing, training, building and running, shape (trials, 4).
    """

    header: Header
    changes: tuple[CodeChange, ...]
    costs: Floats
    batch_numbers: Ints
    spent_seconds: Floats

    @property
    def has_success(self) -> bool:
        """Whether any trial succeeded."""
        return bool(np.isfinite(self.costs).any())

    @cached_property
    def batch_starts(self) -> list[int]:
        """The position of each batch's first trial."""
        numbers = self.batch_numbers
        starts: list[int] = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1)).tolist()
        return starts

    @cached_property
    def charged_seconds(self) -> Floats:
        """The seconds charged for proposing, training, building and running each trial, shape (trials, 4).

        The building time is divided by the number of build workers, or by the batch size if that is smaller. Reused
        measurements are charged at their recorded time, so that later runs have no advantage.
        """
        sizes = np.diff([*self.batch_starts, len(self.spent_seconds)])
        charges = self.spent_seconds.copy()
        charges[:, 2] /= np.repeat(np.minimum(sizes, self.header.workers), sizes)
        return charges

    @cached_property
    def elapsed_seconds(self) -> Floats:
        """The seconds charged up to the end of each trial, shape (trials,)."""
        return np.cumsum(self.charged_seconds.sum(axis=1))

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

    @property
    def code_digests(self) -> dict[str, str]:
        """The digests of the code that reproduces all trials; see :attr:`Header.code_digests`."""
        return self.changes[-1].code_digests if self.changes else self.header.code_digests

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the libraries with which the last trials were proposed."""
        return self.version_spans[-1][1]

    @property
    def version_spans(self) -> list[tuple[int, dict[str, str]]]:
        """The versions of the libraries, each time with the first trial to which they apply."""
        spans = [(0, self.header.versions)]
        for change in self.changes:
            if change.versions != spans[-1][1]:
                spans.append((change.trial_count, change.versions))
        return spans


@dataclass(frozen=True)
class Log(LoggedTrials):
    """The content of a log.

    Attributes:
        finalist_times: The finalists, or None unless they were chosen from exactly these records.
        run_end: Why the run ended, or None unless it ended after exactly these records.
        byte_count: The uncompressed size of its complete lines, in bytes.
    """

    path: Path
    header: Header
    records: tuple[Record, ...]
    finalist_times: FinalistTimes | None = None
    run_end: RunEnd | None = None
    changes: tuple[CodeChange, ...] = ()
    byte_count: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<Log {self.path.name}: {len(self.records)} trials>"

    @cached_property
    def trials(self) -> list[Trial]:
        return [record.trial for record in self.records]

    @cached_property
    def costs(self) -> Floats:  # type: ignore[override]
        return np.array([record.cost for record in self.records], dtype=np.float64)

    @cached_property
    def batch_numbers(self) -> Ints:  # type: ignore[override]
        records, size = self.records, self.header.batch or max(1, len(self.records))
        numbers = [record.index // size if record.batch_number is None else record.batch_number for record in records]
        return np.array(numbers, dtype=np.int64)

    @cached_property
    def spent_seconds(self) -> Floats:  # type: ignore[override]
        return np.array(list(map(attrgetter(*SPENT_FIELDS[:4]), self.records)), dtype=np.float64).reshape(-1, 4)

    @cached_property
    def sentinels(self) -> Floats:
        """The sentinel reading before each trial, or NaN if there is none, shape (trials,)."""
        return np.array([record.sentinel_seconds for record in self.records], dtype=np.float64)  # None becomes NaN
