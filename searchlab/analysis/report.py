"""A report on logs: read, compute, write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import SearchlabError
from ..log.format import read_header
from .charts.figures import all_charts
from .charts.pictures import draw_all
from .files import write_json, write_numbers
from .model import Program, Summary
from .page import page
from .programs import BUDGET, Traces, best_programs, run_programs
from .read import REPORT, read_runs
from .runs import ComparedRuns
from .summary import summarize

OUT = Path("results") / REPORT
"""Where a report on anything but one directory goes, unless the caller says where."""


def report(
    *where: str | Path, out: str | Path | None = None, traces: float = BUDGET, everything: bool = False
) -> Summary:
    """Compare the runs that ``where`` names, and write what they come to as a page, pictures and files of numbers.

    where: directories, of which every log ``**/*.jsonl`` and ``**/*.jsonl.gz`` is read, and logs. A log that is named
    twice counts once.
    out: the directory to write to; by default ``report`` in the directory that ``where`` names, and
    ``results/report`` where it names a log, or several directories.
    everything: whether it goes over all that lies in the directory of a study, and not only over the runs and trials
    that the study has now.
    traces: seconds that schedule traces may take; 0 for no traces.

    The report is ``report.html``, one page that needs no other file and no network. Its charts are there as PNG and
    SVG, those of all workloads as ``overall-*``; of more than 12 workloads these alone are drawn. The numbers of all
    are in ``figures.json`` and ``figures.csv``.
    ``programs.json`` has the best program of each strategy on each workload, with its schedule trace (see
    :mod:`~searchlab.analysis.programs`); ``programs.csv`` the best program of every run, a row each.
    ``summary.json`` and ``summary.csv`` have the summary (a row per workload and strategy); ``contrasts.csv`` a row per
    workload, measure and pair of strategies (no workload: over all of them). Where there are several workloads,
    ``overall.csv`` has a row per strategy, ``claims.csv`` one for the best and each other, and ``matrix.csv`` one per
    ordered pair. ``curves.csv`` has a row per trial:
    trials and seconds, both from the start of the run, and the best GFLOPS then.

    Raises SearchlabError where there is no log, where a log is damaged, where logs cannot stand side by side
    (see :func:`~searchlab.analysis.read.read_runs`), and where the report cannot be written.
    """
    paths = [Path(place) for place in where]
    directory = report_directory(*paths, out=out)
    return write_report(read_runs(*paths, everything=everything, readings=False), directory, traces)


def write_report(comparison: ComparedRuns, out: Path, traces: float = BUDGET) -> Summary:
    """Write the report on ``comparison`` to ``out``; see :func:`report`. Raises SearchlabError if it cannot."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        programs = run_programs(comparison)
        with Traces(best_programs(programs), traces) as made:  # in a process of their own, while all else is computed
            return _write(out, comparison, [program for program, _ in programs], made)
    except OSError as error:
        raise SearchlabError(f"cannot write the report {out}: {error.strerror}") from None


def report_directory(*where: str | Path, out: str | Path | None = None) -> Path:
    """The directory that :func:`report` writes to.

    Raises SearchlabError if ``out`` is not given, and the directory would be in a folder of tables.
    """
    if out is not None:
        return Path(out)
    if len(where) != 1 or not Path(where[0]).is_dir():
        return OUT
    for log in Path(where[0]).glob("*.jsonl*"):
        if log.name.endswith((".jsonl", ".jsonl.gz")) and read_header(log).is_table:
            raise SearchlabError(
                f"{where[0]} is a folder of tables, such as {log.name}; say where the report is to be: --out DIR "
                f"(in Python, out=DIR)"
            )
    return Path(where[0]) / REPORT


def _write(out: Path, comparison: ComparedRuns, programs: Sequence[Program], traces: Traces) -> Summary:
    summary = summarize(comparison)
    charts = all_charts(summary, comparison)
    write_numbers(out, summary, comparison, charts.figures, programs)
    draw_all(out, summary, comparison, charts)
    best = traces.programs()
    write_json(out / "programs.json", best)
    (out / "report.html").write_text(page(summary, comparison, charts, best, out), encoding="utf-8")
    return summary
