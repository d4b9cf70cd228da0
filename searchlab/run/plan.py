"""Plan runs: their spaces, strategies and budgets, and the earlier runs from which they start.

All runs are planned by :func:`plan_run`, which is called by ``tune``, studies and tables.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..console import one_line
from ..costmodel import COST_MODELS, BoundCostModel, OtherTask, make_cost_model, scores_of
from ..costmodel.features import FEATURES, make_features
from ..errors import SearchlabError, SearchlabWarning
from ..files import real_path
from ..log.format import (
    BUILTIN_KINDS,
    FORMAT,
    Computation,
    Header,
    Log,
    RandomDraws,
    decode_log,
    find_logs,
    read_bytes,
    read_log,
    workload_name,
    workload_of,
)
from ..log.plan import Budget
from ..log.programs import ChangedProgram
from ..log.result import Result
from ..machine.host import host_model, library_versions, machine
from ..measure.contract import Conditions, conditions
from ..measure.settings import Settings, TableSettings
from ..measure.suite import SuiteTable, find_suite
from ..plugins import Plugin, PluginSpec, functions_in, names_from, trust_plugins, unspecified_options
from ..policy import POLICIES, Policy
from ..records import Statistic, Trial
from ..source import core_digest, source_digest
from ..space import SPACES, Space
from ..target import Target
from ..workload import WORKLOADS, Workload, kind_of

Source = str | Path | Result
"""A source of earlier runs: a log, a directory of logs, a result, or the tables of a suite, such as
``"suite:v1/dev"``."""

OF_TABLE = 128
"""The number of random trials that a warm start uses from each table of a suite."""

OnTrial = Callable[[Trial, bool], object]
"""A callback that receives every trial in the log, in order, and whether the trial was in the log when the run began.

It is also called for the trials in a complete log. Its return value is ignored. If it raises an error, the run ends and
the error propagates to the caller. The trial remains in the log, so the run can be resumed after it.
"""


@dataclass(frozen=True)
class EarlierRun:
    """An earlier run that can be used as a warm start.

    Attributes:
        digest: The log's digest.
        statistic: The statistic that the new run uses as the cost.
        in_directory: Whether it was found in a directory and may be unused.
        asked_for: Whether its space is being searched and may be imported.
        of_suite: Whether it is part of a suite's table, which runs for the same workload must not use.
    """

    log: Log
    digest: str
    statistic: Statistic
    in_directory: bool = field(default=False, compare=False)
    asked_for: bool = field(default=False, compare=False)
    of_suite: bool = False

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
        return OtherTask(self.space, [trial.config for trial in self.trials], scores_of(self.trials))

    @cached_property
    def space(self) -> Space:
        """The run's space, whose plug-in is imported. Raises SearchlabError if the space no longer exists."""
        # Not within trust_plugins(), which is only for the space
        workload = workload_of(self.log.header, self.log.path)
        with trust_plugins(self.asked_for):
            return Result(self.log).space_of(workload)

    def check_programs(self) -> None:
        """Check a sample of the programs that the space builds now. Raises ChangedProgram if one is different.

        The tables of a suite never change, and a policy may learn from them although the space has changed; in this
        case, a SearchlabWarning is issued.
        """
        if self._changed is None:
            return
        if not self.of_suite:
            raise self._changed
        warnings.warn(
            f"the run starts from the times of other programs: {self._changed.where_and_what}",
            SearchlabWarning,
            stacklevel=2,
        )

    @cached_property
    def _changed(self) -> ChangedProgram | None:
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


@dataclass(frozen=True)
class LogDirectory:
    """A directory of logs that serves as a warm start. A run uses those logs in it from which it can learn.

    Attributes:
        statistic: The statistic that the new run uses as the cost.
    """

    path: Path
    statistic: Statistic

    @cached_property
    def runs(self) -> list[EarlierRun]:
        """The runs in the directory that have trials, oldest first. Issues a warning about unreadable logs."""
        runs: dict[str, EarlierRun] = {}
        problems: list[str] = []
        for path in find_logs(self.path):
            try:
                run = read_earlier_run(path, self.statistic, in_directory=True)
            except SearchlabError as error:
                problems.append(str(error))
                continue
            if run.trials:
                runs.setdefault(run.digest, run)
        if problems:
            others = f"; so are {len(problems) - 1} others" if len(problems) > 1 else ""
            warnings.warn(f"a log to start from is unreadable: {problems[0]}{others}", SearchlabWarning, stacklevel=2)
        return sorted(runs.values(), key=lambda run: (run.log.header.created, run.digest))

    def usable(self, space: Space, machine: str) -> list[EarlierRun]:
        """Return the runs except those in ``space`` that were measured on a machine other than ``machine``.

        The name of a machine is "" if it is unknown.
        """
        usable, elsewhere = [], set()
        for run in self.runs:
            measured_on = run.log.header.measured_on
            if run.log.header.fingerprint == space.fingerprint and machine and measured_on not in ("", machine):
                elsewhere.add(measured_on)
            else:
                usable.append(run)
        if elsewhere:
            warnings.warn(
                f"the logs of {space.workload} in {self.path} that were measured on {' and '.join(sorted(elsewhere))} "
                f"are no warm start for runs on {machine}",
                SearchlabWarning,
                stacklevel=2,
            )
        return usable

    def run_with(self, digest: str) -> EarlierRun | None:
        """Return the run whose log, or the beginning of whose log, has this digest; the log may have grown since."""
        for run in self.runs:
            if run.digest == digest:
                return run
        for path in find_logs(self.path):
            sha, size = hashlib.sha256(), 0
            for line in read_bytes(path).splitlines(keepends=True):
                sha.update(line)
                size += len(line)
                if sha.hexdigest().startswith(digest):
                    log = decode_log(path, read_bytes(path)[:size])
                    return EarlierRun(log, digest, self.statistic, in_directory=True)
        return None


def read_earlier_run(path: Path, statistic: Statistic, in_directory: bool = False) -> EarlierRun:
    """Read the log at ``path``. Its digest is that of its complete lines, uncompressed."""
    data = read_bytes(path)
    log = decode_log(path, data)
    return EarlierRun(log, hashlib.sha256(data[: log.size]).hexdigest()[:32], statistic, in_directory)


@dataclass(frozen=True)
class WarmStart:
    """The earlier runs from which a run starts.

    Attributes:
        same_space: The runs in the same space.
        directories: The directories that contain some of these runs.
    """

    same_space: tuple[EarlierRun, ...] = ()
    others: tuple[EarlierRun, ...] = ()
    directories: tuple[LogDirectory, ...] = ()

    @property
    def runs(self) -> tuple[EarlierRun, ...]:
        return (*self.same_space, *self.others)

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(run.digest for run in self.runs)

    @property
    def trials(self) -> list[Trial]:
        return [trial for run in self.same_space for trial in run.trials]

    def without(self, logs: Set[Path]) -> WarmStart:
        """Return this warm start without the runs that were found in a directory and whose logs are among ``logs``."""

        def is_kept(run: EarlierRun) -> bool:
            return not (run.in_directory and real_path(run.log.path) in logs)

        return replace(
            self, same_space=tuple(filter(is_kept, self.same_space)), others=tuple(filter(is_kept, self.others))
        )

    def feed(self, policy: Policy, cost_model: BoundCostModel | None) -> None:
        """Train the cost model on the runs in other spaces, and warm-start the policy with the runs in its own space.

        A policy that transfers also learns from the runs in other spaces.
        """
        if cost_model is not None and cost_model.features.builds_programs:
            for run in self.runs:
                run.check_programs()
        if cost_model is not None and self.others:
            cost_model.pretrain([run.task for run in self.others])
        if policy.traits.transfers and self.others:
            policy.transfer([(run.space, run.trials) for run in self.others])
        if self.same_space:
            policy.warm_start(self.trials)


def earlier_runs(
    sources: Sequence[Source], statistic: Statistic, base: Path = Path()
) -> list[EarlierRun | LogDirectory]:
    """Return the earlier runs and the directories of logs in ``sources``, whose paths are relative to ``base``.

    Raises SearchlabError if a log is damaged, has no trials or is specified twice.
    """
    runs: list[EarlierRun | LogDirectory] = []
    for source in sources:
        if isinstance(source, str) and source.startswith("suite:"):
            runs += (_of_table(table, statistic) for table in find_suite(source.removeprefix("suite:"), base).tables)
            continue
        if isinstance(source, Result):
            source = source.log.path.absolute()
        if not isinstance(source, str | Path):
            raise SearchlabError(
                f"a warm start must be a log, a directory of logs, a result or a suite, not {source!r:.200}"
            )
        path = base / source
        if path.is_dir():
            directory = LogDirectory(path, statistic)
            if not directory.runs:
                raise SearchlabError(f"no logs (*.jsonl) with trials found in {path} to start from")
            runs.append(directory)
            continue
        run = read_earlier_run(path, statistic)
        if not run.trials:
            raise SearchlabError(f"{path} contains no measured trials to start from")
        if any(isinstance(other, EarlierRun) and other.digest == run.digest for other in runs):
            raise SearchlabError(f"{path} is specified twice, or is a copy of another log; specify each log once")
        runs.append(run)
    return runs


def _of_table(table: SuiteTable, statistic: Statistic) -> EarlierRun:
    """Return random trials of a suite's table as an earlier run. The trials are the same for every new run."""
    log, rng = read_log(table.path), np.random.default_rng(zlib.crc32(table.entry.name.encode()))
    indices = rng.permutation(len(log.records))[:OF_TABLE].tolist()
    digest = hashlib.sha256(f"{table.digest} {indices}".encode()).hexdigest()[:32]
    return EarlierRun(
        replace(log, records=tuple(log.records[index] for index in indices)), digest, statistic, of_suite=True
    )


def usable(runs: Sequence[EarlierRun], plugin: Plugin, space: Space, strategy: Strategy) -> WarmStart:
    """Return the ``runs`` that can be used when searching ``space``, which is specified by ``plugin``.

    Every policy can learn from trials in ``space``. Other runs can be used only to train a cost model, or by a policy
    that transfers. A cost model with program features can learn from runs in any space. Cost models with knob features,
    as well as policies that transfer, can learn only from runs for a different shape in the same space. A run never
    learns from a suite's tables for its own workload.
    """
    runs = [run for run in runs if not (run.of_suite and workload_name(run.log.header) == str(space.workload))]
    same_space = tuple(run for run in runs if run.log.header.fingerprint == space.fingerprint)
    others = tuple(run for run in runs if run.log.header.fingerprint != space.fingerprint)
    kind, transfers = FEATURES.get(strategy.features), strategy.policy_class.traits.transfers
    if kind is None and not transfers:  # there is no cost model
        return WarmStart(same_space)
    others = tuple(replace(run, asked_for=run.log.header.space == plugin.to_spec()) for run in others)
    if kind is None or transfers or not kind.builds_programs:
        others = tuple(run for run in others if run.has_knobs_of(plugin, space))
    return WarmStart(same_space, others)


def check_used(earlier: Sequence[EarlierRun | LogDirectory], warm_starts: Sequence[WarmStart]) -> None:
    """Raise SearchlabError if none of ``warm_starts`` uses a log in ``earlier``.

    Suites may be unused. A directory that is not used causes a SearchlabWarning.
    """
    used = {digest for warm in warm_starts for digest in warm.digests}
    for run in earlier:
        if isinstance(run, LogDirectory) and used.isdisjoint(earlier_run.digest for earlier_run in run.runs):
            text = f"no run can learn from any of the {len(run.runs)} logs in {run.path}, so it starts without them"
            warnings.warn(text, SearchlabWarning, stacklevel=2)
        if isinstance(run, EarlierRun) and not run.of_suite and run.digest not in used:
            header = run.log.header
            raise SearchlabError(
                f"{run.log.path} cannot be used as a warm start: it searched {header.workload} in a different space, "
                f"{header.space_name}. Cost models with program features (program, per-store, itervar, curve) can "
                f"learn from any space; cost models with knob features, and policies that transfer, can learn only "
                f"from other shapes in the same space. For a policy that uses a cost model, set "
                f'features = "program"'
            )


@dataclass(frozen=True)
class SpaceChoice:
    """A space to search.

    Attributes:
        label: Its name in figures and tables, if it differs from the plug-in's name.
        size: The number of configs, if they were counted.
    """

    space: Space
    plugin: Plugin
    label: str = ""
    size: int | None = None

    @classmethod
    def from_spec(
        cls,
        spec: PluginSpec | Space,
        workload: Workload,
        target: Target | None,
        label: str = "",
        *,
        settings: Settings | None = None,
        base: Path = Path(),
    ) -> SpaceChoice:
        """Create the space specified by ``spec``.

        Args:
            spec: A plug-in specification, or a Space object.
            workload: The workload.
            target: The target. It may be None if ``spec`` is a Space object, whose own target is then used.
            label: The name to use in figures and tables, if it differs from the plug-in's name.
            settings: How to measure. If the space has no programs and is specified without options, it uses the options
                recorded in the table that supplies the measurements.
            base: The directory that relative paths start from.

        Raises:
            SearchlabError: If ``spec`` is a Space object with a different workload or target.
            UnsupportedWorkload: If the specified space has no programs for the workload.
        """
        if isinstance(spec, Space):
            if str(spec.workload) != str(workload):
                raise SearchlabError(f"the space is for {spec.workload}; create one for {workload}")
            if target is not None and target != spec.target:
                raise SearchlabError(f"the space is for the target {spec.target}, not for {target}; omit the target")
            return cls(spec, Plugin(SPACES.name_of(type(spec)), dict(spec.made_with)), label)
        assert target is not None
        plugin, space_class = SPACES.resolve(spec)
        without_programs = not getattr(space_class, "has_programs", True)
        recorded = None
        if isinstance(settings, TableSettings) and not plugin.options and without_programs:
            recorded = settings.space_of(plugin.name, str(workload), base)
        with names_from(base) if recorded else nullcontext():
            return cls(SPACES.make(recorded or plugin, workload, target), recorded or plugin, label)

    @property
    def name(self) -> str:
        return one_line(self.label or self.plugin.name)


@dataclass(frozen=True)
class Strategy:
    """A policy, together with a cost model and its features if the policy uses one.

    Attributes:
        label: Its name in figures and tables, if it differs from the policy's name.
        without_programs: The features to use if configs have no programs and the user chose no features.
    """

    policy: Plugin
    policy_class: type[Policy]
    cost_model: Plugin | None = None
    features: str = ""
    label: str = ""
    without_programs: str = ""

    @classmethod
    def from_specs(
        cls, policy: PluginSpec, cost_model: PluginSpec | None = None, features: str | None = None, label: str = ""
    ) -> Strategy:
        """Return the specified strategy. For the defaults, see :meth:`~searchlab.policy.Traits.model`.

        Raises SearchlabError if the policy or cost model cannot be found, or a cost model is specified for a policy
        that uses none.
        """
        plugin, policy_class = POLICIES.resolve(policy)
        POLICIES.check_class(plugin.name, policy_class)
        if not policy_class.traits.takes_cost_model:
            for name, value in (("cost_model", cost_model), ("features", features)):
                if value:
                    raise SearchlabError(f"policy {plugin.name!r} does not use a cost model; omit {name} = {value!r}")
            return cls(plugin, policy_class, label=label)
        own_model = policy_class.traits.own_model
        instead = own_model.without_programs if own_model and not features else ""
        model, features = policy_class.traits.model(cost_model, features)
        return cls(plugin, policy_class, COST_MODELS.resolve(model)[0], features, label, instead)

    @property
    def name(self) -> str:
        return one_line(self.label or self.policy.name)

    def start(self, space: Space, seed: int) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy, and its cost model if it uses one. Raises SearchlabError if an option is unknown."""
        options = dict(self.policy.options)
        POLICIES.check_options(self.policy.name, self.policy_class, options)
        cost_model = None
        if self.cost_model is not None:
            model = make_cost_model(self.cost_model, seed)
            cost_model = options["cost_model"] = BoundCostModel(model, make_features(self.features, space))
        with POLICIES.convert_errors(self.policy_class, "its constructor"):
            return self.policy_class(space, seed=seed, **options), cost_model


@dataclass(frozen=True)
class Run:
    """A fully specified search of a space by a strategy, with a seed and a budget.

    Attributes:
        batch: The number of configs to request from the policy at a time.
        effective: The options with which the policy runs instead of those specified; see Policy.effective.
        contrasts: The pairs of strategies that the study registers for comparison.
        starts: The text hashed into the seed of the first configs; see Header.starts.
        code: The digests of the source code that decides the run; see :func:`code_of`.
        defaults: The values of the options that were not specified; see :func:`defaults_of`.
        discard: Whether to move a log aside that this run cannot continue.
        existing_log: The log when the run was opened, or None if it did not exist yet; see :mod:`searchlab.run.open`.
    """

    space_choice: SpaceChoice
    strategy: Strategy
    seed: int
    batch: int
    budget: Budget
    settings: Settings
    log: Path
    warm_start: WarmStart = field(default_factory=WarmStart)
    effective: Mapping[str, Any] = field(default_factory=dict)
    contrasts: tuple[tuple[str, str], ...] = ()
    starts: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    discard: bool = False
    existing_log: Log | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Run {self.log.name}: {self.trials} trials of {self.strategy.label}, seed {self.seed}>"

    @property
    def trials(self) -> int:
        """The maximum number of trials."""
        return self.budget.trials

    @property
    def space(self) -> Space:
        return self.space_choice.space

    @property
    def workload(self) -> str:
        return str(self.space.workload)

    def is_current(self, log: Log) -> bool:
        """Return whether ``log`` was written, or has been reproduced, by today's code and libraries."""
        return log.code == self.code and log.versions == library_versions()

    def start(self) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy and, if it uses one, its cost model; see :meth:`Strategy.start`."""
        return self.strategy.start(self.space, own_seed(self.seed, self.starts) if self.starts else self.seed)

    def with_options(self, options: Mapping[str, Any]) -> Run:
        """Return this run with different policy options. Its effective options are then unknown."""
        policy = Plugin(self.strategy.policy.name, dict(options))
        return replace(self, strategy=replace(self.strategy, policy=policy), effective={}, defaults={})

    @property
    def host(self) -> dict[str, str]:
        """The measured CPU (and GPU), or an empty dictionary if it is not this machine's."""
        return host_model(self.space.target.kind) if self.settings.exclusive else {}

    @property
    def conditions(self) -> Conditions:
        """The conditions of this run's measurements if it is executed on this machine."""
        return conditions(self.host, self.space.target.to_json(), self.settings.identity())

    def header(self, workers: int = 1, optimum: float | None = None, random: RandomDraws | None = None) -> Header:
        """Return the header for the run's log. The arguments come from the measurer."""
        is_local = self.settings.exclusive  # this machine is measured
        target, workload = self.space.target, self.space.workload
        strategy = self.strategy
        is_defined = kind_of(self.workload)[0] in BUILTIN_KINDS
        computation = None
        if not is_defined:
            with WORKLOADS.convert_errors(type(workload), "flops, unit, cluster or content"):
                computation = Computation.from_workload(workload)
        return Header(
            searchlab_log=FORMAT,
            workload=self.workload,
            space=self.space_choice.plugin.to_spec(),
            fingerprint=self.space.fingerprint,
            policy=strategy.policy.to_spec(),
            cost_model=strategy.cost_model.to_spec() if strategy.cost_model else None,
            features=strategy.features,
            seed=self.seed,
            batch=self.batch,
            target=target.to_json(),
            measure=self.settings.identity(),
            host=self.host,
            machine=machine(target.cores) if is_local else {},
            starts=self.starts,
            warm_start=self.warm_start.digests,
            label=strategy.label,
            space_label=self.space_choice.label,
            space_size=self.space_choice.size,
            optimum=optimum,
            random=random,
            contrasts=self.contrasts,
            effective=dict(self.effective),
            workers=workers,
            versions=dict(library_versions()),
            code=dict(self.code),
            defaults=dict(self.defaults),
            created=time.time(),
            computation=computation,
        )


OnRun = Callable[[Run, int, int, int], OnTrial | None]
"""A callback for the beginning of a run. It receives the run, its number (from 1), the number of runs, and its job
(from 0).

It returns the function to call with each trial, or None. When it is called, the previous run in the same job has ended.
On an executor, short runs are reported after they have ended, with all their trials at once.
"""


def own_seed(seed: int, name: str) -> int:
    """Return the seed for a strategy that draws its own configs. It depends on ``name``, but not on the machine."""
    text = f"{name}:{seed}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big")


def plan_run(
    searched: SpaceChoice,
    strategy: Strategy,
    settings: Settings,
    budget: Budget,
    *,
    seed: int,
    batch: int,
    log: Path,
    earlier: Sequence[EarlierRun | LogDirectory] = (),
    base: Path = Path(),
) -> Run:
    """Plan a run that starts from the ``earlier`` runs that are usable. The plan is also valid for other seeds.

    Nothing is measured, but the policy is created once to detect invalid options. A table's relative path starts from
    ``base``.

    Raises:
        SearchlabError: If an option is invalid.
        UnsupportedSpace: If the policy cannot search the space.

    Warns:
        SearchlabWarning: If the budget is too small for the policy to use what it learns.
    """
    if not (searched.space.has_programs or settings.replays):
        raise SearchlabError(
            f"the {searched.plugin.name} space has no programs for {searched.space.workload}, only recorded times; "
            f'set measure = {{ kind = "table", path = ... }}'
        )
    if strategy.without_programs and not searched.space.has_programs:
        warnings.warn(
            f"{strategy.name} uses the features {strategy.without_programs!r} instead of its default, "
            f"{strategy.features!r}, which requires programs: configs in {searched.plugin.name} have none",
            SearchlabWarning,
            stacklevel=2,
        )
        strategy = replace(strategy, features=strategy.without_programs)
    runs = {run.digest: run for run in earlier if isinstance(run, EarlierRun)}
    directories = tuple(source for source in earlier if isinstance(source, LogDirectory))
    machine = settings.machine(searched.space.target, base) if directories else ""
    for directory in directories:
        runs = {run.digest: run for run in directory.usable(searched.space, machine)} | runs
    warm_start = usable(list(runs.values()), searched.plugin, searched.space, strategy)
    warm_start = replace(warm_start, directories=directories)
    run = Run(
        searched,
        strategy,
        seed,
        batch,
        budget,
        settings,
        log,
        warm_start,
    )
    policy, _ = run.start()
    learned = len(warm_start.trials) + (run.trials - 1) // batch * batch  # the trials learned before the last batch
    if learned < policy.n_startup and not warm_start.others:
        warnings.warn(
            f"policy {strategy.policy.name!r} does not use what it has learned until after {policy.n_startup} trials "
            f"(n_startup), but the run has only {run.trials} trials, in batches of {batch}; increase the number of "
            "trials, or reduce n_startup",
            SearchlabWarning,
            stacklevel=2,
        )
    return replace(run, effective=policy.effective, code=code_of(run, base), defaults=defaults_of(run))


def code_of(run: Run, base: Path = Path()) -> dict[str, str]:
    """Return the digests of the source code that decides a run, by role. A table's path starts from ``base``.

    The roles are ``core`` (searchlab itself), ``workload``, ``space``, ``policy``, ``cost_model`` and ``table``.
    A function that is passed as an option counts as part of its plug-in.
    """
    digests = {
        role: source_digest(cls, *functions_in({**plugin.options, **(run.space.made_with if role == "space" else {})}))
        for role, (cls, plugin, _) in _plugins_of(run).items()
    }
    if isinstance(run.settings, TableSettings):
        digests["table"] = run.settings.content_digest(base)
    return {"core": core_digest(), "workload": source_digest(type(run.space.workload)), **digests}


def defaults_of(run: Run) -> dict[str, dict[str, Any]]:
    """Return the values of the options that were not specified, by role, as logs record them."""
    return {role: unspecified_options(*described) for role, described in _plugins_of(run).items()}


def _plugins_of(run: Run) -> dict[str, tuple[type[Any], Plugin, int]]:
    """Return each plug-in's class, its options and the number of parameters before the options, by role."""
    strategy = run.strategy
    plugins: dict[str, tuple[type[Any], Plugin, int]] = {
        "space": (type(run.space), run.space_choice.plugin, SPACES.positional),
        "policy": (strategy.policy_class, strategy.policy, POLICIES.positional),
    }
    if (model := strategy.cost_model) is not None:
        plugins["cost_model"] = COST_MODELS.load(model.name), model, COST_MODELS.positional
    return plugins


def in_shard(runs: Sequence[Run], part: int, parts: int) -> list[Run]:
    """Return the runs in the ``part``-th (from 1) of ``parts`` shards, in their original order.

    The sizes of shards differ by at most one run. Runs are assigned by a hash of the paths of their logs, so that slow
    strategies do not accumulate in one shard.
    """
    if not 1 <= part <= parts:
        raise SearchlabError(f"the shard must be i/n, where i is between 1 and n, not {part}/{parts}")
    order = sorted(runs, key=lambda run: hashlib.sha256(run.log.as_posix().encode()).digest())
    logs = {run.log for run in order[part - 1 :: parts]}
    return [run for run in runs if run.log in logs]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard: ``"2/8"`` becomes (2, 8). Raises SearchlabError if it is not in this form."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise SearchlabError(f"the shard must be i/n, for example 1/4, not {text!r}")
    return int(match[1]), int(match[2])
