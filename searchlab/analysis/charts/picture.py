"""A picture of a report, as a figure of matplotlib: this module imports matplotlib, and never pyplot."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .style import DPI, STYLE, WIDTH

_SCREEN = 100  # pixels an inch on a page


class Picture(Figure):
    """A figure in the style of reports, whatever style the user has. A notebook shows it; ``savefig`` writes it.

    height: inches.
    """

    def __init__(self, height: float) -> None:
        super().__init__(figsize=(WIDTH, height), dpi=DPI)
        FigureCanvasAgg(self)

    def draw(self, renderer: RendererBase) -> None:
        with in_style():  # ticks are made as they are drawn
            super().draw(renderer)

    def save(self, path: Path) -> None:
        """As ``path``.png and ``path``.svg; without a date, so that equal pictures are equal files."""
        canvas = FigureCanvasAgg(self)
        with in_style():
            canvas.draw()  # type: ignore[no-untyped-call]
            pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
            opaque = pixels[..., :3]  # packed in half the time that savefig takes
            Image.fromarray(opaque).save(path.with_name(path.name + ".png"), dpi=(DPI, DPI), compress_level=3)
            self.savefig(path.with_name(path.name + ".svg"), metadata={"Date": None, "Creator": None})

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """For notebooks: sharp on screens of twice as many pixels."""
        file = BytesIO()
        with in_style():
            self.savefig(file, format="png")
        width, height = self.get_size_inches() * _SCREEN
        return file.getvalue(), {"width": round(width), "height": round(height)}


def in_style() -> AbstractContextManager[None]:
    if matplotlib.rcParams["svg.hashsalt"] == STYLE["svg.hashsalt"]:  # no other style has it
        return nullcontext()
    return matplotlib.style.context(["default", STYLE])
