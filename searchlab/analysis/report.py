"""The report on a directory of logs: read, compute, write."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..records import FAILURES
from .cells import REPORT, Cell, Comparison, read_cells
from .curves import Band, band_over_seconds, band_over_trials
from .plots import Line, draw
from .summary import Summary, WorkloadSummary, started, summarize


def report(directory: str | Path) -> Summary:
    """Compare what the logs ``**/*.jsonl`` of ``directory`` hold, and write it into ``directory/report/``.

    For each workload two pictures as PNG and SVG, best GFLOPS so far against trials and against seconds;
    ``summary.json`` and ``summary.csv`` (a row per workload and strategy); ``curves.csv`` (a row per trial:
    how many trials and seconds, both from the start of the run, and the best GFLOPS then).

    Raises SearchlabError where there is no log, where one is damaged, where logs cannot stand side by side
    (see :func:`~searchlab.analysis.cells.read_cells`), and where the report cannot be written.
    """
    directory = Path(directory)
    comparison = read_cells(directory)
    summary = summarize(comparison)
    out = directory / REPORT
    try:
        out.mkdir(exist_ok=True)
        (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
        _write_csv(out / "summary.csv", _SUMMARY, _summary_rows(summary))
        _write_csv(out / "curves.csv", ("workload", "strategy", "seed", "trial", "seconds", "best_gflops"),
                   _curve_rows(comparison))  # fmt: skip
        _draw_all(out, comparison, summary)
    except OSError as error:
        raise SearchlabError(f"cannot write the report {out}: {error.strerror}") from None
    return summary


_SUMMARY = (
    "workload", "strategy", "seeds", "trials", "complete",
    "best_gflops_median", "best_gflops_q1", "best_gflops_q3",
    "seeds_that_reached_target", "trials_to_target_median", "seconds_to_target_median",
    "area_median", "area_q1", "area_q3",
    "seconds", "propose_seconds", "train_seconds", "build_seconds", "run_seconds", *FAILURES,
)  # fmt: skip


def _summary_rows(summary: Summary) -> Iterable[Sequence[Any]]:
    for item in summary.workloads:
        for row in item.strategies:
            spent = row.seconds
            fields = (
                item.workload, row.strategy, len(row.seeds), row.trials, row.complete,
                row.best_gflops.median, row.best_gflops.lower, row.best_gflops.upper,
                row.trials_to_target.reached, row.trials_to_target.median, row.seconds_to_target.median,
                row.area.median, row.area.lower, row.area.upper,
                spent.total, spent.propose, spent.train, spent.build, spent.run,
            )  # fmt: skip
            yield [*fields, *row.failures.values()]


def _curve_rows(comparison: Comparison) -> Iterable[Sequence[Any]]:
    for workload, strategies in comparison.items():
        for strategy, cells in strategies.items():
            for cell in cells:
                pairs = zip(cell.elapsed.tolist(), cell.curve.tolist(), strict=True)
                for trial, (seconds, best) in enumerate(pairs, 1):
                    yield workload, strategy, cell.seed, trial, seconds, best


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def picture_name(workload: str, axis: str) -> str:
    """File name, without its ending, of a workload's picture against ``axis`` ("trials" or "seconds")."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', workload)}-{axis}"


def _draw_all(out: Path, comparison: Comparison, summary: Summary) -> None:
    # One order for all pictures: a strategy looks the same in each of them.
    names = sorted({strategy for strategies in comparison.values() for strategy in strategies})
    for item in summary.workloads:
        cells = {name: run for name, every in comparison[item.workload].items() if (run := started(every))}
        if not cells:
            continue
        for axis, label in (("trials", "trials"), ("seconds", "seconds of search and measurement")):
            draw(
                out / picture_name(item.workload, axis),
                title=f"{item.workload}: best program found, by {axis}",
                subtitle=_subtitle(item),
                axis=label,
                lines=[
                    Line(row.strategy, _band(cells[row.strategy], axis), names.index(row.strategy), not row.complete)
                    for row in item.strategies
                ],
                best=item.best.gflops if item.best else 0.0,
                target=item.target_gflops or 0.0,
            )


def _band(cells: Sequence[Cell], axis: str) -> Band:
    curves = [cell.curve for cell in cells]
    return band_over_trials(curves) if axis == "trials" else band_over_seconds(curves, [c.elapsed for c in cells])


def _subtitle(item: WorkloadSummary) -> str:
    counts = [len(row.seeds) for row in item.strategies]
    fewest, most = min(counts), max(counts)
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    shown = "one seed each" if most == 1 else f"median and quartiles of {seeds} seeds"
    if all(row.complete for row in item.strategies):
        return shown
    return f"{shown}; * seeds differ in trials: drawn as far as all go"
