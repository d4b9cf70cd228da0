"""Line charts as pictures. Matplotlib is imported when one is drawn, and pyplot never."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Floats
from ..stats.curves import Band
from .figures import LOG_FROM
from .style import COLOURS, DASHES, GREY, MARKERS, WIDTH, heading, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .picture import Picture

_HEIGHT = 4.6  # inches
_LEFT, _BOTTOM, _TOP = 0.8, 0.55, 0.72  # inches around the axes; the right margin is as wide as the labels
_GAP = 0.2  # inches between the lines of the legend
_HANDLE = 0.34  # inches of a line's sample
_NAME = 34  # characters


@dataclass(frozen=True)
class Line:
    """One strategy of a picture.

    style: its place in the order that gives colours, dashes and markers. marked: whether its name has an asterisk.
    """

    name: str
    band: Band
    style: int
    marked: bool = False


@dataclass(frozen=True)
class Frame:
    """The frame of a picture: the labels of its axes, and horizontal lines with their names, the highest first.

    bottom, top: ends of the y axis, None to fit the lines; 0 is always on the axis. digits: after the point. step:
    whether lines are constant between points. ends: whether the place where a line ends means something. floor: above
    0 where the y axis is logarithmic: its lower end, where all that is less is drawn; bottom and top do not count then.
    """

    axis: str
    quantity: str
    levels: Sequence[tuple[float, str]] = ()
    bottom: float | None = None
    top: float | None = None
    digits: int = 1
    step: bool = True
    ends: bool = True
    floor: float = 0.0

    def height(self, y: Floats) -> Floats:
        """Where values are drawn."""
        return np.maximum(y, self.floor) if self.floor else y


def draw(*, title: str, subtitle: str, frame: Frame, lines: Iterable[Line]) -> Picture:
    """Every line in ``frame``. Equal arguments give equal pictures, for the same matplotlib."""
    from .picture import Picture, in_style

    shown = sorted(lines, key=lambda line: (-line.band.median[-1], line.name))
    with in_style():
        picture = Picture(max(_HEIGHT, _BOTTOM + _TOP + _GAP * (len(shown) + 1)))
        axes = picture.add_subplot()
        _place(picture, axes, shown, frame)
        _curves(axes, shown, frame)
        _scale(axes, shown, frame)
        _levels(axes, frame)
        _legend(picture, axes, shown, frame)
        heading(picture, title, 0.3, left=_LEFT, fontsize=12, fontweight="bold")
        if len({line.band.x[-1] for line in shown}) > 1:
            subtitle += "; dotted: held after the last trial"
        heading(picture, subtitle, 0.52, left=_LEFT, fontsize=9.5, color=GREY)
    return picture


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": COLOURS[line.style % len(COLOURS)],
        "linestyle": DASHES[line.style % len(DASHES)],
        "marker": MARKERS[line.style % len(MARKERS)],
        "markersize": 5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "linewidth": 1.9,
    }


def _label(line: Line, frame: Frame) -> str:
    end = f"  {line.band.median[-1]:.{frame.digits}f}" if frame.ends else ""
    return plain(f"{shortened(line.name, _NAME)}{'*' * line.marked}{end}")


def _place(figure: Figure, axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    """Make the axes as wide as the longest label leaves room for."""
    widths = []
    for line in lines:
        text = figure.text(0, 0, _label(line, frame), fontsize=10)
        widths.append(text.get_window_extent().width / figure.dpi)
        text.remove()
    right = _HANDLE + max(widths) + 0.5
    height = figure.get_figheight()
    axes.set_position((
        _LEFT / WIDTH, _BOTTOM / height, (WIDTH - _LEFT - right) / WIDTH, (height - _BOTTOM - _TOP) / height,
    ))  # fmt: skip


def _curves(axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    end = max(line.band.x[-1] for line in lines)
    shade = min(0.14, max(0.05, 0.8 / len(lines)))
    for rank, line in enumerate(lines):
        band, look = line.band, _look(line)
        median = frame.height(band.median)
        # A filled area is written with all its corners: leave out those where it neither rises nor ends.
        edges = frame.height(np.stack((band.lower, band.upper)))
        corner = np.r_[True, (np.diff(edges) != 0).any(axis=0)] if frame.step else np.ones(len(band.x), dtype=bool)
        corner[-1] = True
        x, (lower, upper) = band.x[corner], edges[:, corner]
        axes.fill_between(
            x,
            lower,
            upper,
            step="post" if frame.step else None,
            color=look["color"],
            alpha=shade,
            linewidth=0,
            zorder=2,
        )
        # Markers stand at different places on every line, so that lines that coincide can be told apart.
        every = (0.03 + 0.16 * rank / len(lines), 0.16) if len(band.x) > 1 else 1
        axes.plot(
            band.x,
            median,
            drawstyle="steps-post" if frame.step else "default",
            markevery=every,
            zorder=4 - rank / len(lines),
            **look,
        )
        if frame.step:
            axes.plot((band.x[-1], end), (median[-1],) * 2, ":", color=look["color"], linewidth=1.1, zorder=2.5)


def _scale(axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

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
    """Thin lines, named at the left, where most curves have yet to rise."""
    from matplotlib.patheffects import withStroke

    across = axes.get_yaxis_transform()
    halo = [withStroke(linewidth=2.5, foreground="white")]
    for place, (level, text) in enumerate(frame.levels):
        dash, align = ("-", "bottom") if place == 0 else ((0, (4, 3)), "top")
        axes.axhline(level, color="#888888", linewidth=0.8, linestyle=dash, zorder=1.5)
        axes.text(0.008, level, text, fontsize=8.5, color=GREY, va=align, transform=across, zorder=5, path_effects=halo)


def _legend(figure: Figure, axes: Axes, lines: Sequence[Line], frame: Frame) -> None:
    """Every line's sample and name at the right, beside its end as far as the names leave room."""
    box = axes.get_position()
    width, height = box.width * WIDTH, box.height * figure.get_figheight()
    last = frame.height(np.array([line.band.median[-1] for line in lines]))
    places = axes.transData.transform(np.column_stack((np.full(len(last), axes.get_xlim()[1]), last)))
    ends = np.clip(axes.transAxes.inverted().transform(places)[:, 1], 0.0, 1.0)
    for line, end, y in zip(lines, ends, apart(ends, _GAP / height), strict=True):
        look = _look(line)
        left, right = 1 + 0.28 / width, 1 + (0.28 + _HANDLE) / width
        here: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        axes.plot((1.0, left - 0.05 / width), (end, y), color=look["color"], linewidth=0.7, **here)
        axes.plot((left, (left + right) / 2, right), (y, y, y), markevery=[1], **look, **here)
        axes.text(right + 0.08 / width, y, _label(line, frame), fontsize=10, va="center", transform=axes.transAxes)


def apart(places: Floats, gap: float) -> Floats:
    """``places`` in [0, 1], highest first, moved as little as two passes need to lie ``gap`` apart in [0, 1].

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
