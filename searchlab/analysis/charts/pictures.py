"""The pictures beside a report's page: its charts as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..model import Summary, WorkloadSummary
from ..runs import Comparison, WorkloadRuns
from ..stats.curves import Band
from ..words import number_text
from .all import Charts
from .bar_plot import draw_bars
from .bars import Bars
from .diagram_plot import draw_diagram
from .figures import Figure, Series, View
from .line_plot import Frame, Line, draw
from .workload import band_of

MANY = 12
"""Of more workloads than these no picture of each is drawn, only those over all: a suite would have hundreds."""


def picture_name(workload: str, chart: str) -> str:
    """File name, without its ending, of the picture of a workload's ``chart``; of one over all workloads for ""."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', workload or 'overall')}-{chart}"


def draw_all(out: Path, summary: Summary, comparison: Comparison, charts: Charts) -> None:
    """Every view of every figure, and the bars, into the directory ``out``.

    The picture of the first view is named after its figure, that of another view after both; the pictures of
    convergence are named after the view alone. Where there are many workloads, the page alone has the charts of each.
    """
    for item in summary.workloads if len(summary.workloads) <= MANY else ():
        for figure in charts.figures[item.workload]:
            if figure.key == "convergence":
                for view in figure.views:
                    _convergence(out, item, comparison[item.workload], view, charts.strategies)
            else:
                _figure(out, item.workload, figure, charts.strategies)
        if item.strategies:
            _time(out, item.workload, charts.time[item.workload])
            _failures(out, item.workload, charts.failures[item.workload])
    for figure in charts.figures.get("", ()):
        _figure(out, "", figure, charts.strategies)
    if summary.overall:
        draw_diagram(out / picture_name("", "ranks"), summary.overall.diagram, charts.strategies)


def _convergence(out: Path, item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> None:
    """With every step of every line, while the page samples them."""
    draw(
        out / picture_name(item.workload, view.key),
        title=f"{item.workload}: best program found, by {view.name}",
        subtitle=_subtitle(item),
        frame=_frame(view, digits=1),
        lines=[
            Line(
                row.strategy,
                band_of(runs.strategies[row.strategy], view.key),
                names.index(row.strategy),
                not row.complete,
            )
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


def _time(out: Path, workload: str, bars: Bars) -> None:
    draw_bars(
        out / picture_name(workload, "time"),
        title=f"{workload}: where the time went",
        subtitle="seconds charged for all trials, a seed on average; building is divided by its workers",
        axis="seconds a seed",
        parts=bars.parts,
        rows=[(bar.strategy, bar.values, number_text(bar.total)) for bar in bars.rows],
    )


def _failures(out: Path, workload: str, bars: Bars) -> None:
    """Nothing where no trial failed."""
    if not bars.parts:
        return
    rows = []
    for bar in bars.rows:
        shares = [100 * count / bar.total for count in bar.values]
        rows.append((bar.strategy, shares, f"{100 * (sum(bar.values) / bar.total):.1f} %"))
    draw_bars(
        out / picture_name(workload, "failures"),
        title=f"{workload}: failures",
        subtitle="trials that gave no program that runs and answers rightly, by kind, over all seeds",
        axis="% of all trials",
        parts=bars.parts,
        rows=rows,
    )


def _frame(view: View, *, digits: int, step: bool = True, ends: bool = True) -> Frame:
    levels = sorted(((level.y, level.name) for level in view.levels), reverse=True)
    return Frame(view.label, view.quantity, levels, view.bottom, view.top, digits, step, ends)


def _band(view: View, series: Series) -> Band:
    """Where there is no interval, it has no width."""
    lower, upper = (
        [y if end is None else end for end, y in zip(ends or series.y, series.y, strict=True)]
        for ends in (series.lower, series.upper)
    )
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
