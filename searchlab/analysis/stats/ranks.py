"""Exact rank tests of two strategies, Holm's correction, and Friedman's test: pure functions over arrays.

The numbers that strategies are compared by are full of ties: some seeds reach a target in the random trials that all
strategies share, and some never reach it. Both tests here therefore take mid-ranks and the exact distribution given the
ties. Dynamic programming over doubled mid-ranks, which are whole numbers, gives this distribution. Beyond the sizes
below the tests take scipy's normal approximation with its correction for ties, which agrees there.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import chdtrc

from ...arrays import Floats

Ranks = np.ndarray[tuple[int], np.dtype[np.int64]]

ALPHA = 0.05
"""Chance, at most, of calling any two equal strategies of a family of tests different."""
EXACT_RANK_SUM = 100
"""Most runs of two strategies together for which the rank-sum test is exact."""
EXACT_SIGNED_RANK = 200
"""Most pairs for which the signed-rank test is exact."""

MOST_DECIMALS = 300
"""Powers of ten up to this one are finite."""


def rounded(values: Floats, digits: int = 12) -> Floats:
    """``values`` to so many digits of the largest finite one: numbers that sums in another order made differ are equal.

    Without this, two runs that did the same need not tie, and neither need two pairs that differ by the same.
    """
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest == 0:
        return values
    return np.round(values, min(digits - int(np.ceil(np.log10(largest))), MOST_DECIMALS))


def rank_sum_test(first: Floats, second: Floats) -> float:
    """Two-sided p-value of the Wilcoxon-Mann-Whitney test of two samples, shapes (m,) and (n,); 1 if one is empty.

    H0: all orders of the pooled values are equally likely. The p-value is the part of the C(m + n, m) ways to
    split them whose rank sum lies as far from its mean as the one seen (Mann and Whitney, "On a test of whether
    one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics 18(1),
    1947; ties by mid-ranks as in Lehmann, "Nonparametrics: statistical methods based on ranks", 1975). Infinities
    tie with each other.
    """
    size = len(first)
    ranks = _doubled_ranks(np.concatenate((first, second)))
    if size == 0 or size == len(ranks) or (ranks == ranks[0]).all():
        return 1.0
    if len(ranks) > EXACT_RANK_SUM:
        from scipy.stats import mannwhitneyu  # here, since it takes most of a second, and is seldom needed

        return float(mannwhitneyu(ranks[:size], ranks[size:], method="asymptotic").pvalue)
    ways = _subsets(tuple(sorted(ranks.tolist())), size)
    return _two_sided(ways, int(ranks[:size].sum()), size * ranks.sum() / len(ranks))


def signed_rank_test(first: Floats, second: Floats) -> float:
    """The p-value of :func:`signed_rank`."""
    return signed_rank(first, second)[1]


def signed_rank(first: Floats, second: Floats) -> tuple[float, float]:
    """Effect and two-sided p-value of Wilcoxon's signed-rank test of pairs, both of shape (n,).

    They are 0 and 1 where no pair differs.

    H0: within each pair both orders are equally likely, however the pairs are correlated inside. Pairs that are
    equal, infinities among them, say nothing and are left out. The p-value is the part of the 2^n signs of the
    other pairs whose sum of positive ranks lies as far from its mean as the one seen (Wilcoxon, "Individual
    comparisons by ranking methods", Biometrics Bulletin 1(6), 1945). An infinite difference ranks highest.

    The effect is the rank-biserial correlation, in [-1, 1]: the sum of the ranks of the pairs in which ``first`` is
    higher less that of the others, over the sum of both. Its sign is the direction of the test (Kerby, "The simple
    difference formula: an approach to teaching nonparametric correlation", Comprehensive Psychology 3, 2014).
    """
    signed = _signed_ranks(first, second)
    ranks = np.abs(signed)
    effect = float(signed.sum() / ranks.sum()) if len(signed) else 0.0
    if len(ranks) > EXACT_SIGNED_RANK:
        from scipy.stats import wilcoxon

        return effect, float(wilcoxon(signed, method="asymptotic").pvalue)
    ways = _signs(tuple(sorted(ranks.tolist())))
    return effect, _two_sided(ways, int(ranks[signed > 0].sum()), ranks.sum() / 2)


@lru_cache(maxsize=32)  # without ties the ranks are the same for all pairs of a report
def _subsets(ranks: tuple[int, ...], size: int) -> Floats:
    """How many subsets of ``size`` of ``ranks`` have each sum, from 0."""
    ways = np.zeros((size + 1, sum(ranks) + 1))  # of k of the ranks so far, in row k
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]
    subsets: Floats = ways[size]
    return subsets


@lru_cache(maxsize=32)
def _signs(ranks: tuple[int, ...]) -> Floats:
    """How many ways to give ``ranks`` signs have each sum of the positive ones, from 0."""
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[: len(ways) - rank]
    return ways


def _signed_ranks(first: Floats, second: Floats) -> Ranks:
    """Of the pairs that differ, the doubled rank of the distance, with the sign of the difference: shape (<= n,)."""
    differ = first != second
    differences = rounded(first[differ] - second[differ])
    signs: Ranks = np.sign(differences).astype(np.int64)
    return signs * _doubled_ranks(np.abs(differences))


def _doubled_ranks(values: Floats) -> Ranks:
    """Twice the rank of each value, from 1 for the lowest: whole, as those that are equal share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    doubled: Ranks = (2 * np.cumsum(counts) - counts + 1)[place]
    return doubled


def _two_sided(ways: Floats, seen: int, mean: float) -> float:
    """Part of ``ways``, a number per sum, at whose sums the distance from ``mean`` is at least that of ``seen``."""
    # Sums are whole and the mean is a multiple of 1 / runs, so that unequal distances differ by far more than this.
    far = np.abs(np.arange(len(ways)) - mean) >= abs(seen - mean) - 1e-3
    return float(min(1.0, ways[far].sum() / ways.sum()))


def holm(p: Floats, weights: Floats | None = None) -> Floats:
    """Adjusted p-values of a family of tests, shape (tests,), in the order given.

    Rejecting those of at most alpha keeps the chance of any false rejection at alpha, however the tests depend on
    each other (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6(2), 1979). weights: above 0, of tests that matter more or less (section 4 there); all alike by default.
    """
    weights = np.ones(len(p)) if weights is None else weights
    order = np.argsort(p / weights, kind="stable")
    left = np.cumsum(weights[order][::-1])[::-1]  # of the tests that are not rejected yet
    steps = np.maximum.accumulate(p[order] / weights[order] * left)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def average_ranks(scores: Floats) -> Floats:
    """Mean rank of each strategy over workloads, 1 for the best: shape (strategies,).

    scores: shape (workloads, strategies), higher is better; ties share their mean rank (Demsar, "Statistical
    comparisons of classifiers over multiple data sets", JMLR 7, 2006).
    """
    ranks: Floats = _ranks_of_rows(-scores).mean(axis=0)
    return ranks


def friedman_test(scores: Floats) -> float:
    """P-value of Friedman's test that all strategies do as well as each other; 1 where none differs anywhere.

    scores: shape (workloads, strategies), at least 2 and 3 of them. The chi-squared approximation, corrected for
    ties; where workloads are few, it errs towards a large p-value (Friedman, "The use of ranks to avoid
    the assumption of normality implicit in the analysis of variance", JASA 32(200), 1937).
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
