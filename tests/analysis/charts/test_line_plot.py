from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from searchlab.analysis.charts.pictures import Frame, Line, apart, draw
from searchlab.analysis.stats.curves import Band


def test_what_lies_beyond_the_lines_is_named_within_the_picture(tmp_path: Path) -> None:
    """A level above all lines, and a line that ends below the axes."""
    x = np.array([1.0, 7.0])
    lines = [
        Line(name, Band(x, *(np.array([0.1, end]),) * 3), i)
        for i, (name, end) in enumerate({"a": 0.2, "b": -9}.items())
    ]
    frame = Frame("trials", "score", [(1.0, "the best known"), (0.0, "random")], bottom=-1.0)
    draw("a title", "what it is", frame, lines).save(tmp_path / "one")
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
