"""Tuning of a model: a scheduler decides which task gets each round, and the best programs are then inserted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..apply.best import use_threads_of
from ..apply.history import apply_history_best
from ..apply.verify import Untuned
from ..console import format_execution_time, format_speed
from ..errors import SearchlabError, UnsupportedWorkload
from ..files import file_name
from ..log.budget import UNLIMITED, Budget
from ..log.result import Result
from ..log.writer import OtherRun
from ..machine.lock import lock_machine
from ..machine.scratch import ScratchFolder
from ..measure.building import can_flush
from ..measure.local import LocalSettings
from ..measure.settings import Settings, settings_for
from ..options import Batch, Seed, Trials, checks_arguments
from ..plugins import Plugin, PluginSpec
from ..run.execute import warn_of_a_busy_machine
from ..run.loop import RunLoop
from ..run.open import MeasurerCache, open_runs
from ..run.plan import OnChargedTrial, Run, plan_run
from ..run.progress import RunProgress, open_progress
from ..run.strategy import DEFAULT_SPACES, SpaceChoice, Strategy
from ..run.warm_start import Source, WarmStart
from ..target import Target, resolve_target
from .compiled import ModelComparison, compare_and_export
from .decisions import DECISIONS_FILE, Decision, DecisionLog, DecisionsHeader
from .inputs import inputs_of
from .load import to_module
from .scheduler import SCHEDULERS, Scheduler, choose_task, tell_scheduler
from .tasks import Task, lower, tasks_of

if TYPE_CHECKING:
    import pandas as pd
    import tvm

LOGS_DIR = "tasks"
"""The name of the directory that contains a log for each task."""

UNTUNED_DIR = "untuned"
"""The name of the directory that contains a log of each task's untuned program."""

LIBRARY_FILE = "model.so"

MAX_SHOWN_NAME_LENGTH = 40
"""The maximum length of a task's name in the progress."""


@dataclass(frozen=True)
class TunedModel:
    """The outcome of tuning a model.

    Attributes:
        module: The lowered module with the best programs, which ``tvm.compile(module, target)`` accepts.
        tasks: The tuned tasks.
        results: The result of each task's run, by workload.
        untuned: The cost of each task's untuned program in seconds, by workload; infinite if it was not measured.
        left_out: A mapping from each task that was not tuned to the reason.
        decisions: The scheduler's decisions, one for each round.
        comparison: The comparison of the untuned and the tuned model, or None if they were not compiled.
        library: The path of the exported library, or None if the model was not compiled, if it is slower than the
            untuned one, or if there is no C compiler.
    """

    module: tvm.IRModule
    tasks: Sequence[Task]
    results: Mapping[str, Result]
    untuned: Mapping[str, float]
    left_out: Mapping[str, str]
    decisions: Sequence[Decision]
    comparison: ModelComparison | None = None
    library: Path | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each tuned task.

        Its columns are ``task``, ``occurs``, ``flops`` (0 if unknown), ``gflops`` (NaN if unknown), ``seconds`` (of the
        best or the untuned program, infinite if none works), ``untuned_seconds``,
        ``total_seconds`` (``seconds`` times ``occurs``), ``share`` (of the sum of ``total_seconds``), ``trials``, and
        ``ended`` (whether the search ended by itself).
        """
        import pandas as pd

        results = [self.results[task.name] for task in self.tasks]
        frame = pd.DataFrame(
            {
                "task": [task.name for task in self.tasks],
                "occurs": [task.occurs for task in self.tasks],
                "flops": [task.flops for task in self.tasks],
                "gflops": math.nan,
                "seconds": [_get_best_seconds(result) for result in results],
                "untuned_seconds": [self.untuned[task.name] for task in self.tasks],
            }
        )
        frame["seconds"] = frame[["seconds", "untuned_seconds"]].min(axis="columns")
        frame["gflops"] = frame["flops"].where(frame["flops"] > 0) / frame["seconds"] / 1e9
        frame["total_seconds"] = frame["occurs"] * frame["seconds"]
        finite_seconds = frame["total_seconds"].replace(math.inf, math.nan)
        frame["share"] = finite_seconds / finite_seconds.sum()
        frame["trials"] = [len(result.trials) for result in results]
        frame["ended"] = frame["task"].isin([decision.task for decision in self.decisions if not decision.trials])
        return frame

    def __repr__(self) -> str:
        trials = sum(len(result.trials) for result in self.results.values())
        return f"<TunedModel of {len(self.results)} tasks after {trials} trials>"


@checks_arguments
def tune_model(
    mod: tvm.IRModule,
    *,
    out: str | Path,
    trials: Trials,
    scheduler: PluginSpec = "gradient",
    space: PluginSpec | Sequence[PluginSpec] = DEFAULT_SPACES,
    policy: PluginSpec = "evolutionary-model",
    cost_model: PluginSpec | None = None,
    features: str | None = None,
    batch: Batch = 8,
    seed: Seed = 0,
    stop_after: Trials | None = None,
    target: str | Mapping[str, Any] | Target | None = None,
    measure: Settings | Mapping[str, Any] | None = None,
    warm_start: Source | Sequence[Source] = (),
    compile: bool = True,
    force: bool = False,
    progress: bool | Console = True,
    on_round: Callable[[Decision], None] | None = None,
) -> TunedModel:
    """Tune the tasks of a Relax model, and insert their best programs into it.

    Each task has its own run, with its own policy and log. A scheduler decides which run proposes the next batch.
    On CPUs, each task's untuned program is measured first, and remains in the model unless a faster one is found.
    Repeat an interrupted call to resume it, or repeat a complete one with more trials to extend it.

    Args:
        mod: A Relax module with fixed shapes.
        out: The directory for the logs, the decisions and the library.
        trials: The total number of trials for all tasks; at least one batch for each task.
        scheduler: The scheduler: a registered name, or a mapping ``{"name": ..., "options": {...}}``.
        space: One or more spaces. Each task is searched in the first of them that has programs for it; a task for which
            none has programs is not tuned. The default is :data:`DEFAULT_SPACES`.
        policy: The policy of each run.
        cost_model: The cost model, as in :func:`~searchlab.run.tune.tune`.
        features: The features, as in :func:`~searchlab.run.tune.tune`.
        batch: The number of trials in a round.
        seed: The seed, which determines everything except the measurements.
        stop_after: Stop tuning a task after this many trials without a gain of more than 1 %. None means no limit.
        target: The target; see :func:`resolve_target`.
        measure: How to measure, as in a study file. The default is ``{"kind": "local", "cache": "cold"}``, but warm on
            CPUs whose caches TVM cannot flush.
        warm_start: What the run of each task starts from, as in :func:`~searchlab.run.tune.tune`. With ``"default"``,
            its first round consists of the default config of its space.
        compile: Whether to compile the model, compare its outputs and times with those of the untuned model, and
            export it as ``model.so``, unless it is slower than the untuned model by more than the noise.
        force: Whether to export the model even if it is slower.
        progress: Whether to show progress, as in :func:`~searchlab.run.tune.tune`.
        on_round: A function called after every round, including those that a resumed call repeats from its logs.

    Raises:
        SearchlabError: If an argument is invalid, no task can be tuned, or ``out`` belongs to a different model.

    Warns:
        SearchlabWarning: If the tuned model is slower than the untuned one, and was therefore not exported.

    Example:
        >>> import searchlab
        >>> from tvm.relax.frontend import nn
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         self.weight = nn.Parameter((32, 32), "float32")
        ...     def forward(self, x):
        ...         return nn.op.relu(nn.op.matmul(x, self.weight))
        >>> mod, _ = Net().export_tvm({"forward": {"x": nn.spec.Tensor((32, 32), "float32")}})
        >>> tuned = searchlab.tune_model(mod, out="net", trials=4, batch=4, policy="random", compile=False)
        >>> tuned
        <TunedModel of 1 tasks after 4 trials>
    """
    plugin, scheduler_class = SCHEDULERS.resolve(scheduler)
    SCHEDULERS.check_class(plugin.name, scheduler_class)
    SCHEDULERS.check_options(plugin, scheduler_class)
    settings = settings_for(None, measure)
    resolved_target = resolve_target(settings.default_target() if target is None else target)
    if measure is None:
        settings = default_settings(resolved_target)
    use_threads_of(resolved_target)  # before TVM starts its threads to fold constants
    module = to_module(mod, "tune_model")
    untuned_module = lower(module)
    if compile:
        # Before any trial, because the model could not run afterwards.
        inputs_of(untuned_module)
    space_specs = [space] if isinstance(space, str | Mapping | Plugin | type) else space
    strategy = Strategy.from_specs(policy, cost_model, features)
    earlier_runs = WarmStart.from_sources(warm_start, settings.statistic)

    def plan_task(task: Task) -> Run:
        if task.workload is None:
            raise UnsupportedWorkload(task.reason)
        space_choice = SpaceChoice.from_specs(space_specs, task.workload, resolved_target, settings=settings)
        budget, log_path = Budget(UNLIMITED, stop_after=stop_after), Path(out) / LOGS_DIR / _make_log_name(task)
        run = Run(space_choice, strategy, seed, batch, budget, settings, log_path, warm_start=earlier_runs)
        return plan_run(run)

    try:
        runs, left_out = _open_runs(tasks_of(untuned_module), plan_task)
        earlier_runs.check_used([run.warm_start for run in runs.values()])
        _check_trial_count(trials, batch, len(runs), left_out)
        warn_of_a_busy_machine(list(runs.values()))
        model_scheduler = SCHEDULERS.make(plugin, [task.to_scheduled_task() for task in runs], seed=seed)
        header = DecisionsHeader(
            scheduler=plugin.to_spec(), seed=seed, batch=batch, tasks={task.name: task.occurs for task in runs}
        )
        decisions, results, untuned_costs = _take_turns(
            runs, model_scheduler, header, trials, Path(out), progress, on_round
        )
    except OtherRun as error:  # its remedies, such as --discard, are those of a single run
        raise SearchlabError(
            f"{error.difference}; choose a different directory, or repeat the original command with the same code"
        ) from None
    faster_results = [result for name, result in results.items() if _get_best_seconds(result) < untuned_costs[name]]
    tuned_module = (
        apply_history_best(untuned_module, faster_results, resolved_target) if faster_results else untuned_module
    )
    comparison = library = None
    if compile:
        with lock_machine():
            comparison, library = compare_and_export(
                module, tuned_module, resolved_target, Path(out) / LIBRARY_FILE, seed, force=force
            )
    return TunedModel(tuned_module, list(runs), results, untuned_costs, left_out, decisions, comparison, library)


def _open_runs(tasks: Sequence[Task], plan_task: Callable[[Task], Run]) -> tuple[dict[Task, Run], dict[str, str]]:
    """Plan and open the run of each task. Return the runs, and why the other tasks cannot be tuned, by their names."""
    runs: dict[Task, Run] = {}
    left_out: dict[str, str] = {}
    for task in tasks:
        try:
            run = plan_task(task)
        except UnsupportedWorkload as error:
            left_out[task.name] = str(error)
        else:
            [runs[task]] = open_runs([run], [run])
    return runs, left_out


def _check_trial_count(trial_count: int, batch: int, task_count: int, left_out: Mapping[str, str]) -> None:
    """Raise SearchlabError if no task can be tuned, or if there are fewer trials than a batch for each task."""
    if not task_count:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:4])
        raise SearchlabError(f"no task of the model can be tuned ({reasons or 'it has none'})")
    if trial_count < batch * task_count:
        raise SearchlabError(
            f"{trial_count} trials are too few for {task_count} tasks, each of which first gets a batch of {batch}; "
            f"request at least {batch * task_count}, or reduce the batch size"
        )


def _get_best_seconds(result: Result) -> float:
    """Return the time of a run's best program in seconds; infinite if none works."""
    return result.best.seconds if any(math.isfinite(trial.cost) for trial in result.trials) else math.inf


def time_untuned(tasks: Sequence[Task], target: Target) -> dict[str, float]:
    """Return the cost of each task's untuned program in seconds, by the task's name; infinite if there is none."""
    with ScratchFolder() as folder, closing(MeasurerCache()) as measurers:
        return _measure_untuned(tasks, target, default_settings(target), measurers, Path(folder))


def default_settings(target: Target) -> LocalSettings:
    """Return how the programs of a model are measured by default.

    Within a model, other layers use the caches between two executions of a program, so its times with cold caches agree
    with those within the model better than its times with warm caches do (``studies/caches.py``).
    """
    return LocalSettings(cache="cold" if can_flush(target) else "warm")


def _measure_untuned(
    tasks: Sequence[Task],
    target: Target,
    settings: Settings,
    measurers: MeasurerCache,
    logs_dir: Path,
    on_trial: OnChargedTrial | None = None,
) -> dict[str, float]:
    """Return the cost of each task's untuned program in seconds, by the task's name; infinite if it is not measured.

    The costs are kept in logs in ``logs_dir``. Programs for a GPU are not measured, because untuned ones bind no
    threads.
    """
    costs = {task.name: math.inf for task in tasks}
    if settings.replays or target.kind != "llvm":
        return costs
    strategy = Strategy.from_specs("random")
    for task in tasks:
        if task.workload is not None:
            space = SpaceChoice.from_spec({"name": Untuned}, task.workload, target)
            log_path = logs_dir / _make_log_name(task)
            run = plan_run(Run(space, strategy, 0, 1, Budget(1), settings, log_path))
            with RunLoop(run, measurers.for_run(run), on_trial) as loop:
                loop.step()
                costs[task.name] = loop.log.records[0].trial.cost
    return costs


def _make_log_name(task: Task) -> str:
    return f"{file_name(task.name)}.jsonl"


def _take_turns(
    runs: Mapping[Task, Run],
    scheduler: Scheduler,
    header: DecisionsHeader,
    trial_budget: int,
    out_dir: Path,
    progress: bool | Console,
    on_round: Callable[[Decision], None] | None,
) -> tuple[Sequence[Decision], dict[str, Result], dict[str, float]]:
    """Advance the run of each task as ``scheduler`` decides until they have ``trial_budget`` trials.

    A scheduler regards the cost of a task's untuned program as one of its first round.

    Returns:
        The decisions, the results, and the costs of the untuned programs; the last two by the names of the tasks.
    """
    tasks = list(runs)
    with ExitStack() as stack:
        measurers = stack.enter_context(closing(MeasurerCache()))
        model_progress = _ModelProgress(stack.enter_context(open_progress(progress)), tasks, trial_budget)
        run_loops = [
            stack.enter_context(RunLoop(run, measurers.for_run(run), model_progress.on_trial)) for run in runs.values()
        ]
        decision_log = stack.enter_context(closing(DecisionLog(out_dir / DECISIONS_FILE, header)))
        target, settings = runs[tasks[0]].space.target, runs[tasks[0]].settings
        untuned_costs = _measure_untuned(
            tasks, target, settings, measurers, out_dir / UNTUNED_DIR, model_progress.on_untuned
        )
        open_tasks, spent_trials = list(range(len(tasks))), 0
        while open_tasks and spent_trials < trial_budget:
            task_number = choose_task(scheduler, open_tasks)
            task, history = tasks[task_number], scheduler.histories[task_number]
            trials = run_loops[task_number].step(trial_budget - spent_trials)
            if not trials:
                open_tasks.remove(task_number)
            spent_trials += len(trials)
            costs = [] if history else [untuned_costs[task.name]]
            tell_scheduler(scheduler, task_number, [*costs, *(trial.cost for trial in trials)])
            best_costs = [history[-1] if history else math.inf for history in scheduler.histories]
            model_seconds = sum(task.occurs * cost for task, cost in zip(tasks, best_costs, strict=True))
            decision = Decision(
                round=len(decision_log.decisions),
                task=task.name,
                trials=len(trials),
                total=spent_trials,
                best_seconds=_convert_infinite(best_costs[task_number]),
                model_seconds=_convert_infinite(model_seconds),
            )
            decision_log.add(decision)
            model_progress.on_decision(decision)
            if on_round is not None:
                on_round(decision)
        for loop in run_loops:
            loop.finish()
        results = {
            task.name: Result(loop.log, run.space) for (task, run), loop in zip(runs.items(), run_loops, strict=True)
        }
        return decision_log.decisions, results, untuned_costs


def _convert_infinite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


class _ModelProgress:
    """Shows the model's estimated time, the task with its throughput, and the number of trials that are left.

    Args:
        progress: Where to show them, or None for nowhere.
        tasks: All tasks of the model.
        trial_budget: The total number of trials.
    """

    def __init__(self, progress: RunProgress | None, tasks: Sequence[Task], trial_budget: int) -> None:
        self._progress = progress
        self._tasks = {task.name: task for task in tasks}
        self._trial_budget = trial_budget
        self._untuned_count = self._trial_count = 0
        self._description = "the first rounds"
        self._progress_texts: list[str] = []

    def on_untuned(self, *_: object) -> None:
        self._untuned_count += 1
        if self._progress is not None:
            self._progress.show("the untuned programs", self._untuned_count, len(self._tasks))

    def on_trial(self, *_: object) -> None:
        self._trial_count += 1
        self._show()

    def on_decision(self, decision: Decision) -> None:
        self._description = decision.task[:MAX_SHOWN_NAME_LENGTH]
        self._progress_texts = []
        if decision.model_seconds is not None:
            self._progress_texts.append(f"model {format_execution_time(decision.model_seconds)}")
        if decision.best_seconds and (flops := self._tasks[decision.task].flops):
            self._progress_texts.append(format_speed(flops / decision.best_seconds / 1e9, "GFLOPS"))
        self._show()

    def _show(self) -> None:
        if self._progress is not None:
            best_text = ", ".join([*self._progress_texts, f"{self._trial_budget - self._trial_count:,} left"])
            self._progress.show(self._description, self._trial_count, self._trial_budget, best_text)
