"""``searchlab run``: the runs of a study, and the report on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import RunsFailed, SearchlabError
from .report import show_report
from .terminal import again, duration, interruptible, out

if TYPE_CHECKING:
    from ..run.plan import Run


def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="The directory for its logs and its report [default: results/STUDY]."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time: for a study on a fleet, or from a table.")
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="Where the runs are made: `local` (processes here), `dask` or `dask://host:port`, `slurm`, or the "
            "name of another executor [default: the study's, or this process].",
            metavar="EXECUTOR",
        ),
    ] = None,
    shard: Annotated[
        str,
        typer.Option(help="Make only the i-th of n parts of the runs. Put the logs of all together.", metavar="i/n"),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be run, and for how long by the logs there are.")
    ] = False,
) -> None:
    """Make the runs of a study that are missing, then report. After an interruption, run it again: it goes on."""
    from ..analysis import report as write_report
    from ..run.plan import in_shard, parse_shard
    from ..run.study import Study

    part, parts = parse_shard(shard) if shard else (1, 1)
    directory = directory or Path("results") / study.stem
    loaded = Study.load(study)
    if dry_run:
        _say_forecast(in_shard(loaded.plan()[0], part, parts), loaded.plan()[1], directory)
        return
    failed: RunsFailed | None = None
    summary = None
    with interruptible(again()):
        for reason in loaded.plan()[1]:
            out.print(f"note: {reason}", soft_wrap=True)
        try:
            results = loaded.run(directory, jobs=jobs, executor=executor, shard=(part, parts), progress=out)
        except RunsFailed as error:
            failed = error
        if parts == 1:
            try:
                summary = write_report(directory)
            except SearchlabError:
                if failed is None:
                    raise
    if summary is not None:
        show_report(summary, directory / "report")
    if failed is not None:
        raise failed
    if parts > 1:
        out.print(
            f"{len(results)} runs, which are shard {part} of {parts}, are complete in {directory}. Copy the logs of "
            f"all shards into one directory, and run `searchlab report` on it",
            soft_wrap=True,
        )


def _say_forecast(runs: Sequence[Run], left_out: Sequence[str], directory: Path) -> None:
    from ..run.study import forecast

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
    return duration(seconds)
