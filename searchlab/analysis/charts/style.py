"""What all pictures share: colours, fonts and headings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that the colour-blind can tell apart on white: Okabe and Ito, "Color universal design" (2008), without
# its yellow, then olive, wine and indigo of Tol's "muted" scheme (SRON technical note 09-002, 2021). The numbers
# of colours, dashes and markers differ, so that no two of the first 20 strategies look the same.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#999933", "#882255", "#332288",
)  # fmt: skip
DASHES = ("-", (0, (5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (2, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

WIDTH, DPI = 8.0, 200  # inches: 8 of them at 800 px make 10 points 14 px high
GREY = "#555555"
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


def heading(figure: Figure, words: str, down: float, *, fontsize: float, left: float, **look: Any) -> None:
    """``words`` over the axes, ``down`` inches from the top, in letters small enough to fit."""
    text = figure.text(left / WIDTH, 1 - down / figure.get_figheight(), plain(words), fontsize=fontsize, **look)
    width = text.get_window_extent().width / figure.dpi
    text.set_fontsize(min(fontsize, fontsize * (WIDTH - left - 0.3) / width))


def plain(words: str) -> str:
    return words.replace("$", r"\$")  # a dollar would start a formula


def shortened(name: str, most: int) -> str:
    """With its middle left out where it has more than ``most`` characters."""
    return name if len(name) <= most else name[: most // 2] + "…" + name[-most // 2 + 1 :]
