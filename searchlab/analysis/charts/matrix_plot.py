"""Every pair of strategies as a picture, a cell each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .style import COLOURS, GREY, WIDTH, heading, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

_LEFT, _RIGHT, _TOP, _BOTTOM = 2.3, 0.9, 2.0, 0.2  # inches around the cells
_ROW = 0.5  # inches
_NAME, _HEAD = 26, 18  # characters, of a row and of a column
_BETTER, _WORSE = COLOURS[0], COLOURS[1]


class Cell(NamedTuple):
    """One strategy, of the row, against another, of the column.

    weight: of its colour, in [-1, 1]: above 0 where the row is better. lines: its text.
    """

    weight: float
    lines: Sequence[str]


def draw_matrix(*, title: str, subtitle: str, names: Sequence[str], cells: Mapping[tuple[str, str], Cell]) -> Picture:
    """A row and a column for each of ``names``. cells: by row and column; a pair without a cell stays empty.

    Equal arguments give equal pictures, for the same matplotlib.
    """
    from .picture import Picture, in_style

    height = _TOP + _ROW * len(names) + _BOTTOM
    with in_style():
        picture = Picture(height)
        box = (_LEFT / WIDTH, _BOTTOM / height, 1 - (_LEFT + _RIGHT) / WIDTH, _ROW * len(names) / height)
        axes = picture.add_axes(box)
        _cells(axes, names, cells)
        heading(picture, title, 0.3, left=0.3, fontsize=12, fontweight="bold")
        heading(picture, subtitle, 0.52, left=0.3, fontsize=9.5, color=GREY)
    return picture


def _cells(axes: Axes, names: Sequence[str], cells: Mapping[tuple[str, str], Cell]) -> None:
    from matplotlib.patches import Rectangle

    size = min(9.0, 60.0 / len(names))  # points
    for i, row in enumerate(names):
        for j, column in enumerate(names):
            cell = cells.get((row, column), Cell(0.0, ()))
            colour = _BETTER if cell.weight > 0 else _WORSE
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, alpha=0.5 * abs(cell.weight), linewidth=0))
            axes.text(j, i, plain("\n".join(cell.lines)), ha="center", va="center", fontsize=size)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first row uppermost
    axes.set_yticks(range(len(names)), [plain(shortened(name, _NAME)) for name in names])
    heads = [plain(shortened(name, _HEAD)) for name in names]
    axes.set_xticks(range(len(names)), heads, rotation=50, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
