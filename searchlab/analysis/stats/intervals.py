"""Intervals that cover what they say from few runs: pure functions over arrays.

Each function takes the method that covered 93 to 97 % in simulation over the tables of the suite, where there is one
(``studies/benchmarks/coverage.py`` prints the coverage of all). Where no method does, there is no interval, and a
sentence says what it would take. All intervals are of 95 %, in closed form: no random numbers, no resamples.

A *sample* is a list of one array per workload, each with a number for every run (see :mod:`.aggregates`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincc, ndtri, stdtrit

from ...arrays import Floats
from .aggregates import Sample, improvement, interquartile_mean, mean_of_means, median

LEVEL = 0.95
DECIMALS = 12
"""Areas are compared after rounding to so many decimals: some that are equal differ in their last bits."""
_TAIL = (1 - LEVEL) / 2
_TWO_SIDED_NORMAL = float(ndtri(1 - _TAIL))


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval. lower, upper: None where there is no interval, and ``note`` says why."""

    value: float
    lower: float | None
    upper: float | None
    note: str = ""

    @classmethod
    def none(cls, value: float, note: str) -> Interval:
        return cls(value, None, None, note)

    def __neg__(self) -> Interval:
        lower, upper = (None if end is None else -end for end in (self.upper, self.lower))
        return Interval(-self.value, lower, upper, self.note)

    def within(self, lowest: float, highest: float) -> Interval:
        """The same, its ends kept to where the quantity can be."""
        if self.lower is None or self.upper is None:
            return self
        return Interval(self.value, max(self.lower, lowest), min(self.upper, highest))


def mean_interval(values: Floats) -> Interval:
    """Student's t interval of the mean of independent runs, such as areas or scores: shape (runs,).

    It takes 2 runs that differ (Student, "The probable error of a mean", Biometrika 6(1), 1908).
    """
    value = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval.none(value, f"An interval of a mean takes 2 runs; there {_are(len(values))}.")
    if not np.round(np.ptp(values), DECIMALS):
        return Interval.none(value, f"All {len(values)} runs give the same number: they do not show how it varies.")
    return t_interval(value, float(np.var(values, ddof=1)) / len(values), len(values) - 1)


def mean_intervals(values: Floats) -> Floats:
    """:func:`mean_interval` of each column of ``values``, shape (runs, n): means, lower and upper ends, shape (3, n).

    Ends are NaN where there is no interval.
    """
    runs = len(values)
    rows = np.ascontiguousarray(values.T)  # so that sums are those of single columns, to the last bit
    means = rows.mean(axis=1)
    if runs < 2:
        return np.stack((means, np.full(len(means), np.nan), np.full(len(means), np.nan)))
    half = float(stdtrit(runs - 1, 1 - _TAIL)) * np.sqrt(rows.var(axis=1, ddof=1) / runs)
    half[np.round(np.ptp(rows, axis=1), DECIMALS) == 0] = np.nan
    return np.stack((means, means - half, means + half))


def mean_of_means_interval(sample: Sample) -> Interval:
    """Interval of :func:`~.aggregates.mean_of_means` for these workloads, of each 2 runs or more.

    A stratified t: the workloads stay, and the runs of each vary as they do there. For one workload it is that of
    :func:`mean_interval`.
    """
    value = float(mean_of_means(sample))
    counts = np.array([len(runs) for runs in sample])
    if counts.min() < 2:
        runs = "2 runs" if len(sample) == 1 else "2 runs on each workload"
        return Interval.none(value, f"An interval of a mean takes {runs}.")
    # The mean of equal numbers may differ from them in its last bit: their variance is 0 all the same.
    rounded = [np.round(runs, DECIMALS) for runs in sample]
    variances = np.array([np.var(runs, ddof=1) if np.ptp(runs) else 0.0 for runs in rounded]) / counts
    if not variances.any():
        return Interval.none(value, "All runs of a workload give the same number: they do not show how it varies.")
    return t_interval(value, float(variances.sum()) / len(sample) ** 2, satterthwaite(variances, counts - 1))


def t_interval(value: float, variance: float, df: float) -> Interval:
    """Student's t interval. variance: estimated, of ``value``. df: the degrees of freedom of that estimate."""
    half = float(stdtrit(df, 1 - _TAIL)) * math.sqrt(variance)
    return Interval(value, value - half, value + half)


def satterthwaite(variances: Floats, df: Floats) -> float:
    """Degrees of freedom of a sum of independent estimated ``variances``, not all 0, that have ``df`` each.

    F. E. Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2(6),
    1946, equation 17.
    """
    return float(variances.sum() ** 2 / (variances**2 / df).sum())


def interquartile_interval(sample: Sample) -> Interval:
    """Interval of :func:`~.aggregates.interquartile_mean` for these workloads, of each 2 runs or more.

    The variance of a trimmed mean is that of winsorised runs (Tukey and McLaughlin, "Less vulnerable confidence and
    significance procedures for location based on a single sample", Sankhya A 25(3), 1963); here within each workload,
    as its runs vary and the workloads stay. The degrees of freedom are Satterthwaite's times the part of the runs that
    is not cut off, and at least those of the workload with the fewest runs.
    """
    value = float(interquartile_mean(sample))
    counts = np.array([len(runs) for runs in sample])
    if counts.min() < 2:
        return Interval.none(value, "An interval of an interquartile mean takes 2 runs on each workload.")
    pooled = np.sort(np.concatenate(sample))
    number, cut = len(pooled), len(pooled) // 4
    kept = number - 2 * cut
    lowest, highest = pooled[cut], pooled[number - cut - 1]
    squares = np.array([np.var(np.clip(runs, lowest, highest), ddof=1) for runs in sample]) * counts
    if not squares.any():
        return Interval.none(value, "The middle half of the runs all give the same number: it does not show its noise.")
    variance = squares.sum() * (number - 1) / number / (kept * (kept - 1))
    df = max(kept / number * satterthwaite(squares, counts - 1), counts.min() - 1)
    return t_interval(value, float(variance), df)


def median_interval(values: Floats) -> Interval:
    """Interval of the median of independent runs, infinite where they are censored: shape (runs,), at least 1.

    Its ends are order statistics, x_(k) and x_(n + 1 - k), or lie between two neighbouring ones such that it covers
    95 % (Hettmansperger and Sheather, "Confidence intervals based on interpolated order statistics", Statistics and
    Probability Letters 4(2), 1986). An end whose neighbour is infinite is not interpolated. Five runs give 93.75 %, no
    fewer give anything.
    """
    number, value = len(values), float(median([values]))
    if number < 5:
        return Interval.none(value, f"An interval of a median takes 5 runs; there {_are(number)}.")
    ordered = np.sort(values)
    places = np.arange(1, number // 2 + 1)
    coverage = 1 - 2 * betaincc(places, number + 1 - places, 0.5)  # of x_(k) to x_(n + 1 - k): binomial
    k = max(1, int((coverage >= LEVEL).sum()))
    lower, upper = float(ordered[k - 1]), float(ordered[number - k])
    inner = 1 - 2 * float(betaincc(k + 1, number - k, 0.5))
    surplus = max(0.0, float((coverage[k - 1] - LEVEL) / (coverage[k - 1] - inner)))
    weight = (number - k) * surplus / (k + (number - 2 * k) * surplus)
    return Interval(value, _between(lower, ordered[k], weight), _between(upper, ordered[number - k - 1], weight))


def _between(end: float, inside: float, weight: float) -> float:
    return end + weight * (float(inside) - end) if math.isfinite(end) and math.isfinite(inside) else end


def share_interval(count: float, number: int) -> Interval:
    """Interval of a share of which ``count`` of ``number`` runs were seen, at least 1 run.

    Where ties count half, the ends are those of the next whole counts: the interval then covers more than it says.

    The mid-p interval: exact binomial, the outcome that was seen counted half. No share is covered in less than 92.7 %
    of cases; Clopper and Pearson's interval covers 97.6 % at 5 runs, at the least (Berry and Armitage, "Mid-P
    confidence intervals: a brief review", The Statistician 44(4), 1995).
    """
    if not 0 <= count <= number or number < 1:
        raise ValueError(f"{count} of {number} is no share")

    return Interval(count / number, *_share_ends(math.floor(count), math.ceil(count), number))


@lru_cache(maxsize=4096)  # the pairs of a report have few different shares
def _share_ends(least: int, most: int, number: int) -> tuple[float, float]:
    """The ends of :func:`share_interval`, of ``least`` and of ``most`` runs."""

    def above(share: float) -> float:
        return (_at_least(least, number, share) + _at_least(least + 1, number, share)) / 2 - _TAIL

    def below(share: float) -> float:
        return (_at_most(most - 1, number, share) + _at_most(most, number, share)) / 2 - _TAIL

    from scipy.optimize import brentq  # here, since readers of logs do not need it

    lower = brentq(above, 0, 1) if least else 0.0
    upper = brentq(below, 0, 1) if most < number else 1.0
    return float(lower), float(upper)


def _at_least(count: int, number: int, share: float) -> float:
    """Binomial probability of ``count`` or more, from 1 on, of ``number``."""
    return float(betainc(count, number - count + 1, share)) if count <= number else 0.0


def _at_most(count: int, number: int, share: float) -> float:
    """Binomial probability of at most ``count`` of ``number``, which are more."""
    return float(betaincc(count + 1, number - count, share)) if count >= 0 else 0.0


def improvement_interval(first: Sample, second: Sample) -> Interval:
    """Interval of :func:`~.aggregates.improvement` for these workloads, each with runs of both.

    The chances t that lie within 1.96 of their own standard deviations of the one that was seen, so that the interval
    neither leaves [0, 1] nor collapses where one strategy won always. On a workload with m and n runs the variance is

        t (1 - t) / (m n) (1 + (N - 1) ((1 - t) / (2 - t) + t / (1 + t))),   N = (m + n) / 2

    (Newcombe, "Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2", Statistics
    in Medicine 25(4), 2006, method 5). It is concave in t, so one t for all workloads makes the interval too wide
    rather than too narrow, and so do first trials in common. Where equal strategies would be as far apart as can be in
    more than 5 % of cases there is no interval.
    """
    value = improvement(first, second)
    sizes = [(len(ours), len(theirs)) for ours, theirs in zip(first, second, strict=True)]
    if 2 * math.prod(1 / math.comb(m + n, m) for m, n in sizes) > 1 - LEVEL:
        runs = min(min(pair) for pair in sizes)
        return Interval.none(value, f"{runs} run{'s' * (runs != 1)} of each strategy: too few for an interval.")
    return Interval(value, *_chances(value, tuple(sizes)))


@lru_cache(maxsize=4096)  # the pairs of a report have few different chances
def _chances(value: float, sizes: tuple[tuple[int, int], ...]) -> tuple[float, float]:
    """The ends of :func:`improvement_interval`. sizes: the runs of both strategies, by workload."""
    one = sum(1 / (m * n) for m, n in sizes) / len(sizes) ** 2
    more = sum(((m + n) / 2 - 1) / (m * n) for m, n in sizes) / len(sizes) ** 2

    def beyond(t: float) -> float:
        variance = t * (1 - t) * (one + more * ((1 - t) / (2 - t) + t / (1 + t)))
        return (t - value) ** 2 - _TWO_SIDED_NORMAL**2 * variance

    from scipy.optimize import brentq

    inside = min(max(value, 1e-9), 1 - 1e-9)  # at 0 and 1 the variance is 0
    lower = brentq(beyond, 0, inside) if value > 0 else 0.0
    upper = brentq(beyond, inside, 1) if value < 1 else 1.0
    return float(lower), float(upper)


def _are(number: int) -> str:
    return "is 1" if number == 1 else f"are {number}"
