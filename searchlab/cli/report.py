"""``searchlab report``: the comparison of the runs in some logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal import AsJson, out

if TYPE_CHECKING:
    from ..analysis import Summary


def report(
    where: Annotated[
        list[Path],
        typer.Argument(
            help="The directory of a study, or any directory with logs; or logs, `*.jsonl` or `*.jsonl.gz`.",
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
    as_json: AsJson = False,
) -> None:
    """Compare runs: tables here; a page, report.html, pictures, CSV and JSON in the directory of the report.

    The runs are those of every log that is named, and of every log in the directories that are named.
    """
    from ..analysis import report as write_report
    from ..analysis import report_directory

    summary = write_report(*where, out=directory)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))
    else:
        show_report(summary, report_directory(*where, out=directory))


def show_report(summary: Summary, directory: Path) -> None:
    """Print the tables of ``summary``, and where its page is."""
    from ..analysis import summary_table

    out.print(*summary_table(summary))
    page = directory / "report.html"
    out.print(f"the report: {page} (pictures and figures beside it)", soft_wrap=True)
