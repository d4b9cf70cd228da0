"""The pictures beside a report's page: its charts as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..page.render import PARTS, failure_rows, number_text, spent_rows
from ..stats.curves import Band
from ..summary import Summary, WorkloadSummary
from .bar_plot import draw_bars
from .diagram_plot import draw_diagram
from .line_plot import Frame, Line, draw
from .workload import Figure, Runs, Series, View, band_of


def picture_name(workload: str, what: str) -> str:
    """File name, without its ending, of a workload's picture of ``what``."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', workload or 'overall')}-{what}"


def draw_all(
    out: Path, summary: Summary, runs: Mapping[str, Runs], figures: Mapping[str, Sequence[Figure]], names: Sequence[str]
) -> None:
    """Every view of every figure, named by both but for a figure's first; those of convergence by the view alone.

    names: the order that gives strategies their looks.
    """
    for item in summary.workloads:
        for figure in figures[item.workload]:
            if figure.key == "convergence":
                for view in figure.views:
                    _convergence(out, item, runs[item.workload], view, names)
            else:
                _figure(out, item.workload, figure, names)
        if item.strategies:
            _time(out, item)
            _failures(out, item)
    for figure in figures.get("", ()):
        _figure(out, "", figure, names)
    if summary.overall:
        draw_diagram(out / picture_name("", "ranks"), summary.overall.diagram, names)


def _convergence(out: Path, item: WorkloadSummary, runs: Runs, view: View, names: Sequence[str]) -> None:
    """With every step of every line, while the page samples them."""
    draw(
        out / picture_name(item.workload, view.key),
        title=f"{item.workload}: best program found, by {view.name}",
        subtitle=_subtitle(item),
        frame=_frame(view, digits=1),
        lines=[
            Line(row.strategy, band_of(runs[row.strategy], view.key), names.index(row.strategy), not row.complete)
            for row in item.strategies
        ],
    )


def _figure(out: Path, workload: str, figure: Figure, names: Sequence[str]) -> None:
    for place, view in enumerate(figure.views):
        draw(
            out / picture_name(workload, f"{figure.key}-{view.key}" if place else figure.key),
            title=f"{workload or 'Over all workloads'}: {figure.title.lower()}",
            subtitle=figure.brief,
            frame=_frame(view, digits=figure.digits, step=figure.step, ends=figure.ends),
            lines=[
                Line(series.strategy, _band(view, series), names.index(series.strategy))
                for series in view.series
                if any(y is not None for y in series.y)
            ],
        )


def _time(out: Path, item: WorkloadSummary) -> None:
    draw_bars(
        out / picture_name(item.workload, "time"),
        title=f"{item.workload}: where the time went",
        subtitle="seconds charged for all trials, a seed on average; building is divided by its workers",
        axis="seconds a seed",
        parts=PARTS,
        rows=[(row["strategy"], row["parts"], number_text(row["total"])) for row in spent_rows(item)],
    )


def _failures(out: Path, item: WorkloadSummary) -> None:
    """Nothing where no trial failed."""
    found = failure_rows(item)
    if not found["kinds"]:
        return
    rows = []
    for row in found["rows"]:
        shares = [100 * count / row["total"] for count in row["counts"]]
        rows.append((row["strategy"], shares, f"{100 * row['share']:.1f} %"))
    draw_bars(
        out / picture_name(item.workload, "failures"),
        title=f"{item.workload}: failures",
        subtitle="trials that gave no program that runs and answers rightly, by kind, over all seeds",
        axis="% of all trials",
        parts=found["kinds"],
        rows=rows,
    )


def _frame(view: View, *, digits: int, step: bool = True, ends: bool = True) -> Frame:
    levels = sorted(((level.y, level.name) for level in view.levels), reverse=True)
    return Frame(view.label, view.quantity, levels, view.bottom, view.top, digits, step, ends)


def _band(view: View, series: Series) -> Band:
    lower, upper = series.lower or series.y, series.upper or series.y
    known = [i for i, y in enumerate(series.y) if y is not None]
    return Band(
        *(np.array([values[i] for i in known], dtype=np.float64) for values in (view.x, lower, series.y, upper))
    )


def _subtitle(item: WorkloadSummary) -> str:
    counts = [len(row.seeds) for row in item.strategies]
    fewest, most = min(counts), max(counts)
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    shown = "one seed each" if most == 1 else f"median and quartiles of {seeds} seeds"
    if all(row.complete for row in item.strategies):
        return shown
    return f"{shown}; * seeds differ in trials: drawn as far as all go"
