from __future__ import annotations

import numpy as np
import pytest

from searchlab.analysis.charts.vegalite import altair_chart, ranks_chart
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


def test_a_diagram_has_a_column_of_dots_for_each_clique() -> None:
    names = ["a", "b.c", "d"]
    chart = ranks_chart(Diagram(names, [1.0, 2.4, 2.6], 12, [[0, 1], [1, 2]]))
    (spec,) = chart.views.values()
    ranks, line, dots = spec["layer"]
    assert [row["rank"] for row in ranks["data"]["values"]] == [1.0, 2.4, 2.6]
    assert [(row["strategy"], row["group"]) for row in dots["data"]["values"]] == [
        ("a", 0),
        ("b.c", 0),
        ("b.c", 1),
        ("d", 1),
    ]
    assert line["data"] == dots["data"] and min(row["rank"] for row in dots["data"]["values"]) > 3, "beside the ranks"
    assert altair_chart(spec).to_dict()["layer"]
