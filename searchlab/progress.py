"""Live progress of runs: the cell, trials done, best GFLOPS so far, time left."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .records import Trial
from .workload import parse_workload

if TYPE_CHECKING:
    from .study import StudyCell


class CellProgress:
    """One bar for the cell that runs."""

    def __init__(self, console: Console, trials: int) -> None:
        self._trials = trials
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("[bold]{task.fields[best]}"),
            TimeRemainingColumn(),
            console=console,
        )

    def start(self, workload: str, label: str) -> Callable[[Trial], None]:
        """A new bar; what is given back moves it on by a trial."""
        flops = parse_workload(workload).flops
        task = self._progress.add_task(f"{workload}  {label}", total=self._trials, best="")
        best = math.inf

        def on_trial(trial: Trial) -> None:
            nonlocal best
            best = min(best, trial.cost)
            shown = f"{flops / best / 1e9:.1f} GFLOPS" if math.isfinite(best) else "no success yet"
            self._progress.update(task, advance=1, best=shown)

        return on_trial

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class StudyProgress(CellProgress):
    """The cell that runs, and the whole study."""

    def __init__(self, console: Console, cells: int, trials: int) -> None:
        super().__init__(console, trials)
        self._whole = self._progress.add_task("the study", total=cells * trials, best="")

    def on_cell(self, item: StudyCell, number: int, count: int) -> Callable[[Trial], None]:
        for task in self._progress.task_ids:
            if task != self._whole:
                self._progress.remove_task(task)
        cell = item.cell
        label = cell.label or cell.policy.name
        on_trial = self.start(str(cell.space.workload), f"{label}, seed {cell.seed}")
        self._progress.update(self._whole, completed=(number - 1) * self._trials, best=f"run {number} of {count}")

        def on_both(trial: Trial) -> None:
            on_trial(trial)
            self._progress.advance(self._whole)

        return on_both
