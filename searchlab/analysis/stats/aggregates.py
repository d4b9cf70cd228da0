"""Numbers over the runs of many workloads: pure functions over arrays.

A *sample* is a list of one array per workload, each with a number for every run; higher is better. The arrays may have
a leading shape in common, so that thousands of samples are aggregated at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Floats

Sample = Sequence[Floats]


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
        ordered = np.sort(theirs)
        below, level_too = (np.searchsorted(ordered, ours, side).sum() for side in ("left", "right"))
        chances.append((below + level_too) / 2 / (len(ours) * len(theirs)))
    return float(np.mean(chances))


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
