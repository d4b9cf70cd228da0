"""Estimates from few runs, with intervals whose coverage has been verified, as functions of arrays.

Each function uses a method whose intervals covered the true value in 93 to 97 % of simulations over the suite's tables
(``studies/benchmarks/coverage.py`` prints the coverage of all methods). If there is no such method, there is no
interval, and a note states what would be needed. All intervals are 95 % intervals in closed form, without resampling.

A *sample* is a list of arrays, one per workload, with a number for each run. Higher numbers are better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincc, stdtrit

from ..arrays import Floats

Sample = Sequence[Floats]

LEVEL = 0.95

DECIMALS = 12
"""The decimal places to which areas are compared, because equal areas may differ in their last bits."""

_TAIL = (1 - LEVEL) / 2


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval.

    Attributes:
        lower: The lower end, or None without an interval.
        upper: The upper end, or None without an interval.
        note: Why there is no interval.
    """

    value: float
    lower: float | None = None
    upper: float | None = None
    note: str = ""

    def __neg__(self) -> Interval:
        if self.lower is None or self.upper is None:
            return Interval(-self.value, note=self.note)
        return Interval(-self.value, -self.upper, -self.lower)

    def text(self, sign: str = "") -> str:
        """Return the estimate with three decimal places, followed by the interval in brackets if there is one."""
        return f"{self.value:{sign}z.3f} {self.brackets(sign)}".rstrip()

    def brackets(self, sign: str = "") -> str:
        """Return the interval in brackets, or an empty string if there is none."""
        return "" if self.lower is None else f"[{self.lower:{sign}z.3f}, {self.upper:{sign}z.3f}]"

    def clip(self, lowest: float, highest: float) -> Interval:
        """Clip the ends to the range of the estimated quantity."""
        if self.lower is None or self.upper is None:
            return self
        return Interval(self.value, max(self.lower, lowest), min(self.upper, highest))


def t_interval(value: float, variance: float, df: float) -> Interval:
    """Return Student's t interval for ``value``, given its estimated ``variance`` with ``df`` degrees of freedom."""
    half = float(stdtrit(df, 1 - _TAIL)) * math.sqrt(variance)
    return Interval(value, value - half, value + half)


def satterthwaite(variances: Floats, df: Floats) -> float:
    """Return the degrees of freedom of a sum of independent variance estimates, not all of which may be 0.

    Source: Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2(6),
    1946, equation 17.
    """
    return float(variances.sum() ** 2 / (variances**2 / df).sum())


def mean_interval(values: Floats) -> Interval:
    """Return Student's t interval for the mean of ``values`` from independent runs. At least 2 of them must differ."""
    value = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval(value, note=f"An interval for a mean needs 2 runs; there {format_count_phrase(len(values))}.")
    if not np.round(np.ptp(values), DECIMALS):
        return Interval(value, note=f"All {len(values)} runs give the same number, so they do not show how runs vary.")
    return t_interval(value, float(np.var(values, ddof=1)) / len(values), len(values) - 1)


def mean_of_means_interval(sample: Sample) -> Interval:
    """Return the mean over workloads of the mean over runs, with its interval for these workloads.

    It is a stratified t interval: workloads are fixed, and only runs vary. Each workload needs at least 2 runs.
    """
    value = float(np.mean([runs.mean() for runs in sample]))
    counts = np.array([len(runs) for runs in sample])
    if counts.min() < 2:
        runs = "2 runs" if len(sample) == 1 else "2 runs on each workload"
        return Interval(value, note=f"An interval for a mean needs {runs}.")
    # The mean of equal numbers may differ from them in its last bit, although their variance is 0.
    rounded_sample = [np.round(runs, DECIMALS) for runs in sample]
    variances = np.array([np.var(runs, ddof=1) if np.ptp(runs) else 0.0 for runs in rounded_sample]) / counts
    if not variances.any():
        return Interval(value, note="All runs of a workload give the same number, so they do not show how runs vary.")
    return t_interval(value, float(variances.sum()) / len(sample) ** 2, satterthwaite(variances, counts - 1))


def median_interval(values: Floats) -> Interval:
    """Return the median of independent runs, with its interval. Censored runs are infinite.

    The ends are the order statistics x_(k) and x_(n + 1 - k), or are interpolated between these and their neighbours so
    that the interval covers 95 % (Hettmansperger and Sheather, "Confidence intervals based on interpolated order
    statistics", Statistics and Probability Letters 4(2), 1986). There is no interpolation with infinite values. The
    coverage for five runs is 93.75 %; with fewer runs, there is no interval.
    """
    number, value = len(values), float(np.median(values))
    if number < 5:
        return Interval(value, note=f"An interval for a median needs 5 runs; there {format_count_phrase(number)}.")
    sorted_values = np.sort(values)
    positions = np.arange(1, number // 2 + 1)
    coverage = 1 - 2 * betaincc(positions, number + 1 - positions, 0.5)  # binomial, of x_(k) to x_(n + 1 - k)
    k = max(1, int((coverage >= LEVEL).sum()))
    inner = 1 - 2 * float(betaincc(k + 1, number - k, 0.5))
    surplus = max(0.0, float((coverage[k - 1] - LEVEL) / (coverage[k - 1] - inner)))
    weight = (number - k) * surplus / (k + (number - 2 * k) * surplus)

    def interpolate(end: float, neighbour: float) -> float:
        return end + weight * (neighbour - end) if math.isfinite(end) and math.isfinite(neighbour) else end

    lower, lower_neighbour, upper_neighbour, upper = map(float, sorted_values[[k - 1, k, number - k - 1, number - k]])
    return Interval(value, interpolate(lower, lower_neighbour), interpolate(upper, upper_neighbour))


def probability_of_improvement(first: Floats, second: Floats) -> float:
    """Return the probability that a run of ``first`` beats one of ``second`` on a workload. Ties count half.

    It equals U / (m n), where U is the Mann-Whitney statistic (Agarwal et al., "Deep reinforcement learning at the edge
    of the statistical precipice", NeurIPS 2021).
    """
    opponents = np.sort(second)
    wins = np.searchsorted(opponents, first, "left").sum()
    wins_and_ties = np.searchsorted(opponents, first, "right").sum()
    return float((wins + wins_and_ties) / 2 / (len(first) * len(second)))


def format_count_phrase(number: int) -> str:
    """Return how many there are: "is 1" or "are 2"."""
    return "is 1" if number == 1 else f"are {number}"
