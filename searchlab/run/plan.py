"""Planning a run: its space, strategy and budget, and the earlier runs that it starts from.

Only :func:`plan_run` plans a run; ``tune``, studies and tables call it.
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..console import one_line
from ..costmodel import COST_MODELS, BoundCostModel, OtherTask, make_cost_model, scores_of
from ..costmodel.features import FEATURES, make_features
from ..errors import SearchlabError, SearchlabWarning
from ..log.format import Header, Log, RandomDraws, find_logs, read_held, read_log
from ..log.plan import Budget
from ..log.result import Result
from ..machine.host import host_model, library_versions, machine
from ..measure.settings import Settings, TableSettings
from ..plugins import Plugin, PluginSpec, trusting
from ..policy import POLICIES, Policy
from ..records import Statistic, Trial
from ..space import SPACES, Space
from ..store import Store
from ..store.store import in_words, named_store, places, spelled_target
from ..target import Target
from ..workload import Workload, parse_workload

Source = str | Path | Store | Result
"""A source of earlier runs: a log, a directory of logs, a result, a store, ``"store"`` or ``"store:PATH"``."""

OnTrial = Callable[[Trial, bool], object]
"""Called with every trial of the log in order, and with whether the log held it when the run began.

Trials of a complete log are passed as well. The return value is ignored. An error ends the run and reaches the caller;
the trial is in the log, so the run resumes after it.
"""


@dataclass(frozen=True)
class EarlierRun:
    """A run to start from."""

    log: Log
    digest: str  # of the log
    statistic: Statistic  # used as the cost in the new run
    stored: bool = field(default=False, compare=False)  # whether it comes from a store instead of a named log
    asked_for: bool = field(default=False, compare=False)  # whether it has the space to search, which may be imported

    @cached_property
    def trials(self) -> list[Trial]:
        """Its trials, without those that a table answered with the nearest config."""
        return [
            replace(trial, measurement=replace(trial.measurement, statistic=self.statistic))
            for trial in self.log.trials
            if not trial.measurement.nearest
        ]

    @cached_property
    def task(self) -> OtherTask:
        """Its trials as training data for another search; the fastest has the score 1."""
        return OtherTask(self.space, [trial.config for trial in self.trials], scores_of(self.trials))

    @cached_property
    def space(self) -> Space:
        """Its space, which imports a plug-in. Raises SearchlabError if the space no longer exists."""
        with trusting(self.asked_for):
            return Result(self.log).space

    def has_knobs_of(self, plugin: Plugin, space: Space) -> bool:
        """Whether it has another shape in the same space: the same plug-in, operator and knobs."""
        header = self.log.header
        if header.space != plugin or parse_workload(header.workload).op != space.workload.op:
            return False
        return self.space.knobs_of(self.space.probe()).keys() == space.knobs_of(space.probe()).keys()


@dataclass(frozen=True)
class StoredRuns:
    """The runs in a store that a run may start from."""

    store: Store
    statistic: Statistic  # used as the cost in the new run
    _read: dict[tuple[str, str], list[EarlierRun]] = field(default_factory=dict, compare=False, repr=False)

    def of(self, space: Space, machine: str) -> list[EarlierRun]:
        """Return the runs in ``space``, which includes its target, on ``machine``.

        Warns (SearchlabWarning) if there are none, and names the places where the workload was measured.
        """
        key = space.fingerprint, machine
        if key not in self._read:
            held = self.store.find(space.workload)
            own = [one.key for one in held if (one.key.fingerprint, one.key.machine) == key]
            if not own:
                where = in_words(spelled_target(space.target), machine)
                elsewhere = f"; it has these programs of the workload: {places(held)}" if held else ""
                warnings.warn(
                    f"the store {self.store.path} has no trial to start from for {space.workload} in this space for "
                    f"{where}{elsewhere}",
                    SearchlabWarning,
                    stacklevel=2,
                )
            runs = self.store.states(own)
            self._read[key] = [EarlierRun(log, digest, self.statistic, stored=True) for digest, log in runs]
        return self._read[key]


@dataclass(frozen=True)
class WarmStart:
    """The earlier runs that a run starts from."""

    own: tuple[EarlierRun, ...] = ()  # in its own space
    others: tuple[EarlierRun, ...] = ()
    stores: tuple[Store, ...] = ()  # where some of them come from; the content when the run began counts: see as_begun

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
        """Train the cost model on the runs in other spaces, and start the policy from those in its own."""
        if cost_model is not None and self.others:
            cost_model.pretrain([run.task for run in self.others])
        if self.own:
            policy.warm_start(self.trials)


def earlier_runs(sources: Sequence[Source], statistic: Statistic, base: Path = Path()) -> list[EarlierRun | StoredRuns]:
    """Return the logs and stores that ``sources`` name, with paths relative to ``base``.

    Raises SearchlabError for a log that is damaged, has no trials, or is given twice.
    """
    runs: list[EarlierRun | StoredRuns] = []
    for source in sources:
        path = named_store(source, base) if isinstance(source, str) else None
        if isinstance(source, Store) or path is not None:
            runs.append(StoredRuns(source if isinstance(source, Store) else Store(path), statistic))
            continue
        if isinstance(source, Result):
            source = source.log.path.absolute()
        if not isinstance(source, str | Path):
            raise SearchlabError(
                f"a warm start must be a log, a directory of logs, a result or a store, not {source!r:.200}"
            )
        logs = find_logs(base / source)
        if not logs:
            raise SearchlabError(f"there is no log (*.jsonl) in {base / source} to start from")
        for log in logs:
            run = EarlierRun(read_log(log), hashlib.sha256(log.read_bytes()).hexdigest()[:32], statistic)
            if not run.trials:
                raise SearchlabError(f"{log} has no measured trial to start from")
            if any(isinstance(other, EarlierRun) and other.digest == run.digest for other in runs):
                raise SearchlabError(f"{log} is given twice, or is a copy of another log; give each log once")
            runs.append(run)
    return runs


def usable(runs: Sequence[EarlierRun], plugin: Plugin, space: Space, features: str) -> WarmStart:
    """Return those ``runs`` that a search of ``space``, which ``plugin`` names, can use.

    Any policy learns from trials in ``space``. Other runs can only train a cost model: runs in any space if its
    ``features`` are those of programs, and with knob features runs with another shape in the same space.
    """
    own = tuple(run for run in runs if run.log.header.fingerprint == space.fingerprint)
    others = tuple(run for run in runs if run.log.header.fingerprint != space.fingerprint)
    kind = FEATURES.get(features)  # none without a cost model
    if kind is None:
        return WarmStart(own)
    others = tuple(replace(run, asked_for=run.log.header.space == plugin.spelled()) for run in others)
    if not kind.builds_programs:
        others = tuple(run for run in others if run.has_knobs_of(plugin, space))
    return WarmStart(own, others)


def check_used(earlier: Sequence[EarlierRun | StoredRuns], warm_starts: Sequence[WarmStart]) -> None:
    """Raise SearchlabError if a run of ``earlier`` is in none of ``warm_starts``."""
    used = {digest for warm in warm_starts for digest in warm.digests}
    for run in earlier:
        if isinstance(run, EarlierRun) and run.digest not in used:
            header = run.log.header
            raise SearchlabError(
                f"{run.log.path} cannot warm-start this run: it searched {header.workload} in {header.space_name}, "
                f"another space. Only a cost model can learn from other spaces, with features of programs (program, "
                f"per-store, itervar, curve), or with knob features for another shape in the same space; set "
                f'features = "program" for a policy that takes a cost model'
            )


@dataclass(frozen=True)
class Searched:
    """A space to search."""

    space: Space
    plugin: Plugin
    label: str = ""  # its name in figures and tables, if it is not the plug-in's
    size: int | None = None  # the number of its configs, if they were counted

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
        """Create the space that ``spec`` names.

        Args:
            spec: A plug-in; or the space itself, with its own target if ``target`` is None.
            workload: The workload.
            target: The target.
            label: See the field.
            settings: The measurement. A space without programs that is named without options has those of the table
                that answers.
            base: The directory that the path of the table starts from.

        Raises:
            SearchlabError: If the space itself is given, and has another workload or target.
            UnsupportedWorkload: If the named space has no program for the workload.
        """
        if isinstance(spec, Space):
            if str(spec.workload) != str(workload):
                raise SearchlabError(f"the space is for {spec.workload}; create one for {workload}")
            if target is not None and target != spec.target:
                raise SearchlabError(
                    f"the space is for the target {spec.target}, not for {target}; leave the target out"
                )
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
    """A policy, with a cost model and its features if the policy takes a cost model."""

    policy: Plugin
    policy_class: type[Policy]
    cost_model: Plugin | None = None
    features: str = ""
    label: str = ""  # its name in figures and tables, if it is not the policy's
    without_programs: str = ""  # features to use instead where configs have no programs, if the user chose none

    @classmethod
    def of(
        cls, policy: PluginSpec, cost_model: PluginSpec | None = None, features: str | None = None, label: str = ""
    ) -> Strategy:
        """Return the strategy of these names; :meth:`~searchlab.policy.Traits.model` has the defaults.

        Raises SearchlabError if there is no such policy or cost model, or if the policy takes no cost model.
        """
        plugin, policy_class = POLICIES.named(policy)
        POLICIES.check_class(plugin.name, policy_class)
        if not policy_class.traits.takes_cost_model:
            for name, given in (("cost_model", cost_model), ("features", features)):
                if given:
                    raise SearchlabError(f"policy {plugin.name!r} takes no cost model; leave out {name}, {given!r}")
            return cls(plugin, policy_class, label=label)
        own = policy_class.traits.own_model
        instead = own.without_programs if own and not features else ""
        model, features = policy_class.traits.model(cost_model, features)
        return cls(plugin, policy_class, COST_MODELS.named(model)[0], features, label, instead)

    @property
    def name(self) -> str:
        return one_line(self.label or self.policy.name)

    def start(self, space: Space, seed: int) -> tuple[Policy, BoundCostModel | None]:
        """Create the policy and its cost model, if it takes one. Raises SearchlabError for an unknown option."""
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
    """A space, searched by a strategy from a seed within a budget; everything about it is decided."""

    searched: Searched
    strategy: Strategy
    seed: int
    batch: int  # configs that the policy is asked for at a time
    trials: int  # with seconds and stop_after: see Budget
    settings: Settings
    log: Path
    warm_start: WarmStart = field(default_factory=WarmStart)
    effective: Mapping[str, Any] = field(default_factory=dict)  # see Policy.effective
    contrasts: tuple[tuple[str, str], ...] = ()  # pairs of strategies that its study registers
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
        """Create the policy and its cost model; see :meth:`Strategy.start`."""
        return self.strategy.start(self.space, own_seed(self.seed, self.starts) if self.starts else self.seed)

    def with_options(self, options: Mapping[str, Any]) -> Run:
        """Return this run with other options of its policy, and with its effective options unknown."""
        policy = Plugin(self.strategy.policy.name, dict(options))
        return replace(self, strategy=replace(self.strategy, policy=policy), effective={})

    def header(self, workers: int, optimum: float | None = None, random: RandomDraws | None = None) -> Header:
        """Return the header of its log; the arguments depend on the measurer."""
        here = self.settings.exclusive  # this machine is measured
        target = self.space.target
        strategy = self.strategy
        return Header(
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
        )


OnRun = Callable[[Run, int, int, int], OnTrial | None]
"""Called when a run begins, with the run, its number (from 1), the number of runs, and its job (from 0).

Returns the function to call with each trial, or None. The previous run of the job has ended by then. On an executor, a
short run is reported when it has ended, with all its trials at once.
"""


def own_seed(seed: int, name: str) -> int:
    """Return the seed of a strategy called ``name`` that has its own draws, the same on every machine."""
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
    """Plan a run, which starts from those ``earlier`` runs that it can use; the plan is valid for other seeds, too.

    Nothing is measured, but the policy is created once, which finds wrong options. ``base`` is the directory that the
    path of a table starts from.

    Raises:
        SearchlabError: For a wrong option.
        UnsupportedSpace: If the policy cannot search the space.

    Warns:
        SearchlabWarning: If the policy would not use what it learns.
    """
    if not (searched.space.has_programs or settings.replays):
        raise SearchlabError(
            f"the space {searched.plugin.name} has no programs of {searched.space.workload}, only recorded times; "
            f'measure with {{ kind = "table", path = ... }}'
        )
    if strategy.without_programs and not searched.space.has_programs:
        warnings.warn(
            f"{strategy.name} uses the features {strategy.without_programs!r}: its own, {strategy.features!r}, "
            f"describe programs, and the configs of {searched.plugin.name} have none",
            SearchlabWarning,
            stacklevel=2,
        )
        strategy = replace(strategy, features=strategy.without_programs)
    runs = {one.digest: one for one in earlier if isinstance(one, EarlierRun)}
    stored = [one for one in earlier if isinstance(one, StoredRuns)]
    machine = settings.machine(searched.space.target, base) if stored else ""
    for one in stored:
        runs |= {run.digest: run for run in one.of(searched.space, machine) if run.digest not in runs}
    warm_start = usable(list(runs.values()), searched.plugin, searched.space, strategy.features)
    warm_start = replace(warm_start, stores=tuple(one.store for one in stored))
    run = Run(
        searched, strategy, seed, batch, budget.trials, settings, log, warm_start, seconds=budget.seconds,
        stop_after=budget.stop_after,
    )  # fmt: skip
    policy, _ = run.start()
    told = len(warm_start.trials) + (run.trials - 1) // batch * batch  # before the last batch
    if told < policy.n_startup and not warm_start.others:
        warnings.warn(
            f"policy {strategy.policy.name!r} uses what it learns only after {policy.n_startup} trials (n_startup), "
            f"and {run.trials} trials in batches of {batch} are not more than that; increase the trials, or reduce "
            f"n_startup",
            SearchlabWarning,
            stacklevel=2,
        )
    return replace(run, effective=policy.effective)


def as_begun(runs: Sequence[Run]) -> list[Run]:
    """Return ``runs``, of which those that start from a store go on as they began.

    The logs of each strategy are in one directory. The first existing log decides for all runs there, so that all seeds
    start from the same trials. Raises SearchlabError if it is damaged, or if its stores lack what it started from.
    """
    begun: dict[Path, Header] = {}
    for run in runs:
        if run.warm_start.stores and run.log.parent not in begun and (held := read_held(run.log)) is not None:
            begun[run.log.parent] = held.header
    return [
        _from(run, begun[run.log.parent]) if run.warm_start.stores and run.log.parent in begun else run for run in runs
    ]


def _from(run: Run, header: Header) -> Run:
    """Return ``run`` with the warm start of ``header``. Logs named since then are added, and so refused later."""
    warm = run.warm_start
    known = {one.digest: one for one in warm.runs}
    runs = [known.get(digest) or _stored(run, digest) for digest in header.warm_start]
    runs += [one for digest, one in known.items() if not one.stored and digest not in header.warm_start]
    again = usable(runs, run.searched.plugin, run.space, run.strategy.features)
    return replace(run, warm_start=replace(again, stores=warm.stores))


def _stored(run: Run, digest: str) -> EarlierRun:
    for store in run.warm_start.stores:
        if (log := store.log_of(digest)) is not None:
            return EarlierRun(log, digest, run.settings.statistic, stored=True)
    paths = ", ".join(str(store.path) for store in run.warm_start.stores)
    raise SearchlabError(
        f"a run in {run.log.parent} started from a log that {paths} does not contain (digest {digest}); add that log "
        f"to the store, or choose another path for the log of this run"
    )


def in_shard(runs: Sequence[Run], part: int, parts: int) -> list[Run]:
    """Return the runs of the ``part``-th (from 1) of ``parts`` shards, in their order.

    Shards have equal sizes, but for one run. Runs are dealt in the order of a hash of their names, so that no shard has
    the slow strategies.
    """
    if not 1 <= part <= parts:
        raise SearchlabError(f"the shard must be i/n with i from 1 to n, not {part}/{parts}")
    order = sorted(runs, key=lambda run: hashlib.sha256(run.log.as_posix().encode()).digest())
    own = {run.log for run in order[part - 1 :: parts]}
    return [run for run in runs if run.log in own]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``"2/8"`` as (2, 8). Raises SearchlabError."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise SearchlabError(f"the shard must be i/n, for example 1/4, not {text!r}")
    return int(found[1]), int(found[2])
