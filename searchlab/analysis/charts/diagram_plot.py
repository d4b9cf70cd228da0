"""A critical difference diagram as a picture. Matplotlib is imported when one is drawn, and pyplot never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model import Diagram
from .style import COLOURS, GREY, plain, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .picture import Picture

_ROW = 0.26  # inches from name to name, and
_BAR = 0.13  # from bar to bar
_MARGIN = 0.33  # of the width, at both sides, for the names
_NAME = 22  # characters


def draw_diagram(diagram: Diagram, order: Sequence[str] | None = None) -> Picture:
    """Average ranks on a line, the best at the left, and a bar for every clique.

    Strategies with a dot on a common bar cannot be told apart; a bar may pass over one that is not of its clique. The
    layout is Demsar's (JMLR 7, 2006, figure 1). order: of the strategies in other pictures, whose colours they then
    have. Equal diagrams give equal pictures, for the same matplotlib.
    """
    from .picture import Picture, in_style

    rows = (len(diagram.strategies) + 1) // 2
    bars = _BAR * (len(diagram.cliques) + 1)
    below = bars + _ROW * rows
    with in_style():
        picture = Picture(0.75 + below + 0.15)
        axes = picture.add_axes((_MARGIN, 0.0, 1 - 2 * _MARGIN, 1.0))
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
            (min(ranks), max(ranks)), (-_BAR * level,) * 2, color=GREY, linewidth=3, solid_capstyle="round", zorder=3
        )
        axes.plot(ranks, [-_BAR * level] * len(ranks), "o", color=GREY, markersize=5, zorder=3, clip_on=False)


def _names(axes: Axes, diagram: Diagram, bars: float, rows: int, order: Sequence[str]) -> None:
    """The better half at the left, the best uppermost; the others at the right, the worst uppermost."""
    last = len(diagram.strategies)
    reach = 0.03 * (last - 1)
    for place, (name, rank) in enumerate(zip(diagram.strategies, diagram.ranks, strict=True)):
        left = place < rows
        down = -bars - _ROW * ((place if left else last - 1 - place) + 0.5)
        end = 1 - reach if left else last + reach
        colour = COLOURS[order.index(name) % len(COLOURS)]
        axes.plot((rank, rank, end), (0, down, down), color=colour, linewidth=1.1, clip_on=False)
        shown = plain(shortened(name, _NAME))
        label = f"{shown}  {rank:.2f}" if left else f"{rank:.2f}  {shown}"
        axes.text(
            end + (-reach if left else reach) / 3,
            down,
            label,
            ha="right" if left else "left",
            va="center",
        )
