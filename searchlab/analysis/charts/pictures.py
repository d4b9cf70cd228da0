"""The charts of a report as matplotlib figures. Importing this module imports matplotlib, but never pyplot.

Equal arguments give equal pictures, for the same matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.figure
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from ...arrays import Floats
from ..measures import StrategySummary
from ..model import Diagram, Overall, Summary, WorkloadSummary
from ..runs import ComparedRuns, WorkloadRuns, strategy_order
from ..stats.curves import Band
from ..words import number_text, p_text
from .figures import BY_TRIALS, COLOURS, LOG_FROM, Bars, Figure, Series, View, band_of, failure_bars, time_bars

MANY = 12  # of more workloads than these, only the pictures over all are drawn: a suite would have hundreds
FLOOR = 0.1  # least regret that a picture distinguishes, in percent: a tenth of the noise of a measurement

# The numbers of colours, dashes and markers differ, so no two of the first 20 strategies look the same.
DASHES = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (2, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
# The colours of the bars on the page, --k0 ... --k6 in its style sheet.
_BAR_COLOURS = ("#0072b2", "#d97706", "#00946b", "#8a94a0", "#882255", "#56b4e9", "#333333")
GREY = "#555555"

# Sizes are in inches, unless stated otherwise.
WIDTH, DPI = 8.0, 200  # 8 inches at 800 px make 10 points 14 px high
_SCREEN = 100  # pixels per inch on a page
_HEIGHT = 4.6  # of a line chart
_LEFT, _BOTTOM, _TOP = 0.8, 0.55, 0.72  # around its axes; the right margin is as wide as the labels
_GAP = 0.2  # between the lines of its legend
_HANDLE = 0.34  # of the sample of a line
_NAME = 34  # characters of a name
_BAR_ROW = 0.3  # from bar to bar
_MATRIX_ROW = 0.5
_RANK_ROW, _CLIQUE = 0.26, 0.13  # from name to name, and from bar to bar
_RANK_MARGIN = 0.33  # of the width, on both sides, for the names

STYLE = {
    "svg.hashsalt": "searchlab",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "lines.solid_joinstyle": "round",
}


def in_style() -> AbstractContextManager[None]:
    if matplotlib.rcParams["svg.hashsalt"] == STYLE["svg.hashsalt"]:  # no other style has it
        return nullcontext()
    return matplotlib.style.context(["default", STYLE])


class Picture(matplotlib.figure.Figure):
    """A figure in the style of reports, whatever style the user has. A notebook shows it; ``savefig`` writes it."""

    def __init__(self, height: float) -> None:
        super().__init__(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(self)

    def draw(self, renderer: RendererBase) -> None:
        with in_style():  # ticks are created while drawing
            super().draw(renderer)

    def save(self, path: Path) -> None:
        """Write ``path``.png and ``path``.svg, without a date, so that equal pictures are equal files."""
        canvas = FigureCanvasAgg(self)
        with in_style():
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
            opaque = pixels[..., :3]  # packed in half the time that savefig takes
            Image.fromarray(opaque).save(path.with_name(path.name + ".png"), dpi=(DPI, DPI), compress_level=3)
            self.savefig(path.with_name(path.name + ".svg"), metadata={"Date": None, "Creator": None})

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """For notebooks: sharp on screens with twice as many pixels."""
        file = BytesIO()
        with in_style():
            self.savefig(file, format="png")
        width, height = self.get_size_inches() * _SCREEN
        return file.getvalue(), {"width": round(width), "height": round(height)}

    def add_box(self, left: float, right: float, top: float, bottom: float) -> Axes:
        """Add axes with these margins."""
        height = self.get_figheight()
        return self.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height))

    def add_heading(self, title: str, subtitle: str, left: float = 0.3, down: float = 0.3, gap: float = 0.22) -> None:
        """Write two lines above the axes, in a font small enough to fit."""
        looks: tuple[dict[str, Any], ...] = ({"fontsize": 12, "fontweight": "bold"}, {"fontsize": 9.5, "color": GREY})
        for words, place, look in zip((title, subtitle), (down, down + gap), looks, strict=True):
            text = self.text(left / WIDTH, 1 - place / self.get_figheight(), plain(words), **look)
            width = text.get_window_extent().width / self.dpi
            text.set_fontsize(look["fontsize"] * min(1.0, (WIDTH - left - 0.3) / width))


def plain(words: str) -> str:
    return words.replace("$", r"\$")  # a dollar would start a formula


def shortened(name: str, most: int) -> str:
    """Leave out the middle of a name with more than ``most`` characters."""
    return plain(name if len(name) <= most else name[: most // 2] + "…" + name[-most // 2 + 1 :])


def picture_name(workload: str, chart: str) -> str:
    """Return the file name of the picture of a ``chart``, without its suffix; ``workload``: "" for all of them."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', workload or 'overall')}-{chart}"


def draw_all(out: Path, summary: Summary, comparison: ComparedRuns, figures: Mapping[str, Sequence[Figure]]) -> None:
    """Draw every view of every figure, and the bars, into the directory ``out``.

    The picture of the first view is named after its figure, that of another view after both; the pictures of
    convergence are named after the view alone. If there are many workloads, only the page has the charts of each.
    """
    for workload, chart, picture in _pictures(summary, comparison, figures):
        picture.save(out / picture_name(workload, chart))


def _pictures(
    summary: Summary, comparison: ComparedRuns, figures: Mapping[str, Sequence[Figure]]
) -> Iterator[tuple[str, str, Picture]]:
    """Draw every picture, with its workload and the name of its chart."""
    names = strategy_order(comparison)
    for item in summary.workloads if len(summary.workloads) <= MANY else ():
        for figure in figures[item.workload]:
            if figure.key != "convergence":
                yield from _views(item.workload, figure, names)
                continue
            for view in figure.views:
                runs = comparison[item.workload]
                yield item.workload, view.key, convergence_picture(item, runs, view, names)
                if distance := regret_picture(item, runs, view, names):
                    yield item.workload, "regret" if view.key == BY_TRIALS else f"regret-{view.key}", distance
        if item.strategies:
            yield item.workload, "time", time_picture(item)
        if failure_bars(item).parts:
            yield item.workload, "failures", failures_picture(item)
    for figure in figures.get("", ()):
        yield from _views("", figure, names)
    if summary.overall:
        yield "", "ranks", draw_diagram(summary.overall.diagram, names)


def _views(workload: str, figure: Figure, names: Sequence[str]) -> Iterator[tuple[str, str, Picture]]:
    for place, view in enumerate(figure.views):
        chart = f"{figure.key}-{view.key}" if place else figure.key
        yield workload, chart, figure_picture(workload, figure, view, names)


# Line charts


@dataclass(frozen=True)
class Line:
    """One strategy of a picture."""

    name: str
    band: Band
    style: int  # place in the order that gives colours, dashes and markers
    marked: bool = False  # whether the name has an asterisk

    @property
    def colour(self) -> str:
        return COLOURS[self.style % len(COLOURS)]

    @property
    def look(self) -> dict[str, Any]:
        return {
            "color": self.colour,
            "linestyle": DASHES[self.style % len(DASHES)],
            "marker": MARKERS[self.style % len(MARKERS)],
            "markersize": 5,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
            "linewidth": 1.9,
        }


@dataclass(frozen=True)
class Frame:
    """The axes of a picture."""

    axis: str
    quantity: str
    levels: Sequence[tuple[float, str]] = ()  # horizontal lines with their names, the highest first
    bottom: float | None = None  # of the y axis, None to fit the lines; 0 is always on the axis
    top: float | None = None
    digits: int = 1  # after the point
    step: bool = True  # whether lines are constant between points
    ends: bool = True  # whether the place where a line ends means something
    floor: float = 0.0  # lower end of a logarithmic y axis, which has all values below; 0 for a linear one

    def height(self, y: Floats) -> Floats:
        """Return where values are drawn."""
        return np.maximum(y, self.floor) if self.floor else y

    def label(self, line: Line) -> str:
        end = f"  {line.band.median[-1]:.{self.digits}f}" if self.ends else ""
        return f"{shortened(line.name, _NAME)}{'*' * line.marked}{end}"


def convergence_picture(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> Picture:
    """Draw the best throughput so far, with every step of every line, while the page samples them.

    Args:
        item: The workload.
        runs: Its runs.
        view: Of the figure of convergence.
        names: All strategies, in the order that gives them their colours.
    """
    title = f"{item.workload}: best program found, by {view.name}"
    return draw(title, _subtitle(item), _frame(view), _lines(item, runs, view, names))


def regret_picture(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> Picture | None:
    """Draw the same as the distance to the best known; None while no median has found a program."""
    if item.best is None or item.target_gflops is None:
        return None
    best, target = item.best.gflops, item.target_gflops
    lines = [replace(line, band=regret(line.band, best)) for line in _lines(item, runs, view, names)]
    lines = [line for line in lines if len(line.band.x)]
    if not lines:
        return None
    level = float(regret_of(target, best)), f"{100 * target / best:.0f} % of the best known"
    return draw(
        f"{item.workload}: distance to the best known, by {view.name}",
        f"{_subtitle(item)}; {FLOOR:g} % and less are drawn at the bottom",
        Frame(view.label, "regret, % over the time of the best known", [level], floor=FLOOR),
        lines,
    )


def regret(band: Band, best: float) -> Band:
    """Return the regret of a band of throughputs, from where the median has found something.

    An infinite upper edge, where seeds have found nothing, becomes the largest regret of the band.
    """
    found = band.median > 0
    median, lower, upper = (regret_of(edge[found], best) for edge in (band.median, band.upper, band.lower))
    highest = max(float(edge[np.isfinite(edge)].max(initial=0.0)) for edge in (median, upper))
    return Band(band.x[found], lower, median, np.minimum(upper, highest))


def regret_of(throughput: Floats | float, best: float) -> Floats:
    """Return 100 (best / throughput - 1), infinite for a throughput of 0, and 0 for one above ``best``."""
    with np.errstate(divide="ignore"):
        regret: Floats = np.maximum(100 * (np.divide(best, throughput) - 1), 0.0)
    return regret


def _lines(item: WorkloadSummary, runs: WorkloadRuns, view: View, names: Sequence[str]) -> list[Line]:
    return [
        Line(name, band_of(runs.strategies[name], view.key), names.index(name), not row.complete)
        for name, row in item.by_strategy.items()
    ]


def _subtitle(item: WorkloadSummary) -> str:
    counts = [len(row.seeds) for row in item.strategies]
    fewest, most = min(counts), max(counts)
    seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    shown = "one seed each" if most == 1 else f"median and quartiles of {seeds} seeds"
    if all(row.complete for row in item.strategies):
        return shown
    return f"{shown}; * seeds differ in trials: drawn up to where all end"


def figure_picture(workload: str, figure: Figure, view: View, names: Sequence[str]) -> Picture:
    """Draw one view of a line chart; ``workload``: "" for all of them."""
    return draw(
        f"{workload or 'Over all workloads'}: {figure.title.lower()}",
        figure.brief,
        replace(_frame(view), digits=figure.digits, step=figure.step, ends=figure.ends),
        [
            Line(series.strategy, _band(view, series), names.index(series.strategy))
            for series in view.series
            if any(y is not None for y in series.y)
        ],
    )


def _frame(view: View) -> Frame:
    levels = sorted(((level.y, level.name) for level in view.levels), reverse=True)
    return Frame(view.label, view.quantity, levels, view.bottom, view.top)


def _band(view: View, series: Series) -> Band:
    """Return the band of a series, without width where there is no interval."""
    y, lower, upper = (
        np.array(series.y if edge is None else edge, dtype=np.float64)
        for edge in (series.y, series.lower, series.upper)
    )
    known = ~np.isnan(y)
    edges = [np.where(np.isnan(edge), y, edge)[known] for edge in (lower, y, upper)]
    return Band(np.array(view.x, dtype=np.float64)[known], *edges)


def draw(title: str, subtitle: str, frame: Frame, lines: Iterable[Line]) -> Picture:
    """Draw every line in ``frame``."""
    shown = sorted(lines, key=lambda line: (-line.band.median[-1], line.name))
    with in_style():
        picture = Picture(max(_HEIGHT, _BOTTOM + _TOP + _GAP * (len(shown) + 1)))
        axes = picture.add_subplot()
        _place(picture, axes, shown, frame)
        _curves(axes, shown, frame)
        _scale(axes, shown, frame)
        _levels(axes, frame)
        _legend(picture, axes, shown, frame)
        if len({line.band.x[-1] for line in shown}) > 1:
            subtitle += "; dotted: held after the last trial"
        picture.add_heading(title, subtitle, left=_LEFT)
    return picture


def _place(picture: Picture, axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    """Make the axes as wide as the longest label leaves room for."""
    widths = []
    for line in lines:
        text = picture.text(0, 0, frame.label(line), fontsize=10)
        widths.append(text.get_window_extent().width / picture.dpi)
        text.remove()
    right = _HANDLE + max(widths) + 0.5
    height = picture.get_figheight()
    axes.set_position((
        _LEFT / WIDTH, _BOTTOM / height, (WIDTH - _LEFT - right) / WIDTH, (height - _BOTTOM - _TOP) / height,
    ))  # fmt: skip


def _curves(axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    end = max(line.band.x[-1] for line in lines)
    shade = min(0.14, max(0.05, 0.8 / len(lines)))
    for rank, line in enumerate(lines):
        band = line.band
        median = frame.height(band.median)
        # A filled area is written with all its corners: leave out those where it neither rises nor ends.
        edges = frame.height(np.stack((band.lower, band.upper)))
        corner = np.r_[True, (np.diff(edges) != 0).any(axis=0)] if frame.step else np.ones(len(band.x), dtype=bool)
        corner[-1] = True
        x, (lower, upper) = band.x[corner], edges[:, corner]
        look: dict[str, Any] = {"step": "post"} if frame.step else {}
        axes.fill_between(x, lower, upper, color=line.colour, alpha=shade, linewidth=0, zorder=2, **look)
        # Markers are at different places on every line, so that lines that coincide are distinguishable.
        every = (0.03 + 0.16 * rank / len(lines), 0.16) if len(band.x) > 1 else 1
        style, order = "steps-post" if frame.step else "default", 4 - rank / len(lines)
        axes.plot(band.x, median, drawstyle=style, markevery=every, zorder=order, **line.look)
        if frame.step:
            axes.plot((band.x[-1], end), (median[-1],) * 2, ":", color=line.colour, linewidth=1.1, zorder=2.5)


def _scale(axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    first, last = min(line.band.x[0] for line in lines), max(line.band.x[-1] for line in lines)
    if first > 0 and last / first >= LOG_FROM:
        axes.set_xscale("log")
        inches = axes.get_position().width * WIDTH / np.log10(last / first)  # per decade
        subs = (1.0, 2.0, 5.0) if inches > 1.5 else (1.0, 3.0) if inches > 0.9 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())  # the many small ticks took a quarter of the time of a picture
        axes.set_xlim(first, last)
    else:
        axes.set_xlim(0, last if last > first else 2 * last or 1.0)
    high = max(*(float(line.band.upper.max()) for line in lines), *(level for level, _ in frame.levels), 0.0)
    if frame.floor:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(frame.floor * 0.9, max(high, 10 * frame.floor) * 1.2)
    else:
        low = min(0.0, *(float(line.band.lower.min()) for line in lines)) if frame.bottom is None else frame.bottom
        axes.set_ylim(low * 1.04, frame.top if frame.top is not None else high * 1.04 or 1.0)
    axes.set_xlabel(frame.axis)
    axes.set_ylabel(frame.quantity)


def _levels(axes: Axes, frame: Frame) -> None:
    """Draw thin lines, named at the left, where most curves have yet to rise."""
    across = axes.get_yaxis_transform()
    halo = [withStroke(linewidth=2.5, foreground="white")]
    for place, (level, text) in enumerate(frame.levels):
        dash, align = ("-", "bottom") if place == 0 else ((0, (4, 3)), "top")
        axes.axhline(level, color="#888888", linewidth=0.8, linestyle=dash, zorder=1.5)
        axes.text(0.008, level, text, fontsize=8.5, color=GREY, va=align, transform=across, zorder=5, path_effects=halo)


def _legend(picture: Picture, axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    """Put the sample and name of every line at the right, beside its end as far as the names leave room."""
    box = axes.get_position()
    width, height = box.width * WIDTH, box.height * picture.get_figheight()
    last = frame.height(np.array([line.band.median[-1] for line in lines]))
    places = axes.transData.transform(np.column_stack((np.full(len(last), axes.get_xlim()[1]), last)))
    ends = np.clip(axes.transAxes.inverted().transform(places)[:, 1], 0.0, 1.0)
    for line, end, y in zip(lines, ends, apart(ends, _GAP / height), strict=True):
        left, right = 1 + 0.28 / width, 1 + (0.28 + _HANDLE) / width
        here: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        axes.plot((1.0, left - 0.05 / width), (end, y), color=line.colour, linewidth=0.7, **here)
        axes.plot((left, (left + right) / 2, right), (y, y, y), markevery=[1], **line.look, **here)
        axes.text(right + 0.08 / width, y, frame.label(line), fontsize=10, va="center", transform=axes.transAxes)


def apart(places: Floats, gap: float) -> Floats:
    """Move ``places`` in [0, 1], highest first, as little as two passes need to be ``gap`` apart.

    The first pass pushes down from the top, where curves meet; the second lifts what fell off the bottom.
    """
    moved = np.minimum(places, 1.0)
    for i in range(1, len(moved)):
        moved[i] = min(moved[i], moved[i - 1] - gap)
    if len(moved):
        moved[-1] = max(moved[-1], 0.0)
    for i in range(len(moved) - 2, -1, -1):
        moved[i] = max(moved[i], moved[i + 1] + gap)
    return moved


# Bars


def time_picture(item: WorkloadSummary) -> Picture:
    bars = time_bars(item)
    return _draw_bars(
        f"{item.workload}: where the time went",
        "seconds charged for all trials, average per seed; building is divided by its workers",
        "seconds per seed",
        bars,
        [bar.values for bar in bars.rows],
        [number_text(bar.total) for bar in bars.rows],
    )


def failures_picture(item: WorkloadSummary) -> Picture:
    """Draw the failures, of which there must be one."""
    bars = failure_bars(item)
    return _draw_bars(
        f"{item.workload}: failures",
        "trials without a program that runs and gives the right answer, by kind, over all seeds",
        "% of all trials",
        bars,
        [[100 * count / bar.total for count in bar.values] for bar in bars.rows],
        [f"{100 * (sum(bar.values) / bar.total):.1f} %" for bar in bars.rows],
    )


def _draw_bars(
    title: str, subtitle: str, axis: str, bars: Bars, values: Sequence[Sequence[float]], totals: Sequence[str]
) -> Picture:
    """Draw a bar for each row of ``values``, with a value for each part, and a text for its total."""
    with in_style():
        picture = Picture(0.85 + _BAR_ROW * len(values) + 0.55)
        axes = picture.add_box(left=2.3, right=0.8, top=0.85, bottom=0.55)
        lefts = np.zeros(len(values))
        for number, (part, own) in enumerate(zip(bars.parts, np.transpose(values), strict=True)):
            colour = _BAR_COLOURS[number % len(_BAR_COLOURS)]
            axes.barh(range(len(values)), own, left=lefts, height=0.62, color=colour, label=part)
            lefts = lefts + own
        longest = lefts.max() or 1.0
        for place, (left, total) in enumerate(zip(lefts, totals, strict=True)):
            axes.text(left + 0.01 * longest, place, total, va="center", fontsize=9)
        axes.set_xlim(0, longest)
        axes.set_ylim(len(values) - 0.5, -0.5)  # the first row at the top
        axes.set_yticks(range(len(values)), [shortened(bar.strategy, 26) for bar in bars.rows])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(axis)
        picture.legend(
            loc="upper left", bbox_to_anchor=(0.3 / WIDTH, 1 - 0.55 / picture.get_figheight()), ncols=len(bars.parts),
            frameon=False, fontsize=9, borderpad=0.0, borderaxespad=0.0, handlelength=1.0, handleheight=1.0,
            columnspacing=1.4,
        )  # fmt: skip
        picture.add_heading(title, subtitle, down=0.26, gap=0.2)
    return picture


# Matrices


def pairwise_picture(item: WorkloadSummary, measure: str) -> Picture:
    """Draw how probably a run of one strategy is better than one of another, for each pair."""
    names = [row.strategy for row in item.strategies]
    cells = {
        (name, other): (
            2 * cell.chance - 1,
            f"{100 * cell.chance:.0f} %\n{'' if cell.p is None else f'p {p_text(cell.p)}'}",
        )
        for name, row in item.pairs(measure)
        for other, cell in zip(names, row, strict=True)
        if cell
    }
    return _draw_matrix(
        f"{item.workload}: how probably a run of the row is better than one of the column",
        f"by {StrategySummary.compared_by()[measure]}; p, where there is a test, is corrected for all tests of the "
        f"report",
        names,
        cells,
    )


def matrix_picture(overall: Overall) -> Picture:
    """Draw the multiple comparison matrix."""
    most = max(abs(cell.difference) for cell in overall.matrix) or 1.0
    cells = {
        (cell.row, cell.column): (
            cell.difference / most,
            f"{number_text(cell.difference, 3)}\n{cell.wins} / {cell.ties} / {cell.losses}\np {p_text(cell.p)}",
        )
        for cell in overall.matrix
    }
    return _draw_matrix(
        "Over all workloads: every pair by itself",
        "mean area of the row less that of the column; workloads won, tied, lost; p is not corrected",
        list(dict.fromkeys(cell.row for cell in overall.matrix)),
        cells,
    )


def _draw_matrix(
    title: str, subtitle: str, names: Sequence[str], cells: Mapping[tuple[str, str], tuple[float, str]]
) -> Picture:
    """Draw a row and a column for each name; a cell has a weight in [-1, 1], above 0 if the row is better, and text."""
    with in_style():
        picture = Picture(2.0 + _MATRIX_ROW * len(names) + 0.2)
        axes = picture.add_box(left=2.3, right=0.9, top=2.0, bottom=0.2)
        size = min(9.0, 60.0 / len(names))  # points
        for i, row in enumerate(names):
            for j, column in enumerate(names):
                weight, text = cells.get((row, column), (0.0, ""))
                colour, alpha = COLOURS[0 if weight > 0 else 1], 0.5 * abs(weight)
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, alpha=alpha, linewidth=0))
                axes.text(j, i, plain(text), ha="center", va="center", fontsize=size)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)  # the first row at the top
        axes.set_yticks(range(len(names)), [shortened(name, 26) for name in names])
        heads = [shortened(name, 18) for name in names]
        axes.set_xticks(range(len(names)), heads, rotation=50, ha="left", rotation_mode="anchor")
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        picture.add_heading(title, subtitle)
    return picture


# Rankings


def draw_diagram(diagram: Diagram, order: Sequence[str]) -> Picture:
    """Draw average ranks on a line, the best at the left, and a bar for every clique.

    Strategies with a dot on the same bar are not distinguishable; a bar may pass over one that is not in its clique.
    The layout is Demsar's (JMLR 7, 2006, figure 1). ``order`` of the strategies gives them their colours.
    """
    last = len(diagram.strategies)
    rows = (last + 1) // 2
    bars = _CLIQUE * (len(diagram.cliques) + 1)
    below = bars + _RANK_ROW * rows
    with in_style():
        picture = Picture(0.75 + below + 0.15)
        axes = picture.add_axes((_RANK_MARGIN, 0.0, 1 - 2 * _RANK_MARGIN, 1.0))
        axes.set_axis_off()
        axes.set_xlim(1, last)
        axes.set_ylim(-below - 0.15, 0.75)  # inches from the line of ranks
        axes.plot((1, last), (0, 0), color="black", linewidth=1.2, clip_on=False)
        for tick in range(1, last + 1):
            axes.plot((tick, tick), (0, 0.09), color="black", linewidth=1.0, clip_on=False)
            axes.text(tick, 0.14, str(tick), ha="center", va="bottom", fontsize=9)
        for level, clique in enumerate(diagram.cliques, 1):
            ranks, down = [diagram.ranks[place] for place in clique], -_CLIQUE * level
            ends = min(ranks), max(ranks)
            axes.plot(ends, (down, down), color=GREY, linewidth=3, solid_capstyle="round", zorder=3)
            axes.plot(ranks, [down] * len(ranks), "o", color=GREY, markersize=5, zorder=3, clip_on=False)
        # The better half is at the left, the best at the top; the others at the right, the worst at the top.
        reach = 0.03 * (last - 1)
        for place, (name, rank) in enumerate(zip(diagram.strategies, diagram.ranks, strict=True)):
            left = place < rows
            down = -bars - _RANK_ROW * ((place if left else last - 1 - place) + 0.5)
            end = 1 - reach if left else last + reach
            colour = COLOURS[order.index(name) % len(COLOURS)]
            axes.plot((rank, rank, end), (0, down, down), color=colour, linewidth=1.1, clip_on=False)
            shown = shortened(name, 22)
            label = f"{shown}  {rank:.2f}" if left else f"{rank:.2f}  {shown}"
            beside = end + (-reach if left else reach) / 3
            axes.text(beside, down, label, ha="right" if left else "left", va="center")
        title = f"average rank over {diagram.workloads} workloads; a bar joins what cannot be told apart"
        axes.text((1 + last) / 2, 0.52, title, ha="center", fontsize=9.5, color=GREY)
    return picture
