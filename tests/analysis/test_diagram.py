from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from searchlab.analysis.charts.figures import LineStyles
from searchlab.analysis.charts.pictures import draw_diagram
from searchlab.analysis.model import Diagram
from searchlab.analysis.summary import diagram


def test_a_ladder_with_a_clear_best_and_two_that_are_alike() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(0, 0.1, (12, 4)) + np.array([1.0, 3.0, 1.0, -9.0])
    found = diagram(["b", "a", "c", "d"], scores, [frozenset(pair) for pair in ("ab", "ac", "ad", "bd", "cd")])
    assert found.strategies[0] == "a" and found.strategies[3] == "d" and found.workloads == 12
    assert found.ranks[0] == 1 and found.ranks[3] == 4 and sum(found.ranks) == pytest.approx(10)
    assert found.cliques == [[1, 2]]


def test_two_strategies_that_differ() -> None:
    scores = np.array([[1.0, 2.0]] * 6)
    assert diagram(["a", "b"], scores, []).cliques == [[0, 1]]
    assert diagram(["a", "b"], scores, [frozenset("ab")]) == Diagram(["b", "a"], [1, 2], 6, [])


@pytest.mark.parametrize("number", [2, 7, 12])
def test_a_diagram_is_drawn_and_the_same_again(tmp_path: Path, number: int) -> None:
    names = [f"a-name-that-is-far-too-long-for-a-picture-$_{i}" for i in range(number)]
    found = diagram(names, np.random.default_rng(number).normal(size=(9, number)) + np.arange(number) / 3, [])
    drawn = []
    for name in ("one", "two"):
        draw_diagram(found, LineStyles(names, names[0], names)).save(tmp_path / name)
        drawn.append([(tmp_path / f"{name}.{kind}").read_bytes() for kind in ("png", "svg")])
        assert all(len(data) > 5_000 for data in drawn[-1])
    assert drawn[0] == drawn[1]
