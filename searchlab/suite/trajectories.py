"""Trajectories: the runs of one strategy over the tables of a suite, each run as places of configs in its table.

A trajectory and its table give the log of the run again, without the strategy's own seconds, and without TVM.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from ..errors import SearchlabError, did_you_mean
from ..log.format import Ended, Header, Log, RandomDraws, Record, read_log, unpacked
from ..machine.host import cpu_model
from ..measure.suite import RUNS, Suite, SuiteTable
from ..plugins import Plugin
from ..schema import UNREADABLE
from ..space import Config

FORMAT = 1


class Trajectory(msgspec.Struct, frozen=True, array_like=True):
    """A run: its seed, the place of each config in the table (from 0), and whether it ended by itself."""

    seed: int
    configs: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    ended: bool = False


class TableRuns(msgspec.Struct, frozen=True):
    """The runs over one table, by seed. digest: of the table. effective, random: as in the header of a log."""

    digest: str
    runs: tuple[Trajectory, ...]
    effective: dict[str, Any] = {}
    random: RandomDraws | None = None


class Trajectories(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one strategy, by table.

    suite: its version. strategy: the name in pictures and tables. trials: the most of any run. own_seconds: what a run
    took to train and to propose, the mean over all, on the machine ``host``. versions: of the libraries. starts,
    contrasts: as in the header of a log.
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
    test_uses: int | msgspec.UnsetType = msgspec.UNSET
    """How many strategies its maker had then run over the test split of the suite, on one machine, this one included;
    not set for runs over other tables."""
    tables: dict[str, TableRuns]

    def __repr__(self) -> str:
        return f"<Trajectories of {self.strategy} over {len(self.tables)} tables of {self.suite}>"

    def runs_on(self, table: SuiteTable) -> TableRuns:
        """The runs over ``table``. Raises SearchlabError if there are none, or if they were made over another file."""
        name = table.entry.name
        if name not in self.tables:
            raise SearchlabError(f"{self.strategy} has no runs over {table.name}{did_you_mean(name, self.tables)}")
        runs = self.tables[name]
        if runs.digest != table.digest:
            raise SearchlabError(
                f"the runs of {self.strategy} are over another {table.name}: its SHA-256 was {runs.digest}, and is "
                f"{table.digest}; fetch the suite that they were made with, or run them again"
            )
        return runs


@dataclass(frozen=True)
class RecordedTable:
    """A table of a suite, read."""

    table: SuiteTable

    @cached_property
    def log(self) -> Log:
        return read_log(self.table.path)

    @cached_property
    def places(self) -> dict[Config, int]:
        return {Config(record.config): place for place, record in enumerate(self.log.records)}

    @cached_property
    def records(self) -> list[Record]:
        """The records as a run would have them that spends no time of its own."""
        return [
            msgspec.structs.replace(Record.of(trial, 0.0, 0.0), time=0.0, config=record.config)
            for trial, record in zip(self.log.trials, self.log.records, strict=True)
        ]

    @cached_property
    def optimum(self) -> float | None:
        """The least cost in seconds; None if no config runs, or if some are missing."""
        least = float(self.log.costs.min(initial=np.inf))
        whole = len(self.log.records) >= (self.log.header.space_size or np.inf)
        return least if whole and np.isfinite(least) else None

    def places_of(self, log: Log) -> tuple[int, ...]:
        """The place of each config of a run. Raises SearchlabError if the table does not hold one."""
        try:
            return tuple(self.places[Config(record.config)] for record in log.records)
        except KeyError as missing:
            raise SearchlabError(f"{log.path} holds a config that {self.table.name} does not: {missing}") from None

    def check(self, of: Trajectories, run: Trajectory) -> None:
        """Raise SearchlabError if ``run`` is no run over this table."""
        said = f"the run of {of.strategy} over {self.table.name} from seed {run.seed}"
        if run.configs and max(run.configs) >= len(self.log.records):
            raise SearchlabError(
                f"{said} names config {max(run.configs)}, and the table has {len(self.log.records)}; the file is "
                f"damaged, fetch it again"
            )
        if len(set(run.configs)) < len(run.configs) or len(run.configs) > of.trials:
            raise SearchlabError(f"{said} names a config twice, or more than {of.trials}; fetch the file again")

    def rebuilt(self, of: Trajectories, run: Trajectory) -> Log:
        """The log of ``run``. Raises SearchlabError if it is no run over this table."""
        self.check(of, run)
        header, runs = self.log.header, of.tables[self.table.entry.name]
        made = Header(
            workload=header.workload, space=self.table.plugin, fingerprint=header.fingerprint, policy=of.policy,
            cost_model=of.cost_model, features=of.features, seed=run.seed, batch=of.batch, target=header.target,
            measure=self.table.settings().identity(), label=of.strategy, space_size=header.space_size,
            optimum=self.optimum, effective=runs.effective, random=runs.random, workers=header.workers,
            versions=of.versions, starts=of.starts, contrasts=of.contrasts,
        )  # fmt: skip
        records = tuple(
            msgspec.structs.replace(self.records[place], index=index, batch=index // of.batch)
            for index, place in enumerate(run.configs)
        )
        ended = Ended(trials=len(records)) if run.ended else None
        return Log(Path(self.table.entry.name, of.strategy, f"seed{run.seed}"), made, records, None, ended)


@dataclass
class RecordedTables:
    """The tables of a suite; each is read once, when it is first asked for."""

    suite: Suite
    _read: dict[str, RecordedTable] = field(default_factory=dict)

    def __getitem__(self, name: str) -> RecordedTable:
        if name not in self._read:
            self._read[name] = RecordedTable(self.suite.table(name))
        return self._read[name]


def collect(suite: Suite, logs: Iterable[Path]) -> list[Trajectories]:
    """The trajectories of ``logs``, which are runs over the tables of ``suite``, by strategy.

    Raises SearchlabError for a log that is no such run, for two logs of one run, and if logs of one strategy differ in
    their settings.
    """
    recorded = RecordedTables(suite)
    first: dict[str, Header] = {}
    runs: dict[str, dict[str, dict[int, Trajectory]]] = {}
    told: dict[tuple[str, str], Header] = {}  # what is the same for all runs over one table
    spent: dict[str, list[float]] = {}
    for path in logs:
        log = read_log(path)
        header, table = log.header, recorded[log.header.table or "(none)"]
        if header.measure != table.table.settings().identity():
            raise SearchlabError(
                f"{path} was not answered by {table.table.name} as it is now: its measure is {header.measure}, not "
                f"{table.table.settings().identity()}; leave it out, or run it again"
            )
        same = first.setdefault(header.name, header)
        for name in ("policy", "cost_model", "features", "batch", "warm_start", "starts", "contrasts"):
            if getattr(same, name) != getattr(header, name):
                raise SearchlabError(f"{path}: another log of {header.name!r} has another {name}; give each a label")
        own = runs.setdefault(header.name, {}).setdefault(header.table, {})
        if header.seed in own:
            raise SearchlabError(
                f"{path}: another log has strategy {header.name!r} and seed {header.seed} too; leave one out"
            )
        own[header.seed] = Trajectory(header.seed, table.places_of(log), bool(log.ended))
        told[header.name, header.table] = header
        spent.setdefault(header.name, []).append(sum(r.propose_seconds + r.train_seconds for r in log.records))
    order = [table.entry.name for table in suite.tables]
    return [
        Trajectories(
            suite=suite.spec.version, strategy=name, policy=header.policy, cost_model=header.cost_model,
            features=header.features, batch=header.batch, versions=header.versions, host=cpu_model(),
            trials=max(len(run.configs) for own in runs[name].values() for run in own.values()),
            starts=header.starts, contrasts=header.contrasts, own_seconds=float(f"{np.mean(spent[name]):.3g}"),
            tables={
                table: TableRuns(
                    recorded[table].table.digest,
                    tuple(runs[name][table][seed] for seed in sorted(runs[name][table])),
                    told[name, table].effective,
                    told[name, table].random,
                )
                for table in order
                if table in runs[name]
            },
        )
        for name, header in first.items()
    ]  # fmt: skip


def write_trajectories(path: Path, trajectories: Trajectories) -> None:
    """Write a file; the same trajectories always give the same bytes. Raises SearchlabError if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(msgspec.json.encode(trajectories), 9, mtime=0))
    except OSError as error:
        raise SearchlabError(f"cannot write {path}: {error.strerror}") from None


def read_trajectories(path: Path) -> Trajectories:
    """The trajectories in a file; nothing in it is executed. Raises SearchlabError if it is damaged."""
    try:
        read = msgspec.json.decode(unpacked(path, path.read_bytes()), type=Trajectories)
    except FileNotFoundError:
        raise SearchlabError(f"there are no trajectories {path}") from None
    except (OSError, EOFError, zlib.error, *UNREADABLE) as error:
        raise SearchlabError(f"cannot read the trajectories {path}: {error}; fetch the file again") from None
    if read.trajectories != FORMAT:
        raise SearchlabError(f"{path}: its format is {read.trajectories}; this searchlab reads format {FORMAT}")
    # Suite v1 is sealed, and its baseline ansor has these features by the name that they had then.
    return msgspec.structs.replace(read, features="per-store") if read.features == "store" else read


def read_results(places: Iterable[Path]) -> list[Trajectories]:
    """The trajectories in files, and in directories of them such as ``suite run --out`` writes.

    Raises SearchlabError for a directory without any, and for a damaged file.
    """
    found: list[Path] = []
    for place in places:
        files = sorted(place.glob(f"*{RUNS}")) if place.is_dir() else [place]
        if not files:
            raise SearchlabError(f"there are no runs (*{RUNS}) in {place}; `suite run --out` writes result{RUNS}")
        found += files
    return [read_trajectories(path) for path in found]


def trajectories_path(directory: Path, strategy: str) -> Path:
    """The file of a strategy in a directory of trajectories."""
    return directory / (re.sub(r"[^\w.+-]+", "_", strategy) + RUNS)


def baselines(suite: Suite, names: Sequence[str] | None = None) -> list[Trajectories]:
    """The baselines of ``suite`` that are called ``names``, or all. Raises SearchlabError if one is not there."""
    known = suite.baseline_files
    for name in names or ():
        if name not in known:
            raise SearchlabError(f"the suite {suite.name} has no baseline {name!r}{did_you_mean(name, known)}")
    return [read_trajectories(known[name]) for name in (known if names is None else names)]
