"""Writing reports on logs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import SearchlabError
from ..files import resolve_inside
from ..log.read import LOG_SUFFIXES, read_header
from .charts.vegalite import Format
from .comparison import Comparison
from .read import REPORT_DIR, read_planned_claims, read_runs
from .runs import By
from .summary import Summary

DEFAULT_DIR = (
    Path("results") / REPORT_DIR
)  # the default directory for a report on anything other than a single directory


def report(
    *where: str | Path,
    out: str | Path | None = None,
    everything: bool = False,
    figures: Format | None = None,
    by: By | None = None,
) -> Summary:
    """Compare the runs in logs, and write a page and data files.

    - ``report.html``: the report as one page that needs no other files and no network.
    - ``summary.json``, ``summary.csv``: the summary, with a row for each strategy on each workload.
    - ``runs.csv.gz``: a row for each run, with the numbers by seed that ``summary.csv`` averages.
    - ``contrasts.csv.gz``: a row for each pair of strategies and workload, with the mean difference in area. In rows
      over all workloads, ``workload`` is empty, and the columns ``others_`` are about other workloads like these.
    - ``overall.csv``: a row for each strategy over several workloads.
    - ``published_claims.csv``: a row for each opponent in each published claim of the study.
    - ``programs.csv.gz``: the best program of each run.
    - ``importances.csv``: the importance of each knob on each workload, its number of values, and its value in the
      fastest config.
    - ``WORKLOAD-CHART.KIND``: each chart, if ``figures`` is the kind of file: pdf, svg or png.

    Args:
        *where: Logs, or directories in which all logs (``**/*.jsonl``, ``**/*.jsonl.gz``) are read. A log that is
            passed twice counts once.
        out: The directory to write to. By default, ``report`` in ``where`` if that is a single directory, and
            ``results/report`` otherwise.
        everything: Whether to report on all logs in a study's directory, rather than only on the runs and trials that
            are currently part of the study.
        figures: The format in which all charts are written to files. By default, they are only on the page.
        by: Whether strategies are compared by the area over trials or over seconds. By default, over seconds if these
            limit all runs.

    Raises:
        SearchlabError: If there are no logs, if a log is damaged, if logs are not comparable (see
            :func:`~searchlab.analysis.read.read_runs`), or if the report cannot be written.
    """
    paths = [Path(path) for path in where]
    directory = report_directory(*paths, out=out)
    runs = read_runs(*paths, everything=everything, readings=False, by=by)
    comparison = Comparison(runs, read_planned_claims(*paths))
    comparison.save(directory, figures=figures)
    return comparison.summary


def report_directory(*where: str | Path, out: str | Path | None = None) -> Path:
    """Return the directory that :func:`report` writes to.

    Raises:
        SearchlabError: If ``out`` is None and the report would be written to a folder of tables, or by a link to a
            different place.
    """
    if out is not None:
        return Path(out)
    if len(where) != 1 or not Path(where[0]).is_dir():
        return DEFAULT_DIR
    directory = Path(where[0])
    for log in directory.iterdir():
        with suppress(SearchlabError):  # unreadable logs have been reported
            if log.name.endswith(LOG_SUFFIXES) and read_header(log).is_table:
                break
    else:
        resolve_inside(directory / REPORT_DIR, directory)
        return directory / REPORT_DIR
    raise SearchlabError(
        f"{directory} is a folder of tables, such as {log.name}; specify where to write the report with --out DIR (in "
        f"Python, out=DIR)"
    )
