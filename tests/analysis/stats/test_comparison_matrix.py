from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from searchlab.analysis.stats.ranks import MatrixCell, comparison_matrix
from searchlab.arrays import Floats


def matrix(names: list[str], scores: Floats) -> dict[tuple[str, str], MatrixCell]:
    return {(cell.row, cell.column): cell for cell in comparison_matrix(names, scores)}


@pytest.fixture
def scores() -> Floats:
    """Of three strategies on 14 workloads, shape (14, 3); the first and the third tie once."""
    scores = np.random.default_rng(2).beta(4, 2, (14, 3)).round(2)
    scores[:, 1] = (scores[:, 0] - np.random.default_rng(3).normal(0.03, 0.05, 14)).round(3)
    return scores


def test_it_gives_what_its_authors_give(scores: Floats) -> None:
    """Recorded with multi-comp-matrix 0.0.4: ``MCM.compare(DataFrame(scores, columns=list("abc")), output_dir="mcm/",
    save_as_json=True)``. Where a pair ties, theirs is scipy's approximate p-value by Pratt's ranks, ours is exact."""
    cells = matrix(["a", "b", "c"], scores)
    assert list(cells) == list(permutations("abc", 2)), "the best by mean first"
    for pair, difference, counts, p, within in (
        (("a", "b"), 0.02207142857142852, (10, 0, 4), 0.172607421875, 1e-12),
        (("a", "c"), 0.022857142857142687, (8, 1, 5), 0.48963987323428293, 0.05),
        (("c", "b"), -0.0007857142857141675, (6, 0, 8), 0.625732421875, 1e-12),
    ):
        cell = cells[pair]
        assert (cell.wins, cell.ties, cell.losses) == counts
        assert cell.difference == pytest.approx(difference) and cell.p == pytest.approx(p, abs=within)


def test_a_pair_does_not_change_with_the_company(scores: Floats) -> None:
    whole, two = matrix(["a", "b", "c"], scores), matrix(["a", "b"], scores[:, :2])
    assert all(whole[pair] == cell for pair, cell in two.items())


def test_a_cell_mirrors_its_opposite(scores: Floats) -> None:
    cells = matrix(["a", "b", "c"], scores)
    for (row, column), cell in cells.items():
        back = cells[column, row]
        assert (cell.difference, cell.wins, cell.losses, cell.p) == (-back.difference, back.losses, back.wins, back.p)
    assert len(cells) == 6


def test_differences_in_the_last_bits_are_ties() -> None:
    cell = matrix(["a", "b"], np.array([[0.5, 0.4], [0.5, 0.5 + 1e-16], [0.5, 0.6]]))["a", "b"]
    assert (cell.wins, cell.ties, cell.losses) == (1, 1, 1) and cell.difference == pytest.approx(0)
