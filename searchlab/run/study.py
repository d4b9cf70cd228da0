"""Studies: plan and execute the runs that a study file specifies.

For a single run, use :func:`~searchlab.run.tune.tune`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, UnsupportedSpace, UnsupportedWorkload, did_you_mean, shorten_text
from ..executors.contract import PlainExecutor, RunExecutor, choose_executor, start
from ..files import MAX_NAME, file_name, read_text, resolve_inside
from ..log.budget import UNLIMITED
from ..log.plan import JSON, TOML, PlannedRun, write_plan, write_study_copy
from ..log.result import Result, Results
from ..measure.contract import SpaceCosts
from ..measure.settings import LocalSettings, Settings, add_kind, settings_for
from ..measure.suite import Suite, find_suite
from ..notebook import html_facts
from ..options import Jobs, checks_arguments
from ..options import plain as plain_value
from ..plugins import Plugin, PluginKind, reference_of
from ..policy import POLICIES
from ..schema import convert, parse_toml
from ..space import SPACES, Space
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .execute import execute, warn_of_a_busy_machine, warn_of_results
from .plan import OnRun, Run, plan_run, select_shard, space_spec
from .progress import show_progress
from .spec import SUITE_KEYS, PluginEntry, PolicyEntry, StudySpec, budget_of
from .strategy import SpaceChoice, Strategy
from .warm_start import EarlierRuns, WarmStart


@dataclass(frozen=True)
class UserObjects:
    """The classes and objects that a script passed to a study, by the names that replace them there.

    Attributes:
        spaces: The spaces, by label or class name and then by workload.
    """

    policies: dict[str, type[Any]] = field(default_factory=dict)
    spaces: dict[str, dict[str, Space]] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)


def names_for_objects(data: Mapping[str, Any]) -> tuple[dict[str, Any], UserObjects]:
    """Replace the classes and objects in ``data`` with names. :meth:`Study.from_dict` describes ``data``.

    Raises SearchlabError if the class of a space or cost model cannot be found by its name.
    """
    if not isinstance(data, Mapping):
        raise SearchlabError(f"a study must be a mapping with the keys of a study file, not {data!r:.200}")
    plain_data, objects = {name: plain_value(value) for name, value in data.items()}, UserObjects()
    for key in ("policies", "cost_models", "spaces"):
        if isinstance(plain_data.get(key), list | tuple):
            entries = [_replace_objects(key, item, objects) for item in plain_data[key]]
            plain_data[key] = [entry for entry in entries if entry is not None]
    if objects.spaces and "workloads" not in plain_data and "suite" not in plain_data:
        space_objects = [space for spaces in objects.spaces.values() for space in spaces.values()]
        plain_data["workloads"] = list({str(space.workload): space.workload for space in space_objects}.values())
    if isinstance(plain_data.get("workloads"), list | tuple):
        workloads = [parse_workload(item) if callable(item) else item for item in plain_data["workloads"]]
        objects.workloads.update({str(item): item for item in workloads if isinstance(item, Workload)})
        plain_data["workloads"] = [str(item) if isinstance(item, Workload) else item for item in workloads]
    if isinstance(plain_data.get("target"), Target):
        plain_data["target"] = plain_data["target"].to_json()
    if isinstance(plain_data.get("measure"), msgspec.Struct):
        plain_data["measure"] = msgspec.to_builtins(plain_data["measure"])
    return plain_data, objects


def _replace_objects(key: str, item: Any, objects: UserObjects) -> Any:
    """Return an entry in the list ``key`` with names, or None for a space that an earlier entry already covers."""
    entry = dict(item) if isinstance(item, Mapping) else {"name": item}
    name = entry.get("name")
    if isinstance(name, Space):
        return _replace_space(name, entry, objects)
    if not isinstance(name, type):
        return item
    if key == "policies":
        entry["name"] = POLICIES.name_of(name)
        objects.policies[entry["name"]] = name
        return entry
    kind: PluginKind[Any] = COST_MODELS if key == "cost_models" else SPACES
    entry["name"] = kind.name_of(name)
    if "<locals>" in entry["name"] or kind.load(entry["name"]) is not name:
        raise SearchlabError(
            f"the {kind.title} {entry['name']!r} cannot be found by its name; define its class at the top level of a "
            f"module"
        )
    return entry


def _replace_space(space: Space, entry: dict[str, Any], objects: UserObjects) -> dict[str, Any] | None:
    if "options" in entry:
        raise SearchlabError(f"the {space} space already has options; omit options = {entry['options']!r}")
    name = SPACES.name_of(type(space))
    label = entry.get("label") or Plugin(name).title
    spaces = objects.spaces.setdefault(label, {})
    if str(space.workload) in spaces:
        raise SearchlabError(f"two spaces for {space.workload} are called {label!r}; give one of them a unique label")
    spaces[str(space.workload)] = space
    return {**entry, "name": name} if len(spaces) == 1 else None


def _has_knobs(item: Any) -> bool:
    return isinstance(item, Mapping) and not any(isinstance(value, str | Mapping) for value in item.values())


@dataclass(frozen=True)
class PlannedSpace:
    """A space that a study searches.

    Attributes:
        directory: The directory for its logs, relative to the results directory.
        settings: How to measure its configs.
    """

    directory: Path
    choice: SpaceChoice
    settings: Settings


@dataclass
class Study:
    """A set of runs: every combination of workloads, spaces, policies, cost models and seeds.

    Attributes:
        spec: The content of the study file.
        base: The directory that relative paths start from.
        objects: The classes and objects that a script passed instead of names.
        copy: The file name and text of the copy of the study that is stored next to its logs.

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
    objects: UserObjects = field(default_factory=UserObjects)
    copy: tuple[str, str] | None = None

    def __repr__(self) -> str:
        selection = self.spec.suite_selection
        scope = f"the suite {selection.name}" if selection else f"{len(self.spec.workloads)} workloads"
        return f"<Study of {len(self.spec.policies)} policies over {scope}, {len(self.spec.seed_list)} seeds>"

    @classmethod
    @checks_arguments
    def load(cls, path: str | Path) -> Study:
        """Load a study file (TOML). Raises SearchlabError if it is invalid, naming the key and the valid values."""
        path = Path(path)
        text = read_text(path, kind="the study")
        return replace(cls._from_data(parse_toml(text, path), path.parent, str(path)), copy=(TOML, text))

    @classmethod
    @checks_arguments
    def from_dict(cls, data: Mapping[str, Any], base: str | Path = ".") -> Study:
        """Create a study from a mapping with the same keys as a study file.

        Args:
            data: The keys and their values. Instead of names, ``policies`` and ``cost_models`` may contain classes, and
                ``spaces`` may contain classes, Space objects, or mappings from knobs to values. You can also pass
                classes and objects as the ``name`` of an entry. If
                ``workloads`` is missing, the workloads of the Space objects are used. Workloads may be Workload
                objects or functions that measure a config, ``target`` may be a Target, and ``measure`` may be a
                settings object.
            base: The directory that relative paths start from.
        """

        def name_of(value: object) -> str:
            return reference_of(value if hasattr(value, "__qualname__") else type(value))

        plain_data, objects = names_for_objects(data)
        study = cls._from_data(plain_data, Path(base), "the study")
        try:
            text = msgspec.json.format(msgspec.json.encode(plain_data, enc_hook=name_of), indent=2).decode() + "\n"
        except UnicodeEncodeError as error:
            text = shorten_text(repr(error.object), MAX_NAME)
            raise SearchlabError(
                f"the study contains {text}, which UTF-8 cannot encode; remove lone surrogates"
            ) from None
        return replace(study, objects=objects, copy=(JSON, text))

    @classmethod
    def _from_data(cls, data: dict[str, Any], base: Path, source: str) -> Study:
        if "measure" in data and isinstance(workloads := data.get("workloads"), list | tuple):
            names = [name for name in workloads if isinstance(name, str)]
            data = {**data, "measure": add_kind(data["measure"], names)}
        if isinstance(spaces := data.get("spaces"), list | tuple):
            data = {**data, "spaces": [space_spec(item) if _has_knobs(item) else item for item in spaces]}
        if "suite" not in data:
            return cls(convert(data, StudySpec, source), base)
        for name in SUITE_KEYS:
            if name in data:
                raise SearchlabError(
                    f"{source}: {name} is determined by the suite's tables; omit either {name!r} or 'suite'"
                )
        spec = convert(data, StudySpec, source)
        assert spec.suite_selection is not None
        protocol = find_suite(spec.suite_selection.name, base).spec
        return cls(convert({"trials": protocol.trials, "seeds": protocol.seeds, **data}, StudySpec, source), base)

    @cached_property
    def suite(self) -> Suite | None:
        """The suite on which the study runs, or None if it does not specify one."""
        selection = self.spec.suite_selection
        return find_suite(selection.name, self.base) if selection else None

    def plan(self) -> tuple[list[Run], list[str]]:
        """Plan all runs.

        Returns:
            All runs, ordered by seed (for a suite, by table and then by seed), with log paths relative to the results
            directory; and a sentence for each combination that is skipped because the space has no program for the
            workload or the policy cannot search the space.
        """
        return self._plan

    @cached_property
    def _plan(self) -> tuple[list[Run], list[str]]:
        spec = self.spec
        for model in spec.cost_model_entries:  # including those that no policy uses
            COST_MODELS.check_name(model.name)
        strategies = [(entry, strategy) for entry in spec.policy_entries for strategy in self._strategies(entry)]
        _check_distinct("policy", [file_name(strategy.label) for _, strategy in strategies])
        self._check_references(strategies)
        runs: list[Run] = []
        skip_reasons: list[str] = []
        earlier_runs: dict[tuple[str, ...], EarlierRuns] = {}  # by the sources of a warm start
        warm_starts: dict[tuple[str, ...], list[WarmStart]] = defaultdict(list)
        for group in self._space_groups(skip_reasons):
            group_runs: list[Run] = []
            for space in group:
                for sources, run in self._runs_in(space, strategies, earlier_runs, skip_reasons):
                    group_runs.append(run)
                    warm_starts[sources].append(run.warm_start)
            runs += [
                replace(run, seed=seed, log=run.log / f"seed{seed}.jsonl")
                for seed in spec.seed_list
                for run in group_runs
            ]
        if not runs and spec.policies:
            raise SearchlabError("no policy in the study can search any of its spaces. " + "; ".join(skip_reasons))
        for sources, run_warm_starts in warm_starts.items():
            earlier_runs[sources].check_used(run_warm_starts)
        return runs, skip_reasons

    def _runs_in(
        self,
        space: PlannedSpace,
        strategies: Sequence[tuple[PolicyEntry, Strategy]],
        earlier_runs: dict[tuple[str, ...], EarlierRuns],
        skip_reasons: list[str],
    ) -> Iterator[tuple[tuple[str, ...], Run]]:
        """Yield a run for each strategy that can search ``space``, with the sources of its warm start.

        The runs have the first seed, and their logs are directories. Sources that are read for the first time are added
        to ``earlier_runs``, and the reasons for skipping strategies to ``skip_reasons``.
        """
        spec = self.spec
        all_costs = cache(partial(self._all_costs, space))
        for entry, strategy in strategies:
            if entry.spaces and space.choice.name not in entry.spaces:
                continue
            sources = tuple(spec.warm_start if entry.warm_start is None else entry.warm_start)
            if sources not in earlier_runs:
                earlier_runs[sources] = EarlierRuns.from_sources(sources, space.settings.statistic, self.base)
            run = Run(
                space.choice,
                strategy,
                spec.seed_list[0],
                entry.batch or spec.batch,
                spec.budget(entry, all_costs),
                space.settings,
                space.directory / file_name(strategy.label),
                contrasts=tuple(spec.contrasts),
                starts=strategy.name if spec.starts == "own" else "",
            )
            try:
                yield sources, plan_run(run, earlier_runs[sources], self.base)
            except UnsupportedSpace as error:
                skip_reasons.append(f"{run.log} is not searched: {error}")

    def _check_references(self, strategies: Sequence[tuple[PolicyEntry, Strategy]]) -> None:
        """Raise SearchlabError if a contrast or claim refers to a strategy that is not in the study."""
        spec = self.spec
        names = [*(strategy.label for _, strategy in strategies), *(self.suite.baseline_files if self.suite else ())]
        spaces = [entry.title for entry in spec.space_entries]
        names_with_space = [  # as in a report on several spaces
            f"{space} / {strategy.label}"
            for space in spaces
            for entry, strategy in strategies
            if space in (entry.spaces or spaces)
        ]
        in_contrasts = [name for pair in spec.contrasts for name in pair]
        in_claims = [name for claim in spec.claims for name in (claim.strategy, *claim.opponents)]
        for key, references, choices in (
            ("contrasts", in_contrasts, names),
            ("claims", in_claims, names + names_with_space),
        ):
            for name in references:
                if name not in choices:
                    hint = did_you_mean(name, choices)
                    raise SearchlabError(f"{key} refer to the strategy {name!r}, which is not in the study{hint}")

    def _all_costs(self, space: PlannedSpace) -> SpaceCosts | None:
        if not space.settings.replays:
            return None
        with space.settings.make(space.choice.space.target, {}, self.base) as measurer:
            return measurer.all_costs(space.choice.space)

    def _space_groups(self, skip_reasons: list[str]) -> Iterator[list[PlannedSpace]]:
        """Yield groups of spaces; in a suite, each table is a separate group.

        The reasons for skipping spaces are added to ``skip_reasons``.
        """
        spec = self.spec
        if self.suite is not None:
            for table in self.suite.tables:
                noise = spec.suite_selection is not None and spec.suite_selection.noise
                yield [PlannedSpace(Path(table.entry.name), SpaceChoice.from_table(table), table.settings(noise))]
            return
        target = None if spec.target is None else resolve_target(spec.target)
        if target is None and len(self.objects.spaces) < len(spec.spaces):  # Space objects have their own target
            target = resolve_target((spec.measure or LocalSettings()).default_target(self.base))
        workloads = [self.objects.workloads.get(text) or parse_workload(text) for text in spec.workloads]
        entries = spec.space_entries
        _check_distinct("space", [file_name(entry.title) for entry in entries])
        _check_distinct("workload", [str(workload) for workload in workloads])
        measurable = spec.measure.measurable(self.base) if spec.measure else None
        planned_spaces: list[PlannedSpace] = []
        not_in_tables: list[str] = []
        for workload in workloads:
            for entry in entries:
                name = entry.title
                spaces = self.objects.spaces.get(name)
                if spaces is not None and str(workload) not in spaces:
                    skip_reasons.append(f"{workload} is not searched in {name}: this space is for {', '.join(spaces)}")
                    continue
                try:
                    space_choice = SpaceChoice.from_spec(
                        spaces[str(workload)] if spaces else entry,
                        workload,
                        target if spaces is None or spec.target is not None else None,
                        entry.label,
                        settings=spec.measure,
                        base=self.base,
                    )
                except UnsupportedWorkload as error:
                    skip_reasons.append(f"{workload} is not searched in {name}: {error}")
                    continue
                if measurable is not None and (str(workload), space_choice.space.fingerprint) not in measurable:
                    not_in_tables.append(f"{workload} is not searched in {name}: no table contains it for this target")
                else:
                    directory = Path(file_name(str(workload)), file_name(name))
                    planned_spaces.append(PlannedSpace(directory, space_choice, settings_for(workload, spec.measure)))
        skip_reasons += not_in_tables
        if not planned_spaces:
            raise SearchlabError("no space in the study supports any of its workloads. " + "; ".join(skip_reasons))
        yield planned_spaces

    def _strategies(self, entry: PolicyEntry) -> Iterator[Strategy]:
        """Yield a policy's labelled strategies, one for each cost model that the policy is to use."""
        policy = {"name": self.objects.policies.get(entry.name, entry.name), "options": entry.options}
        cls = POLICIES.resolve(policy)[1]
        POLICIES.check_class(entry.name, cls)
        if not cls.traits.takes_cost_model or entry.cost_model or cls.traits.own_model:
            yield Strategy.from_specs(policy, entry.cost_model, entry.features, entry.title)
            return
        models = self.spec.cost_model_entries
        for model in models:
            suffix = f"+{model.title}" if len(models) > 1 else ""
            yield Strategy.from_specs(policy, model, entry.features or model.features, entry.title + suffix)

    @property
    def baselines(self) -> list[str]:
        """The names of the suite's baselines to which the study refers, sorted."""
        if self.suite is None:
            return []
        labels = {strategy.label for entry in self.spec.policy_entries for strategy in self._strategies(entry)}
        names = {name for pair in self.spec.contrasts for name in pair}
        names |= {name for claim in self.spec.claims for name in (claim.strategy, *claim.opponents)}
        return sorted(names & self.suite.baseline_files.keys() - labels)

    def planned_runs(self) -> list[PlannedRun]:
        """Return the runs for the plan file that is stored next to the logs."""
        return [
            PlannedRun(
                log=run.log.as_posix(),
                workload=run.log.parts[0] if self.suite else run.workload,
                space=run.space_choice.name,
                strategy=run.strategy.name,
                seed=run.seed,
                budget=run.budget,
            )
            for run in self.plan()[0]
        ]

    @checks_arguments
    def run(
        self,
        out: str | Path,
        on_run: OnRun | None = None,
        jobs: Jobs | None = None,
        *,
        executor: Executor | str | Mapping[str, Any] | None = None,
        shard: tuple[int, int] = (1, 1),
        discard: bool = False,
        progress: bool | Console = True,
    ) -> Results:
        """Execute all incomplete runs in the study.

        Runs with a log are resumed, and the programs in these logs are not measured again. Next to the logs, the study
        stores its plan (see :mod:`searchlab.log.plan`) and a copy of itself, ``study-as-run.toml`` (or ``.json`` if it
        was created by a script).

        Args:
            out: The directory for the logs.
            on_run: Called as ``on_run(run, number, count, job)`` when a run begins, with the run's number (from 1), the
                number of runs, and the job (from 0) that executes the run. It may return a function to call with the
                run's trials, like the ``on_trial`` argument of :func:`tune`. You can pass ``print``, for example.
            jobs: The number of simultaneous runs. By default, they are executed in local processes, which share only
                the measurements in existing logs.
            executor: Where to execute the runs: ``"local"``, ``"dask"``, ``"dask://host:port"``, ``"slurm"``, or an
                entry ``{"name": ..., "options": {...}}``. It overrides the study's executor. You can also pass any
                :class:`concurrent.futures.Executor`, which searchlab does not shut down. Runs that measure the machine
                are submitted one at a time, unless the executor is a
                :class:`~searchlab.executors.contract.RunExecutor` that is ``one_per_machine``.
            shard: Pass ``(i, n)`` to execute only the i-th of n parts of the runs. When all parts are complete, put
                their logs into the same directory.
            discard: Whether to rename logs that their runs cannot continue, because they belong to different runs or
                because code has changed and no longer reproduces them, and to start these runs again.
            progress: Pass False to hide the progress, which is a bar for each run on standard error or below a
                notebook's cell, and a line from time to time where bars cannot be drawn. Pass a rich console to show it
                there.

        Returns:
            All runs, in planned order.

        Raises:
            SearchlabError: If a log belongs to a different run, or several jobs are requested although the study
                measures this machine.
            RunsFailed: If any runs failed. It is raised at the end, when all other runs are complete.
        """
        planned_runs, _ = self.plan()
        all_runs = [replace(run, log=Path(out) / run.log, discard=discard) for run in planned_runs]
        logs_in_shard = {Path(out) / run.log for run in select_shard(planned_runs, *shard)}
        runs = [run for run in all_runs if run.log in logs_in_shard]
        for run in runs:
            resolve_inside(run.log, Path(out))

        def write_files() -> None:
            write_plan(Path(out), self.planned_runs(), self.spec.claims)
            if self.copy:
                write_study_copy(Path(out), *self.copy)

        if executor is None and self.spec.executor is None:
            warn_of_a_busy_machine(runs)
        with ExitStack() as stack:
            run_executor: RunExecutor | None = None
            if isinstance(executor, Executor):
                run_executor = executor if isinstance(executor, RunExecutor) else PlainExecutor(executor)
            elif (plugin := choose_executor(self.spec.executor, executor, jobs)) is not None:
                exclusive = any(run.settings.exclusive for run in runs)
                run_executor = stack.enter_context(start(plugin, exclusive, Path(out)))
            on_each = stack.enter_context(show_progress(progress, runs, on_run or (lambda *_: None)))
            if not planned_runs:  # the study's claims are only about the suite's baselines
                write_files()
            logs = execute(runs, self.base, on_each, run_executor, write_files, all_runs) if runs else {}
        warn_of_results(runs, logs)
        return Results(Result(logs[run.log], run.space) for run in runs)

    def _repr_html_(self) -> str:
        def names(entries: Iterable[PluginEntry]) -> str:
            return ", ".join(entry.title for entry in entries)

        spec = self.spec
        trials: int | str | None = spec.trials
        if not isinstance(trials, str):
            trials = budget_of(trials, spec.seconds, spec.stop_after).trials
            trials = "any number" if trials == UNLIMITED else trials
        scope = {"workloads": ", ".join(spec.workloads), "spaces": names(spec.space_entries)}
        facts = {
            **({"suite": spec.suite_selection.name} if spec.suite_selection else scope),
            "policies": names(spec.policy_entries),
            "cost models": names(spec.cost_model_entries),
            "seeds": len(spec.seed_list),
            "trials": f"{trials}, in batches of {spec.batch}",
            **({} if spec.seconds is None else {"seconds": spec.seconds}),
            **({} if spec.stop_after is None else {"stop after": f"{spec.stop_after} trials without a gain"}),
        }
        return html_facts(facts, caption="a study")


def _check_distinct(title: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SearchlabError(f"two {title} entries are called {name!r}; give one of them a unique label")
