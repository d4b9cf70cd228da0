"""Rank tests, Holm's correction of a family of tests, and comparisons of several strategies.

The numbers by which strategies are compared have many ties, because some seeds reach a target in the random trials that
all strategies share, and some never reach it. The tests therefore use mid-ranks and their exact distribution given the
ties, which is computed by dynamic programming over doubled mid-ranks (integers). For larger samples, they use scipy's
normal approximation with a correction for ties, which agrees with the exact distribution at these sizes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..arrays import Floats, Ints

ALPHA = 0.05
"""The maximum probability that a family of tests calls any two equal strategies different."""

EXACT_RANK_SUM = 100
"""The maximum total number of runs of both strategies for which the rank-sum test is exact."""

EXACT_SIGNED_RANK = 200
"""The maximum number of pairs for which the signed-rank test is exact."""

MAX_DECIMALS = 300
"""The maximum number of decimal places, since ten to this power is still finite."""


def round_to_largest(values: Floats) -> Floats:
    """Round ``values`` to 12 significant digits of the largest finite value.

    Sums computed in different orders differ in their last bits, so equal runs would not tie without rounding.
    """
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest == 0:
        return values
    return np.round(values, min(12 - int(np.ceil(np.log10(largest))), MAX_DECIMALS))


def rank_sum_test(first: Floats, second: Floats) -> float:
    """Return the two-sided p-value of the Wilcoxon-Mann-Whitney test of two samples, or 1 if one is empty.

    H0: all orders of the pooled values are equally likely. The p-value is the fraction of the C(m + n, m) ways to split
    these values for which the rank sum is at least as far from its mean as observed (Mann and Whitney, "On a test of
    whether one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics
    18(1), 1947; ties as in Lehmann, "Nonparametrics: statistical methods based on ranks", 1975). Infinities are tied.
    """
    size = len(first)
    ranks = _double_ranks(np.concatenate((first, second)))
    if size == 0 or size == len(ranks) or (ranks == ranks[0]).all():
        return 1.0
    if len(ranks) > EXACT_RANK_SUM:
        from scipy.stats import mannwhitneyu  # importing scipy.stats takes most of a second

        return float(mannwhitneyu(ranks[:size], ranks[size:], method="asymptotic").pvalue)
    counts = _count_subsets(tuple(sorted(ranks.tolist())), size)
    return _two_sided_p(counts, int(ranks[:size].sum()), size * ranks.sum() / len(ranks))


def signed_rank_test(first: Floats, second: Floats) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test of pairs, or 1 if no pair differs.

    H0: within each pair, both orders are equally likely. Pairs of equal values, including infinities, are excluded. An
    infinite difference ranks highest. The p-value is the fraction of the 2^n ways to assign signs to the n remaining
    pairs for which the sum of positive ranks is at least as far from the mean as the observed sum (Wilcoxon,
    "Individual comparisons by ranking methods", Biometrics Bulletin 1(6), 1945).
    """
    signed_ranks = _rank_differences(first, second)
    ranks = np.abs(signed_ranks)
    if len(ranks) > EXACT_SIGNED_RANK:
        from scipy.stats import wilcoxon

        return float(wilcoxon(signed_ranks, method="asymptotic").pvalue)
    counts = _count_signs(tuple(sorted(ranks.tolist())))
    return _two_sided_p(counts, int(ranks[signed_ranks > 0].sum()), ranks.sum() / 2)


def rank_biserial_correlation(first: Floats, second: Floats) -> float:
    """Return the effect that the signed-rank test is about, in [-1, 1], or 0 if no pair differs.

    It is the rank sum of the pairs in which ``first`` is higher minus the rank sum of the other pairs, divided by the
    total (Kerby, "The simple difference formula: an approach to teaching nonparametric correlation", Comprehensive
    Psychology 3, 2014).
    """
    signed_ranks = _rank_differences(first, second)
    return float(signed_ranks.sum() / np.abs(signed_ranks).sum()) if len(signed_ranks) else 0.0


def _rank_differences(first: Floats, second: Floats) -> Ints:
    """Return twice the mid-rank of the size of each difference other than 0, with the sign of the difference."""
    is_unequal = first != second
    differences = round_to_largest(first[is_unequal] - second[is_unequal])
    return np.sign(differences).astype(np.int64) * _double_ranks(np.abs(differences))


@lru_cache(maxsize=32)  # without ties, the ranks are the same for all pairs in a report
def _count_subsets(ranks: tuple[int, ...], size: int) -> Floats:
    """Return the number of subsets of ``size`` ranks for each sum, starting from 0."""
    counts = np.zeros((size + 1, sum(ranks) + 1))  # row k: number of subsets of k of the ranks so far
    counts[0, 0] = 1.0
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank]
    return np.asarray(counts[size])


@lru_cache(maxsize=32)
def _count_signs(ranks: tuple[int, ...]) -> Floats:
    """Return the number of ways to assign signs to ``ranks`` for each sum of positive ranks, starting from 0."""
    counts = np.zeros(sum(ranks) + 1)
    counts[0] = 1.0
    for rank in ranks:
        counts[rank:] += counts[: len(counts) - rank]
    return counts


def _double_ranks(values: Floats) -> Ints:
    """Return twice the mid-rank of each value, from 1 for the lowest."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((2 * np.cumsum(counts) - counts + 1)[index])


def _two_sided_p(counts: Floats, observed: int, mean: float) -> float:
    """Return the fraction of ways, given their number by sum, at least as far from ``mean`` as ``observed``."""
    # Sums are integers and the mean is a multiple of 1 / runs, so unequal distances differ by far more than this.
    far = np.abs(np.arange(len(counts)) - mean) >= abs(observed - mean) - 1e-3
    return float(min(1.0, counts[far].sum() / counts.sum()))


def holm(p: Floats) -> Floats:
    """Return the p-values of a family of tests, adjusted by Holm's procedure.

    Rejecting the hypotheses whose adjusted p-value is at most alpha limits the probability of any false rejection to
    alpha, however the tests depend on each other (Holm, "A simple sequentially rejective multiple test procedure",
    Scandinavian Journal of Statistics 6(2), 1979).
    """
    order = np.argsort(p, kind="stable")
    adjusted_p = np.empty(len(p))
    adjusted_p[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted_p


def average_ranks(scores: Floats) -> Floats:
    """Return each strategy's mean rank over workloads (1 is best). ``scores`` have shape (workloads, strategies)."""
    return np.asarray(np.mean([_double_ranks(-row) for row in scores], axis=0) / 2)
