"""Numbers over the runs of many workloads, and intervals for them: pure functions over arrays.

A *sample* is a list of one array per workload, each with a number for every run; higher is better. The arrays may have
a leading shape in common, so that thousands of resamples are aggregated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.stats import rankdata

from .curves import Floats

Sample = Sequence[Floats]

REPLICATES = 2000
LEVEL = 0.95


def interquartile_mean(sample: Sample) -> Floats:
    """Mean of the middle half of all runs of all workloads, a quarter of the runs (rounded down) cut off at each end.

    More robust than the mean and less wasteful than the median (Agarwal, Schwarzer, Castro, Courville and Bellemare,
    "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS 2021).
    """
    runs = np.sort(np.concatenate(sample, axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    middle: Floats = runs[..., cut : runs.shape[-1] - cut].mean(axis=-1)
    return middle


def mean_of_means(sample: Sample) -> Floats:
    """Mean over workloads of the mean over runs: a workload counts the same however many runs it has."""
    mean: Floats = np.mean([runs.mean(axis=-1) for runs in sample], axis=0)
    return mean


def median(sample: Sample) -> Floats:
    """Median of all runs of all workloads; infinity where it falls on one or between."""
    runs = np.sort(np.concatenate(sample, axis=-1), axis=-1)
    number = runs.shape[-1]
    middle: Floats = (runs[..., (number - 1) // 2] + runs[..., number // 2]) / 2
    return middle


def improvement(first: Sample, second: Sample) -> float:
    """Probability that a run of ``first`` is better than one of ``second``, a tie counted half, mean over workloads.

    On one workload it is U / (m n) of Mann and Whitney, in whatever way the runs are ordered (Agarwal et al., 2021).
    """
    chances = []
    for ours, theirs in zip(first, second, strict=True):
        ranks = rankdata(np.concatenate((ours, theirs)))
        above = ranks[: len(ours)].sum() - len(ours) * (len(ours) + 1) / 2
        chances.append(above / (len(ours) * len(theirs)))
    return float(np.mean(chances))


def improvement_interval(
    first: Sample, second: Sample, *, replicates: int = REPLICATES, level: float = LEVEL, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of :func:`improvement`, as :func:`bootstrap` gives them, in [0, 1].

    The runs of both are resampled, the runs of each workload and strategy apart (as rliable does). Runs with the same
    seed share their first trials and are more alike than that; for them the interval is a little too wide.
    """
    values = np.zeros(replicates)
    shapes = tuple((len(ours), len(theirs)) for ours, theirs in zip(first, second, strict=True))
    draws = _draws(shapes, replicates, seed)
    for ours, theirs, (drawn, against) in zip(first, second, draws, strict=True):
        one, other = np.sort(ours)[:, np.newaxis], np.sort(theirs)
        wins = (one > other) + (one == other) / 2
        values += np.einsum("ij,ij->i", drawn @ wins, against) / wins.size
    return _percentiles(values / len(first), level)


def paired_improvement(first: Sample, second: Sample) -> float:
    """The part of the pairs in which ``first`` is better than ``second``, a tie counted half, mean over workloads.

    The runs of each workload are paired in order.
    """
    return float(mean_of_means([_outcomes(ours, theirs) for ours, theirs in zip(first, second, strict=True)]))


def paired_improvement_interval(first: Sample, second: Sample) -> tuple[float, float]:
    """Percentile interval of :func:`paired_improvement`: pairs are resampled, those of each workload apart."""
    outcomes = [_outcomes(ours, theirs) for ours, theirs in zip(first, second, strict=True)]
    return bootstrap(outcomes, mean_of_means)


def _outcomes(ours: Floats, theirs: Floats) -> Floats:
    """Of each pair: 1 where ``ours`` is better, 0 where ``theirs`` is, 0.5 for a tie."""
    outcomes: Floats = (ours > theirs) + (ours == theirs) / 2
    return outcomes


@lru_cache(maxsize=4)  # a report asks for the intervals of thousands of pairs with the same numbers of runs
def _draws(shapes: tuple[tuple[int, int], ...], replicates: int, seed: int) -> list[tuple[Floats, Floats]]:
    """How often each run is drawn into each resample, of both strategies of each workload: shape (replicates, runs).

    With these counts, instead of which runs are drawn, the wins of a resample are sums of products.
    """
    random = np.random.default_rng(seed)
    return [
        (
            random.multinomial(m, np.full(m, 1 / m), replicates).astype(np.float64),
            random.multinomial(n, np.full(n, 1 / n), replicates).astype(np.float64),
        )
        for m, n in shapes
    ]


def bootstrap(
    sample: Sample,
    statistic: Callable[[Sample], Floats],
    *,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of ``statistic``, runs resampled with replacement within each workload (stratified).

    The interval depends on the numbers and on ``seed`` alone: the order of runs within a workload changes nothing. With
    fewer than about ten runs it is too narrow, as few numbers spread less than many (Efron
    and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13; stratified as in Agarwal et al., 2021).
    Its ends are statistics of resamples, never numbers between two of them, so that they may be infinite.
    """
    random = np.random.default_rng(seed)
    resampled = []
    for runs in sample:
        picked = random.integers(len(runs), size=(replicates, len(runs)))
        resampled.append(np.sort(runs)[picked])
    return _percentiles(statistic(resampled), level)


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    """The ends of the middle ``level`` of ``values``. Both are values, so that they may be infinite."""
    values = np.sort(values)
    tail = (1 - level) / 2 * (len(values) - 1)
    return float(values[int(np.floor(tail))]), float(values[int(np.ceil(len(values) - 1 - tail))])


def run_score_profile(sample: Sample, at: Floats) -> Floats:
    """Part of all runs of all workloads that score above each of ``at``: the shape of ``at``.

    The run-score distribution of Agarwal et al., 2021 (rliable's default performance profile).
    """
    runs = np.sort(np.concatenate(sample))
    return 1 - np.searchsorted(runs, at, side="right") / len(runs)


def performance_profile(times: Floats, at: Floats) -> Floats:
    """Part of the problems that each strategy solves within each factor of the quickest: shape (strategies, at).

    times: trials or seconds taken, infinity where unsolved, shape (problems, strategies). at: factors, from 1 (Dolan
    and More, "Benchmarking optimization software with performance profiles", Mathematical Programming 91, 2002). A
    problem that no strategy solves counts, for no strategy. Where a problem is solved in no time at all, the strategies
    that took no time are the quickest.
    """
    quickest = times.min(axis=1, keepdims=True)
    unsolved = np.where(np.isfinite(times) & (times == quickest), 1.0, np.inf)  # 0 / 0 counts as 1
    ratios = np.divide(times, quickest, out=unsolved, where=np.isfinite(times) & (quickest > 0))
    return np.array([np.searchsorted(np.sort(column), at, side="right") / len(times) for column in ratios.T])
