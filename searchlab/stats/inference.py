"""The mean difference between two strategies, and claims about other runs and workloads, as functions of arrays.

A claim *in these runs* states the observed difference, regardless of noise. A claim *on these workloads* is about the
difference that more seeds on the same workloads would show. A claim *on workloads like these* is about the difference
on other workloads from the same population; two or three workloads cannot support it, even with many seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import stdtr

from ..arrays import Floats
from .intervals import DECIMALS, Interval, format_count_phrase, satterthwaite, t_interval

MIN_WORKLOADS = 11
"""The minimum number of workloads for claims about others; with fewer, no test of ten strategies is significant."""

ROPE = 0.01
"""The region of practical equivalence: smaller differences in area under the curve do not matter."""


@dataclass(frozen=True)
class Answer:
    """An estimate of the mean difference, with the p-value of its test.

    Attributes:
        difference: The estimate with its interval.
        p: The two-sided p-value for the hypothesis of no difference; None without an interval.
    """

    difference: Interval
    p: float | None = None

    @classmethod
    def without_test(cls, value: float, note: str) -> Self:
        """Return the estimate alone, with a note on why there is no test."""
        return cls(Interval(value, note=note))

    def __neg__(self) -> Answer:
        return replace(self, difference=-self.difference)


@dataclass(frozen=True)
class Difference:
    """The mean difference between two strategies, first minus second, in the unit of the measure.

    Attributes:
        value: The mean over workloads of the mean over pairs of runs with the same seed.
        workloads: The number of workloads that have such pairs.
        pairs: The number of pairs on the workload with the fewest pairs.
        ahead: The number of workloads on which the mean of the first is higher.
        level: The number of workloads on which the means are equal.
        behind: The number of workloads on which the mean of the first is lower.
        clusters: The number of clusters whose other members ``on_others`` covers; 0 without clusters.
    """

    value: float
    workloads: int
    pairs: int
    ahead: int
    level: int
    behind: int
    on_these: Answer
    on_others: Answer
    clusters: int = 0

    def reversed(self) -> Difference:
        """Return the difference of the second strategy minus the first."""
        return replace(
            self,
            value=-self.value,
            ahead=self.behind,
            behind=self.ahead,
            on_these=-self.on_these,
            on_others=-self.on_others,
        )


def paired_difference(first: Sequence[Floats], second: Sequence[Floats], clusters: Sequence[str] = ()) -> Difference:
    """Return the mean difference of ``first`` minus ``second``. Higher numbers are better.

    For a claim about these workloads, only seeds vary: the interval and test are those of a stratified paired t test
    with Satterthwaite's degrees of freedom. For a claim about other workloads, they are those of a t test on the
    workload means, whose variance includes the variances between workloads and between seeds. This is a mixed model
    with random workloads and equal numbers of seeds. In simulations (``studies/benchmarks/coverage.py``), its intervals
    cover new workloads in 94 to 96 % of cases; those of the hierarchical percentile bootstrap do so in 93 to 97 %.

    Workloads in the same cluster, such as a kernel on several devices, are not independent. If there are clusters, the
    claim is about other members of the same clusters, and is based on a stratified t test within clusters.

    Args:
        first: One array per workload, shape (seeds,), with NaN for missing runs, or an array of shape (workloads,
            seeds).
        second: The numbers of the other strategy for the same seeds. Only seeds that both strategies have count.
        clusters: The cluster of each workload; empty for an independent workload. By default, all are independent.
    """
    differences = [
        np.round(np.asarray(minuend, dtype=np.float64) - subtrahend, DECIMALS)
        for minuend, subtrahend in zip(first, second, strict=True)
    ]
    paired = [sample[~np.isnan(sample)] for sample in differences]
    clusters = clusters or [""] * len(paired)
    owners = [clusters[number] or str(number) for number, sample in enumerate(paired) if len(sample)]
    paired = [sample for sample in paired if len(sample)]
    has_clusters = len(set(owners)) < len(owners)
    means = np.array([sample.mean() for sample in paired])
    value = float(means.mean()) if len(means) else math.nan
    return Difference(
        value=value,
        workloads=len(paired),
        pairs=min(map(len, paired), default=0),
        ahead=int((means > 0).sum()),
        level=int((means == 0).sum()),
        behind=int((means < 0).sum()),
        on_these=_answer_for_these_workloads(value, paired),
        on_others=_answer_for_other_members(value, means, owners)
        if has_clusters
        else _answer_for_other_workloads(value, means),
        clusters=len(set(owners)) if has_clusters else 0,
    )


def _answer_for_these_workloads(value: float, paired: Sequence[Floats]) -> Answer:
    if not paired:
        return Answer.without_test(value, "The strategies have no seed in common on any workload.")
    counts = np.array([len(differences) for differences in paired])
    if counts.min() < 2:
        return Answer.without_test(value, "A claim about these workloads needs 2 seeds in common on each workload.")
    variances = np.array([differences.var(ddof=1) for differences in paired]) / counts
    if not variances.any():
        return Answer.without_test(
            value, "All seeds give the same difference, so they do not show how differences vary."
        )
    return _t_answer(value, float(variances.sum()) / len(paired) ** 2, satterthwaite(variances, counts - 1))


def _answer_for_other_workloads(value: float, means: Floats) -> Answer:
    if len(means) < MIN_WORKLOADS:
        requirement = f"A claim about other workloads needs {MIN_WORKLOADS} workloads that both strategies ran on"
        return Answer.without_test(value, f"{requirement}; there {format_count_phrase(len(means))}.")
    if (means == means[0]).all():
        return Answer.without_test(
            value, "All workloads give the same difference, so they do not show how differences vary."
        )
    return _t_answer(value, float(means.var(ddof=1)) / len(means), len(means) - 1)


def _answer_for_other_members(value: float, means: Floats, owners: Sequence[str]) -> Answer:
    if len(means) < MIN_WORKLOADS:
        return _answer_for_other_workloads(value, means)
    clusters = np.array(owners)
    members = [means[clusters == owner] for owner in dict.fromkeys(owners)]
    if singles := sum(len(values) < 2 for values in members):
        return Answer.without_test(
            value,
            f"A claim about other devices needs runs of each kernel on at least 2 devices; {singles} ran on only one.",
        )
    counts = np.array([len(values) for values in members])
    variances = np.array([values.var(ddof=1) for values in members])
    if not variances.any():
        return Answer.without_test(
            value, "All devices give the same difference, so they do not show how differences vary."
        )
    # The estimate is sum_k n_k m_k / N, where m_k is the mean of the n_k members of cluster k.
    parts = counts * variances
    return _t_answer(value, float(parts.sum()) / len(means) ** 2, satterthwaite(parts, counts - 1))


def _t_answer(value: float, variance: float, df: float) -> Answer:
    p = 2 * float(stdtr(df, -abs(value) / math.sqrt(variance)))
    return Answer(t_interval(value, variance, df), p)
