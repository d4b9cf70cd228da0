"""Studies: planning and executing the runs of a study file. :func:`tune` executes a single run."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, UnsupportedSpace, UnsupportedWorkload, did_you_mean
from ..executors.contract import EXECUTORS, RunExecutor, adapted, parse_executor, started
from ..log.format import Log, read_held
from ..log.plan import JSON, TOML, UNLIMITED, Budget, PlannedRun, keep_study, write_plan
from ..log.result import Result, Results, html_facts
from ..measure.settings import LocalSettings, Settings
from ..measure.suite import Suite, SuiteTable, check_table, find_suite
from ..options import Count, checked
from ..plugins import Plugin, PluginKind
from ..policy import POLICIES
from ..schema import explained
from ..space import SPACES, Space
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .execute import execute, warn_of_a_busy_machine, warn_of_disagreement, warn_of_more
from .plan import (
    EarlierRun,
    OnRun,
    Run,
    Searched,
    StoredRuns,
    Strategy,
    WarmStart,
    as_begun,
    check_used,
    earlier_runs,
    in_shard,
    plan_run,
)
from .progress import shown

OF_SUITE = ("workloads", "spaces", "target", "measure")
"""The keys of a study that the tables of a suite bring."""

FeaturesName = Literal["knob", "autotvm-knob", "program", "per-store", "itervar", "curve"]
"""The features of a cost model; see :data:`~searchlab.costmodel.features.FEATURES`."""


class NamedPlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a plug-in, and the options of its constructor."""

    name: str
    options: dict[str, Any] = {}

    @property
    def plugin(self) -> Plugin:
        return Plugin(self.name, self.options)


class Named(NamedPlugin, frozen=True):
    """A space; ``label`` is its name in pictures and tables."""

    label: str = ""


class NamedCostModel(NamedPlugin, frozen=True):
    """A cost model, and its features.

    These are of the choices, ``knob`` or as AutoTVM has them ``autotvm-knob``; or of the scheduled module: ``program``,
    ``per-store`` (only for pack-sum), and AutoTVM's ``itervar`` and ``curve``.
    """

    features: FeaturesName = "knob"
    label: str = ""


class NamedPolicy(Named, frozen=True):
    """A policy, and what it has over the settings of the study.

    batch, trials, seconds, stop_after: the design point of one strategy may be another than that of the others.
    cost_model: the only one that this policy runs with; the cost models of the study are not tried with it. features:
    over those of the cost model. warm_start: in place of the study's.
    """

    batch: int | None = None
    trials: int | None = None
    seconds: float | None = None
    stop_after: int | None = None
    cost_model: str | NamedPlugin | None = None
    features: FeaturesName | None = None
    warm_start: list[str] | None = None

    def __post_init__(self) -> None:
        _check_counts(self)


class NamedSuite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A suite of tables. noise: as for a table, whether the repeats of a measurement are drawn again."""

    name: str
    noise: bool = False


class StudySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a study file.

    Every policy (with every cost model, if it takes one) searches every workload in every space from every seed. A
    policy whose class or entry names a cost model has only that one.
    ``seeds`` is a list, or the number of seeds from 0 on. Each run has ``trials`` trials, asked for ``batch`` at a
    time; by default 64, or, with ``seconds`` or ``stop_after``, as many as these allow.

    seconds: of charged time (proposing, training, building, running) after which a run ends. stop_after: the number of
    trials without a gain over 1 % of the best throughput after which it ends. A run ends where the first of these, or
    ``trials``, is reached, with a whole batch (but for ``trials``); a study with more of them goes on.

    The default target is this machine, or the target of the table; a fleet has no default.

    warm_start: logs of earlier runs, directories of them, or ``"store"`` and ``"store:PATH"``, which give the runs that
    a store holds of the same space, target and machine. Each policy learns from those in the space of its run. A cost
    model with features of programs is trained on the others, one with knob features on other shapes in the same space.

    contrasts: pairs of strategies, by name or label, that the study is made to compare. They are registered in the log
    of each run as it begins, and a report tests them with more power than all other pairs, which are exploratory.

    starts: ``"shared"``: from one seed, policies that have not learned anything yet draw the same configs, and the
    difference of two policies is that of what they do then. ``"own"``: each draws its own, by its name.

    suite: a suite of tables (``v1``), one split of it (``v1/dev``), or one table (``v1/TABLE``), by name or by the
    path of its directory. It takes the place of workloads, spaces, target and measure, which each table brings; trials
    and seeds are by default those of its protocol.

    executor: where the runs are made, as ``"local"`` or ``{ name = "slurm", options = { ... } }``; by default in this
    process, one after the other. It changes no run.
    """

    policies: list[str | NamedPolicy]
    workloads: list[str] = []
    spaces: list[str | Named] = []
    suite: str | NamedSuite | None = None
    cost_models: list[str | NamedCostModel] = msgspec.field(default_factory=lambda: ["xgboost"])
    seeds: int | list[int] = 1
    trials: int | None = None
    seconds: float | None = None
    stop_after: int | None = None
    batch: int = 8
    target: str | dict[str, Any] | None = None
    measure: Settings = LocalSettings()
    warm_start: list[str] = []
    contrasts: list[tuple[str, str]] = []
    starts: Literal["shared", "own"] = "shared"
    executor: str | NamedPlugin | None = None

    def __post_init__(self) -> None:
        for pair in self.contrasts:
            if pair[0] == pair[1]:
                raise ValueError(f"a contrast is of two strategies, not {list(pair)}")
        for name in ("policies", "cost_models", *(() if self.suite else ("workloads", "spaces"))):
            if not getattr(self, name):
                place = ", or the study a suite" if name in OF_SUITE else ""
                raise ValueError(f"{name} must have at least one entry, not []{place}")
        _check_counts(self)
        if not self.seed_list or min(self.seed_list) < 0 or len(set(self.seed_list)) < len(self.seed_list):
            raise ValueError(f"seeds must be a count of at least 1, or different numbers from 0 up, not {self.seeds}")

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def named_suite(self) -> NamedSuite | None:
        return NamedSuite(self.suite) if isinstance(self.suite, str) else self.suite

    @property
    def named_executor(self) -> Plugin | None:
        given = self.executor
        if given is None:
            return None
        return parse_executor(given) if isinstance(given, str) else given.plugin

    @property
    def policy_entries(self) -> list[NamedPolicy]:
        return [NamedPolicy(entry) if isinstance(entry, str) else entry for entry in self.policies]

    @property
    def cost_model_entries(self) -> list[NamedCostModel]:
        return [NamedCostModel(entry) if isinstance(entry, str) else entry for entry in self.cost_models]

    def budget(self, entry: NamedPolicy) -> Budget:
        """The budget of each run of ``entry``."""
        trials, seconds, stop_after = (
            getattr(self if getattr(entry, name) is None else entry, name)
            for name in ("trials", "seconds", "stop_after")
        )
        return budget_of(trials, seconds, stop_after)

    @property
    def facts(self) -> dict[str, object]:
        """What a study is, in words, by name."""

        def names(entries: Iterable[str | Named | NamedCostModel]) -> str:
            return ", ".join(one if isinstance(one, str) else one.label or one.name for one in entries)

        budget = budget_of(self.trials, self.seconds, self.stop_after)
        trials = "any number" if budget.trials == UNLIMITED else budget.trials
        where = {"workloads": ", ".join(self.workloads), "spaces": names(self.spaces)}
        return {
            **({"suite": self.named_suite.name} if self.named_suite else where),
            "policies": names(self.policies),
            "cost models": names(self.cost_models),
            "seeds": len(self.seed_list),
            "trials": f"{trials}, asked for {self.batch} at a time",
            **({} if self.seconds is None else {"seconds": self.seconds}),
            **({} if self.stop_after is None else {"stop after": f"{self.stop_after} trials without a gain"}),
        }


def budget_of(trials: int | None, seconds: float | None, stop_after: int | None) -> Budget:
    """The budget with these parts. Without ``trials`` it has 64, or no limit of them if it has another part."""
    if trials is None:
        trials = 64 if seconds is None and stop_after is None else UNLIMITED
    return Budget(trials, seconds, stop_after)


def _check_counts(settings: StudySpec | NamedPolicy) -> None:
    """Raise ValueError for a budget that allows nothing, or a batch of less than one."""
    for name in ("trials", "batch", "stop_after"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if settings.seconds is not None and not 0 < settings.seconds < math.inf:
        raise ValueError(f"seconds must be more than 0, not {settings.seconds}")


@dataclass(frozen=True)
class Given:
    """What the names in a study stand for.

    policies: classes by name. spaces: by their label, or else by the name of their class, then by their workload.
    """

    policies: dict[str, type[Any]] = field(default_factory=dict)
    spaces: dict[str, dict[str, Space]] = field(default_factory=dict)


def spelled(data: Mapping[str, Any]) -> tuple[dict[str, Any], Given]:
    """``data`` with the keys of a study file, in its words; and what those words stand for.

    A policy, space or cost model may be given as its class, also as the ``name`` of an entry; a space also as a Space,
    whose workload is one of the study where ``workloads`` is left out; a workload as a Workload; the target as a
    Target; and ``measure`` as settings. Raises SearchlabError for a class of a space or a cost model that cannot be
    found by its name.
    """
    plain, given = dict(data), Given()
    for key in ("policies", "cost_models", "spaces"):
        if isinstance(plain.get(key), list | tuple):
            plain[key] = [entry for item in plain[key] if (entry := _entry(key, item, given)) is not None]
    if given.spaces and "workloads" not in plain and "suite" not in plain:
        plain["workloads"] = list(dict.fromkeys(text for spaces in given.spaces.values() for text in spaces))
    if isinstance(plain.get("workloads"), list | tuple):
        plain["workloads"] = [str(one) if isinstance(one, Workload) else one for one in plain["workloads"]]
    if isinstance(plain.get("target"), Target):
        plain["target"] = plain["target"].to_json()
    if isinstance(plain.get("measure"), msgspec.Struct):
        plain["measure"] = msgspec.to_builtins(plain["measure"])
    return plain, given


def _name_of(value: object) -> str:
    """A function, a class or another object of a script, as the copy of a study names it."""
    what: Any = value if hasattr(value, "__qualname__") else type(value)
    return f"{what.__module__}:{what.__qualname__}"


def _entry(key: str, item: Any, given: Given) -> Any:
    """The entry ``item`` of the list ``key`` in the words of a study file; None for a space that is in an entry."""
    entry = dict(item) if isinstance(item, Mapping) else {"name": item}
    name = entry.get("name")
    if isinstance(name, Space):
        return _space(name, entry, given)
    if not isinstance(name, type):
        return item
    if key == "policies":
        entry["name"] = POLICIES.name_of(name)
        given.policies[entry["name"]] = name
    else:
        entry["name"] = _found(COST_MODELS if key == "cost_models" else SPACES, name)
    return entry


def _space(space: Space, entry: dict[str, Any], given: Given) -> dict[str, Any] | None:
    if "options" in entry:
        raise SearchlabError(f"the space {space} is made already; leave out options, {entry['options']!r}")
    name = SPACES.name_of(type(space))
    label = entry.get("label") or name
    known = given.spaces.setdefault(label, {})
    if str(space.workload) in known:
        raise SearchlabError(f"two spaces for {space.workload} are called {label!r}; give one of them a label")
    known[str(space.workload)] = space
    return {**entry, "name": name} if len(known) == 1 else None


def _found(kind: PluginKind[Any], cls: type[Any]) -> str:
    """The name of ``cls``, by which it is found again."""
    name = kind.name_of(cls)
    if "<locals>" in name or kind.load(name) is not cls:
        raise SearchlabError(
            f"the {kind.title} {name!r} cannot be found by its name; define its class at the top level of a module"
        )
    return name


@dataclass(frozen=True)
class Forecast:
    """The runs of one strategy in one space of one workload, from every seed.

    runs, complete: the number of them, and of those whose logs are complete.
    trials: to be measured still, at most; None if the budget has no number of them, and no log says what a trial takes.
    seconds: that these take, by the trials that logs hold of the same runs, else of the same space, else of any, and no
        more than the budget; None if none of these is known. Of a table the trials are charged as they were recorded,
        and answered at once.
    """

    workload: str
    space: str
    strategy: str
    runs: int
    complete: int
    trials: int | None
    seconds: float | None


def forecast(runs: Sequence[Run]) -> list[Forecast]:
    """The forecast of ``runs``, in their order. Raises SearchlabError if one of their logs is damaged."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Log | None]]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.searched.name, run.strategy.name), []).append((run, read_held(run.log)))
    spent = {key: [log for _, log in group if log and log.records] for key, group in groups.items()}
    forecasts = []
    for key, group in groups.items():
        nearest = (
            spent[key],
            [log for other, logs in spent.items() if other[:2] == key[:2] for log in logs],
            [log for logs in spent.values() for log in logs],
        )
        logs = next((logs for logs in nearest if logs), [])
        each = sum(float(log.elapsed[-1]) for log in logs) / sum(len(log.records) for log in logs) if logs else None
        left = [_left(run, log, each) for run, log in group if not (log and run.budget.complete(log))]
        trials, seconds = (math.fsum(part) for part in zip((0.0, 0.0), *left, strict=True))
        forecasts.append(
            Forecast(
                *key, len(group), len(group) - len(left),
                int(trials) if math.isfinite(trials) else None, seconds if math.isfinite(seconds) else None,
            )
        )  # fmt: skip
    return forecasts


def _left(run: Run, log: Log | None, each: float | None) -> tuple[float, float]:
    """The trials and the seconds that ``run`` takes still, at most, if a trial takes ``each``; infinite if unknown."""
    done, spent = (len(log.records), float(log.elapsed[-1])) if log and log.records else (0, 0.0)
    trials = math.inf if run.trials == UNLIMITED else float(run.trials - done)
    seconds = math.inf if run.seconds is None else max(0.0, run.seconds - spent)
    if each:
        trials, seconds = min(trials, seconds // each + 1), min(seconds, trials * each)
    return trials, seconds


_Place = tuple[Path, Searched, Settings]
"""A space to search, the folder of its logs, and the measurement there."""


@dataclass
class Study:
    """A set of runs: every combination of workloads, spaces, policies, cost models and seeds.

    Attributes:
        spec: The content of the study file.
        base: The directory that relative paths in the study start from.
        given: The classes and spaces that a script passed instead of names.
        copy: The name and the text of the copy of the study that is kept beside its logs.

    Example:
        >>> from searchlab import Study
        >>> study = Study.from_dict(
        ...     {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random", "xgb"], "trials": 24, "seeds": 2}
        ... )
        >>> study
        <Study of 2 policies over the suite v1/gemm-64x64x64-trace-1t, 2 seeds>
        >>> len(study.run("results", progress=False))
        4
    """

    spec: StudySpec
    base: Path = field(default_factory=Path)
    given: Given = field(default_factory=Given)
    copy: tuple[str, str] | None = None

    def __repr__(self) -> str:
        named = self.spec.named_suite
        over = f"the suite {named.name}" if named else f"{len(self.spec.workloads)} workloads"
        return f"<Study of {len(self.spec.policies)} policies over {over}, {len(self.spec.seed_list)} seeds>"

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """The study of a TOML file. Raises SearchlabError that names a wrong key, its value and what it may be."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
            data = tomllib.loads(text)
        except OSError as error:
            raise SearchlabError(f"cannot read the study {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SearchlabError(f"{path} is not valid TOML: {error}") from None
        return replace(cls._of(data, path.parent, str(path)), copy=(TOML, text))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], base: str | Path = ".") -> Study:
        """The study of a mapping with the keys of a study file. It may hold classes and objects, as :func:`tune` takes.

        ``policies`` may hold the class of a policy, ``spaces`` a class or a Space (which brings its workload, if
        ``workloads`` is left out), ``cost_models`` the class of a cost model; any of them also as the ``name`` of an
        entry. A workload may be a Workload, ``target`` a Target and ``measure`` settings.
        """
        plain, given = spelled(data)
        study = cls._of(plain, Path(base), "the study")
        text = msgspec.json.format(msgspec.json.encode(plain, enc_hook=_name_of), indent=2).decode() + "\n"
        return replace(study, given=given, copy=(JSON, text))

    @classmethod
    def _of(cls, data: dict[str, Any], base: Path, source: str) -> Study:
        if "suite" not in data:
            return cls(explained(data, StudySpec, source), base)
        for name in OF_SUITE:
            if name in data:
                raise SearchlabError(
                    f"{source}: the tables of a suite bring their own {name}; leave out {name!r}, or 'suite'"
                )
        spec = explained(data, StudySpec, source)
        assert spec.named_suite is not None
        protocol = find_suite(spec.named_suite.name, base).spec
        return cls(explained({"trials": protocol.trials, "seeds": protocol.seeds, **data}, StudySpec, source), base)

    @cached_property
    def suite(self) -> Suite | None:
        """The suite that the study runs on, if it names one."""
        named = self.spec.named_suite
        return find_suite(named.name, self.base) if named else None

    @property
    def exclusive(self) -> bool:
        """Whether it measures on this machine, so that its runs would disturb each other."""
        return self.suite is None and self.spec.measure.exclusive

    def plan(self) -> tuple[list[Run], list[str]]:
        """Every run of the study, in order of the seeds, table by table for a suite; and a sentence for each left out.

        A run is left out if its space has no program for the workload, or if its policy cannot search the space. The
        path of its log is relative to the directory of the results.
        """
        return self._plan

    @cached_property
    def _plan(self) -> tuple[list[Run], list[str]]:
        spec = self.spec
        for model in spec.cost_model_entries:  # those that no policy takes, too
            COST_MODELS.check_name(model.name)
        strategies = [(entry, strategy) for entry in spec.policy_entries for strategy in self._strategies(entry)]
        labels = [strategy.label for _, strategy in strategies]
        _check_distinct("policy", [_slug(label) for label in labels])
        known = [*labels, *(self.suite.baseline_files if self.suite else ())]
        for first, second in spec.contrasts:
            for name in (first, second):
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise SearchlabError(f"contrasts name the strategy {name!r}, which the study does not have{hint}")
        left_out: list[str] = []
        groups = self._tables(spec.named_suite) if spec.named_suite else [self._spaces(left_out)]
        runs: list[Run] = []
        earlier: dict[tuple[str, ...], list[EarlierRun | StoredRuns]] = {}  # by what a warm start names
        warm: dict[tuple[str, ...], list[WarmStart]] = {}
        for places in groups:
            planned = self._planned(places, strategies, earlier, warm, left_out)
            runs += [
                replace(
                    run,
                    seed=seed,
                    log=run.log / f"seed{seed}.jsonl",
                    contrasts=tuple(spec.contrasts),
                    starts=run.strategy.name if spec.starts == "own" else "",
                )
                for seed in spec.seed_list
                for run in planned
            ]
        if not runs:
            raise SearchlabError("no policy of the study can search any of its spaces. " + "; ".join(left_out))
        for paths, used in warm.items():
            check_used(earlier[paths], used)
        return runs, left_out

    def _planned(
        self,
        places: Sequence[_Place],
        strategies: Sequence[tuple[NamedPolicy, Strategy]],
        earlier: dict[tuple[str, ...], list[EarlierRun | StoredRuns]],
        warm: dict[tuple[str, ...], list[WarmStart]],
        left_out: list[str],
    ) -> list[Run]:
        """The runs of each of ``strategies`` in each of ``places``, from the first seed, to directories."""
        spec = self.spec
        planned: list[Run] = []
        for folder, searched, settings in places:
            for entry, strategy in strategies:
                paths = tuple(spec.warm_start if entry.warm_start is None else entry.warm_start)
                if paths not in earlier:
                    earlier[paths] = earlier_runs(paths, settings.statistic, self.base)
                try:
                    budget = spec.budget(entry)
                    run = plan_run(
                        searched, strategy, settings, seed=spec.seed_list[0], batch=entry.batch or spec.batch,
                        trials=budget.trials, log=folder / _slug(strategy.label), earlier=earlier[paths],
                        base=self.base,
                    )  # fmt: skip
                except UnsupportedSpace as error:
                    left_out.append(f"{folder / _slug(strategy.label)} is not searched: {error}")
                else:
                    planned.append(replace(run, seconds=budget.seconds, stop_after=budget.stop_after))
                    warm.setdefault(paths, []).append(run.warm_start)
        return planned

    def _tables(self, named: NamedSuite) -> Iterator[list[_Place]]:
        """The space of each table of the suite."""
        assert self.suite is not None
        for table in self.suite.tables:
            yield [(Path(table.entry.name), searched_table(table), table.settings(named.noise))]

    def _spaces(self, left_out: list[str]) -> list[_Place]:
        """Each space of each workload. ``left_out`` gets the reasons for the others."""
        spec = self.spec
        target = None if spec.target is None else resolve_target(spec.target)
        if target is None and len(self.given.spaces) < len(spec.spaces):  # a space that was given has its target
            target = resolve_target(spec.measure.default_target(self.base))
        workloads = [parse_workload(text) for text in spec.workloads]
        entries = [Named(entry) if isinstance(entry, str) else entry for entry in spec.spaces]
        _check_distinct("space", [_slug(entry.label or entry.name) for entry in entries])
        _check_distinct("workload", [str(workload) for workload in workloads])
        spaces: list[tuple[str, Searched]] = []
        for workload in workloads:
            for entry in entries:
                name = entry.label or entry.name
                known = self.given.spaces.get(name)
                if known is not None and str(workload) not in known:
                    left_out.append(f"{workload} is not searched in {name}: that space is for {', '.join(known)}")
                    continue
                try:
                    searched = Searched.of(
                        known[str(workload)] if known else entry.plugin,
                        workload,
                        target if known is None or spec.target is not None else None,
                        entry.label,
                        settings=self.spec.measure,
                        base=self.base,
                    )
                except UnsupportedWorkload as error:
                    left_out.append(f"{workload} is not searched in {name}: {error}")
                else:
                    spaces.append((name, searched))
        held = spec.measure.measurable(self.base)
        if held is not None:
            for name, searched in list(spaces):
                space = searched.space
                if (str(space.workload), space.fingerprint) not in held:
                    spaces.remove((name, searched))
                    left_out.append(f"{space.workload} is not searched in {name}: no table holds it for this target")
        if not spaces:
            raise SearchlabError("no space of the study fits any of its workloads. " + "; ".join(left_out))
        return [
            (Path(_slug(str(searched.space.workload)), _slug(name)), searched, spec.measure)
            for name, searched in spaces
        ]

    def _strategies(self, entry: NamedPolicy) -> Iterator[Strategy]:
        """The policy of ``entry``, with each cost model of the study if it takes those; all have a label."""
        label = entry.label or entry.name
        cls = self.given.policies.get(entry.name) or POLICIES.load(entry.name)
        POLICIES.check_class(entry.name, cls)
        policy = {"name": cls if entry.name in self.given.policies else entry.name, "options": entry.options}
        if not cls.traits.takes_cost_model or entry.cost_model or cls.traits.own_model:
            own = entry.cost_model.plugin if isinstance(entry.cost_model, NamedPlugin) else entry.cost_model
            yield Strategy.of(policy, own, entry.features, label)
            return
        models = self.spec.cost_model_entries
        for model in models:
            suffix = f"+{model.label or model.name}" if len(models) > 1 else ""
            yield Strategy.of(policy, model.plugin, entry.features or model.features, label + suffix)

    def planned(self) -> list[PlannedRun]:
        """The runs of the study as the plan beside its logs has them."""
        return [
            PlannedRun(
                log=run.log.as_posix(), workload=run.log.parts[0] if self.suite else run.workload,
                space=run.searched.name, strategy=run.strategy.name, seed=run.seed, budget=run.budget,
            )
            for run in self.plan()[0]
        ]  # fmt: skip

    def run(
        self,
        out: str | Path,
        on_run: OnRun | None = None,
        jobs: int | None = None,
        *,
        executor: Executor | str | Mapping[str, Any] | None = None,
        shard: tuple[int, int] = (1, 1),
        progress: bool | Console | None = None,
    ) -> Results:
        """Execute all runs of the study that are not complete in the directory ``out``. Gives all, in planned order.

        Existing logs are resumed. Programs that any of them holds are not measured again. Beside the logs lie their
        plan (:mod:`searchlab.log.plan`) and a copy of the study, ``study-as-run.toml``, or ``.json`` for a study that a
        script made.
        on_run: called as a run begins, ``on_run(run, number, count, job)``: the run of that number (from 1) of so many,
            and the job (from 0) that makes it. It may return a function for the trials of that run, as ``on_trial`` of
            :func:`tune`. ``print`` will do.
        jobs: how many runs go on at the same time, by default in processes of this machine; these share only the
            measurements that the logs held before. Raises SearchlabError for more than one job if the study measures
            on this machine.
        executor: where the runs are made: ``"local"``, ``"dask"``, ``"dask://host:port"``, ``"slurm"``, or an entry
            ``{"name": ..., "options": {...}}``, over that of the study; or any
            :class:`concurrent.futures.Executor`, which is not shut down. Runs that measure the machine are submitted to
            it one at a time, unless it is a :class:`~searchlab.executors.contract.RunExecutor` that is
            ``one_per_machine``.
        shard: ``(i, n)`` for only the i-th of n parts of the runs; all parts together are the study. Their logs belong
            in one directory in the end.
        progress: False for no bars; by default they are shown in a terminal, and in a notebook that has ipywidgets. A
            console of rich is where to show them.
        Raises :class:`~searchlab.errors.RunsFailed` at the end if runs failed; all others are complete then.
        """
        if jobs is not None:
            checked("jobs", jobs, Count)
        planned, _ = self.plan()
        chosen = {Path(out) / run.log for run in in_shard(planned, *shard)}
        begun = as_begun([replace(run, log=Path(out) / run.log) for run in planned])
        runs = [run for run in begun if run.log in chosen]

        def ready() -> None:  # all logs that are there were found to be of this study
            write_plan(Path(out), self.planned())
            if self.copy:
                keep_study(Path(out), *self.copy)

        if executor is None and self.spec.named_executor is None:
            warn_of_a_busy_machine(runs)
        with ExitStack() as ends:
            place: RunExecutor | None = None
            if isinstance(executor, Executor):
                place = adapted(executor)
            elif (plugin := self._executor(executor, jobs)) is not None:
                place = ends.enter_context(started(plugin, self.exclusive, Path(out)))
            on_each = ends.enter_context(shown(progress, runs, on_run or _ignore_run))
            logs = {run.log: log for run, log in execute(runs, self.base, on_each, place, ready)} if runs else {}
        warn_of_more(runs, logs)
        warn_of_disagreement(logs.values())
        return Results(Result(logs[run.log], run.space) for run in runs)

    def _repr_html_(self) -> str:
        return html_facts(self.spec.facts, caption="a study")

    def _executor(self, given: str | Mapping[str, Any] | None, jobs: int | None) -> Plugin | None:
        """The executor that is ``given``, else that of the study; None for this process. jobs: over its options."""
        chosen = own = self.spec.named_executor
        if isinstance(given, Mapping):
            chosen = EXECUTORS.named(given)[0]
        elif given is not None:
            chosen = parse_executor(given)
            if own is not None and own.name == chosen.name:
                chosen = Plugin(own.name, {**own.options, **chosen.options})
        if chosen is None:
            return Plugin("local", {"jobs": jobs}) if jobs is not None and jobs > 1 else None
        return chosen if jobs is None else Plugin(chosen.name, {**chosen.options, "jobs": jobs})


def searched_table(table: SuiteTable) -> Searched:
    """The space of a table of a suite. Raises SearchlabError if the table was not measured in it."""
    searched = Searched.of(table.plugin, parse_workload(table.entry.workload), table.target())
    check_table(table, searched.space)
    return replace(searched, size=table.header.space_size)


def _ignore_run(*_: object) -> None:
    pass


def _slug(text: str) -> str:
    name = re.sub(r"[^\w.+-]+", "_", text)
    return name if name.strip(".") else "_" * len(name)  # no file can be called ".."


def _check_distinct(title: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SearchlabError(f"two {title} entries are called {name!r}; give one of them a label of its own")
