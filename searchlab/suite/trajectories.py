"""Trajectories: one strategy's runs over a suite's tables, stored as the indices of configs in each table.

The columns of a run follow from its trajectory and table without TVM, except for the time that the strategy spent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import platformdirs

from ..analysis.runs import pad_curves
from ..arrays import Floats
from ..errors import SearchlabError, did_you_mean
from ..files import file_name, make_write_error, read_bytes, write_file
from ..log.columns import Columns
from ..log.format import Ended, Header, Log
from ..log.journal import Journal
from ..log.read import RUNS_SUFFIX, read_log
from ..machine.host import cpu_model
from ..measure.suite import Suite, SuiteTable
from ..parquet import INTEGERS, KEY, decode, encode
from ..plugins import Plugin
from ..schema import UNREADABLE
from ..space import Config
from ..stats.random_search import RandomDraws

FORMAT = 1
_TYPES = {"table": ("string",), "seed": ("int64",), "configs": (INTEGERS,), "ended": ("bool",)}

RANDOM = "random"
"""The name of the baseline that learns nothing."""

USES_FILE = "test-splits.jsonl"
"""The file, in the user's data directory, of strategies that were run on a test split."""


class Trajectory(msgspec.Struct, frozen=True, array_like=True):
    """One run over a table.

    Attributes:
        configs: The indices of the configs in the table.
        ended: Whether the run ended by itself.
    """

    seed: int
    configs: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    ended: bool = False


class TableRuns(msgspec.Struct, frozen=True):
    """The runs over one table, ordered by seed.

    Attributes:
        digest: The SHA-256 of the table.
        effective: As in the header of a log.
        random: As in the header of a log.
    """

    digest: str
    runs: tuple[Trajectory, ...] = ()
    effective: dict[str, Any] = {}
    random: RandomDraws | None = None


class Trajectories(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one strategy, by table.

    Attributes:
        suite: The suite's version.
        strategy: Its name in pictures and tables.
        trials: The largest number of trials in a run.
        starts: As in the header of a log.
        contrasts: As in the header of a log.
        own_seconds: The mean time for training and proposing per run on ``host``.
        code: The digests of the code of the policy and the cost model, unless it changed between runs.
        test_uses: The number of variants of the policy run on the test split so far.
    """

    trajectories: int = FORMAT
    suite: str
    strategy: str
    policy: Plugin
    cost_model: Plugin | None = None
    features: str = ""
    batch: int
    trials: int
    starts: str = ""
    contrasts: tuple[tuple[str, str], ...] = ()
    own_seconds: float = 0.0
    host: str = ""
    versions: dict[str, str] = {}
    code: dict[str, str] = {}
    test_uses: int | msgspec.UnsetType = msgspec.UNSET
    tables: dict[str, TableRuns]

    def __repr__(self) -> str:
        return f"<Trajectories of {self.strategy} over {len(self.tables)} tables of {self.suite}>"

    @property
    def plugins(self) -> list[Plugin]:
        """The policy and, if there is one, the cost model."""
        return [plugin for plugin in (self.policy, self.cost_model) if plugin]

    def runs_on(self, table: SuiteTable) -> TableRuns:
        """Return the runs over ``table``. Raises SearchlabError if there are none or if they used a different file."""
        name = table.entry.name
        if name not in self.tables:
            raise SearchlabError(f"{self.strategy} has no runs over {table.name}{did_you_mean(name, self.tables)}")
        runs = self.tables[name]
        if runs.digest != table.digest:
            raise SearchlabError(
                f"{self.strategy} was run on a different version of {table.name}: its SHA-256 was {runs.digest}, but "
                f"is now {table.digest}; fetch the version of the suite that was used, or rerun the strategy"
            )
        return runs


@dataclass(frozen=True)
class RecordedTable:
    """A table in a suite, and values computed from it."""

    table: SuiteTable

    @cached_property
    def log(self) -> Log:
        return read_log(self.table.path)

    @cached_property
    def positions(self) -> dict[Config, int]:
        return {Config(record.config): position for position, record in enumerate(self.log.records)}

    @cached_property
    def columns(self) -> Columns:
        """The table's columns as a run would have them if its strategy took no time."""
        spent = self.log.spent_seconds.copy()
        spent[:, :2] = 0.0
        return replace(Columns.from_log(self.log, {}), spent_seconds=spent)

    @cached_property
    def optimum(self) -> float | None:
        """The lowest cost in seconds, or None if no config runs or if configs are missing."""
        optimum = float(self.log.costs.min(initial=np.inf))
        complete = len(self.log.records) >= (self.log.header.space_size or np.inf)
        return optimum if complete and np.isfinite(optimum) else None

    def costs_of(self, trajectories: Trajectories) -> list[Floats]:
        """Return the costs of each run's trials, in order."""
        return [self.log.costs[list(run.configs)] for run in trajectories.runs_on(self.table).runs]

    def curves(self, trajectories: Trajectories, trials: int) -> Floats:
        """Return the best throughput so far in each run, relative to the optimum: shape (runs, trials)."""
        best = [np.minimum.accumulate(costs) for costs in self.costs_of(trajectories)]
        curves: Floats = self.log.costs.min() / pad_curves(best, trials)
        return curves

    def areas(self, trajectories: Trajectories) -> Floats:
        """Return the area under the curve of each run, relative to the optimum: shape (runs,)."""
        areas: Floats = self.curves(trajectories, trajectories.trials).mean(axis=1)
        return areas

    def indices_of(self, log: Log) -> tuple[int, ...]:
        """Return the index in the table of each config in ``log``. Raises SearchlabError if one is missing."""
        try:
            return tuple(self.positions[Config(record.config)] for record in log.records)
        except KeyError as error:
            raise SearchlabError(f"{log.path} contains a config that {self.table.name} does not: {error}") from None

    def check(self, trajectories: Trajectories, run: Trajectory) -> None:
        """Check that ``run`` is a run over this table. Raises SearchlabError if it is not."""
        description = f"the run of {trajectories.strategy} over {self.table.name} with seed {run.seed}"
        if run.configs and max(run.configs) >= len(self.log.records):
            raise SearchlabError(
                f"{description} refers to config {max(run.configs)}, but the table has only {len(self.log.records)} "
                "configs; the file is damaged: fetch it again"
            )
        if len(set(run.configs)) < len(run.configs) or len(run.configs) > trajectories.trials:
            raise SearchlabError(
                f"{description} repeats a config, or contains more than {trajectories.trials}; fetch the file again"
            )

    def run_columns(self, trajectories: Trajectories, run: Trajectory, trials: int | None = None) -> Columns:
        """Return the columns of the log of ``run``, or of its first ``trials`` trials.

        Raises SearchlabError if ``run`` is not a run over this table.
        """
        self.check(trajectories, run)
        if trials is not None:
            run = Trajectory(run.seed, run.configs[:trials], run.ended and len(run.configs) <= trials)
        table_header, table_runs = self.log.header, trajectories.tables[self.table.entry.name]
        header = Header(
            workload=table_header.workload,
            space=self.table.plugin,
            fingerprint=table_header.fingerprint,
            policy=trajectories.policy,
            cost_model=trajectories.cost_model,
            features=trajectories.features,
            seed=run.seed,
            batch=trajectories.batch,
            target=table_header.target,
            measure=self.table.settings().identity(),
            label=trajectories.strategy,
            space_size=table_header.space_size,
            optimum=self.optimum,
            effective=table_runs.effective,
            random=table_runs.random,
            workers=table_header.workers,
            versions=trajectories.versions,
            starts=trajectories.starts,
            contrasts=trajectories.contrasts,
        )
        indices = np.array(run.configs, dtype=np.int64)
        ended = Ended(trials=len(indices)) if run.ended else None
        columns = self.columns.take(indices, header, np.arange(len(indices)) // trajectories.batch, ended)
        return replace(columns, path=Path(self.table.entry.name, trajectories.strategy, f"seed{run.seed}"))


class RecordedTables(dict[str, RecordedTable]):
    """A suite's tables by name. Each is read when it is first used."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite

    def __missing__(self, name: str) -> RecordedTable:
        self[name] = RecordedTable(self._suite.table(name))
        return self[name]


def collect(suite: Suite, logs: Iterable[Path]) -> list[Trajectories]:
    """Return the trajectories of each strategy in ``logs``, which record runs over the tables of ``suite``.

    Raises:
        SearchlabError: If a log does not record such a run, if a run has two logs, or if the logs of a strategy differ
            in their settings.
    """
    recorded_tables = RecordedTables(suite)
    runs_by_strategy: dict[str, list[_RecordedRun]] = {}
    for path in logs:
        log = read_log(path)
        header, table = log.header, recorded_tables[log.header.table or "(none)"]
        if header.measure != table.table.settings().identity():
            raise SearchlabError(
                f"{path} was not recorded with the current version of {table.table.name}: the log's measure is "
                f"{header.measure}, but the table's is {table.table.settings().identity()}; omit the log or rerun it"
            )
        runs = runs_by_strategy.setdefault(header.name, [])
        headers = [run.header for run in runs]
        table_headers = [earlier for earlier in headers if earlier.table == header.table]
        for name in ("policy", "cost_model", "features", "batch", "warm_start", "starts", "contrasts"):
            first = (table_headers if name == "warm_start" else headers)[:1]  # tables may differ in their warm start
            if first and getattr(first[0], name) != getattr(header, name):
                raise SearchlabError(
                    f"{path}: another log of {header.name!r} has a different {name}; give each strategy its own label"
                )
        if any(earlier.seed == header.seed for earlier in table_headers):
            raise SearchlabError(
                f"{path}: another log has the same strategy, {header.name!r}, and seed, {header.seed}; omit one of them"
            )
        run = Trajectory(header.seed, table.indices_of(log), bool(log.ended))
        seconds = sum(record.propose_seconds + record.train_seconds for record in log.records)
        runs.append(_RecordedRun(header, run, log.code, log.versions, seconds))
    return [_trajectories_of(suite, recorded_tables, runs) for runs in runs_by_strategy.values()]


class _RecordedRun(NamedTuple):
    """A run over a table, with facts from its log."""

    header: Header
    run: Trajectory
    code: dict[str, str]
    versions: dict[str, str]
    own_seconds: float


def _trajectories_of(suite: Suite, recorded_tables: RecordedTables, runs: Sequence[_RecordedRun]) -> Trajectories:
    """Return the trajectories of the ``runs`` of a strategy."""
    tables = {}
    for table in suite.tables:
        if table_runs := [run for run in runs if run.header.table == table.entry.name]:
            trajectories = tuple(sorted((run.run for run in table_runs), key=lambda run: run.seed))
            digest, header = recorded_tables[table.entry.name].table.digest, table_runs[-1].header
            tables[table.entry.name] = TableRuns(digest, trajectories, header.effective, header.random)
    roles = ("policy", "cost_model")
    codes = [{role: digest for role, digest in run.code.items() if role in roles} for run in runs]
    header = runs[0].header
    return Trajectories(
        suite=suite.spec.version,
        strategy=header.name,
        policy=header.policy,
        cost_model=header.cost_model,
        features=header.features,
        batch=header.batch,
        versions=runs[-1].versions,
        host=cpu_model(),
        trials=max(len(run.run.configs) for run in runs),
        starts=header.starts,
        contrasts=header.contrasts,
        code=codes[0] if all(code == codes[0] for code in codes) else {},
        own_seconds=float(f"{np.mean([run.own_seconds for run in runs]):.3g}"),
        tables=tables,
    )


def write_trajectories(path: Path, trajectories: Trajectories) -> None:
    """Write ``trajectories`` to a file; equal ones yield equal bytes. Raises SearchlabError if writing fails."""
    import pyarrow as pa

    runs = [(name, run) for name, table_runs in trajectories.tables.items() for run in table_runs.runs]
    columns = {
        "table": pa.array([name for name, _ in runs], "string"),
        "seed": pa.array([run.seed for _, run in runs], "int64"),
        "configs": pa.array([run.configs for _, run in runs], pa.list_(pa.int64())),
        "ended": pa.array([run.ended for _, run in runs], "bool"),
    }
    tables = {name: msgspec.structs.replace(table_runs, runs=()) for name, table_runs in trajectories.tables.items()}
    metadata = msgspec.json.encode(msgspec.structs.replace(trajectories, tables=tables))
    write_file(path, encode(columns, {KEY: metadata}), durable=True)


def read_trajectories(path: Path) -> Trajectories:
    """Read trajectories from a file without executing anything in it. Raises SearchlabError if it is damaged."""
    return decode_trajectories(path, read_bytes(path, kind="the trajectories"))


def decode_trajectories(path: Path, data: bytes) -> Trajectories:
    """Return the trajectories in ``data``, the content of the file ``path``; see :func:`read_trajectories`."""
    metadata, table = decode(path, data, _TYPES)
    try:
        if KEY not in metadata or len(table.column_names) < len(_TYPES):
            raise msgspec.ValidationError(f"it lacks one of the columns {', '.join(_TYPES)}, or the key {KEY!r}")
        read = msgspec.json.decode(metadata[KEY], type=Trajectories)
        runs: dict[str, list[Trajectory]] = {name: [] for name in read.tables}
        for name, *run in zip(*(table[name].to_pylist() for name in _TYPES), strict=True):
            if name not in runs:
                raise msgspec.ValidationError(f"it does not describe the table {name!r}")
            runs[name].append(msgspec.convert(run, Trajectory))
    except UNREADABLE as error:
        raise SearchlabError(f"cannot read the trajectories {path}: {error}; fetch the file again") from None
    if read.trajectories != FORMAT:
        raise SearchlabError(
            f"{path} has format {read.trajectories}, but this version of searchlab reads format {FORMAT}"
        )
    if not read.tables:
        raise SearchlabError(f"{path} contains no runs; write it again with `searchlab suite run`")
    tables = {name: msgspec.structs.replace(read.tables[name], runs=tuple(runs[name])) for name in runs}
    return msgspec.structs.replace(read, tables=tables)


def read_results(paths: Iterable[Path]) -> list[Trajectories]:
    """Read result files, or directories with result files as written by ``suite run --out``.

    Raises:
        SearchlabError: If a directory contains no such file, or if a file is damaged.
    """
    result_files: list[Path] = []
    for result_path in paths:
        files = sorted(result_path.glob(f"*{RUNS_SUFFIX}")) if result_path.is_dir() else [result_path]
        if not files:
            raise SearchlabError(
                f"{result_path} contains no runs (*{RUNS_SUFFIX}); `suite run --out` writes result{RUNS_SUFFIX}"
            )
        result_files += files
    return [read_trajectories(path) for path in result_files]


def trajectories_path(directory: Path, strategy: str) -> Path:
    """Return the path of a strategy's file in a directory of trajectories."""
    return directory / (file_name(strategy) + RUNS_SUFFIX)


def baselines(suite: Suite, names: Sequence[str] | None = None) -> list[Trajectories]:
    """Return the baselines ``names`` of ``suite``, or all if None. Raises SearchlabError if one does not exist."""
    files = suite.baseline_paths
    for name in names or ():
        if name not in files:
            raise SearchlabError(f"the suite {suite.name} has no baseline {name!r}{did_you_mean(name, files)}")
    return [read_trajectories(files[name]) for name in (files if names is None else names)]


class Use(msgspec.Struct, frozen=True):
    """An entry of the journal :data:`USES_FILE`.

    Attributes:
        strategy: The digest of policy, options, cost model, features and batch.
    """

    suite: str
    policy: str
    strategy: str
    label: str


def count_use(result: Trajectories) -> int:
    """Record that the strategy of ``result`` was run on the test split, and return how many variants of it have been.

    Variants use the same policy with other options or another cost model, features or batch; each counts once, however
    often it is run. Raises SearchlabError if the file is damaged or cannot be written.
    """
    identity = msgspec.json.encode([result.policy, result.cost_model, result.features, result.batch])
    use = Use(result.suite, result.policy.name, hashlib.sha256(identity).hexdigest()[:16], result.strategy)
    path = platformdirs.user_data_path("searchlab") / USES_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_write_error(path, error) from None
    with closing(Journal(path, Use)) as journal:
        variants = {
            earlier.strategy
            for earlier in journal.entries
            if (earlier.suite, earlier.policy) == (use.suite, use.policy)
        }
        if use.strategy not in variants:
            journal.append(use)
    return len(variants | {use.strategy})
