"""Rank tests, Holm's correction, and comparisons of several strategies: functions over arrays.

The numbers that strategies are compared by have many ties: some seeds reach a target in the random trials that all
strategies share, and some never reach it. The tests therefore use mid-ranks and the exact distribution given the ties,
computed by dynamic programming over doubled mid-ranks, which are integers. For larger samples they use scipy's normal
approximation with its correction for ties, which agrees at those sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from scipy.special import chdtrc

from ...arrays import Floats, Ints
from .intervals import DECIMALS

ALPHA = 0.05  # probability, at most, of calling any two equal strategies of a family of tests different
EXACT_RANK_SUM = 100  # most runs of two strategies together for which the rank-sum test is exact
EXACT_SIGNED_RANK = 200  # most pairs for which the signed-rank test is exact
MOST_DECIMALS = 300  # powers of ten up to this one are finite


def rounded(values: Floats, digits: int = 12) -> Floats:
    """Round to ``digits`` significant digits of the largest finite value.

    Sums in a different order differ in their last bits; without rounding, runs that did the same would not tie.
    """
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest == 0:
        return values
    return np.round(values, min(digits - int(np.ceil(np.log10(largest))), MOST_DECIMALS))


def rank_sum_test(first: Floats, second: Floats) -> float:
    """Return the two-sided p-value of the Wilcoxon-Mann-Whitney test of two samples; 1 if one is empty.

    H0: all orders of the pooled values are equally likely. The p-value is the part of the C(m + n, m) ways to split
    them whose rank sum is at least as far from its mean as the observed one (Mann and Whitney, "On a test of whether
    one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics 18(1), 1947;
    ties as in Lehmann, "Nonparametrics: statistical methods based on ranks", 1975). Infinities tie with each other.
    """
    size = len(first)
    ranks = _doubled_ranks(np.concatenate((first, second)))
    if size == 0 or size == len(ranks) or (ranks == ranks[0]).all():
        return 1.0
    if len(ranks) > EXACT_RANK_SUM:
        from scipy.stats import mannwhitneyu  # importing scipy.stats takes most of a second

        return float(mannwhitneyu(ranks[:size], ranks[size:], method="asymptotic").pvalue)
    ways = _subsets(tuple(sorted(ranks.tolist())), size)
    return _two_sided(ways, int(ranks[:size].sum()), size * ranks.sum() / len(ranks))


def signed_rank(first: Floats, second: Floats) -> tuple[float, float]:
    """Return effect and two-sided p-value of Wilcoxon's signed-rank test of pairs; 0 and 1 if no pair differs.

    H0: within each pair both orders are equally likely. Equal pairs, infinities among them, are left out; an infinite
    difference ranks highest. The p-value is the part of the 2^n signs of the other pairs whose sum of positive ranks is
    at least as far from its mean as the observed one (Wilcoxon, "Individual comparisons by ranking methods", Biometrics
    Bulletin 1(6), 1945).

    The effect is the rank-biserial correlation, in [-1, 1]: the rank sum of the pairs in which ``first`` is higher less
    that of the others, over their total (Kerby, "The simple difference formula: an approach to teaching nonparametric
    correlation", Comprehensive Psychology 3, 2014).
    """
    differ = first != second
    differences = rounded(first[differ] - second[differ])
    signed = np.sign(differences).astype(np.int64) * _doubled_ranks(np.abs(differences))
    ranks = np.abs(signed)
    effect = float(signed.sum() / ranks.sum()) if len(signed) else 0.0
    if len(ranks) > EXACT_SIGNED_RANK:
        from scipy.stats import wilcoxon

        return effect, float(wilcoxon(signed, method="asymptotic").pvalue)
    ways = _signs(tuple(sorted(ranks.tolist())))
    return effect, _two_sided(ways, int(ranks[signed > 0].sum()), ranks.sum() / 2)


@lru_cache(maxsize=32)  # without ties the ranks are the same for all pairs of a report
def _subsets(ranks: tuple[int, ...], size: int) -> Floats:
    """Count the subsets of ``size`` ranks that have each sum, from 0."""
    ways = np.zeros((size + 1, sum(ranks) + 1))  # row k: subsets of k of the ranks so far
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]
    subsets: Floats = ways[size]
    return subsets


@lru_cache(maxsize=32)
def _signs(ranks: tuple[int, ...]) -> Floats:
    """Count the ways to sign ``ranks`` for which the positive ones have each sum, from 0."""
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[: len(ways) - rank]
    return ways


def _doubled_ranks(values: Floats) -> Ints:
    """Return twice the mid-rank of each value, from 1 for the lowest."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    doubled: Ints = (2 * np.cumsum(counts) - counts + 1)[place]
    return doubled


def _two_sided(ways: Floats, seen: int, mean: float) -> float:
    """Return the part of ``ways``, a count for each sum, at least as far from ``mean`` as ``seen``."""
    # Sums are integers and the mean is a multiple of 1 / runs, so unequal distances differ by far more than this.
    far = np.abs(np.arange(len(ways)) - mean) >= abs(seen - mean) - 1e-3
    return float(min(1.0, ways[far].sum() / ways.sum()))


def holm(p: Floats, weights: Floats | None = None) -> Floats:
    """Return the adjusted p-values of a family of tests.

    Rejecting those of at most alpha keeps the probability of any false rejection at alpha, however the tests depend on
    each other (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6(2), 1979; with ``weights`` above 0, section 4 there).
    """
    weights = np.ones(len(p)) if weights is None else weights
    order = np.argsort(p / weights, kind="stable")
    left = np.cumsum(weights[order][::-1])[::-1]  # the weight of tests that are not rejected yet
    steps = np.maximum.accumulate(p[order] / weights[order] * left)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def average_ranks(scores: Floats) -> Floats:
    """Return the mean rank of each strategy over workloads, 1 for the best; ties share their mean rank.

    Args:
        scores: Shape (workloads, strategies), higher is better.
    """
    ranks: Floats = _ranks_of_rows(-scores).mean(axis=0)
    return ranks


def friedman_test(scores: Floats) -> float:
    """Return the p-value of Friedman's test that all strategies do equally well; 1 if none differs anywhere.

    The chi-squared approximation, corrected for ties; for few workloads it errs towards a large p-value (Friedman, "The
    use of ranks to avoid the assumption of normality implicit in the analysis of variance", JASA 32(200), 1937).

    Args:
        scores: Shape (workloads, strategies), at least 2 and 3 of them.
    """
    if (scores == scores[:, :1]).all():
        return 1.0
    workloads, strategies = scores.shape
    ranks = _ranks_of_rows(scores)
    sizes = np.concatenate([np.unique(row, return_counts=True)[1] for row in ranks])  # of the groups of ties
    every = strategies * (strategies + 1)
    ties = 1 - int((sizes**3 - sizes).sum()) / (every * (strategies - 1) * workloads)
    squares = float((ranks.sum(axis=0) ** 2).sum())
    return float(chdtrc(strategies - 1, (12 / (every * workloads) * squares - 3 * workloads * (strategies + 1)) / ties))


def _ranks_of_rows(values: Floats) -> Floats:
    return np.array([_doubled_ranks(row) for row in values]) / 2


@dataclass(frozen=True)
class MatrixCell:
    """Two strategies on the workloads of a multiple comparison matrix.

    Attributes:
        row: The first strategy.
        column: The second.
        difference: The mean over workloads of the score of ``row`` less that of ``column``.
        wins: Workloads on which the score of ``row`` is higher.
        ties: Workloads on which both are the same.
        losses: Workloads on which the score of ``row`` is lower.
        p: Of the signed-rank test over workloads, not corrected: it ranks pairs, and no claim rests on it.
    """

    row: str
    column: str
    difference: float
    wins: int
    ties: int
    losses: int
    p: float


def comparison_matrix(strategies: Sequence[str], scores: Floats) -> list[MatrixCell]:
    """Return every ordered pair of strategies, row by row, the best by mean score first.

    No other strategy affects a cell: neither mean ranks nor a correction over all pairs enter it, so nobody gains from
    what is left out or added (Ismail-Fawaz et al., "An approach to multiple comparison benchmark evaluations that is
    stable under manipulation of the comparate set", arXiv 2305.11921, 2023).

    Args:
        strategies: Their names.
        scores: Shape (workloads, strategies), higher is better.
    """
    columns = dict(zip(strategies, scores.T, strict=True))
    order = sorted(strategies, key=lambda name: (-np.mean(columns[name]), name))
    cells = []
    for row, column in permutations(order, 2):
        differences = np.round(columns[row] - columns[column], DECIMALS)
        wins, ties, losses = (int((np.sign(differences) == sign).sum()) for sign in (1, 0, -1))
        _, p = signed_rank(differences, np.zeros(len(differences)))
        cells.append(MatrixCell(row, column, float(differences.mean()), wins, ties, losses, p))
    return cells


def cliques(count: int, edges: set[tuple[int, int]]) -> list[list[int]]:
    """Return the maximal cliques of two or more among ``count`` vertices, in order, given ``edges`` as (lower, higher).

    Bron and Kerbosch, "Algorithm 457: finding all cliques of an undirected graph", CACM 16(9), 1973, first version.
    """
    near = [{j for j in range(count) if (min(i, j), max(i, j)) in edges} for i in range(count)]
    largest: list[list[int]] = []

    def extend(clique: list[int], candidates: set[int], done: set[int]) -> None:
        if not candidates and not done and len(clique) > 1:
            largest.append(clique)
        for vertex in sorted(candidates):
            extend([*clique, vertex], candidates & near[vertex], done & near[vertex])
            candidates = candidates - {vertex}
            done = done | {vertex}

    extend([], set(range(count)), set())
    return sorted(largest)
