"""``searchlab run``: the runs of a study, and the report on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from .report import show_report
from .terminal import interruptible, out

if TYPE_CHECKING:
    from ..run.study import Study


def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="The directory for its logs and its report [default: results/STUDY]."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at the same time: for a study on a fleet, or from a table.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be run, and for how long by the logs there are.")
    ] = False,
) -> None:
    """Make the runs of a study that are missing, then report. After an interruption, run it again: it goes on."""
    from ..analysis import report as write_report
    from ..run.executors import check_jobs
    from ..run.study import Study

    directory = directory or Path("results") / study.stem
    loaded = Study.load(study)
    check_jobs(jobs, loaded.exclusive)
    if dry_run:
        _say_forecast(loaded, directory)
        return
    default = directory == Path("results") / study.stem
    options = ("" if default else f" --out {directory}") + (f" --jobs {jobs}" if jobs > 1 else "")
    with interruptible(f"searchlab run {study}{options}"):
        for reason in loaded.plan()[1]:
            out.print(f"note: {reason}", soft_wrap=True)
        loaded.run(directory, jobs=jobs, progress=out)
        summary = write_report(directory)
    show_report(summary, directory / "report")


def _say_forecast(study: Study, directory: Path) -> None:
    from ..run.forecast import forecast

    runs, left_out = study.plan()
    for reason in left_out:
        out.print(f"note: {reason}", soft_wrap=True)
    forecasts = forecast([replace(run, log=directory / run.log) for run in runs])
    table = Table("workload", "space", "strategy", "runs", "complete", "trials left", "time left", box=None)
    for one in forecasts:
        cells = (str(one.runs), str(one.complete), "unknown" if one.trials is None else f"{one.trials:,}")
        table.add_row(one.workload, one.space, one.strategy, *cells, _time(one.seconds))
    out.print(table)
    known = [one.seconds for one in forecasts if one.seconds is not None]
    time = _time(sum(known) if len(known) == len(forecasts) else None)
    if runs[0].settings.replays:
        time += " as they were recorded, which the table answers at once"
    complete = sum(one.complete for one in forecasts)
    counts = [one.trials for one in forecasts if one.trials is not None]
    trials = f"{sum(counts):,}" if len(counts) == len(forecasts) else "an unknown number of"
    out.print(
        f"{len(runs)} runs, {complete} of them complete in {directory}; {trials} trials are left: {time}",
        soft_wrap=True,
    )


def _time(seconds: float | None) -> str:
    """A time to wait for, roughly."""
    if seconds is None:
        return "unknown, since no trial is logged"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
