"""Reports: read logs, compute, write."""

from __future__ import annotations

from pathlib import Path

from ..errors import SearchlabError
from ..log.format import read_header
from .charts.figures import all_figures
from .files import write_json, write_numbers
from .model import Summary
from .page.render import page
from .programs import BUDGET, Traces, best_programs, run_programs
from .read import REPORT, read_runs
from .runs import ComparedRuns
from .summary import summarize

OUT = Path("results") / REPORT  # the default directory of a report on anything but one directory


def report(
    *where: str | Path, out: str | Path | None = None, traces: float = BUDGET, everything: bool = False
) -> Summary:
    """Compare the runs in logs, and write a page, pictures and files of numbers.

    - ``report.html``: the report as one page that needs no other file and no network. Its charts are also written as
      PNG and SVG, those over all workloads as ``overall-*``; of more than 12 workloads, only these.
    - ``summary.json``, ``summary.csv``: the summary; a row for each strategy on each workload.
    - ``contrasts.csv``: a row for each pair of strategies by each measure on each workload; over all if that is empty.
    - ``overall.csv``, ``claims.csv``, ``matrix.csv``: over several workloads, a row for each strategy, for the best and
      each other, and for each ordered pair.
    - ``curves.csv``: a row for each trial: trials and seconds from the start of the run, and the best GFLOPS then.
    - ``figures.json``, ``figures.csv``: the numbers of the charts.
    - ``programs.json``: the best program of each strategy on each workload, with its schedule trace (see
      :mod:`~searchlab.analysis.programs`). ``programs.csv``: the best program of every run.

    Args:
        *where: Logs, and directories of which every log (``**/*.jsonl``, ``**/*.jsonl.gz``) is read. A log that is
            named twice counts once.
        out: The directory to write to; by default ``report`` in the one directory that ``where`` names, otherwise
            ``results/report``.
        traces: Seconds that schedule traces may take; 0 for no traces.
        everything: Whether to report on all logs in the directory of a study, and not only on the runs and trials that
            the study has now.

    Returns:
        All numbers of the report.

    Raises:
        SearchlabError: If there is no log, if a log is damaged, if logs are not comparable (see
            :func:`~searchlab.analysis.read.read_runs`), or if the report cannot be written.
    """
    paths = [Path(place) for place in where]
    directory = report_directory(*paths, out=out)
    return write_report(read_runs(*paths, everything=everything, readings=False), directory, traces)


def write_report(comparison: ComparedRuns, out: Path, traces: float = BUDGET) -> Summary:
    """Write the report on ``comparison`` to ``out``, see :func:`report`."""
    from .charts.pictures import draw_all  # here, because matplotlib is slow to import

    try:
        out.mkdir(parents=True, exist_ok=True)
        programs = run_programs(comparison)
        with Traces(best_programs(programs), traces) as made:  # in another process, in parallel to the rest
            summary = summarize(comparison)
            figures = all_figures(summary, comparison)
            write_numbers(out, summary, comparison, figures, [program for program, _ in programs])
            draw_all(out, summary, comparison, figures)
            best = made.programs()
            write_json(out / "programs.json", best)
            (out / "report.html").write_text(page(summary, comparison, figures, best, out), encoding="utf-8")
            return summary
    except OSError as error:
        raise SearchlabError(f"cannot write the report {out}: {error.strerror}") from None


def report_directory(*where: str | Path, out: str | Path | None = None) -> Path:
    """Return the directory that :func:`report` writes to.

    Raises:
        SearchlabError: If ``out`` is not given, and the directory would be in a folder of tables.
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
