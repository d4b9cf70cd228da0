"""Studies: plan and execute the runs that a study file specifies.

For a single run, use :func:`~searchlab.run.tune.tune`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, UnsupportedSpace, UnsupportedWorkload, did_you_mean, shorten_text
from ..executors.contract import PlainExecutor, RunExecutor, choose_executor, start_executor
from ..files import MAX_NAME_BYTES, file_name, read_text, resolve_inside
from ..log.budget import UNLIMITED
from ..log.format import Log
from ..log.plan import JSON_COPY_NAME, TOML_COPY_NAME, PlannedRun, write_plan, write_study_copy
from ..log.result import Result, Results
from ..measure.contract import SpaceCosts
from ..measure.settings import LocalSettings, Settings, add_kind, settings_for
from ..measure.suite import Suite, find_suite
from ..notebook import html_definitions
from ..options import Jobs, checks_arguments
from ..plugins import make_reference
from ..policy import POLICIES
from ..schema import convert, parse_toml
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .execute import execute, warn_of_a_busy_machine, warn_of_doubts, warn_of_extra_trials
from .objects import UserObjects, names_for_objects
from .plan import OnRun, Plan, Run, plan_run, select_shard
from .progress import show_progress
from .spec import SUITE_KEYS, PluginEntry, PolicyEntry, StudySpec, make_budget
from .strategy import SpaceChoice, Strategy, make_space_spec
from .warm_start import WarmStart


class _PlannedSpace(NamedTuple):
    """A space that a study searches.

    Attributes:
        directory: The directory for its logs, relative to the results directory.
        choice: The space.
        settings: How its configs are measured.
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
        return replace(cls._from_data(parse_toml(text, path), path.parent, str(path)), copy=(TOML_COPY_NAME, text))

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
            return make_reference(value if hasattr(value, "__qualname__") else type(value))

        plain_data, objects = names_for_objects(data)
        study = cls._from_data(plain_data, Path(base), "the study")
        try:
            text = msgspec.json.format(msgspec.json.encode(plain_data, enc_hook=name_of), indent=2).decode() + "\n"
        except UnicodeEncodeError as error:
            text = shorten_text(repr(error.object), MAX_NAME_BYTES)
            raise SearchlabError(
                f"the study contains {text}, which UTF-8 cannot encode; remove lone surrogates"
            ) from None
        return replace(study, objects=objects, copy=(JSON_COPY_NAME, text))

    @classmethod
    def _from_data(cls, data: dict[str, Any], base: Path, source: str) -> Study:
        if "measure" in data and isinstance(workloads := data.get("workloads"), list | tuple):
            names = [name for name in workloads if isinstance(name, str)]
            data = {**data, "measure": add_kind(data["measure"], names)}
        if isinstance(spaces := data.get("spaces"), list | tuple):
            data = {**data, "spaces": [make_space_spec(space) if _maps_knobs(space) else space for space in spaces]}
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

    def plan(self) -> Plan:
        """Plan all runs. Raises SearchlabError if the study is invalid, or leaves no run."""
        return self._plan

    @cached_property
    def _plan(self) -> Plan:
        spec = self.spec
        for model in spec.cost_model_entries:  # including those that no policy uses
            COST_MODELS.check_name(model.name)
        _check_distinct("policy", [file_name(strategy.label) for _, strategy in self._strategies])
        self._check_references()
        spaces, skipped = self._plan_spaces()
        first_seed_runs, skipped_strategies = self._plan_first_seed(spaces)
        skipped += skipped_strategies
        if not first_seed_runs and spec.policies:
            raise SearchlabError("no policy in the study can search any of its spaces. " + "; ".join(skipped))
        runs = [
            replace(run, seed=seed, log_path=run.log_path / f"seed{seed}.jsonl")
            for seed in spec.seed_list
            for run in first_seed_runs
        ]
        if self.suite is not None:  # table by table
            directories = [space.directory for space in spaces]
            runs.sort(key=lambda run: directories.index(run.log_path.parents[1]))
        return Plan(runs, skipped)

    def _plan_first_seed(self, spaces: Sequence[_PlannedSpace]) -> tuple[list[Run], list[str]]:
        """Plan a run for each space and each strategy that can search it, with a directory for its log.

        Returns:
            The runs, and a sentence for each strategy that is skipped.
        """
        spec = self.spec
        sources_by_strategy = {
            strategy.label: tuple(spec.warm_start if policy_entry.warm_start is None else policy_entry.warm_start)
            for policy_entry, strategy in self._strategies
        }
        statistic = spaces[0].settings.statistic
        warm_starts = {
            sources: WarmStart.from_sources(sources, statistic, self.base)
            for sources in dict.fromkeys(sources_by_strategy.values())
        }
        runs: list[Run] = []
        skipped: list[str] = []
        for directory, space_choice, settings in spaces:
            all_costs = cache(partial(self._read_all_costs, space_choice, settings))
            for policy_entry, strategy in self._strategies:
                if policy_entry.spaces and space_choice.name not in policy_entry.spaces:
                    continue
                run = Run(
                    space_choice,
                    strategy,
                    spec.seed_list[0],
                    policy_entry.batch or spec.batch,
                    spec.budget(policy_entry, all_costs),
                    settings,
                    directory / file_name(strategy.label),
                    self.base,
                    warm_starts[sources_by_strategy[strategy.label]],
                    contrasts=tuple(spec.contrasts),
                    start_salt=strategy.name if spec.starts == "own" else "",
                )
                try:
                    runs.append(plan_run(run))
                except UnsupportedSpace as error:
                    skipped.append(f"{run.log_path} is not searched: {error}")
        for sources, warm_start in warm_starts.items():
            selected_warm_starts = [
                run.warm_start for run in runs if sources_by_strategy[run.strategy.label] == sources
            ]
            if selected_warm_starts:
                warm_start.check_used(selected_warm_starts)
        return runs, skipped

    def _check_references(self) -> None:
        """Raise SearchlabError if a contrast or claim refers to a strategy that is not in the study."""
        spec = self.spec
        strategy_names = [
            *(strategy.label for _, strategy in self._strategies),
            *(self.suite.baseline_paths if self.suite else ()),
        ]
        spaces = [space_entry.title for space_entry in spec.space_entries]
        names_with_space = [  # as in a report on several spaces
            f"{space} / {strategy.label}"
            for space in spaces
            for policy_entry, strategy in self._strategies
            if space in (policy_entry.spaces or spaces)
        ]
        for study_key, names in spec.references.items():
            choices = strategy_names + (names_with_space if study_key == "claims" else [])
            for name in names:
                if name not in choices:
                    hint = did_you_mean(name, choices)
                    raise SearchlabError(f"{study_key} refer to the strategy {name!r}, which is not in the study{hint}")

    def _read_all_costs(self, space_choice: SpaceChoice, settings: Settings) -> SpaceCosts | None:
        if not settings.replays:
            return None
        with settings.make(space_choice.space.target, {}, self.base) as measurer:
            return measurer.all_costs(space_choice.space)

    def _plan_spaces(self) -> tuple[list[_PlannedSpace], list[str]]:
        """Return the spaces that can be searched, and a sentence for each space that is skipped."""
        spec = self.spec
        if self.suite is not None:
            noise = spec.suite_selection is not None and spec.suite_selection.noise
            return [
                _PlannedSpace(Path(table.entry.name), SpaceChoice.from_table(table), table.settings(noise))
                for table in self.suite.tables
            ], []
        workloads = [self.objects.workloads.get(text) or parse_workload(text) for text in spec.workloads]
        space_entries = spec.space_entries
        _check_distinct("space", [file_name(space_entry.title) for space_entry in space_entries])
        _check_distinct("workload", [str(workload) for workload in workloads])
        target = None if spec.target is None else resolve_target(spec.target)
        if target is None and len(self.objects.spaces) < len(spec.spaces):  # Space objects have their own target
            target = resolve_target((spec.measure or LocalSettings()).default_target(self.base))
        measurable_spaces = spec.measure.measurable_spaces(self.base) if spec.measure else None
        spaces: list[_PlannedSpace] = []
        skipped: list[str] = []
        for workload in workloads:
            for space_entry in space_entries:
                try:
                    choice = self._make_space(workload, space_entry, target)
                    if (
                        measurable_spaces is not None
                        and (str(workload), choice.space.fingerprint) not in measurable_spaces
                    ):
                        raise UnsupportedWorkload("no table contains it for this target")
                except UnsupportedWorkload as error:
                    skipped.append(f"{workload} is not searched in {space_entry.title}: {error}")
                    continue
                directory = Path(file_name(str(workload)), file_name(space_entry.title))
                spaces.append(_PlannedSpace(directory, choice, settings_for(workload, spec.measure)))
        if not spaces:
            raise SearchlabError("no space in the study supports any of its workloads. " + "; ".join(skipped))
        return spaces, skipped

    def _make_space(self, workload: Workload, space_entry: PluginEntry, target: Target | None) -> SpaceChoice:
        """Create the space of an entry. Raises UnsupportedWorkload if it has no programs for the workload."""
        spec = self.spec
        spaces_by_workload = self.objects.spaces.get(space_entry.title)
        if spaces_by_workload is None:
            return SpaceChoice.from_spec(
                space_entry, workload, target, space_entry.label, settings=spec.measure, base_dir=self.base
            )
        if str(workload) not in spaces_by_workload:
            raise UnsupportedWorkload(f"this space is for {', '.join(spaces_by_workload)}")
        space = spaces_by_workload[str(workload)]
        return SpaceChoice.from_spec(space, workload, target if spec.target is not None else None, space_entry.label)

    @cached_property
    def _strategies(self) -> list[tuple[PolicyEntry, Strategy]]:
        """The strategies, each with the entry of its policy."""
        return [(entry, strategy) for entry in self.spec.policy_entries for strategy in self._make_strategies(entry)]

    def _make_strategies(self, policy_entry: PolicyEntry) -> Iterator[Strategy]:
        """Yield a policy's labelled strategies, one for each cost model that the policy is to use."""
        policy = {
            "name": self.objects.policies.get(policy_entry.name, policy_entry.name),
            "options": policy_entry.options,
        }
        cls = POLICIES.resolve(policy)[1]
        POLICIES.check_class(policy_entry.name, cls)
        if not cls.traits.takes_cost_model or policy_entry.cost_model or cls.traits.own_model:
            yield Strategy.from_specs(policy, policy_entry.cost_model, policy_entry.features, policy_entry.title)
            return
        models = self.spec.cost_model_entries
        for model in models:
            suffix = f"+{model.title}" if len(models) > 1 else ""
            yield Strategy.from_specs(
                policy, model, policy_entry.features or model.features, policy_entry.title + suffix
            )

    @property
    def baselines(self) -> list[str]:
        """The names of the suite's baselines to which the study refers, sorted."""
        if self.suite is None:
            return []
        labels = {strategy.label for _, strategy in self._strategies}
        references = {name for names in self.spec.references.values() for name in names}
        return sorted(references & self.suite.baseline_paths.keys() - labels)

    def planned_runs(self) -> list[PlannedRun]:
        """Return the runs for the plan file that is stored next to the logs."""
        return [
            PlannedRun(
                log=run.log_path.as_posix(),
                workload=run.log_path.parts[0] if self.suite else run.workload_name,
                space=run.space_choice.name,
                strategy=run.strategy.name,
                seed=run.seed,
                budget=run.budget,
            )
            for run in self.plan().runs
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
        planned_runs = self.plan().runs
        all_runs, runs = (
            [replace(run, log_path=Path(out) / run.log_path, discard=discard) for run in selected_runs]
            for selected_runs in (planned_runs, select_shard(planned_runs, *shard))
        )
        for run in runs:
            resolve_inside(run.log_path, Path(out))

        def write_files() -> None:
            write_plan(Path(out), self.planned_runs(), self.spec.claims)
            if self.copy:
                write_study_copy(Path(out), *self.copy)

        if executor is None and self.spec.executor is None:
            warn_of_a_busy_machine(runs)
        executor_context: AbstractContextManager[RunExecutor | None] = nullcontext()
        if isinstance(executor, Executor):
            executor_context = nullcontext(executor if isinstance(executor, RunExecutor) else PlainExecutor(executor))
        elif (plugin := choose_executor(self.spec.executor, executor, jobs)) is not None:
            exclusive = any(run.settings.exclusive for run in runs)
            executor_context = start_executor(plugin, exclusive, Path(out))
        with (
            executor_context as run_executor,
            show_progress(progress, runs, on_run or (lambda *_: None)) as on_each_run,
        ):
            if not planned_runs:  # the study's claims are only about the suite's baselines
                write_files()
            logs: list[Log] = []
            if runs:
                logs = execute(
                    runs,
                    on_run=on_each_run,
                    executor=run_executor,
                    on_ready=write_files,
                    study_runs=all_runs,
                )
        warn_of_extra_trials(runs, logs)
        warn_of_doubts(logs)
        return Results(Result(log, run.space) for run, log in zip(runs, logs, strict=True))

    def _repr_html_(self) -> str:
        def names(entries: Iterable[PluginEntry]) -> str:
            return ", ".join(entry.title for entry in entries)

        spec = self.spec
        trials: int | str | None = spec.trials
        if not isinstance(trials, str):
            trials = make_budget(trials, spec.seconds, spec.stop_after).trials
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
        return html_definitions(facts, caption="a study")


def _maps_knobs(space: Any) -> bool:
    """Return whether ``space`` is a mapping from knobs to values, rather than an entry with a name."""
    return isinstance(space, Mapping) and not any(isinstance(value, str | Mapping) for value in space.values())


def _check_distinct(title: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SearchlabError(f"two {title} entries are called {name!r}; give one of them a unique label")
