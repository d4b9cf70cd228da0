"""``searchlab run``: the runs of a study, and the report on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .report import show_report
from .terminal import interruptible, out


def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).", metavar="STUDY.toml")],
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="The directory for its logs and its report [default: results/STUDY]."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at the same time: for a study on a fleet, or from a table.")
    ] = 1,
) -> None:
    """Make the runs of a study that are missing, then report. After an interruption, run it again: it goes on."""
    from ..analysis import report as write_report
    from ..run.executors import check_jobs
    from ..run.study import Study

    directory = directory or Path("results") / study.stem
    loaded = Study.load(study)
    check_jobs(jobs, loaded.exclusive)
    default = directory == Path("results") / study.stem
    options = ("" if default else f" --out {directory}") + (f" --jobs {jobs}" if jobs > 1 else "")
    with interruptible(f"searchlab run {study}{options}"):
        for reason in loaded.plan()[1]:
            out.print(f"note: {reason}", soft_wrap=True)
        loaded.run(directory, jobs=jobs, progress=out)
        summary = write_report(directory)
    show_report(summary, directory / "report")
