"""Stacked bars as a picture. Matplotlib is imported when one is drawn, and pyplot never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .style import GREY, WIDTH, heading, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

# Those of the page's bars, --k0 ... --k6 of its style.
_COLOURS = ("#0072b2", "#d97706", "#00946b", "#8a94a0", "#882255", "#56b4e9", "#333333")
_LEFT, _RIGHT, _TOP, _BOTTOM = 2.3, 0.8, 0.85, 0.55  # inches around the bars
_ROW = 0.3  # inches from bar to bar


def draw_bars(
    *,
    title: str,
    subtitle: str,
    axis: str,
    parts: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float], str]],
) -> Picture:
    """A bar for each row. A row is a name, a value for each part, and a text for the whole.

    Equal arguments give equal pictures, for the same matplotlib.
    """
    from .picture import Picture, in_style

    height = _TOP + _ROW * len(rows) + _BOTTOM
    with in_style():
        picture = Picture(height)
        box = (_LEFT / WIDTH, _BOTTOM / height, 1 - (_LEFT + _RIGHT) / WIDTH, 1 - (_BOTTOM + _TOP) / height)
        axes = picture.add_axes(box)
        _bars(axes, parts, rows)
        axes.set_xlabel(axis)
        picture.legend(
            loc="upper left", bbox_to_anchor=(0.3 / WIDTH, 1 - 0.55 / height), ncols=len(parts), frameon=False,
            fontsize=9, borderpad=0.0, borderaxespad=0.0, handlelength=1.0, handleheight=1.0, columnspacing=1.4,
        )  # fmt: skip
        heading(picture, title, 0.26, left=0.3, fontsize=12, fontweight="bold")
        heading(picture, subtitle, 0.46, left=0.3, fontsize=9.5, color=GREY)
    return picture


def _bars(axes: Axes, parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float], str]]) -> None:
    places = range(len(rows))
    lefts = [0.0] * len(rows)
    for number, part in enumerate(parts):
        values = [values[number] for _, values, _ in rows]
        axes.barh(places, values, left=lefts, height=0.62, color=_COLOURS[number % len(_COLOURS)], label=part)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    longest = max(lefts) or 1.0
    for place, (left, (_, _, total)) in enumerate(zip(lefts, rows, strict=True)):
        axes.text(left + 0.01 * longest, place, total, va="center", fontsize=9)
    axes.set_xlim(0, longest)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row uppermost
    axes.set_yticks(places, [plain(shortened(name, 26)) for name, _, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
