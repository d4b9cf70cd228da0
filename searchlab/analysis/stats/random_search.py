"""Random search, exactly, and the score of a strategy against it: pure functions over arrays of latencies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from .curves import Floats


def expected_best(costs: Floats, trials: int, failed: float | None = None) -> Floats:
    """Expected lowest cost after 1, 2, ... ``trials`` random draws without replacement: shape (trials,).

    costs: of every config of a space, shape (N,); or of N of its configs drawn at random, for which this is the
    unbiased estimate (a U-statistic) of the same expectation over the whole space. After N draws it stays at the
    lowest cost: a space is exhausted then, while of a sample no more can be said.

    With the costs in ascending order, E[min of t] = sum_i x_(i) C(N - i, t - 1) / C(N, t). Summed by parts that is
    x_(1) + sum_i (x_(i+1) - x_(i)) P(the i lowest are all missed), in which the probability
    C(N - i, t) / C(N, t) = prod_{j < i} (N - t - j) / (N - j) is a product of numbers in [0, 1]: nothing cancels
    and nothing overflows, whatever N. Takes O(N) for each trial.

    A run that has found nothing that works yet has no latency, so its place must be a convention: a draw that
    failed (infinity) costs ``failed``, by default the highest finite cost of all. This keeps the curve defined from
    the first trial on and never rising, and lets a failed trial count as the trial that it was. (Willemsen et al.,
    cited at :func:`score_curve`, leave failed configs out of the distribution instead, so that their random search
    never meets one.) All infinite where every cost is.
    """
    finite = np.isfinite(costs)
    if not finite.any():
        return np.full(trials, math.inf)
    worst = float(costs[finite].max()) if failed is None else failed
    values = np.sort(np.where(finite, costs, worst))
    number, gaps = len(values), np.diff(values)
    left = number - np.arange(number - 1)  # N - j for j = 0 ... N - 2
    curve = np.full(trials, values[0])
    for t in range(1, min(trials, number - 1) + 1):
        reach = number - t  # from there on at least one of the lowest has been drawn
        curve[t - 1] += gaps[:reach] @ np.cumprod((left[:reach] - t) / left[:reach])
    return curve


def expected_draws(configs: int, good: int) -> float:
    """Expected number of random draws without replacement until the first of ``good`` among ``configs`` configs.

    (N + 1) / (K + 1): the good ones part the N - K others into K + 1 stretches of equal expected length.
    """
    return (configs + 1) / (good + 1)


def draws_for(configs: int, good: int, probability: float = 0.95) -> int:
    """The least number of such draws that meets one of ``good`` configs with at least this ``probability``.

    All t draws miss with probability C(N - K, t) / C(N, t) = prod_{j < t} (N - K - j) / (N - j).
    """
    missed, draws = 1.0, 0
    while missed > 1 - probability:
        missed *= max(configs - good - draws, 0) / (configs - draws)
        draws += 1
    return draws


def cutoff(costs: Floats, baseline: Floats, best: float, part: float = 0.95) -> int:
    """How many trials a score is taken over: until random search has gone ``part`` of the way from the median
    cost that works to ``best``, or else to the end of ``baseline``.

    baseline: :func:`expected_best` of ``costs``. Beyond this point a score divides by the little that random search
    has left to gain (Willemsen et al., cited below, whose cutoff is the same, at the expected rank).
    """
    working = costs[np.isfinite(costs)]
    if len(working) == 0:
        return len(baseline)
    there = baseline <= best + (1 - part) * (float(np.median(working)) - best)
    return int(np.argmax(there)) + 1 if there.any() else len(baseline)


def score_curve(so_far: Floats, baseline: Floats, best: float) -> Floats:
    """P_t = (R_t - S_t) / (R_t - best) of every trial: 0 as good as random search, 1 at the best from the start on.

    so_far: S_t, lowest latency of a run up to trial t, shape (..., trials). baseline: R_t, shape (trials,). NaN where
    random search itself stands at ``best``, as there is nothing to gain on it. The score is linear in S_t, so a mean
    over runs of scores is the score of the mean run.

    Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", Future Generation
    Computer Systems 159, 2024 (doi 10.1016/j.future.2024.05.021), and its package autotuning_methodology. There R_t is
    the cost at the expected rank of the best of t draws, rounded; here it is the expected cost itself.
    """
    to_gain = np.where(baseline > best, baseline - best, np.nan)
    scores: Floats = (baseline - so_far) / to_gain
    return scores


def score(so_far: Floats, baseline: Floats, best: float) -> Floats:
    """Mean of :func:`score_curve` over the trials at which there is something to gain: shape (...) without the last.

    NaN where there is none.
    """
    return _mean_score(score_curve(so_far, baseline, best), baseline, best)


def _mean_score(curves: Floats, baseline: Floats, best: float) -> Floats:
    worth = baseline > best
    if not worth.any():
        return np.full(curves.shape[:-1], np.nan)
    mean: Floats = curves[..., worth].mean(axis=-1)
    return mean


@dataclass(frozen=True)
class RandomSearch:
    """What random search in one space is worth; runs in that space are scored against it.

    baseline: R_t in seconds, up to the cutoff, shape (trials,). best: the lowest seconds known in the space. slowest:
    the seconds that count for a run that has found nothing yet.
    """

    baseline: Floats
    best: float
    slowest: float

    @classmethod
    def of(cls, sample: Floats, trials: int, best: float, slowest: float) -> Self:
        """sample: costs of configs drawn at random without replacement, or of all, shape (N,); a failure is infinite.

        trials: the most that a score is taken over. A sample says nothing of more trials than it has configs, so that
        scores end there at the latest.
        """
        baseline = expected_best(sample, min(trials, len(sample)), slowest)
        return cls(baseline[: cutoff(sample, baseline, best)], best, slowest)

    def score_curves(self, so_far: Floats) -> Floats:
        """:func:`score_curve` of runs up to the cutoff. so_far: lowest seconds so far, shape (runs, trials)."""
        return score_curve(np.minimum(so_far, self.slowest)[:, : len(self.baseline)], self.baseline, self.best)

    def mean_scores(self, curves: Floats) -> Floats | None:
        """The score of every run, shape (runs,), from its :meth:`score_curves`; None where there is nothing to gain."""
        scores = _mean_score(curves, self.baseline, self.best)
        return scores if np.isfinite(scores).all() else None

    def scores(self, so_far: Floats) -> Floats | None:
        """The score of every run, shape (runs,). so_far: as :meth:`score_curves` takes it."""
        return self.mean_scores(self.score_curves(so_far))
