"""A report's charts as matplotlib figures. Importing this module imports matplotlib, but not pyplot.

With the same version of matplotlib, equal arguments yield equal pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.figure
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from PIL import Image

from ...arrays import Floats
from ...files import file_name, replace_file
from ..model import Diagram, Summary
from ..runs import ComparedRuns
from ..stats.inference import ROPE
from ..verdict import signed
from .figures import (
    BY_TRIALS,
    COLOURS,
    LOG_FROM,
    Figure,
    Gap,
    LineStyles,
    View,
    differences,
)

MANY = 12  # with more workloads, only pictures over all workloads are drawn; a suite would have hundreds of others
FLOOR = 0.1  # the smallest regret that a picture shows, in percent: a tenth of the measurement noise

# The numbers of colours, dashes and markers differ so that no two of the first 20 strategies look the same.
DASHES = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (2, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
GREY = "#555555"

# Sizes are in inches, unless stated otherwise.
WIDTH, DPI = 8.0, 200  # at 8 inches for 800 px, 10 points are 14 px high
_SCREEN = 100  # pixels per inch on a page
_HEIGHT = 4.6  # height of a line chart
_LEFT, _BOTTOM, _TOP = 0.8, 0.55, 0.72  # margins of a line chart; the right margin is as wide as the labels
_GAP = 0.2  # distance between lines in a legend
_HANDLE = 0.34  # length of a line's sample in a legend
_NAME = 34  # maximum number of characters in a name
_GAP_ROW = 0.3  # distance between rows in a picture of differences
_RANK_ROW, _CLIQUE = 0.26, 0.13  # distances between names, and between cliques, in a diagram of ranks
_RANK_MARGIN = 0.33  # part of the width of a diagram of ranks that is reserved for names, on each side

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
    if matplotlib.rcParams["svg.hashsalt"] == STYLE["svg.hashsalt"]:  # the style is already active
        return nullcontext()
    return matplotlib.style.context(["default", STYLE])


class Picture(matplotlib.figure.Figure):
    """A figure in the report style, regardless of the user's style. Notebooks display it, and ``savefig`` writes it."""

    def __init__(self, height: float) -> None:
        super().__init__(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(self)

    def draw(self, renderer: RendererBase) -> None:
        with in_style():  # ticks are created while drawing
            super().draw(renderer)

    def save(self, path: Path) -> None:
        """Write ``path``.png and ``path``.svg without a date, so that equal pictures yield equal files."""
        canvas = FigureCanvasAgg(self)
        with in_style():
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
            opaque = pixels[..., :3]  # takes half as long as savefig
            with replace_file(path.with_name(path.name + ".png"), under=path.parent) as file:
                Image.fromarray(opaque).save(file, format="png", dpi=(DPI, DPI), compress_level=3)
            with replace_file(path.with_name(path.name + ".svg"), under=path.parent) as file:
                self.savefig(file, format="svg", metadata={"Date": None, "Creator": None})

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return a PNG for notebooks with twice the usual resolution, so that it is sharp on high-density screens."""
        file = BytesIO()
        with in_style():
            self.savefig(file, format="png")
        width, height = self.get_size_inches() * _SCREEN
        return file.getvalue(), {"width": round(width), "height": round(height)}

    def text_width(self, words: str) -> float:
        """Return the width of a label in inches."""
        text = self.text(0, 0, words, fontsize=10)
        width = float(text.get_window_extent().width) / self.dpi
        text.remove()
        return width

    def add_box(self, left: float, right: float, top: float, bottom: float) -> Axes:
        """Add axes with the given margins, in inches."""
        height = self.get_figheight()
        return self.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height))

    def add_heading(self, title: str, subtitle: str, left: float = 0.3, down: float = 0.3, gap: float = 0.22) -> None:
        """Write a title and a subtitle above the axes, in fonts small enough to fit."""
        looks: tuple[dict[str, Any], ...] = ({"fontsize": 12, "fontweight": "bold"}, {"fontsize": 9.5, "color": GREY})
        for words, offset, look in zip((title, subtitle), (down, down + gap), looks, strict=True):
            text = self.text(left / WIDTH, 1 - offset / self.get_figheight(), plain(words), **look)
            width = text.get_window_extent().width / self.dpi
            text.set_fontsize(look["fontsize"] * min(1.0, (WIDTH - left - 0.3) / width))


def plain(words: str) -> str:
    return words.replace("$", r"\$")  # a dollar sign would start a formula


def shorten(name: str, most: int) -> str:
    """Shorten a name to ``most`` characters by omitting its middle."""
    return plain(name if len(name) <= most else name[: most // 2] + "…" + name[-most // 2 + 1 :])


def picture_name(workload: str, chart: str) -> str:
    """Return the file name of a picture, without suffix. ``workload`` is "" for charts over all workloads."""
    return f"{file_name(re.sub(r'[^A-Za-z0-9.]+', '-', workload or 'overall'))}-{chart}"


def draw_all(out: Path, summary: Summary, comparison: ComparedRuns, figures: Mapping[str, Sequence[Figure]]) -> None:
    """Draw every view of every figure to files in the directory ``out``.

    The picture of a figure's first view is named after the figure; pictures of its other views are named after both the
    figure and the view. Convergence pictures are named only after the view. If there are many workloads, the charts for
    individual workloads appear only on the page.
    """
    for workload, chart, picture in _pictures(summary, comparison, figures):
        if picture:
            picture.save(out / picture_name(workload, chart))


def _pictures(
    summary: Summary, comparison: ComparedRuns, figures: Mapping[str, Sequence[Figure]]
) -> Iterator[tuple[str, str, Picture | None]]:
    """Yield every picture, with its workload and the name of its chart."""
    looks = LineStyles.from_summary(summary, comparison)
    items = {item.workload: item for item in summary.workloads} if len(summary.workloads) <= MANY else {}
    for workload, item in items.items():
        for figure in figures[workload]:
            for index, view in enumerate(figure.views):
                name = figure.key if not index else f"{figure.key}-{view.key}"
                if figure.key == "convergence":
                    name = view.key
                    distance = line_picture(workload, figure, view, looks, best=item.best.gflops if item.best else 0.0)
                    yield workload, "regret" if view.key == BY_TRIALS else f"regret-{view.key}", distance
                yield workload, name, line_picture(workload, figure, view, looks)
    for figure in figures.get("", ()):
        for index, view in enumerate(figure.views):
            yield "", f"{figure.key}-{view.key}" if index else figure.key, line_picture("", figure, view, looks)
    if summary.overall:
        yield "", "ranks", draw_diagram(summary.overall.diagram, looks)
    for reference, gaps in list(differences(summary).items())[:1]:
        yield (
            "" if summary.overall else summary.workloads[0].workload,
            "differences",
            gaps_picture(reference, gaps, looks),
        )


# Line charts


class StrategyLine(NamedTuple):
    """The part of one strategy's line that has values."""

    name: str
    x: Floats
    y: Floats
    lower: Floats  # equal to ``y`` without a band
    upper: Floats
    style: dict[str, Any]

    @property
    def colour(self) -> str:
        return str(self.style["color"])


def line_picture(workload: str, figure: Figure, view: View, looks: LineStyles, *, best: float = 0.0) -> Picture | None:
    """Draw one view of a line chart. Returns None if no line has a value.

    Args:
        workload: The workload, or "" for all workloads.
        figure: The chart.
        view: One of its views.
        looks: How strategies are distinguished.
        best: If not 0, draw the regret relative to this throughput instead of the throughput.
    """
    lines = sorted(_lines(view, looks, best), key=lambda line: (-line.y[-1], line.name))
    if not lines:
        return None
    levels = [(level.y, level.name) for level in view.levels]
    title, subtitle, quantity = figure.title.lower(), figure.brief, view.quantity
    if best:
        title, quantity = "distance to the best known", "regret, % over the time of the best known"
        subtitle += f"; {FLOOR:g} % and less are drawn at the bottom"
        levels = [(y, name) for level, name in levels if (y := float(regret(level, best))) > FLOOR]
    if len({line.x[-1] for line in lines}) > 1:
        subtitle += "; dotted: held after the last trial"
    labels = [_label(line, 1 if best else figure.digits, ends=figure.ends) for line in lines]
    with in_style():
        picture = Picture(max(_HEIGHT, _BOTTOM + _TOP + _GAP * (len(lines) + 1)))
        height = picture.get_figheight()
        width = WIDTH - _LEFT - _HANDLE - max(picture.text_width(label) for label in labels) - 0.5
        axes = picture.add_axes((_LEFT / WIDTH, _BOTTOM / height, width / WIDTH, 1 - (_BOTTOM + _TOP) / height))
        axes.set_xlabel(view.label)
        axes.set_ylabel(quantity)
        _curves(axes, lines, step=figure.step)
        _scale(axes, lines, view, [y for y, _ in levels], logarithmic=bool(best))
        # Levels are thin lines, labelled at the left, where most curves have not risen yet.
        halo = [withStroke(linewidth=2.5, foreground="white")]
        for index, (y, text) in enumerate(sorted(levels, reverse=True)):
            dash, align = ("-", "bottom") if index == 0 else ((0, (4, 3)), "top")
            axes.axhline(y, color="#888888", linewidth=0.8, linestyle=dash, zorder=1.5)
            style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "zorder": 5, "path_effects": halo}
            axes.text(0.008, y, text, fontsize=8.5, color=GREY, va=align, **style)
        _legend(axes, lines, labels, width, height - _BOTTOM - _TOP)
        by = f", by {view.name}" if len(figure.views) > 1 else ""
        picture.add_heading(f"{workload or 'Across all workloads'}: {title}{by}", subtitle, left=_LEFT)
    return picture


def _lines(view: View, looks: LineStyles, best: float) -> Iterator[StrategyLine]:
    for series in view.series:
        edges = (series.y if edge is None else edge for edge in (series.y, series.lower, series.upper))
        y, lower, upper = (np.array(edge, dtype=np.float64) for edge in edges)
        lower, upper = (np.where(np.isnan(edge), y, edge) for edge in (lower, upper))
        if best:
            y, lower, upper = regret(y, best), regret(upper, best), regret(lower, best)
        finite = np.isfinite(y)
        if finite.any():
            # Regret is infinite for seeds that have found nothing, so the band then extends to the top.
            upper = np.minimum(upper, upper[np.isfinite(upper)].max(initial=y[finite].max()))
            yield StrategyLine(
                series.strategy,
                np.array(view.x)[finite],
                y[finite],
                lower[finite],
                upper[finite],
                line_style(series.strategy, looks),
            )


def regret(throughput: Floats | float, best: float) -> Floats:
    """Return 100 (best / throughput - 1), but at least FLOOR. It is infinite if the throughput is 0."""
    with np.errstate(divide="ignore"):
        percentages: Floats = np.maximum(100 * (np.divide(best, throughput) - 1), FLOOR)
    return percentages


def line_style(name: str, looks: LineStyles) -> dict[str, Any]:
    """Return matplotlib's settings for drawing a strategy's line."""
    number = looks.names.index(name)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "linewidth": 3.2 if name == looks.subject else 1.9,
    }


def _label(line: StrategyLine, digits: int, *, ends: bool) -> str:
    return shorten(line.name, _NAME) + (f"  {line.y[-1]:.{digits}f}" if ends else "")


def _curves(axes: Axes, lines: Sequence[StrategyLine], *, step: bool) -> None:
    end = max(line.x[-1] for line in lines)
    shade = min(0.14, max(0.05, 0.8 / len(lines)))
    steps: dict[str, Any] = {"step": "post"} if step else {}
    for rank, line in enumerate(lines):
        # All corners of a filled area are written to files: omit those at which it neither changes nor ends.
        edges = np.stack((line.lower, line.upper))
        corner = np.r_[True, (np.diff(edges) != 0).any(axis=0)] | (not step)
        corner[-1] = True
        axes.fill_between(
            line.x[corner], *edges[:, corner], color=line.colour, alpha=shade, linewidth=0, zorder=2, **steps
        )
        # Markers are at different places on each line, so that coinciding lines can be distinguished.
        every = (0.03 + 0.16 * rank / len(lines), 0.16) if len(line.x) > 1 else 1
        style, order = "steps-post" if step else "default", 4 - rank / len(lines)
        axes.plot(line.x, line.y, drawstyle=style, markevery=every, zorder=order, **line.style)
        if step:
            axes.plot((line.x[-1], end), (line.y[-1],) * 2, ":", color=line.colour, linewidth=1.1, zorder=2.5)


def _scale(
    axes: Axes, lines: Sequence[StrategyLine], view: View, levels: Sequence[float], *, logarithmic: bool
) -> None:
    first, last = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
    plain_numbers = FuncFormatter(lambda value, _: f"{value:g}")
    if first > 0 and last / first >= LOG_FROM:
        axes.set_xscale("log")
        inches = axes.get_position().width * WIDTH / np.log10(last / first)  # per decade
        subs = (1.0, 2.0, 5.0) if inches > 1.5 else (1.0, 3.0) if inches > 0.9 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_major_formatter(plain_numbers)
        axes.xaxis.set_minor_locator(NullLocator())  # many small ticks would take a quarter of the drawing time
        axes.set_xlim(first, last)
    else:
        axes.set_xlim(0, last if last > first else 2 * last or 1.0)
    high = max(*(float(line.upper.max()) for line in lines), *levels, 0.0)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain_numbers)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(FLOOR * 0.9, max(high, 10 * FLOOR) * 1.2)
    else:
        low = min(0.0, *(float(line.lower.min()) for line in lines)) if view.bottom is None else view.bottom
        axes.set_ylim(low * 1.04, view.top if view.top is not None else high * 1.04 or 1.0)


def _legend(axes: Axes, lines: Sequence[StrategyLine], labels: Sequence[str], width: float, height: float) -> None:
    """Draw a sample and the name of each line at the right, as close to the line's end as the other names permit."""
    ends = axes.transData.transform([(axes.get_xlim()[1], line.y[-1]) for line in lines])
    ends = np.clip(axes.transAxes.inverted().transform(ends)[:, 1], 0.0, 1.0)
    left, right = 1 + 0.28 / width, 1 + (0.28 + _HANDLE) / width
    style: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    for line, label, end, y in zip(lines, labels, ends, apart(ends, _GAP / height), strict=True):
        axes.plot((1.0, left - 0.05 / width), (end, y), color=line.colour, linewidth=0.7, **style)
        axes.plot((left, (left + right) / 2, right), (y, y, y), markevery=[1], **line.style, **style)
        axes.text(right + 0.08 / width, y, label, fontsize=10, va="center", transform=axes.transAxes)


def apart(positions: Floats, gap: float) -> Floats:
    """Move ``positions`` in [0, 1], which are sorted from the highest, so that they are at least ``gap`` apart.

    A first pass moves places down, starting at the top, where curves meet. A second pass raises those below 0.
    """
    moved = np.minimum(positions, 1.0)
    for i in range(1, len(moved)):
        moved[i] = min(moved[i], moved[i - 1] - gap)
    if len(moved):
        moved[-1] = max(moved[-1], 0.0)
    for i in range(len(moved) - 2, -1, -1):
        moved[i] = max(moved[i], moved[i + 1] + gap)
    return moved


# Differences


def gaps_picture(reference: str, gaps: Sequence[Gap], looks: LineStyles) -> Picture:
    """Draw each strategy's difference from the reference, with its interval. Dots are filled if it is significant."""
    with in_style():
        picture = Picture(0.75 + _GAP_ROW * len(gaps) + 0.55)
        axes = picture.add_box(left=2.3, right=2.1, top=0.75, bottom=0.55)
        axes.axvspan(-ROPE, ROPE, color=GREY, alpha=0.15, linewidth=0)
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        for row, gap in enumerate(gaps):
            interval, colour = gap.difference, line_style(gap.strategy, looks)["color"]
            text = signed(interval.value)
            if interval.lower is not None and interval.upper is not None:
                axes.plot((interval.lower, interval.upper), (row, row), color=colour, linewidth=2)
                text += f"  [{signed(interval.lower)}, {signed(interval.upper)}]"
            face = colour if gap.significant else "white"
            axes.plot(interval.value, row, "o", color=colour, markerfacecolor=face, markersize=7)
            text = "the reference" if gap.strategy == reference else text
            axes.text(1.02, row, text, va="center", fontsize=9, transform=axes.get_yaxis_transform())
        _rows(
            axes,
            [f"{gap.strategy}{' ★' * (gap.strategy == looks.subject)}" for gap in gaps],
            "difference of the area under the curve",
        )
        picture.add_heading(
            f"Each strategy minus {reference}",
            f"95 % intervals; a full dot is significant after correction; shaded: practically equal, up to {ROPE:g}",
            down=0.26,
            gap=0.2,
        )
    return picture


def _rows(axes: Axes, names: Sequence[str], axis: str) -> None:
    """Label the rows of a picture, starting at the top, and its x axis."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [shorten(name, 26) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(axis)


# Rankings


def draw_diagram(diagram: Diagram, looks: LineStyles) -> Picture:
    """Draw average ranks on a line, with the best at the left, and a row of dots for each clique.

    Strategies with dots in the same row cannot be distinguished. The thin line through the dots may pass a strategy
    that is not in the clique. The layout follows Demsar (JMLR 7, 2006, figure 1).
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
            ranks, down = [diagram.ranks[index] for index in clique], -_CLIQUE * level
            ends = min(ranks), max(ranks)
            axes.plot(ends, (down, down), ":", color=GREY, linewidth=1, zorder=3)
            axes.plot(ranks, [down] * len(ranks), "o", color=GREY, markersize=5, zorder=3, clip_on=False)
        # The better half is at the left, with the best at the top. The rest is at the right, with the worst at the top.
        reach = 0.03 * (last - 1)
        for index, (name, rank) in enumerate(zip(diagram.strategies, diagram.ranks, strict=True)):
            left = index < rows
            down = -bars - _RANK_ROW * ((index if left else last - 1 - index) + 0.5)
            end = 1 - reach if left else last + reach
            is_subject = name == looks.subject
            colour = line_style(name, looks)["color"]
            axes.plot(
                (rank, rank, end), (0, down, down), color=colour, linewidth=2.2 if is_subject else 1.1, clip_on=False
            )
            short_name = shorten(name, 22)
            label = f"{short_name}  {rank:.2f}" if left else f"{rank:.2f}  {short_name}"
            beside = end + (-reach if left else reach) / 3
            weight = "bold" if is_subject else "normal"
            axes.text(beside, down, label, ha="right" if left else "left", va="center", fontweight=weight)
        title = f"average rank across {diagram.workloads} workloads; dots in one row cannot be told apart"
        axes.text((1 + last) / 2, 0.52, title, ha="center", fontsize=9.5, color=GREY)
    return picture
