from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from searchlab.analysis.charts.figures import Figure, Level, LineStyles, Series, View
from searchlab.analysis.charts.pictures import apart, line_picture


def test_what_lies_beyond_the_lines_is_named_within_the_picture(tmp_path: Path) -> None:
    """A level above all lines, and a line that ends below the axes."""
    view = View(
        key="trials",
        name="trials",
        label="trials",
        x=[1.0, 7.0],
        quantity="score",
        bottom=-1.0,
        series=[Series("a", [0.1, 0.2]), Series("b", [0.1, -9.0])],
        levels=[Level(1.0, "the best known"), Level(0.0, "random")],
    )
    figure = Figure(key="score", title="a title", brief="what it is", says="", views=[view], digits=1)
    picture = line_picture("w", figure, view, LineStyles(["a", "b"], None, ["a", "b"]))
    assert picture
    picture.save(tmp_path / "one")
    svg = (tmp_path / "one.svg").read_text()

    def down(words: str) -> float:
        found = re.search(rf"<!-- {words} -->.*?translate\([\d.]+ ([\d.]+)\)", svg, re.S)
        assert found
        return float(found[1])

    assert down("what it is") < down("1.00") < down("a  0.2") < down("0.00") < down("b  -9.0") < down("trials")


def test_labels_keep_their_distance() -> None:
    places = apart(np.array([1.2, 0.99, 0.98, 0.5, 0.01, 0.0]), 0.1)
    assert (-np.diff(places) >= 0.1 - 1e-12).all() and places[-1] >= 0 and places[0] <= 1
    assert places[3] == 0.5, "who is not in the way is not moved"
    assert apart(np.array([]), 0.1).size == 0
