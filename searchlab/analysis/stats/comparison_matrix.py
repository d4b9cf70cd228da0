"""The multiple comparison matrix: every pair of strategies by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Floats
from .intervals import DECIMALS
from .ranks import signed_rank_test


@dataclass(frozen=True)
class MatrixCell:
    """Two strategies on the workloads that both have; no other strategy changes anything here.

    Attributes:
        row: The first strategy.
        column: The second.
        difference: The mean over workloads of the score of ``row`` less that of ``column``.
        wins: On how many workloads the score of ``row`` is higher.
        ties: On how many it is the same.
        losses: On how many it is lower.
        p: Of the signed-rank test over workloads, not corrected: it ranks pairs, and no claim rests on it.
    """

    row: str
    column: str
    difference: float
    wins: int
    ties: int
    losses: int
    p: float


@dataclass(frozen=True)
class ComparisonMatrix:
    """strategies: by mean, the best first. means: over the workloads that a strategy has. cells: every ordered pair."""

    strategies: list[str]
    means: list[float]
    cells: dict[tuple[str, str], MatrixCell]


def comparison_matrix(strategies: Sequence[str], scores: Floats) -> ComparisonMatrix:
    """The matrix of ``scores``, shape (workloads, strategies), higher is better, NaN where a strategy has no run.

    Nothing in a cell depends on any other strategy: neither mean ranks nor a correction over all pairs enter it, so
    that nobody gains from what is left out or added (Ismail-Fawaz et al., "An approach to multiple comparison benchmark
    evaluations that is stable under manipulation of the comparate set", arXiv 2305.11921, 2023). p is that of the exact
    signed-rank test over workloads; as many p-values stand side by side, they rank pairs and prove nothing.
    """
    means = [float(np.mean(column[~np.isnan(column)])) for column in scores.T]
    order = sorted(range(len(strategies)), key=lambda i: (-means[i], strategies[i]))
    cells = {
        (strategies[i], strategies[j]): _cell(strategies[i], strategies[j], scores[:, i], scores[:, j])
        for i in order
        for j in order
        if i != j
    }
    return ComparisonMatrix([strategies[i] for i in order], [means[i] for i in order], cells)


def _cell(row: str, column: str, ours: Floats, theirs: Floats) -> MatrixCell:
    differences = np.round(ours - theirs, DECIMALS)
    differences = differences[~np.isnan(differences)]
    return MatrixCell(
        row=row,
        column=column,
        difference=float(differences.mean()) if len(differences) else math.nan,
        wins=int((differences > 0).sum()),
        ties=int((differences == 0).sum()),
        losses=int((differences < 0).sum()),
        p=signed_rank_test(differences, np.zeros(len(differences))),
    )
