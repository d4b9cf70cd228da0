"""Rank tests, the correction of all tests in a report as one family, and comparisons of several strategies.

The numbers by which strategies are compared have many ties, because some seeds reach a target in the random trials that
all strategies share, and some never reach it. The tests therefore use mid-ranks and their exact distribution given the
ties, which is computed by dynamic programming over doubled mid-ranks (integers). For larger samples, they use scipy's
normal approximation with a correction for ties, which agrees with the exact distribution at these sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ...arrays import Floats, Ints

ALPHA = 0.05  # maximum probability that a family of tests calls any two equal strategies different
EXACT_RANK_SUM = 100  # maximum total number of runs of both strategies for which the rank-sum test is exact
EXACT_SIGNED_RANK = 200  # maximum number of pairs for which the signed-rank test is exact
MOST_DECIMALS = 300  # ten to this power is still finite
RESERVED = 0.8  # fraction of a report's error rate that is reserved for the contrasts registered before the runs
EPSILON = 1e-6  # fraction of a test's weight that leaves its gate; it matters only once all of the gate is rejected

Key = TypeVar("Key", bound=Hashable)


def rounded(values: Floats, digits: int = 12) -> Floats:
    """Round ``values`` to ``digits`` significant digits of the largest finite value.

    Sums computed in different orders differ in their last bits, so equal runs would not tie without rounding.
    """
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest == 0:
        return values
    return np.round(values, min(digits - int(np.ceil(np.log10(largest))), MOST_DECIMALS))


def rank_sum_test(first: Floats, second: Floats) -> float:
    """Return the two-sided p-value of the Wilcoxon-Mann-Whitney test of two samples, or 1 if one is empty.

    H0: all orders of the pooled values are equally likely. The p-value is the fraction of the C(m + n, m) ways to split
    these values for which the rank sum is at least as far from its mean as observed (Mann and Whitney, "On a test of
    whether one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics
    18(1), 1947; ties as in Lehmann, "Nonparametrics: statistical methods based on ranks", 1975). Infinities are tied.
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
    """Return the effect and two-sided p-value of Wilcoxon's signed-rank test of pairs, or 0 and 1 if no pair differs.

    H0: within each pair, both orders are equally likely. Pairs of equal values, including infinities, are excluded. An
    infinite difference ranks highest. The p-value is the fraction of the 2^n ways to assign signs to the n remaining
    pairs for which the sum of positive ranks is at least as far from the mean as the observed sum (Wilcoxon,
    "Individual comparisons by ranking methods", Biometrics Bulletin 1(6), 1945).

    The effect is the rank-biserial correlation, in [-1, 1]: the rank sum of the pairs in which ``first`` is higher
    minus the rank sum of the other pairs, divided by the total (Kerby, "The simple difference formula: an approach to
    teaching nonparametric correlation", Comprehensive Psychology 3, 2014).
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


@lru_cache(maxsize=32)  # without ties, the ranks are the same for all pairs in a report
def _subsets(ranks: tuple[int, ...], size: int) -> Floats:
    """Return the number of subsets of ``size`` ranks for each sum, starting from 0."""
    ways = np.zeros((size + 1, sum(ranks) + 1))  # row k: number of subsets of k of the ranks so far
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]
    return np.asarray(ways[size])


@lru_cache(maxsize=32)
def _signs(ranks: tuple[int, ...]) -> Floats:
    """Return the number of ways to assign signs to ``ranks`` for each sum of positive ranks, starting from 0."""
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[: len(ways) - rank]
    return ways


def _doubled_ranks(values: Floats) -> Ints:
    """Return twice the mid-rank of each value, from 1 for the lowest."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((2 * np.cumsum(counts) - counts + 1)[place])


def _two_sided(ways: Floats, seen: int, mean: float) -> float:
    """Return the fraction of ways whose sum is at least as far from ``mean`` as ``seen``, given their number by sum."""
    # Sums are integers and the mean is a multiple of 1 / runs, so unequal distances differ by far more than this.
    far = np.abs(np.arange(len(ways)) - mean) >= abs(seen - mean) - 1e-3
    return float(min(1.0, ways[far].sum() / ways.sum()))


def holm(p: Floats) -> Floats:
    """Return the p-values of a family of tests, adjusted by Holm's procedure.

    Rejecting the hypotheses whose adjusted p-value is at most alpha limits the probability of any false rejection to
    alpha, however the tests depend on each other (Holm, "A simple sequentially rejective multiple test procedure",
    Scandinavian Journal of Statistics 6(2), 1979).
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


@dataclass(frozen=True)
class Gate(Generic[Key]):
    """The tests of a registered contrast: those in ``behind`` are performed only after ``first`` has been rejected."""

    first: Key | None  # the test over all workloads, or None to begin with the tests in ``behind``
    behind: Sequence[Sequence[Key]] = ()  # groups of tests, each of which gets an equal part of the weight

    @property
    def keys(self) -> list[Key]:
        return [*([] if self.first is None else [self.first]), *(key for group in self.behind for key in group)]

    def shares(self) -> dict[Key, float]:
        """Return the fraction of the gate's weight that each test in ``behind`` gets when ``first`` is rejected."""
        groups = [group for group in self.behind if group]
        return {key: 1 / len(groups) / len(group) for group in groups for key in group}


def one_family(p: Mapping[Key, float], gates: Sequence[Gate[Key]] = ()) -> dict[Key, float]:
    """Adjust p-values so that at most 5 % of reports call any equal strategies different.

    Without gates, this is Holm's procedure. Otherwise, the gates share the fraction ``RESERVED`` of the error rate and
    are tested with a graphical procedure (see :func:`graphical`): if a first test is rejected, it passes half of its
    weight to the other gates and half (or all, without other gates) to the tests in ``behind``. All other tests are
    exploratory: they share the remaining error rate by Holm's procedure, or all of it once all gates are rejected.

    Args:
        p: The p-value of every test that a reader may interpret as a claim.
        gates: The registered contrasts. A test may belong to only one gate.

    Raises:
        ValueError: If a gate refers to a test that is not in ``p``, or if two gates share a test.
    """
    gated = [key for gate in gates for key in gate.keys]
    if missing := [key for key in gated if key not in p]:
        raise ValueError(f"registered, but not tested: {', '.join(map(str, missing))}")
    if len(set(gated)) < len(gated):
        raise ValueError("a test belongs to two gates; specify each registered contrast only once")
    others = [key for key in p if key not in set(gated)]
    if not gated:
        return dict(zip(others, holm(np.array([p[key] for key in others])).tolist(), strict=True))
    share = RESERVED if others else 1.0
    first = np.minimum(graphical([p[key] for key in gated], *_graph(gates, gated)) / share, 1.0)
    adjusted = dict(zip(gated, first.tolist(), strict=True))
    if others:
        alone = holm(np.array([p[key] for key in others]))
        after = np.minimum(np.minimum(alone / (1 - RESERVED), 1.0), np.maximum(alone, first.max()))
        adjusted |= zip(others, after.tolist(), strict=True)
    return {key: adjusted[key] for key in p}


def _graph(gates: Sequence[Gate[Key]], keys: Sequence[Key]) -> tuple[Floats, Floats]:
    """Return the initial weights and transitions for :func:`one_family`, shapes (tests,) and (tests, tests)."""
    place = {key: i for i, key in enumerate(keys)}
    opens = [{gate.first: 1.0} if gate.first is not None else gate.shares() for gate in gates]
    weights, transitions = np.zeros(len(keys)), np.zeros((len(keys), len(keys)))
    for number, gate in enumerate(gates):
        rest = [other for i, other in enumerate(opens) if i != number and other]
        for key, share in opens[number].items():
            weights[place[key]] = share / sum(map(bool, opens))
        behind = gate.shares()
        if gate.first is not None:
            _pass(transitions[place[gate.first]], place, behind, rest, 0.5 if behind and rest else float(not behind))
        for key in behind:
            siblings = {other: 1 / (len(behind) - 1) for other in behind if other != key}
            _pass(transitions[place[key]], place, siblings, rest, EPSILON if siblings and rest else float(not siblings))
    return weights, transitions


def _pass(
    row: Floats, place: Mapping[Key, int], own: Mapping[Key, float], gates: Sequence[Mapping[Key, float]], away: float
) -> None:
    """Fill one row of the transitions: the fraction ``away`` goes to ``gates`` in equal parts, the rest to ``own``."""
    for key, share in own.items():
        row[place[key]] = (1 - away) * share
    for gate in gates:
        for key, share in gate.items():
            row[place[key]] = away * share / len(gates)


def graphical(p: ArrayLike, weights: ArrayLike, transitions: ArrayLike) -> Floats:
    """Return the adjusted p-values of the sequentially rejective graphical procedure.

    This is algorithm 2 of Bretz, Maurer, Brannath and Posch, "A graphical approach to sequentially rejective multiple
    test procedures", Statistics in Medicine 28(4), 2009. It controls the family-wise error rate in the strong sense,
    however the tests depend on each other.

    Args:
        p: The p-values, shape (n,).
        weights: The fraction of the error rate with which each test starts, shape (n,), with a sum of at most 1.
        transitions: The fraction of its weight that each test (row) passes to each other test (column) when it is
            rejected, shape (n, n), with a zero diagonal and row sums of at most 1.

    Example:
        Three tests in a fixed order, each of which counts only if the test before it is rejected:

        >>> graphical([0.01, 0.04, 0.03], [1, 0, 0], [[0, 1, 0], [0, 0, 1], [0, 0, 0]]).tolist()
        [0.01, 0.04, 0.04]
    """
    values, weight, graph = (np.array(each, dtype=np.float64) for each in (p, weights, transitions))
    adjusted, reached = np.ones(len(values)), 0.0
    left = np.ones(len(values), dtype=bool)
    while left.any():
        ratio = np.divide(values, weight, out=np.full(len(values), np.inf), where=left & (weight > 0))
        j = int(ratio.argmin())
        if not ratio[j] < 1:
            break
        adjusted[j] = reached = max(reached, float(ratio[j]))
        left[j] = False
        weight += weight[j] * graph[j]
        back = 1 - graph[:, j] * graph[j]  # the fraction that does not return to the same test
        through = graph + np.outer(graph[:, j], graph[j])
        graph = np.divide(through, back[:, None], out=np.zeros_like(graph), where=back[:, None] > 0)
        np.fill_diagonal(graph, 0.0)
        graph[j], graph[:, j], weight[j] = 0.0, 0.0, 0.0
    return np.maximum(adjusted, values)  # weights may exceed 1 due to rounding


def average_ranks(scores: Floats) -> Floats:
    """Return each strategy's mean rank over workloads (1 is best). ``scores`` have shape (workloads, strategies)."""
    return np.asarray(_ranks_of_rows(-scores).mean(axis=0))


def _ranks_of_rows(values: Floats) -> Floats:
    return np.array([_doubled_ranks(row) for row in values]) / 2


def cliques(count: int, edges: set[tuple[int, int]]) -> list[list[int]]:
    """Return the sorted maximal cliques of at least two of ``count`` vertices, given ``edges`` as (lower, higher).

    Source: Bron and Kerbosch, "Algorithm 457: finding all cliques of an undirected graph", CACM 16(9), 1973, version 1.
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
