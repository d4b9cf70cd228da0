"""Studies: planning and executing the runs of a study file. :func:`tune` executes a single run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, UnsupportedSpace, UnsupportedWorkload, did_you_mean
from ..executors.contract import EXECUTORS, RunExecutor, adapted, parse_executor, started
from ..log.html import facts
from ..log.plan import JSON, TOML, PlannedRun, keep_study, write_plan
from ..log.result import Result, Results
from ..measure.settings import Settings
from ..measure.suite import Suite, SuiteTable, check_table, find_suite
from ..options import Count, checked
from ..plugins import Plugin
from ..policy import POLICIES
from ..schema import explained
from ..target import resolve_target
from ..workload import parse_workload
from .execute import execute, warn_of_a_busy_machine, warn_of_disagreement, warn_of_more
from .given import Given, named, spelled
from .plan import OnRun, Run, Searched, Strategy, as_begun, in_shard, plan_run
from .progress import shown
from .spec import OF_SUITE, Named, NamedPlugin, NamedPolicy, NamedSuite, StudySpec
from .warm_start import EarlierRun, StoredRuns, WarmStart, check_used, earlier_runs

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
        text = msgspec.json.format(msgspec.json.encode(plain, enc_hook=named), indent=2).decode() + "\n"
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
        for name in (name for pair in spec.contrasts for name in pair):
            if name not in labels:
                raise SearchlabError(
                    f"contrasts name the strategy {name!r}, which the study does not have{did_you_mean(name, labels)}"
                )
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
        return facts(self.spec.facts, caption="a study")

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
