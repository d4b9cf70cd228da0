"""Bars, matrices and rankings as pictures. Matplotlib is imported when one is drawn, and pyplot never."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model import Diagram
from .style import COLOURS, GREY, WIDTH, heading, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

# Those of the page's bars, --k0 ... --k6 of its style.
_BAR_COLOURS = ("#0072b2", "#d97706", "#00946b", "#8a94a0", "#882255", "#56b4e9", "#333333")
_BAR_LEFT, _BAR_RIGHT, _BAR_TOP, _BAR_BOTTOM = 2.3, 0.8, 0.85, 0.55  # inches around the bars
_BAR_ROW = 0.3  # inches from bar to bar

_MATRIX_LEFT, _MATRIX_RIGHT, _MATRIX_TOP, _MATRIX_BOTTOM = 2.3, 0.9, 2.0, 0.2  # inches around the cells
_MATRIX_ROW = 0.5  # inches
_MATRIX_NAME, _MATRIX_HEAD = 26, 18  # characters, of a row and of a column
_BETTER, _WORSE = COLOURS[0], COLOURS[1]

_RANK_ROW = 0.26  # inches from name to name, and
_CLIQUE = 0.13  # from bar to bar
_RANK_MARGIN = 0.33  # of the width, at both sides, for the names
_RANK_NAME = 22  # characters


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

    height = _BAR_TOP + _BAR_ROW * len(rows) + _BAR_BOTTOM
    with in_style():
        picture = Picture(height)
        box = (
            _BAR_LEFT / WIDTH,
            _BAR_BOTTOM / height,
            1 - (_BAR_LEFT + _BAR_RIGHT) / WIDTH,
            1 - (_BAR_BOTTOM + _BAR_TOP) / height,
        )
        axes = picture.add_axes(box)
        _stacked(axes, parts, rows)
        axes.set_xlabel(axis)
        picture.legend(
            loc="upper left", bbox_to_anchor=(0.3 / WIDTH, 1 - 0.55 / height), ncols=len(parts), frameon=False,
            fontsize=9, borderpad=0.0, borderaxespad=0.0, handlelength=1.0, handleheight=1.0, columnspacing=1.4,
        )  # fmt: skip
        heading(picture, title, 0.26, left=0.3, fontsize=12, fontweight="bold")
        heading(picture, subtitle, 0.46, left=0.3, fontsize=9.5, color=GREY)
    return picture


def _stacked(axes: Axes, parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float], str]]) -> None:
    places = range(len(rows))
    lefts = [0.0] * len(rows)
    for number, part in enumerate(parts):
        values = [values[number] for _, values, _ in rows]
        axes.barh(places, values, left=lefts, height=0.62, color=_BAR_COLOURS[number % len(_BAR_COLOURS)], label=part)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    longest = max(lefts) or 1.0
    for place, (left, (_, _, total)) in enumerate(zip(lefts, rows, strict=True)):
        axes.text(left + 0.01 * longest, place, total, va="center", fontsize=9)
    axes.set_xlim(0, longest)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row uppermost
    axes.set_yticks(places, [plain(shortened(name, 26)) for name, _, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


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

    height = _MATRIX_TOP + _MATRIX_ROW * len(names) + _MATRIX_BOTTOM
    with in_style():
        picture = Picture(height)
        box = (
            _MATRIX_LEFT / WIDTH,
            _MATRIX_BOTTOM / height,
            1 - (_MATRIX_LEFT + _MATRIX_RIGHT) / WIDTH,
            _MATRIX_ROW * len(names) / height,
        )
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
    axes.set_yticks(range(len(names)), [plain(shortened(name, _MATRIX_NAME)) for name in names])
    heads = [plain(shortened(name, _MATRIX_HEAD)) for name in names]
    axes.set_xticks(range(len(names)), heads, rotation=50, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def draw_diagram(diagram: Diagram, order: Sequence[str] | None = None) -> Picture:
    """Average ranks on a line, the best at the left, and a bar for every clique.

    Strategies with a dot on a common bar cannot be told apart; a bar may pass over one that is not of its clique. The
    layout is Demsar's (JMLR 7, 2006, figure 1). order: of the strategies in other pictures, whose colours they then
    have. Equal diagrams give equal pictures, for the same matplotlib.
    """
    from .picture import Picture, in_style

    rows = (len(diagram.strategies) + 1) // 2
    bars = _CLIQUE * (len(diagram.cliques) + 1)
    below = bars + _RANK_ROW * rows
    with in_style():
        picture = Picture(0.75 + below + 0.15)
        axes = picture.add_axes((_RANK_MARGIN, 0.0, 1 - 2 * _RANK_MARGIN, 1.0))
        axes.set_axis_off()
        last = len(diagram.strategies)
        axes.set_xlim(1, last)
        axes.set_ylim(-below - 0.15, 0.75)  # inches from the line of ranks
        _scale(axes, last)
        _bars(axes, diagram)
        _names(axes, diagram, bars, rows, order or diagram.strategies)
        axes.text((1 + last) / 2, 0.52, _title(diagram), ha="center", fontsize=9.5, color=GREY)
    return picture


def _title(diagram: Diagram) -> str:
    return f"average rank over {diagram.workloads} workloads; a bar joins what cannot be told apart"


def _scale(axes: Axes, last: int) -> None:
    axes.plot((1, last), (0, 0), color="black", linewidth=1.2, clip_on=False)
    for rank in range(1, last + 1):
        axes.plot((rank, rank), (0, 0.09), color="black", linewidth=1.0, clip_on=False)
        axes.text(rank, 0.14, str(rank), ha="center", va="bottom", fontsize=9)


def _bars(axes: Axes, diagram: Diagram) -> None:
    for level, clique in enumerate(diagram.cliques, 1):
        ranks = [diagram.ranks[place] for place in clique]
        axes.plot(
            (min(ranks), max(ranks)), (-_CLIQUE * level,) * 2, color=GREY, linewidth=3, solid_capstyle="round", zorder=3
        )
        axes.plot(ranks, [-_CLIQUE * level] * len(ranks), "o", color=GREY, markersize=5, zorder=3, clip_on=False)


def _names(axes: Axes, diagram: Diagram, bars: float, rows: int, order: Sequence[str]) -> None:
    """The better half at the left, the best uppermost; the others at the right, the worst uppermost."""
    last = len(diagram.strategies)
    reach = 0.03 * (last - 1)
    for place, (name, rank) in enumerate(zip(diagram.strategies, diagram.ranks, strict=True)):
        left = place < rows
        down = -bars - _RANK_ROW * ((place if left else last - 1 - place) + 0.5)
        end = 1 - reach if left else last + reach
        colour = COLOURS[order.index(name) % len(COLOURS)]
        axes.plot((rank, rank, end), (0, down, down), color=colour, linewidth=1.1, clip_on=False)
        shown = plain(shortened(name, _RANK_NAME))
        label = f"{shown}  {rank:.2f}" if left else f"{rank:.2f}  {shown}"
        axes.text(
            end + (-reach if left else reach) / 3,
            down,
            label,
            ha="right" if left else "left",
            va="center",
        )
