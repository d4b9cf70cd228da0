"""``searchlab report``: the comparison of the runs in some logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SearchlabError
from .terminal import AsJson, out

if TYPE_CHECKING:
    from ..analysis import Summary


def report(
    where: Annotated[
        list[Path],
        typer.Argument(
            help="The directory of a study, or any directory with logs; or logs, `*.jsonl` or `*.jsonl.gz`; or a study "
            "file, and the directory of its logs if that is not results/STUDY.",
            metavar="PATH...",
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The directory for the report [default: PATH/report for one directory, else results/report].",
            metavar="DIR",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include runs and trials that are no longer part of the study.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare runs: tables here; a page, report.html, pictures, CSV and JSON in the directory of the report.

    The runs are those of every log that is named, and of every log in the directories that are named. A directory of a
    study has the runs that the study has now: as it last was run, or as the study file says if that is named.
    """
    from ..analysis import report as write_report
    from ..analysis import report_directory
    from ..log.format import find_logs
    from ..log.writer import is_locked
    from ..watch.state import Watched

    if any(path.suffix == ".toml" for path in where):
        where = [_of_study(where)]
    summary = write_report(*where, out=directory, everything=everything)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))
        return
    show_report(summary, report_directory(*where, out=directory))
    for place in where:
        if place.is_dir() and any(map(is_locked, find_logs(place))):
            out.print(Watched(place).state().says, soft_wrap=True)


def _of_study(where: Sequence[Path]) -> Path:
    """The directory of the logs of the study file that ``where`` names; its plan there is as the file now says."""
    from ..log.plan import write_plan
    from ..run.study import Study

    files = [path for path in where if path.suffix == ".toml"]
    others = [path for path in where if path.suffix != ".toml"]
    if len(files) > 1 or len(others) > 1 or not all(path.is_dir() for path in others):
        raise SearchlabError(f"beside the study {files[0]}, name at most one directory: that of its logs")
    directory = others[0] if others else Path("results") / files[0].stem
    planned = Study.load(files[0]).planned()
    if not directory.is_dir():
        raise SearchlabError(f"there is no directory {directory} with logs of {files[0]}; run it first, or name theirs")
    write_plan(directory, planned)
    return directory


def show_report(summary: Summary, directory: Path) -> None:
    """Print the tables of ``summary``, and where its page is."""
    from ..analysis import summary_table

    out.print(*summary_table(summary))
    page = directory / "report.html"
    out.print(f"the report: {page} (pictures and figures beside it)", soft_wrap=True)
