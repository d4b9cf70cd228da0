"""The pictures beside a report's page: its charts as PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Floats
from ..model import Summary, WorkloadSummary
from ..runs import ComparedRuns, WorkloadRuns
from ..stats.curves import Band
from ..words import number_text
from .figures import BY_TRIALS, Bars, Charts, Figure, Series, View, band_of
from .line_plot import Frame, Line, draw
from .plots import draw_bars, draw_diagram

if TYPE_CHECKING:
    from .picture import Picture

MANY = 12
"""Of more workloads than these no picture of each is drawn, only those over all: a suite would have hundreds."""


FLOOR = 0.1
"""The least regret that a picture tells apart, in percent: a tenth of the noise of a measurement."""


def picture_name(workload: str, chart: str) -> str:
    """File name, without its ending, of the picture of a workload's ``chart``; of one over all workloads for ""."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', workload or 'overall')}-{chart}"


def draw_all(out: Path, summary: Summary, comparison: ComparedRuns, charts: Charts) -> None:
    """Every view of every figure, and the bars, into the directory ``out``.

    The picture of the first view is named after its figure, that of another view after both; the pictures of
    convergence are named after the view alone. Where there are many workloads, the page alone has the charts of each.
    """
    for workload, chart, picture in _pictures(summary, comparison, charts):
        picture.save(out / picture_name(workload, chart))


def _pictures(summary: Summary, comparison: ComparedRuns, charts: Charts) -> Iterator[tuple[str, str, Picture]]:
    """Every picture, with its workload (empty for all of them) and the name of its chart."""
    names = charts.strategies
    for item in summary.workloads if len(summary.workloads) <= MANY else ():
        for figure in charts.figures[item.workload]:
            if figure.key == "convergence":
                for view in figure.views:
                    runs = comparison[item.workload]
                    yield item.workload, view.key, convergence_picture(item, runs, view, names)
                    if distance := regret_picture(item, runs, view, names):
                        yield item.workload, "regret" if view.key == BY_TRIALS else f"regret-{view.key}", distance
            else:
                yield from _views(item.workload, figure, names)
        if item.strategies:
            yield item.workload, "time", time_picture(item.workload, charts.time[item.workload])
        if charts.failures[item.workload].parts:
            yield item.workload, "failures", failures_picture(item.workload, charts.failures[item.workload])
    for figure in charts.figures.get("", ()):
        yield from _views("", figure, names)
    if summary.overall:
        yield "", "ranks", draw_diagram(summary.overall.diagram, names)


def _views(workload: str, figure: Figure, names: Sequence[str]) -> Iterator[tuple[str, str, Picture]]:
    for place, view in enumerate(figure.views):
        chart = f"{figure.key}-{view.key}" if place else figure.key
        yield workload, chart, figure_picture(workload, figure, view, names)


def convergence_picture(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> Picture:
    """Best throughput so far, with every step of every line, while the page samples them.

    view: of the figure of convergence. names: all strategies, in the order that gives them their colours.
    """
    return draw(
        title=f"{item.workload}: best program found, by {view.name}",
        subtitle=_subtitle(item),
        frame=_frame(view, digits=1),
        lines=_lines(item, runs, view, names),
    )


def regret_picture(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> Picture | None:
    """The same as the distance to the best known, on a logarithmic axis; None while no median has found a program."""
    if item.best is None or item.target_gflops is None:
        return None
    best, target = item.best.gflops, item.target_gflops
    lines = [replace(line, band=regret(line.band, best)) for line in _lines(item, runs, view, names)]
    lines = [line for line in lines if len(line.band.x)]
    if not lines:
        return None
    level = float(regret_of(target, best)), f"{100 * target / best:.0f} % of the best known"
    return draw(
        title=f"{item.workload}: distance to the best known, by {view.name}",
        subtitle=f"{_subtitle(item)}; {FLOOR:g} % and less are drawn at the bottom",
        frame=Frame(view.label, "regret, % over the time of the best known", [level], digits=1, floor=FLOOR),
        lines=lines,
    )


def regret(band: Band, best: float) -> Band:
    """The regret of a band of throughputs, against the ``best`` known; from where the median has found something.

    An upper edge that is infinite, where seeds have found nothing, becomes the largest regret of the band.
    """
    found = band.median > 0
    median, lower, upper = (regret_of(edge[found], best) for edge in (band.median, band.upper, band.lower))
    highest = max(float(edge[np.isfinite(edge)].max(initial=0.0)) for edge in (median, upper))
    return Band(band.x[found], lower, median, np.minimum(upper, highest))


def regret_of(throughput: Floats | float, best: float) -> Floats:
    """100 (best / throughput - 1), infinity for a throughput of 0. What is better, by the luck of a draw, has 0."""
    with np.errstate(divide="ignore"):
        regret: Floats = np.maximum(100 * (np.divide(best, throughput) - 1), 0.0)
    return regret


def _lines(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> list[Line]:
    return [
        Line(
            row.strategy, band_of(runs.strategies[row.strategy], view.key), names.index(row.strategy), not row.complete
        )
        for row in item.strategies
    ]


def figure_picture(workload: str, figure: Figure, view: View, names: Sequence[str]) -> Picture:
    """One view of a line chart; workload: empty for all of them."""
    return draw(
        title=f"{workload or 'Over all workloads'}: {figure.title.lower()}",
        subtitle=figure.brief,
        frame=_frame(view, digits=figure.digits, step=figure.step, ends=figure.ends),
        lines=[
            Line(series.strategy, _band(view, series), names.index(series.strategy))
            for series in view.series
            if any(y is not None for y in series.y)
        ],
    )


def time_picture(workload: str, bars: Bars) -> Picture:
    return draw_bars(
        title=f"{workload}: where the time went",
        subtitle="seconds charged for all trials, a seed on average; building is divided by its workers",
        axis="seconds a seed",
        parts=bars.parts,
        rows=[(bar.strategy, bar.values, number_text(bar.total)) for bar in bars.rows],
    )


def failures_picture(workload: str, bars: Bars) -> Picture:
    """Of failures there must be one."""
    rows = []
    for bar in bars.rows:
        shares = [100 * count / bar.total for count in bar.values]
        rows.append((bar.strategy, shares, f"{100 * (sum(bar.values) / bar.total):.1f} %"))
    return draw_bars(
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
