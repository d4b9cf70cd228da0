"""The progress of runs: bars in a terminal, a line from time to time elsewhere, and a log message for each trial."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..console import PATIENCE_SECONDS, Terminal, escape_to_one_line, format_duration, format_speed, notify_if_slow
from ..errors import SearchlabError
from ..log.budget import UNLIMITED
from ..records import Trial
from ..workload import Workload
from .plan import OnChargedRun, OnChargedTrial, OnRun, Run

LOGGER = logging.getLogger("searchlab")
"""The logger that receives a message at level INFO for each new trial."""

LINE_INTERVAL_SECONDS = 30.0
"""The time between two lines of progress where bars cannot be drawn."""

_show_phase: ContextVar[Callable[[str], None] | None] = ContextVar("show_phase", default=None)


def announce(phase: str) -> None:
    """Log that a phase of runs begins in which no trial ends, and show it where progress is shown."""
    LOGGER.info(phase)
    if (show := _show_phase.get()) is not None:
        show(phase)


class RunProgress:
    """A progress bar for each run, and one for the study if it has several runs.

    In a study, a run's bar is replaced with the bar of the next run in the same job. All bars disappear if a
    SearchlabError is raised. If ``console`` cannot draw bars, a line is printed after ``PATIENCE_SECONDS``, then every
    ``LINE_INTERVAL_SECONDS``, and at the end. A bar counts trials or, if only seconds limit a run, seconds; that of a
    study with such runs counts runs.
    """

    def __init__(self, console: Console, runs: Sequence[Run] = ()) -> None:
        self._console = console
        can_draw_bars = console.is_terminal or console.is_jupyter
        self._next_line_time = (
            math.inf if can_draw_bars else time.monotonic() + min(PATIENCE_SECONDS, LINE_INTERVAL_SECONDS)
        )
        self._last_line: tuple[TaskID, str] | None = None  # the bar and the text of the last line
        self._exit_stack = ExitStack()
        self._progress = make_progress_bars(console)
        self._step_bar: TaskID | None = None
        self._counts_trials = all(run.trial_count < UNLIMITED for run in runs)
        total = sum(map(self._measure_size, runs))
        self._is_study = len(runs) > 1
        unit = "" if self._counts_trials else " runs"
        self._study_bar = self._progress.add_task("the study", total=total, best="", unit=unit, visible=self._is_study)
        self._finished_size = 0  # the size of the runs that have ended
        self._bars_by_job: dict[int, tuple[Run, TaskID]] = {}  # each job's current run, and the run's bar

    def show(self, description: str, done: int, count: int, best: str = "") -> None:
        """Show that ``done`` out of ``count`` steps are complete, such as the trials for a model."""
        self._progress.start()
        if done == 1 or self._step_bar is None:
            self._step_bar = self._progress.add_task(description, total=count, best=best, unit="")
        self._progress.update(self._step_bar, completed=done, description=description, best=best)
        self._print_line(self._step_bar)

    def on_run(self, run: Run, run_number: int, run_count: int, job: int) -> OnChargedTrial:
        """Add a bar for a run, and return the function that advances it."""
        if job in self._bars_by_job:
            previous_run, bar = self._bars_by_job.pop(job)
            self._end_run(previous_run, bar)
            self._progress.remove_task(bar)
        self._progress.start()
        workload, has_trials = run.space.workload, run.trial_count < UNLIMITED
        limit_seconds = None if has_trials else run.budget.seconds
        bar = self._progress.add_task(
            f"{workload}  {run.strategy.name}, seed {run.seed}",
            total=run.trial_count if has_trials else limit_seconds,
            best="",
            unit="" if limit_seconds is None else " s",
        )
        self._bars_by_job[job] = run, bar
        self._progress.update(self._study_bar, best=f"run {run_number} of {run_count}")
        self._show_study()
        if not self._is_study:
            self._print_unless_quick(bar)
        best_cost = math.inf

        def on_trial(trial: Trial, replayed: bool, charged: float) -> None:
            nonlocal best_cost
            best_cost = min(best_cost, trial.cost)
            text = _format_throughput(workload, best_cost)
            if limit_seconds is None:
                self._progress.update(bar, advance=1, best=text)
            else:
                self._progress.update(bar, completed=min(charged, limit_seconds), best=f"trial {trial.index}, {text}")
            self._show_study()
            self._print_line(self._study_bar if self._is_study else bar)

        return on_trial

    def show_phase(self, phase: str) -> None:
        """Print a phase, unless it is that of a single run in a study."""
        if not (self._is_study and self._bars_by_job):
            self._console.print(Text(phase), soft_wrap=True)

    def _measure_size(self, run: Run) -> int:
        return run.trial_count if self._counts_trials else 1

    def _end_run(self, run: Run, bar: TaskID) -> None:
        self._finished_size += self._measure_size(run)
        if not self._counts_trials:  # the run may end at another limit
            self._progress.update(bar, total=self._find_task(bar).completed)

    def _show_study(self) -> None:
        running_size = sum(
            self._measure_size(run) * self._find_task(bar).percentage / 100 for run, bar in self._bars_by_job.values()
        )
        self._progress.update(self._study_bar, completed=self._finished_size + round(running_size, 3))

    def _find_task(self, bar: TaskID) -> Task:
        return next(task for task in self._progress.tasks if task.id == bar)

    def _print_unless_quick(self, bar: TaskID) -> None:
        """Print the first line in ``PATIENCE_SECONDS``, even if no trial ends by then."""
        if not math.isinf(self._next_line_time):
            self._exit_stack.enter_context(notify_if_slow(lambda: self._print_line(bar)))

    def _print_line(self, bar: TaskID) -> None:
        if time.monotonic() < self._next_line_time:
            return
        self._next_line_time = time.monotonic() + LINE_INTERVAL_SECONDS
        self._last_line = bar, self._describe_done(bar)
        seconds = self._find_task(bar).time_remaining
        remainder = f", about {format_duration(seconds)} left" if seconds else ""
        self._console.print(self._last_line[1] + remainder, soft_wrap=True)

    def _describe_done(self, bar: TaskID) -> str:
        """Return what is done, and the best result."""
        task = self._find_task(bar)
        total = "" if task.total is None else f" of {task.total:,.0f}"
        done = f"{task.description}: {math.floor(task.completed):,}{total}{task.fields['unit']} done"
        return ", ".join(filter(None, [done, task.fields["best"]]))

    def __enter__(self) -> Self:
        self._token = _show_phase.set(self.show_phase)
        if self._is_study:
            self._progress.start()
            self._print_unless_quick(self._study_bar)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _show_phase.reset(self._token)
        self._exit_stack.close()
        if kind is None:
            for run, bar in self._bars_by_job.values():
                self._end_run(run, bar)
            self._bars_by_job.clear()
            self._show_study()
            if self._last_line and (text := self._describe_done(self._last_line[0])) != self._last_line[1]:
                self._console.print(text, soft_wrap=True)
        if kind and issubclass(kind, SearchlabError):
            self._progress.live.transient = True  # leaves only the error message
        elif self._progress.live.is_started:
            self._progress.refresh()  # because stopping does not refresh in a notebook
        self._progress.stop()


class _CompletedColumn(MofNCompleteColumn):
    def render(self, task: Task) -> Text:
        return super().render(task).append(task.fields["unit"])


def make_progress_bars(console: Console) -> Progress:
    """Return progress bars that show what is done, the best result and the time left.

    The fields of each bar are ``best``, the best result, and ``unit``, the unit of what is done.
    """
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _CompletedColumn(),
        TextColumn("{task.fields[best]}", style="bold", markup=False),
        TimeRemainingColumn(),
        console=console,
        disable=not (console.is_terminal or console.is_jupyter),
    )


def _format_throughput(workload: Workload, seconds: float) -> str:
    return format_speed(workload.flops / seconds / 1e9, workload.unit) if math.isfinite(seconds) else "no success yet"


def log_trial(run: Run, trial: Trial, best_cost: float) -> None:
    """Log a new trial of ``run``: its number, config, result, and the best one so far."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    workload, measurement = run.space.workload, trial.measurement
    result_text = _format_throughput(workload, trial.cost)
    if measurement.failure:
        result_text = ": ".join(filter(None, [measurement.failure, escape_to_one_line(measurement.message)[:200]]))
    LOGGER.info(
        "%s, %s, seed %d, trial %d: %s (best %s) with %s",
        workload,
        run.strategy.name,
        run.seed,
        trial.index,
        result_text,
        _format_throughput(workload, best_cost),
        json.dumps(trial.config.to_json()),
    )


def open_progress(progress: bool | Console, runs: Sequence[Run] = ()) -> AbstractContextManager[RunProgress | None]:
    """Return a context that shows progress, or that yields None if none is to be shown.

    Args:
        progress: True to show bars on standard error (or below the notebook cell), and False to show none. Pass a
            console to show the bars there. Where bars cannot be drawn, a line is printed from time to time instead.
        runs: The runs whose progress is shown.
    """
    if not isinstance(progress, Console):
        console = Terminal(stderr=True)
        if console.is_jupyter and find_spec("ipywidgets") is None:
            console = Terminal(stderr=True, force_jupyter=False, force_terminal=False)  # cannot redraw a moving bar
        progress = progress and console
    return RunProgress(progress, runs) if isinstance(progress, Console) else nullcontext()


@contextmanager
def show_progress(progress: bool | Console, runs: Sequence[Run], on_run: OnRun) -> Iterator[OnChargedRun]:
    """Yield a function that shows the progress of ``runs``, logs their trials, and calls ``on_run``.

    For ``progress``, see :func:`open_progress`.
    """
    with open_progress(progress, runs) as bars:

        def on_each_run(run: Run, run_number: int, run_count: int, job: int) -> OnChargedTrial:
            user_on_trial = on_run(run, run_number, run_count, job)
            advance = None if bars is None else bars.on_run(run, run_number, run_count, job)
            best_cost = math.inf

            def on_trial(trial: Trial, replayed: bool, charged: float) -> None:
                nonlocal best_cost
                best_cost = min(best_cost, trial.cost)
                if user_on_trial is not None:
                    user_on_trial(trial, replayed)
                if not replayed:
                    log_trial(run, trial, best_cost)
                if advance is not None:
                    advance(trial, replayed, charged)

            return on_trial

        yield on_each_run
