"""Warm starts: the earlier runs from which runs start."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..costmodel import BoundCostModel, OtherTask, compute_scores
from ..costmodel.features import FEATURES
from ..errors import SearchlabError, warn
from ..files import read_each, real_path
from ..log.format import DEFAULT_CONFIG_MARKER, Log, workload_name, workload_of
from ..log.programs import ChangedProgram
from ..log.read import decode_log, find_logs, read_log, read_log_bytes
from ..log.result import Result
from ..measure.suite import SuiteTable, find_suite
from ..plugins import Plugin, trust_plugins
from ..policy import Policy
from ..records import Statistic, Trial
from ..space import Space
from .strategy import SpaceChoice, Strategy

Source = str | Path | Result
"""A source of a warm start: a log, a directory of logs, a result, the tables of a suite, such as ``"suite:v1/dev"``, or
``"default"``, the default config of the space, which is then the run's first trial."""

TRIALS_PER_TABLE = 128
"""The number of random trials that a warm start uses from each table of a suite."""


@dataclass(frozen=True)
class EarlierRun:
    """An earlier run that can be used as a warm start.

    Attributes:
        digest: The log's digest.
        statistic: The statistic that the new run uses as the cost.
        directory: The directory in which it was found, or None if it was specified itself and must be used.
        may_import: Whether its space is being searched and may be imported.
        is_from_suite: Whether it is part of a suite's table, which runs for the same workload must not use.
    """

    log: Log
    digest: str
    statistic: Statistic
    directory: Path | None = field(default=None, compare=False)
    may_import: bool = field(default=False, compare=False)
    is_from_suite: bool = False

    @cached_property
    def trials(self) -> list[Trial]:
        """The run's trials, except for trials whose measurement a table took from a nearest config."""
        return [
            replace(trial, measurement=replace(trial.measurement, statistic=self.statistic))
            for trial in self.log.trials
            if not trial.measurement.nearest
        ]

    @cached_property
    def task(self) -> OtherTask:
        """The run's trials as training data for a different search. The fastest trial has a score of 1."""
        return OtherTask(self.space, [trial.config for trial in self.trials], compute_scores(self.trials))

    @cached_property
    def space(self) -> Space:
        """The run's space, whose plug-in is imported. Raises SearchlabError if the space no longer exists."""
        # Not within trust_plugins(), which is only for the space
        workload = workload_of(self.log.header, self.log.path)
        with trust_plugins(self.may_import):
            return Result(self.log).space_of(workload)

    def check_programs(self) -> None:
        """Check a sample of the programs that the space builds now. Raises ChangedProgram if one is different.

        The tables of a suite never change, and a policy may learn from them although the space has changed; in this
        case, a SearchlabWarning is issued.
        """
        if self._changed_program is None:
            return
        if not self.is_from_suite:
            raise self._changed_program
        warn(f"the run starts from the times of other programs: {self._changed_program.where_and_what}")

    @cached_property
    def _changed_program(self) -> ChangedProgram | None:
        try:
            Result(self.log, self.space).check_programs()
        except ChangedProgram as error:
            return error
        return None

    def has_knobs_of(self, plugin: Plugin, space: Space) -> bool:
        """Return whether the run searched a different shape in the same space: same plug-in, operator and knobs."""
        header = self.log.header
        if header.space != plugin or self.space.workload.op != space.workload.op:
            return False
        return self.space.knobs_of(self.space.probe()).keys() == space.knobs_of(space.probe()).keys()


def read_earlier_run(path: Path, statistic: Statistic, directory: Path | None = None) -> EarlierRun:
    """Read the log at ``path``. Its digest is that of its complete lines, uncompressed."""
    log_bytes = read_log_bytes(path)
    log = decode_log(path, log_bytes)
    return EarlierRun(log, hashlib.sha256(log_bytes[: log.byte_count]).hexdigest()[:32], statistic, directory)


def _read_directory(directory: Path, statistic: Statistic) -> list[EarlierRun]:
    """Return the runs in a directory that have trials, oldest first."""
    runs: dict[str, EarlierRun] = {}
    for run in read_each(find_logs(directory), lambda path: read_earlier_run(path, statistic, directory)):
        if run.trials:
            runs.setdefault(run.digest, run)
    return sorted(runs.values(), key=lambda run: (run.log.header.created_at, run.digest))


def _read_table(table: SuiteTable, statistic: Statistic) -> EarlierRun:
    """Return random trials of a suite's table as an earlier run. The trials are the same for every new run."""
    log, rng = read_log(table.path), np.random.default_rng(zlib.crc32(table.entry.name.encode()))
    indices = rng.permutation(len(log.records))[:TRIALS_PER_TABLE].tolist()
    digest = hashlib.sha256(f"{table.digest} {indices}".encode()).hexdigest()[:32]
    return EarlierRun(
        replace(log, records=tuple(log.records[index] for index in indices)), digest, statistic, is_from_suite=True
    )


@dataclass(frozen=True)
class WarmStart:
    """The earlier runs from which a run starts or, before the run is planned, all those that are specified.

    Attributes:
        runs: The earlier runs; those in the run's own space come first.
        directories: The directories that contain some of the specified runs.
        includes_default_config: Whether the run's first trial is the default config of its space.
        fingerprint: The fingerprint of the run's space, or "" before the run is planned.
    """

    runs: tuple[EarlierRun, ...] = ()
    directories: tuple[Path, ...] = ()
    includes_default_config: bool = False
    fingerprint: str = ""

    @classmethod
    def from_sources(
        cls, sources: Source | Sequence[Source], statistic: Statistic, base_dir: Path = Path()
    ) -> WarmStart:
        """Read the logs in one or more ``sources``, whose paths are relative to ``base_dir``.

        Raises SearchlabError if a log is damaged, has no trials or is specified twice.
        """
        if isinstance(sources, str | Path | Result):
            sources = [sources]
        runs: list[EarlierRun] = []
        directories: list[Path] = []
        for source in sources:
            if source == DEFAULT_CONFIG_MARKER:
                continue
            if isinstance(source, str) and source.startswith("suite:"):
                suite = find_suite(source.removeprefix("suite:"), base_dir)
                runs += (_read_table(table, statistic) for table in suite.tables)
                continue
            if isinstance(source, Result):
                source = source.log.path.absolute()
            if not isinstance(source, str | Path):
                raise SearchlabError(
                    f"a warm start must be a log, a directory of logs, a result, a suite or "
                    f"{DEFAULT_CONFIG_MARKER!r}, not {source!r:.200}"
                )
            path = base_dir / source
            if path.is_dir():
                directory_runs = _read_directory(path, statistic)
                if not directory_runs:
                    raise SearchlabError(f"no logs (*.jsonl) with trials found in {path} to start from")
                runs = directory_runs + runs
                directories.append(path)
                continue
            run = read_earlier_run(path, statistic)
            if not run.trials:
                raise SearchlabError(f"{path} contains no measured trials to start from")
            if any(other.directory is None and other.digest == run.digest for other in runs):
                raise SearchlabError(f"{path} is specified twice, or is a copy of another log; specify each log once")
            runs.append(run)
        return cls(tuple(runs), tuple(directories), DEFAULT_CONFIG_MARKER in sources)

    @property
    def same_space(self) -> list[EarlierRun]:
        """The runs in the run's own space."""
        return [run for run in self.runs if run.log.header.fingerprint == self.fingerprint]

    @property
    def other_spaces(self) -> list[EarlierRun]:
        """The runs in other spaces."""
        return [run for run in self.runs if run.log.header.fingerprint != self.fingerprint]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(run.digest for run in self.runs)

    @property
    def sources(self) -> tuple[str, ...]:
        """What the log's header records; see :class:`~searchlab.log.format.Header`."""
        return (*((DEFAULT_CONFIG_MARKER,) if self.includes_default_config else ()), *self.digests)

    @property
    def trials(self) -> list[Trial]:
        """The trials in the run's own space."""
        return [trial for run in self.same_space for trial in run.trials]

    def select(self, space_choice: SpaceChoice, strategy: Strategy) -> WarmStart:
        """Return the runs from which ``strategy`` can start.

        Every policy can learn from trials in the same space. Other runs can be used only to train a cost model, or by a
        policy that transfers. A cost model with program features can learn from runs in any space. Cost models with
        knob features, as well as policies that transfer, can learn only from runs for a different shape in the same
        space. A run never learns from a suite's tables for its own workload.
        """
        space, plugin = space_choice.space, space_choice.plugin
        runs = [
            run for run in self.runs if not (run.is_from_suite and workload_name(run.log.header) == str(space.workload))
        ]
        all_runs = replace(self, runs=tuple(runs), fingerprint=space.fingerprint)
        features = FEATURES.get(strategy.features)
        other_spaces = [
            replace(run, may_import=run.log.header.space == plugin.to_spec())
            for run in all_runs.other_spaces
            if features is not None or strategy.transfers
        ]
        if features is None or strategy.transfers or not features.builds_programs:
            other_spaces = [run for run in other_spaces if run.has_knobs_of(plugin, space)]
        return replace(all_runs, runs=(*all_runs.same_space, *other_spaces))

    def exclude_other_machines(self, machine: str, space: Space) -> WarmStart:
        """Return this warm start without runs in directories that searched ``space`` on another than ``machine``.

        There is a warning for each directory that contains such runs.
        """
        runs: dict[str, EarlierRun] = {}
        machines_by_directory: dict[Path, set[str]] = {}
        for run in self.runs:
            header = run.log.header
            is_other_machine = machine and header.measured_on not in ("", machine)
            if run.directory is not None and header.fingerprint == space.fingerprint and is_other_machine:
                machines_by_directory.setdefault(run.directory, set()).add(header.measured_on)
            else:
                runs[run.digest] = run
        for directory, machines in machines_by_directory.items():
            warn(
                f"the logs of {space.workload} in {directory} that were measured on {' and '.join(sorted(machines))} "
                f"are no warm start for runs on {machine}"
            )
        return replace(self, runs=tuple(runs.values()))

    def exclude_logs(self, log_paths: Set[Path]) -> WarmStart:
        """Return this warm start without the runs in directories whose logs are among ``log_paths``."""
        runs = [run for run in self.runs if run.directory is None or real_path(run.log.path) not in log_paths]
        return replace(self, runs=tuple(runs))

    def feed(self, policy: Policy, cost_model: BoundCostModel | None, trials: Sequence[Trial] = ()) -> None:
        """Train the cost model on the runs in other spaces, and warm-start the policy with the runs in its own space.

        A policy that transfers also learns from the runs in other spaces.

        Args:
            policy: The policy, before its first proposal.
            cost_model: The policy's cost model, if it has one.
            trials: The trials that the run itself has measured before the policy's first proposal.
        """
        if cost_model is not None and cost_model.features.builds_programs:
            for run in self.runs:
                run.check_programs()
        if cost_model is not None and self.other_spaces:
            cost_model.pretrain([run.task for run in self.other_spaces])
        if policy.traits.transfers and self.other_spaces:
            policy.transfer([(run.space, run.trials) for run in self.other_spaces])
        if own_trials := [*self.trials, *trials]:
            policy.warm_start(own_trials)

    def check_used(self, warm_starts: Sequence[WarmStart]) -> None:
        """Raise SearchlabError if none of ``warm_starts`` uses a log that was specified.

        Suites may be unused. A directory that is not used causes a SearchlabWarning.
        """
        used_digests = {digest for warm_start in warm_starts for digest in warm_start.digests}
        for directory in self.directories:
            digests = {run.digest for run in self.runs if run.directory == directory}
            if used_digests.isdisjoint(digests):
                text = f"no run can learn from any of the {len(digests)} logs in {directory}, so it starts without them"
                warn(text)
        for run in self.runs:
            if run.directory is None and not run.is_from_suite and run.digest not in used_digests:
                header = run.log.header
                raise SearchlabError(
                    f"{run.log.path} cannot be used as a warm start: it searched {header.workload} in a different "
                    f"space, {header.space_name}. Cost models with program features (program, per-store, itervar, "
                    f"curve) can learn from any space; cost models with knob features, and policies that transfer, can "
                    f"learn only from other shapes in the same space. For a policy that uses a cost model, set "
                    f'features = "program"'
                )


def find_earlier_run(directories: Sequence[Path], digest: str, statistic: Statistic, log_path: Path) -> EarlierRun:
    """Return the run whose log, or the beginning of whose log, has this digest; the log may have grown since.

    Raises SearchlabError, which names the new run's ``log_path``, if there is no such run.
    """
    for directory in directories:
        for path in find_logs(directory):
            log_bytes = read_log_bytes(path)
            hasher, size = hashlib.sha256(), 0
            for line in log_bytes.splitlines(keepends=True):
                hasher.update(line)
                size += len(line)
                if hasher.hexdigest().startswith(digest):
                    return EarlierRun(decode_log(path, log_bytes[:size]), digest, statistic, directory)
    raise SearchlabError(
        f"a run in {log_path.parent} started from a log that {', '.join(map(str, directories))} does not contain "
        f"(digest {digest}); restore that log, or choose a different path for this run's log"
    )
