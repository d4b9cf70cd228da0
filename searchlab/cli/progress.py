"""Live progress of runs: the run, trials done, best GFLOPS so far, time left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..records import Trial
from ..workload import parse_workload

if TYPE_CHECKING:
    from ..run.plan import Run


class RunProgress:
    """A bar for each run."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}", style="bold", markup=False),
            TimeRemainingColumn(),
            console=console,
        )
        self._block: TaskID | None = None

    def start(self, workload: str, label: str, trials: int) -> OnTrial:
        """Add a bar, to ``trials``. The function returned moves it on by one."""
        searched = parse_workload(workload)
        task = self._progress.add_task(f"{workload}  {label}", total=trials, best="")
        best = math.inf

        def on_trial(trial: Trial) -> None:
            nonlocal best
            best = min(best, trial.cost)
            shown = "no success yet"
            if math.isfinite(best):
                shown = f"{searched.flops / best / 1e9:.1f} {searched.unit}"
            self._progress.update(task, advance=1, best=shown)

        return on_trial

    def on_block(self, what: str, done: int, count: int) -> None:
        """Show that ``done`` of ``count`` blocks of a table are timed."""
        if done == 1 or self._block is None:
            self._block = self._progress.add_task(what, total=count, best="")
        self._progress.update(self._block, completed=done, description=what)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class StudyProgress(RunProgress):
    """A bar for the run of each job, and a bar for the whole study."""

    def __init__(self, console: Console, runs: Sequence[Run]) -> None:
        super().__init__(console)
        self._whole = self._progress.add_task("the study", total=sum(run.trials for run in runs), best="")
        self._bars: dict[int, TaskID] = {}  # by job, of its run

    def on_run(self, run: Run, number: int, count: int, job: int) -> Callable[[Trial], None]:
        if job in self._bars:
            before = next(task for task in self._progress.tasks if task.id == self._bars[job])
            self._progress.advance(self._whole, (before.total or 0) - before.completed)  # a run may end sooner
            self._progress.remove_task(before.id)
        on_trial = self.start(run.workload, f"{run.strategy.name}, seed {run.seed}", run.trials)
        self._bars[job] = self._progress.task_ids[-1]
        self._progress.update(self._whole, best=f"run {number} of {count}")

        def on_both(trial: Trial) -> None:
            on_trial(trial)
            self._progress.advance(self._whole)

        return on_both
