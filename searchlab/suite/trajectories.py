"""Trajectories: one strategy's runs over a suite's tables, stored as the indices of configs in each table.

The columns of a run follow from its trajectory and table without TVM, except for the time that the strategy spent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np
import platformdirs

from ..analysis.runs import pad_curves
from ..arrays import Floats
from ..errors import SearchlabError, did_you_mean
from ..files import file_name, make_write_error, read_bytes, write_file
from ..log.columns import LogColumns, read_columns
from ..log.format import Header, RunEnd
from ..log.journal import Journal
from ..log.read import RUNS_SUFFIX
from ..machine.host import cpu_model
from ..measure.suite import Suite, SuiteTable
from ..parquet import INTEGERS, KEY, decode, encode, make_array
from ..plugins import Plugin
from ..schema import UNREADABLE
from ..space import Config
from ..stats.random_search import RandomDraws

FORMAT_VERSION = 1
_COLUMN_TYPES = {"table": ("string",), "seed": ("int64",), "configs": (INTEGERS,), "ended": ("bool",)}

RANDOM = "random"
"""The name of the baseline that learns nothing."""

TEST_USES_FILE = "test-splits.jsonl"
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

    @classmethod
    def from_log(cls, log: LogColumns, table: SuiteTable) -> Self:
        """Return the run in ``log`` over ``table``. Raises SearchlabError if the table lacks one of its configs."""
        configs = (Config(log.config(index)) for index in range(log.trial_count))
        try:
            positions = tuple(table.positions_by_config[config] for config in configs)
        except KeyError as error:
            raise SearchlabError(f"{log.path} contains a config that {table.name} does not: {error}") from None
        return cls(log.header.seed, positions, bool(log.run_end))


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


class Trajectories(
    msgspec.Struct,
    frozen=True,
    rename={"format_version": "trajectories", "trial_count": "trials", "start_salt": "starts", "code_digests": "code"},
    kw_only=True,
):
    """The runs of one strategy, by table.

    Attributes:
        format_version: The version of the format.
        suite: The suite's version.
        strategy: Its name in pictures and tables.
        trial_count: The largest number of trials in a run.
        start_salt: As in the header of a log.
        contrasts: As in the header of a log.
        own_seconds: The mean time for training and proposing per run on ``host``.
        code_digests: The digests of the code of the policy and the cost model, unless it changed between runs.
        test_uses: The number of variants of the policy run on the test split so far.
    """

    format_version: int = FORMAT_VERSION
    suite: str
    strategy: str
    policy: Plugin
    cost_model: Plugin | None = None
    features: str = ""
    batch: int
    trial_count: int
    start_salt: str = ""
    contrasts: tuple[tuple[str, str], ...] = ()
    own_seconds: float = 0.0
    host: str = ""
    versions: dict[str, str] = {}
    code_digests: dict[str, str] = {}
    test_uses: int | msgspec.UnsetType = msgspec.UNSET
    tables: dict[str, TableRuns]

    def __repr__(self) -> str:
        return f"<Trajectories of {self.strategy} over {len(self.tables)} tables of {self.suite}>"

    @property
    def plugins(self) -> list[Plugin]:
        """The policy and, if there is one, the cost model."""
        return [plugin for plugin in (self.policy, self.cost_model) if plugin]

    @property
    def named_runs(self) -> list[tuple[str, Trajectory]]:
        """All runs, each with the name of its table."""
        return [(name, run) for name, table_runs in self.tables.items() for run in table_runs.runs]

    def runs_on(self, table: SuiteTable) -> TableRuns:
        """Return the runs over ``table``.

        Raises SearchlabError if there are none, if they used a different file, or if they are not runs over it.
        """
        name = table.entry.name
        if name not in self.tables:
            raise SearchlabError(f"{self.strategy} has no runs over {table.name}{did_you_mean(name, self.tables)}")
        runs = self.tables[name]
        if runs.digest != table.digest:
            raise SearchlabError(
                f"{self.strategy} was run on a different version of {table.name}: its SHA-256 was {runs.digest}, but "
                f"is now {table.digest}; fetch the version of the suite that was used, or rerun the strategy"
            )
        for run in runs.runs:
            run_title = f"the run of {self.strategy} over {table.name} with seed {run.seed}"
            if run.configs and max(run.configs) >= len(table.log.records):
                raise SearchlabError(
                    f"{run_title} refers to config {max(run.configs)}, but the table has only "
                    f"{len(table.log.records)} configs; the file is damaged: fetch it again"
                )
            if len(set(run.configs)) < len(run.configs) or len(run.configs) > self.trial_count:
                raise SearchlabError(
                    f"{run_title} repeats a config, or contains more than {self.trial_count}; fetch the file again"
                )
        return runs

    def costs_on(self, table: SuiteTable) -> list[Floats]:
        """Return the costs of the trials of each run over ``table``, in order."""
        return [table.log.costs[list(run.configs)] for run in self.runs_on(table).runs]

    def compute_curves(self, table: SuiteTable, trial_count: int) -> Floats:
        """Return the best throughput so far in each run, relative to the optimum: shape (runs, trial_count)."""
        best_costs = [np.minimum.accumulate(costs) for costs in self.costs_on(table)]
        curves: Floats = table.log.costs.min() / pad_curves(best_costs, trial_count)
        return curves

    def compute_areas(self, table: SuiteTable) -> Floats:
        """Return the area under the curve of each run, relative to the optimum: shape (runs,)."""
        areas: Floats = self.compute_curves(table, self.trial_count).mean(axis=1)
        return areas

    def make_columns(self, table: SuiteTable, run: Trajectory) -> LogColumns:
        """Return the columns of the log of ``run``, one of the runs over ``table``."""
        table_header, table_runs = table.log.header, self.tables[table.entry.name]
        header = Header(
            workload=table_header.workload,
            space=table.plugin,
            fingerprint=table_header.fingerprint,
            policy=self.policy,
            cost_model=self.cost_model,
            features=self.features,
            seed=run.seed,
            batch=self.batch,
            target=table_header.target,
            measure=table.settings().identity(),
            label=self.strategy,
            space_size=table_header.space_size,
            optimum=table.optimum,
            effective_options=table_runs.effective,
            random_draws=table_runs.random,
            workers=table_header.workers,
            versions=self.versions,
            start_salt=self.start_salt,
            contrasts=self.contrasts,
        )
        positions = np.array(run.configs, dtype=np.int64)
        return replace(
            table.columns.take(positions),
            path=Path(table.entry.name, self.strategy, f"seed{run.seed}"),
            header=header,
            batch_numbers=np.arange(len(positions), dtype=np.int32) // self.batch,
            run_end=RunEnd(trial_count=len(positions)) if run.ended else None,
        )


def collect_trajectories(suite: Suite, log_paths: Iterable[Path]) -> list[Trajectories]:
    """Return the trajectories of each strategy in ``log_paths``, which record runs over the tables of ``suite``.

    Raises:
        SearchlabError: If a log does not record such a run, if a run has two logs, or if the logs of a strategy differ
            in their settings.
    """
    logs_by_strategy: dict[str, list[LogColumns]] = {}
    for log_path in log_paths:
        log = read_columns(log_path)
        table = suite.table(log.header.table or "(none)")
        if log.header.measure != table.settings().identity():
            raise SearchlabError(
                f"{log_path} was not recorded with the current version of {table.name}: the log's measure is "
                f"{log.header.measure}, but the table's is {table.settings().identity()}; omit the log or rerun it"
            )
        logs = logs_by_strategy.setdefault(log.header.name, [])
        _check_same_strategy(log, logs)
        logs.append(log)
    return [_combine_logs(suite, logs) for logs in logs_by_strategy.values()]


def _check_same_strategy(log: LogColumns, other_logs: Sequence[LogColumns]) -> None:
    """Raise SearchlabError if ``log`` cannot be of the same strategy as ``other_logs``, or of the same run as one."""
    header = log.header
    all_headers = [other_log.header for other_log in other_logs]
    table_headers = [other for other in all_headers if other.table == header.table]
    for name in ("policy", "cost_model", "features", "batch", "warm_start", "start_salt", "contrasts"):
        headers = table_headers if name == "warm_start" else all_headers  # tables may differ in their warm start
        if headers and getattr(headers[0], name) != getattr(header, name):
            raise SearchlabError(
                f"{log.path}: another log of {header.name!r} has a different {name.replace('_', ' ')}; give each "
                f"strategy its own label"
            )
    if any(other.seed == header.seed for other in table_headers):
        raise SearchlabError(
            f"{log.path}: another log has the same strategy, {header.name!r}, and seed, {header.seed}; omit one of them"
        )


def _combine_logs(suite: Suite, logs: Sequence[LogColumns]) -> Trajectories:
    """Return the trajectories of a strategy, whose runs over tables are recorded in ``logs``."""
    tables = {}
    for table in suite.tables:
        if table_logs := [log for log in logs if log.header.table == table.entry.name]:
            runs = [Trajectory.from_log(log, table) for log in table_logs]
            header = table_logs[-1].header
            tables[table.entry.name] = TableRuns(
                table.digest,
                tuple(sorted(runs, key=lambda run: run.seed)),
                header.effective_options,
                header.random_draws,
            )
    log_digests = [
        {role: digest for role, digest in log.code_digests.items() if role in ("policy", "cost_model")} for log in logs
    ]
    header = logs[0].header
    return Trajectories(
        suite=suite.spec.version,
        strategy=header.name,
        policy=header.policy,
        cost_model=header.cost_model,
        features=header.features,
        batch=header.batch,
        versions=logs[-1].versions,
        host=cpu_model(),
        trial_count=max(log.trial_count for log in logs),
        start_salt=header.start_salt,
        contrasts=header.contrasts,
        code_digests=log_digests[0] if all(digests == log_digests[0] for digests in log_digests) else {},
        own_seconds=float(f"{np.mean([log.spent_seconds[:, :2].sum() for log in logs]):.3g}"),
        tables=tables,
    )


def write_trajectories(path: Path, trajectories: Trajectories) -> None:
    """Write ``trajectories`` to a file; equal ones yield equal bytes. Raises SearchlabError if writing fails."""
    rows = [(name, *msgspec.structs.astuple(run)) for name, run in trajectories.named_runs]
    columns = {
        name: make_array([row[position] for row in rows], *types)
        for position, (name, types) in enumerate(_COLUMN_TYPES.items())
    }
    tables = {name: msgspec.structs.replace(table_runs, runs=()) for name, table_runs in trajectories.tables.items()}
    metadata = msgspec.json.encode(msgspec.structs.replace(trajectories, tables=tables))
    write_file(path, encode(columns, {KEY: metadata}), durable=True)


def read_trajectories(path: Path) -> Trajectories:
    """Read trajectories from a file without executing anything in it. Raises SearchlabError if it is damaged."""
    return decode_trajectories(path, read_bytes(path, kind="the trajectories"))


def decode_trajectories(path: Path, content: bytes) -> Trajectories:
    """Return the trajectories in ``content``, that of the file ``path``; see :func:`read_trajectories`."""
    metadata, table = decode(path, content, _COLUMN_TYPES)
    try:
        if KEY not in metadata or len(table.column_names) < len(_COLUMN_TYPES):
            raise msgspec.ValidationError(f"it lacks one of the columns {', '.join(_COLUMN_TYPES)}, or the key {KEY!r}")
        trajectories = msgspec.json.decode(metadata[KEY], type=Trajectories)
        runs_by_table: dict[str, list[Trajectory]] = {name: [] for name in trajectories.tables}
        for name, *run in zip(*(table[name].to_pylist() for name in _COLUMN_TYPES), strict=True):
            if name not in runs_by_table:
                raise msgspec.ValidationError(f"it does not describe the table {name!r}")
            runs_by_table[name].append(msgspec.convert(run, Trajectory))
    except UNREADABLE as error:
        raise SearchlabError(f"cannot read the trajectories {path}: {error}; fetch the file again") from None
    if trajectories.format_version != FORMAT_VERSION:
        raise SearchlabError(
            f"{path} has format {trajectories.format_version}, but this version of searchlab reads format "
            f"{FORMAT_VERSION}"
        )
    if not trajectories.tables:
        raise SearchlabError(f"{path} contains no runs; write it again with `searchlab suite run`")
    tables = {
        name: msgspec.structs.replace(trajectories.tables[name], runs=tuple(runs))
        for name, runs in runs_by_table.items()
    }
    return msgspec.structs.replace(trajectories, tables=tables)


def read_results(paths: Iterable[Path]) -> list[Trajectories]:
    """Read result files, or directories with result files as written by ``suite run --out``.

    Raises:
        SearchlabError: If a directory contains no such file, or if a file is damaged.
    """
    result_paths: list[Path] = []
    for result_path in paths:
        run_paths = sorted(result_path.glob(f"*{RUNS_SUFFIX}")) if result_path.is_dir() else [result_path]
        if not run_paths:
            raise SearchlabError(
                f"{result_path} contains no runs (*{RUNS_SUFFIX}); `suite run --out` writes result{RUNS_SUFFIX}"
            )
        result_paths += run_paths
    return [read_trajectories(path) for path in result_paths]


def make_trajectories_path(trajectories_dir: Path, strategy: str) -> Path:
    """Return the path of a strategy's file in a directory of trajectories."""
    return trajectories_dir / (file_name(strategy) + RUNS_SUFFIX)


def read_baselines(suite: Suite, baseline_names: Sequence[str] | None = None) -> list[Trajectories]:
    """Return the baselines ``baseline_names``, or all if None. Raises SearchlabError if one does not exist."""
    paths_by_name = suite.baseline_paths
    for name in baseline_names or ():
        if name not in paths_by_name:
            raise SearchlabError(f"the suite {suite.name} has no baseline {name!r}{did_you_mean(name, paths_by_name)}")
    names = paths_by_name if baseline_names is None else baseline_names
    return [read_trajectories(paths_by_name[name]) for name in names]


class RecordedUse(msgspec.Struct, frozen=True):
    """An entry of the journal :data:`TEST_USES_FILE`.

    Attributes:
        strategy: The digest of policy, options, cost model, features and batch.
    """

    suite: str
    policy: str
    strategy: str
    label: str


def record_test_use(result: Trajectories) -> int:
    """Record that the strategy of ``result`` was run on the test split, and return how many variants of it have been.

    Variants use the same policy with other options or another cost model, features or batch; each counts once, however
    often it is run. Raises SearchlabError if the file is damaged or cannot be written.
    """
    strategy_bytes = msgspec.json.encode([result.policy, result.cost_model, result.features, result.batch])
    use = RecordedUse(
        result.suite, result.policy.name, hashlib.sha256(strategy_bytes).hexdigest()[:16], result.strategy
    )
    journal_path = platformdirs.user_data_path("searchlab") / TEST_USES_FILE
    try:
        journal_path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise make_write_error(journal_path, error) from None
    with closing(Journal(journal_path, RecordedUse)) as journal:
        variants = {
            earlier.strategy
            for earlier in journal.entries
            if (earlier.suite, earlier.policy) == (use.suite, use.policy)
        }
        if use.strategy not in variants:
            journal.append(use)
    return len(variants | {use.strategy})
