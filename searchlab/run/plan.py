"""Plan runs: their spaces, strategies and budgets, and the earlier runs from which they start.

All runs are planned by :func:`plan_run`, which is called by ``tune``, studies and tables.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..console import one_line
from ..costmodel import COST_MODELS, BoundCostModel, OtherTask, make_cost_model, scores_of
from ..costmodel.features import FEATURES, make_features
from ..errors import SearchlabError, SearchlabWarning
from ..log.format import (
    COMPUTATIONS,
    DEFINED,
    FORMAT,
    Computation,
    Header,
    Log,
    RandomDraws,
    find_logs,
    read_held,
    read_log,
    workload_name,
    workload_of,
)
from ..log.plan import Budget
from ..log.result import Result
from ..machine.host import host_model, library_versions, machine
from ..measure.settings import Settings, TableSettings
from ..measure.suite import SuiteTable, find_suite
from ..plugins import Plugin, PluginSpec, trusting
from ..policy import POLICIES, Policy
from ..records import Statistic, Trial
from ..space import SPACES, Space
from ..store import Store
from ..store.store import in_words, named_store, places, spelled_target
from ..target import Target
from ..workload import Workload, kind_of

Source = str | Path | Store | Result
"""A source of earlier runs: a log, a directory of logs, a result, a store, ``"store"`` or ``"store:PATH"``, or the
tables of a suite, such as ``"suite:v1/dev"``."""

OF_TABLE = 128
"""The number of random trials that a warm start uses from each table of a suite."""

OnTrial = Callable[[Trial, bool], object]
"""A callback that receives every trial in the log, in order, and whether the trial was in the log when the run began.

It is also called for the trials in a complete log. Its return value is ignored. If it raises an error, the run ends and
the error propagates to the caller. The trial remains in the log, so the run can be resumed after it.
"""


@dataclass(frozen=True)
class EarlierRun:
    """An earlier run that can be used as a warm start."""

    log: Log
    digest: str  # the log's digest
    statistic: Statistic  # the statistic that the new run uses as the cost
    stored: bool = field(default=False, compare=False)  # whether it comes from a store and not from a specified log
    asked_for: bool = field(default=False, compare=False)  # whether its space is being searched and may be imported
    of_suite: bool = False  # whether it is part of a suite's table, which runs for the same workload must not use

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
        workload = workload_of(self.log.header, self.log.path)  # not within trusting(), which is only for the space
        with trusting(self.asked_for):
            return Result(self.log).space_of(workload)

    def has_knobs_of(self, plugin: Plugin, space: Space) -> bool:
        """Return whether the run searched a different shape in the same space: same plug-in, operator and knobs."""
        header = self.log.header
        if header.space != plugin or self.space.workload.op != space.workload.op:
            return False
        return self.space.knobs_of(self.space.probe()).keys() == space.knobs_of(space.probe()).keys()


@dataclass(frozen=True)
class StoredRuns:
    """The runs in a store that can be used as a warm start."""

    store: Store
    statistic: Statistic  # the statistic that the new run uses as the cost
    _read: dict[tuple[str, str], list[EarlierRun]] = field(default_factory=dict, compare=False, repr=False)

    def of(self, space: Space, machine: str) -> list[EarlierRun]:
        """Return the runs in ``space`` (including its target) that were measured on ``machine``.

        If there are none, a SearchlabWarning lists the targets and machines for which the workload was measured.
        """
        key = space.fingerprint, machine
        if key not in self._read:
            held = self.store.find(space.workload)
            own = [one.key for one in held if (one.key.fingerprint, one.key.machine) == key]
            if not own:
                where = in_words(spelled_target(space.target), machine)
                elsewhere = f"; for this workload, it contains only these programs: {places(held)}" if held else ""
                warnings.warn(
                    f"the store {self.store.path} contains no trials of {space.workload} in this space for {where} "
                    f"to start from{elsewhere}",
                    SearchlabWarning,
                    stacklevel=2,
                )
            runs = self.store.states(own)
            self._read[key] = [EarlierRun(log, digest, self.statistic, stored=True) for digest, log in runs]
        return self._read[key]


@dataclass(frozen=True)
class WarmStart:
    """The earlier runs from which a run starts."""

    own: tuple[EarlierRun, ...] = ()  # in the same space
    others: tuple[EarlierRun, ...] = ()
    stores: tuple[Store, ...] = ()  # the stores that contain some of these runs, as they were when the run began

    @property
    def runs(self) -> tuple[EarlierRun, ...]:
        return (*self.own, *self.others)

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(run.digest for run in self.runs)

    @property
    def trials(self) -> list[Trial]:
        return [trial for run in self.own for trial in run.trials]

    def feed(self, policy: Policy, cost_model: BoundCostModel | None) -> None:
        """Train the cost model on the runs in other spaces, and warm-start the policy with the runs in its own space.

        A policy that transfers also learns from the runs in other spaces.
        """
        if cost_model is not None and self.others:
            cost_model.pretrain([run.task for run in self.others])
        if policy.traits.transfers and self.others:
            policy.transfer([(run.space, run.trials) for run in self.others])
        if self.own:
            policy.warm_start(self.trials)


def earlier_runs(sources: Sequence[Source], statistic: Statistic, base: Path = Path()) -> list[EarlierRun | StoredRuns]:
    """Return the earlier runs and the stores specified by ``sources``, whose paths are relative to ``base``.

    Raises SearchlabError if a log is damaged, has no trials or is specified twice.
    """
    runs: list[EarlierRun | StoredRuns] = []
    for source in sources:
        path = named_store(source, base) if isinstance(source, str) else None
        if isinstance(source, Store) or path is not None:
            runs.append(StoredRuns(source if isinstance(source, Store) else Store(path), statistic))
            continue
        if isinstance(source, str) and source.startswith("suite:"):
            runs += (_of_table(table, statistic) for table in find_suite(source.removeprefix("suite:"), base).tables)
            continue
        if isinstance(source, Result):
            source = source.log.path.absolute()
        if not isinstance(source, str | Path):
            raise SearchlabError(
                f"a warm start must be a log, a directory of logs, a result or a store, not {source!r:.200}"
            )
        logs = find_logs(base / source)
        if not logs:
            raise SearchlabError(f"no logs (*.jsonl) found in {base / source} to start from")
        for log in logs:
            run = EarlierRun(read_log(log), hashlib.sha256(log.read_bytes()).hexdigest()[:32], statistic)
            if not run.trials:
                raise SearchlabError(f"{log} contains no measured trials to start from")
            if any(isinstance(other, EarlierRun) and other.digest == run.digest for other in runs):
                raise SearchlabError(f"{log} is specified twice, or is a copy of another log; specify each log once")
            runs.append(run)
    return runs


def _of_table(table: SuiteTable, statistic: Statistic) -> EarlierRun:
    """Return random trials of a suite's table as an earlier run. The trials are the same for every new run."""
    log, rng = read_log(table.path), np.random.default_rng(zlib.crc32(table.entry.name.encode()))
    drawn = rng.permutation(len(log.records))[:OF_TABLE].tolist()
    digest = hashlib.sha256(f"{table.digest} {drawn}".encode()).hexdigest()[:32]
    return EarlierRun(
        replace(log, records=tuple(log.records[place] for place in drawn)), digest, statistic, of_suite=True
    )


def usable(runs: Sequence[EarlierRun], plugin: Plugin, space: Space, strategy: Strategy) -> WarmStart:
    """Return the ``runs`` that can be used when searching ``space``, which is specified by ``plugin``.

    Every policy can learn from trials in ``space``. Other runs can be used only to train a cost model, or by a policy
    that transfers. A cost model with program features can learn from runs in any space. Cost models with knob features,
    as well as policies that transfer, can learn only from runs for a different shape in the same space. A run never
    learns from a suite's tables for its own workload.
    """
    runs = [run for run in runs if not (run.of_suite and workload_name(run.log.header) == str(space.workload))]
    own = tuple(run for run in runs if run.log.header.fingerprint == space.fingerprint)
    others = tuple(run for run in runs if run.log.header.fingerprint != space.fingerprint)
    kind, transfers = FEATURES.get(strategy.features), strategy.policy_class.traits.transfers
    if kind is None and not transfers:  # there is no cost model
        return WarmStart(own)
    others = tuple(replace(run, asked_for=run.log.header.space == plugin.spelled()) for run in others)
    if kind is None or transfers or not kind.builds_programs:
        others = tuple(run for run in others if run.has_knobs_of(plugin, space))
    return WarmStart(own, others)


def check_used(earlier: Sequence[EarlierRun | StoredRuns], warm_starts: Sequence[WarmStart]) -> None:
    """Raise SearchlabError if none of ``warm_starts`` uses a log in ``earlier``. Stores and suites may be unused."""
    used = {digest for warm in warm_starts for digest in warm.digests}
    for run in earlier:
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
class Searched:
    """A space to search."""

    space: Space
    plugin: Plugin
    label: str = ""  # its name in figures and tables, if it differs from the plug-in's name
    size: int | None = None  # the number of configs, if they were counted

    @classmethod
    def of(
        cls,
        spec: PluginSpec | Space,
        workload: Workload,
        target: Target | None,
        label: str = "",
        *,
        settings: Settings | None = None,
        base: Path = Path(),
    ) -> Searched:
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
        plugin, space_class = SPACES.named(spec)
        without_programs = not getattr(space_class, "has_programs", True)
        if isinstance(settings, TableSettings) and not plugin.options and without_programs:
            plugin = settings.space_of(plugin.name, str(workload), base) or plugin
        return cls(SPACES.make(plugin, workload, target), plugin, label)

    @property
    def name(self) -> str:
        return one_line(self.label or self.plugin.name)


@dataclass(frozen=True)
class Strategy:
    """A policy, together with a cost model and its features if the policy uses one."""

    policy: Plugin
    policy_class: type[Policy]
    cost_model: Plugin | None = None
    features: str = ""
    label: str = ""  # its name in figures and tables, if it differs from the policy's name
    without_programs: str = ""  # the features to use if configs have no programs and the user chose no features

    @classmethod
    def of(
        cls, policy: PluginSpec, cost_model: PluginSpec | None = None, features: str | None = None, label: str = ""
    ) -> Strategy:
        """Return the specified strategy. For the defaults, see :meth:`~searchlab.policy.Traits.model`.

        Raises SearchlabError if the policy or cost model cannot be found, or a cost model is specified for a policy
        that uses none.
        """
        plugin, policy_class = POLICIES.named(policy)
        POLICIES.check_class(plugin.name, policy_class)
        if not policy_class.traits.takes_cost_model:
            for name, given in (("cost_model", cost_model), ("features", features)):
                if given:
                    raise SearchlabError(f"policy {plugin.name!r} does not use a cost model; omit {name} = {given!r}")
            return cls(plugin, policy_class, label=label)
        own = policy_class.traits.own_model
        instead = own.without_programs if own and not features else ""
        model, features = policy_class.traits.model(cost_model, features)
        return cls(plugin, policy_class, COST_MODELS.named(model)[0], features, label, instead)

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
        with POLICIES.blamed(self.policy_class, "its constructor"):
            return self.policy_class(space, seed=seed, **options), cost_model


@dataclass(frozen=True)
class Run:
    """A fully specified search of a space by a strategy, with a seed and a budget."""

    searched: Searched
    strategy: Strategy
    seed: int
    batch: int  # the number of configs to request from the policy at a time
    trials: int  # for this, seconds and stop_after, see Budget
    settings: Settings
    log: Path
    warm_start: WarmStart = field(default_factory=WarmStart)
    effective: Mapping[str, Any] = field(default_factory=dict)  # see Policy.effective
    contrasts: tuple[tuple[str, str], ...] = ()  # the pairs of strategies that the study registers for comparison
    starts: str = ""  # see Header.starts
    seconds: float | None = None
    stop_after: int | None = None

    def __repr__(self) -> str:
        return f"<Run {self.log.name}: {self.trials} trials of {self.strategy.label}, seed {self.seed}>"

    @property
    def budget(self) -> Budget:
        return Budget(self.trials, self.seconds, self.stop_after)

    @property
    def space(self) -> Space:
        return self.searched.space

    @property
    def workload(self) -> str:
        return str(self.space.workload)

    def start(self) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy and, if it uses one, its cost model; see :meth:`Strategy.start`."""
        return self.strategy.start(self.space, own_seed(self.seed, self.starts) if self.starts else self.seed)

    def with_options(self, options: Mapping[str, Any]) -> Run:
        """Return this run with different policy options. Its effective options are then unknown."""
        policy = Plugin(self.strategy.policy.name, dict(options))
        return replace(self, strategy=replace(self.strategy, policy=policy), effective={})

    def header(self, workers: int, optimum: float | None = None, random: RandomDraws | None = None) -> Header:
        """Return the header for the run's log. The arguments come from the measurer."""
        here = self.settings.exclusive  # this machine is measured
        target, workload = self.space.target, self.space.workload
        strategy = self.strategy
        is_defined = kind_of(self.workload)[0] in DEFINED
        return Header(
            searchlab_log=FORMAT if is_defined else COMPUTATIONS,
            workload=self.workload,
            space=self.searched.plugin.spelled(),
            fingerprint=self.space.fingerprint,
            policy=strategy.policy.spelled(),
            cost_model=strategy.cost_model.spelled() if strategy.cost_model else None,
            features=strategy.features,
            seed=self.seed,
            batch=self.batch,
            target=target.to_json(),
            measure=self.settings.identity(),
            host=host_model(target.kind) if here else {},
            machine=machine(target.cores) if here else {},
            starts=self.starts,
            warm_start=self.warm_start.digests,
            label=strategy.label,
            space_label=self.searched.label,
            space_size=self.searched.size,
            optimum=optimum,
            random=random,
            contrasts=self.contrasts,
            effective=dict(self.effective),
            workers=workers,
            versions=dict(library_versions()),
            created=time.time(),
            computation=None if is_defined else Computation.of(workload),
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
    searched: Searched,
    strategy: Strategy,
    settings: Settings,
    budget: Budget,
    *,
    seed: int,
    batch: int,
    log: Path,
    earlier: Sequence[EarlierRun | StoredRuns] = (),
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
    runs = {one.digest: one for one in earlier if isinstance(one, EarlierRun)}
    stored = [one for one in earlier if isinstance(one, StoredRuns)]
    machine = settings.machine(searched.space.target, base) if stored else ""
    for one in stored:
        runs |= {run.digest: run for run in one.of(searched.space, machine) if run.digest not in runs}
    warm_start = usable(list(runs.values()), searched.plugin, searched.space, strategy)
    warm_start = replace(warm_start, stores=tuple(one.store for one in stored))
    run = Run(
        searched, strategy, seed, batch, budget.trials, settings, log, warm_start, seconds=budget.seconds,
        stop_after=budget.stop_after,
    )  # fmt: skip
    policy, _ = run.start()
    told = len(warm_start.trials) + (run.trials - 1) // batch * batch  # the trials learned before the last batch
    if told < policy.n_startup and not warm_start.others:
        warnings.warn(
            f"policy {strategy.policy.name!r} does not use what it has learned until after {policy.n_startup} trials "
            f"(n_startup), but the run has only {run.trials} trials, in batches of {batch}; increase the number of "
            "trials, or reduce n_startup",
            SearchlabWarning,
            stacklevel=2,
        )
    return replace(run, effective=policy.effective)


def as_begun(runs: Sequence[Run]) -> list[Run]:
    """Return ``runs``, with the original warm start restored in those that start from a store.

    Each strategy's logs are in the same directory. The first existing log determines the warm start for all runs there,
    so that all seeds start from the same trials. Raises SearchlabError if this log is damaged, or if the stores no
    longer contain the runs from which it started.
    """
    begun: dict[Path, Header] = {}
    for run in runs:
        if run.warm_start.stores and run.log.parent not in begun and (held := read_held(run.log)) is not None:
            begun[run.log.parent] = held.header
    return [
        _from(run, begun[run.log.parent]) if run.warm_start.stores and run.log.parent in begun else run for run in runs
    ]


def _from(run: Run, header: Header) -> Run:
    """Return ``run`` with the warm start in ``header`` and newly specified logs, which are rejected later."""
    warm = run.warm_start
    known = {one.digest: one for one in warm.runs}
    runs = [known.get(digest) or _stored(run, digest) for digest in header.warm_start]
    runs += [one for digest, one in known.items() if not one.stored and digest not in header.warm_start]
    again = usable(runs, run.searched.plugin, run.space, run.strategy)
    return replace(run, warm_start=replace(again, stores=warm.stores))


def _stored(run: Run, digest: str) -> EarlierRun:
    for store in run.warm_start.stores:
        if (log := store.log_of(digest)) is not None:
            return EarlierRun(log, digest, run.settings.statistic, stored=True)
    paths = ", ".join(str(store.path) for store in run.warm_start.stores)
    raise SearchlabError(
        f"a run in {run.log.parent} started from a log that {paths} does not contain (digest {digest}); add that log "
        f"to the store, or choose a different path for this run's log"
    )


def in_shard(runs: Sequence[Run], part: int, parts: int) -> list[Run]:
    """Return the runs in the ``part``-th (from 1) of ``parts`` shards, in their original order.

    The sizes of shards differ by at most one run. Runs are assigned by a hash of the paths of their logs, so that slow
    strategies do not accumulate in one shard.
    """
    if not 1 <= part <= parts:
        raise SearchlabError(f"the shard must be i/n, where i is between 1 and n, not {part}/{parts}")
    order = sorted(runs, key=lambda run: hashlib.sha256(run.log.as_posix().encode()).digest())
    own = {run.log for run in order[part - 1 :: parts]}
    return [run for run in runs if run.log in own]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard: ``"2/8"`` becomes (2, 8). Raises SearchlabError if it is not in this form."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise SearchlabError(f"the shard must be i/n, for example 1/4, not {text!r}")
    return int(found[1]), int(found[2])
