"""The exact performance of random search, and scores relative to it, as functions of arrays of latencies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Self

import msgspec
import numpy as np

from ..arrays import Floats

CUTOFF_FRACTION = 0.96
"""The fraction of the way from the median to the optimum at which random search ends a score."""

EXACT_GAIN = 1e-9
"""The least gain that counts. It excludes only the rounding error of the sums, which remains in an exhausted space."""

LogSeconds = Annotated[float, msgspec.Meta(gt=-36, lt=36)]
"""The natural logarithm of a duration in seconds."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


def expected_best(
    costs: Floats, trial_count: int, failed: float | None = None, weights: Floats | None = None
) -> Floats:
    """Return the expected lowest cost after 1, 2, ... ``trial_count`` draws without replacement: shape (trial_count,).

    With the costs in ascending order, E[min of t] = sum_i x_(i) C(N - i, t - 1) / C(N, t). Summation by parts yields
    x_(1) + sum_i (x_(i+1) - x_(i)) P(the i lowest are all missed). This probability is
    C(N - i, t) / C(N, t) = prod_{j < i} (N - t - j) / (N - j), a product of numbers in [0, 1], so nothing cancels or
    overflows for any N. Each trial takes O(N) time. After N draws, the curve stays at the lowest cost.

    A failed draw has the cost ``failed``, so the curve is defined from the first trial on and never rises. (Willemsen
    et al., cited at :func:`score_curve`, exclude failed configs from random search.) If all costs are infinite, so is
    the curve.

    Args:
        costs: The cost of every config in a space, or of N configs drawn at random; shape (N,), infinite for failures.
            For a random sample, the result is an unbiased estimate (a U-statistic) of the expectation over the space.
        trial_count: The length of the curve.
        failed: The cost of a failure, by default the highest finite cost.
        weights: The relative frequency with which each config is drawn, by default equal; see
            :func:`expected_best_by_weight`.
    """
    finite = np.isfinite(costs)
    if not finite.any():
        return np.full(trial_count, math.inf)
    worst = float(costs[finite].max()) if failed is None else failed
    filled_costs = np.where(finite, costs, worst)
    order = np.argsort(filled_costs, kind="stable")
    values = filled_costs[order]
    if weights is not None and (weights != weights[0]).any():
        return expected_best_by_weight(values, weights[order], trial_count)
    number, gaps = len(values), np.diff(values)
    remaining = number - np.arange(number - 1)  # N - j for j = 0 ... N - 2
    curve = np.full(trial_count, values[0])
    for t in range(1, min(trial_count, number - 1) + 1):
        count = number - t  # t draws can miss at most this many configs
        curve[t - 1] += gaps[:count] @ np.cumprod((remaining[:count] - t) / remaining[:count])
    return curve


def expected_best_by_weight(values: Floats, weights: Floats, trial_count: int) -> Floats:
    """Return :func:`expected_best` if the probability of drawing a remaining config is proportional to its weight.

    This is successive sampling, as performed by a policy that draws until it finds a new config. As in
    :func:`expected_best`, the expectation is the lowest value plus, for each step to the next value, the height of the
    step times the probability that all configs below it were missed. To compute this probability, let each config
    arrive after an exponential time whose rate is its weight (Rosen, "Asymptotic theory for successive sampling with
    varying probabilities without replacement", Annals of Mathematical Statistics 43(2), 1972). If W is the total weight
    of the configs below the step, the t-th of the other configs arrives before all of them with the probability

        integral over s > 0 of W exp(-W s) P(at least t of the others have arrived by s) ds.

    The number of arrivals has a Poisson-binomial distribution, which is built up from the last config to the first. The
    integral is computed by Gauss-Legendre quadrature in sqrt(s), a scale on which the t-th arrival has a standard
    deviation of about 1/2 for any t. The error is about 1e-9. Each of roughly one hundred nodes takes O(N trials) time.
    ``values`` must ascend, and ``weights`` must be positive. Both have shape (N,).
    """
    rates = weights / weights.sum()
    s, ds = _make_quadrature_nodes(rates, trial_count)
    arrival_probabilities = np.zeros((trial_count, len(s)))  # P(exactly j of the others have arrived)
    arrival_probabilities[0] = 1.0
    expected = np.full(trial_count, values[0])
    below = np.cumsum(rates)
    for i in range(len(rates) - 1, 0, -1):
        next_arrivals = arrival_probabilities * (1 - np.exp(-rates[i] * s))
        arrival_probabilities -= next_arrivals
        arrival_probabilities[1:] += next_arrivals[:-1]
        if values[i] == values[i - 1]:
            continue
        survival = np.exp(-below[i - 1] * s)
        density = below[i - 1] * survival * ds
        density[-1] = survival[-1]  # the integral beyond the last node
        missed = density.sum() - np.cumsum(arrival_probabilities @ density)
        expected += (values[i] - values[i - 1]) * np.clip(missed, 0.0, 1.0)
    return expected


def _make_quadrature_nodes(rates: Floats, trial_count: int) -> tuple[Floats, Floats]:
    """Return times until ``trial_count`` configs or all have almost surely arrived, and weights (last: 0)."""
    end, limit = 1.0, 40 / rates.min()
    target = trial_count + 10 * np.sqrt(trial_count)
    while end < limit and (1 - np.exp(-rates * end)).sum() < target:
        end *= 1.2
    edges = [0.0]
    while edges[-1] ** 2 < end:
        edges.append(edges[-1] + max(1.0, edges[-1] / np.sqrt(trial_count)))
    lower, upper = np.array(edges[:-1])[:, np.newaxis], np.array(edges[1:])[:, np.newaxis]
    root = ((upper + lower) / 2 + (upper - lower) / 2 * _NODES).ravel()
    step = ((upper - lower) / 2 * _WEIGHTS).ravel()
    return np.append(root**2, edges[-1] ** 2), np.append(2 * root * step, 0.0)


def expected_draws(configs: int, good: int) -> float:
    """Return the expected number of random draws, without replacement, until one of the good configs is drawn.

    It is (N + 1) / (K + 1), because K good configs divide the N - K others into K + 1 groups of equal expected size.
    """
    return (configs + 1) / (good + 1)


def count_draws_needed(configs: int, good: int) -> int:
    """Return the smallest number of draws, without replacement, that find a good config with a probability of 95 %.

    The probability that t draws find none is C(N - K, t) / C(N, t) = prod_{j < t} (N - K - j) / (N - j).
    """
    missed, draws = 1.0, 0
    while missed > 1 - 0.95:
        missed *= max(configs - good - draws, 0) / (configs - draws)
        draws += 1
    return draws


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the weighted median, or the mean of two values if exactly half of the weight is below the second one."""
    order = np.argsort(values)
    below = np.cumsum(weights[order]) / weights.sum()
    index = int(np.searchsorted(below, 0.5 - 1e-12))
    upper = min(index + (below[index] <= 0.5 + 1e-12), len(order) - 1)
    return float((values[order[index]] + values[order[upper]]) / 2)


def find_cutoff(median: float, baseline: Floats, best: float, fraction: float = CUTOFF_FRACTION) -> int:
    """Return the number of trials that random search needs to cover a ``fraction`` of the way from median to best.

    If random search never gets that far, this is the length of ``baseline``, its :func:`expected_best`. Beyond this
    cutoff, a score would divide by the little that random search can still gain (Willemsen et al. use the same cutoff
    at the expected rank). ``median`` is the median cost of the random draws that work.
    """
    is_covered = baseline <= best + (1 - fraction) * (median - best)
    return int(np.argmax(is_covered)) + 1 if is_covered.any() else len(baseline)


def difficulty(costs: Floats) -> float:
    """Return the expected number of random draws to cover 95 % of the way from the median to the best.

    All configs are equally likely to be drawn. Distances are measured in seconds, as in Willemsen et al. (2024), whose
    budget ends at this point; see :func:`score_curve`.

    Args:
        costs: The seconds of every config in a space, infinite for failures, at least one of them finite: shape (N,).
    """
    best = costs.min()
    good = costs <= best + (1 - 0.95) * (np.median(costs[np.isfinite(costs)]) - best)
    return expected_draws(len(costs), int(good.sum()))


def parse_difficulty(text: str, costs: Floats) -> int:
    """Convert ``text``, such as "difficulty" or "0.5 difficulty", to a number of trials in a space with ``costs``.

    The result is at most the number of configs, and equals that number if no config works.
    """
    if not np.isfinite(costs).any():
        return len(costs)
    factor = float(text.removesuffix("difficulty") or 1)
    return max(1, min(math.ceil(factor * difficulty(costs)), len(costs)))


def score_curve(so_far: Floats, baseline: Floats, best: float) -> Floats:
    """Return the score P_t = (R_t - S_t) / (R_t - best) at each trial: 0 is level with random search, 1 is the best.

    The score is NaN where R_t equals ``best``, because nothing can be gained there. It is linear in S_t, so the mean
    score of several runs is the score of their mean.

    Source: Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", Future Generation
    Computer Systems 159, 2024 (doi 10.1016/j.future.2024.05.021), and its package autotuning_methodology. In that work,
    R_t is the cost at the rounded expected rank of the best of t draws; here, it is the expected cost itself.

    Args:
        so_far: S_t, the lowest latency of a run up to trial t, or its logarithm, shape (..., trials).
        baseline: R_t, shape (trials,).
        best: The lowest known latency, or its logarithm.
    """
    return np.asarray((baseline - so_far) / np.where(baseline > best, baseline - best, np.nan))


def mean_score(curves: Floats, baseline: Floats, best: float) -> Floats:
    """Return the mean of :func:`score_curve` over the trials where something can be gained, or NaN without any."""
    can_gain = baseline > best
    return np.asarray(curves[..., can_gain].mean(axis=-1)) if can_gain.any() else np.full(curves.shape[:-1], np.nan)


class RandomDraws(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The results of random draws from a space, without replacement, as natural logarithms of seconds.

    Attributes:
        expected: The expected lowest latency after 1, 2, ... draws.
        median: The median latency of the working configs, weighted by how often they are drawn.
        slowest: The latency of the slowest working config, which also counts for failed draws.
    """

    expected: tuple[LogSeconds, ...]
    median: LogSeconds
    slowest: LogSeconds

    @classmethod
    def from_costs(
        cls, costs: Floats, trial_count: int, weights: Floats | None = None, slowest: float | None = None
    ) -> Self:
        """Compute the results from the costs of all configs in a space, or of a random sample of them.

        Args:
            costs: The costs in seconds, infinite for failures, at least one of them finite: shape (N,).
            trial_count: The length of ``expected``, at most N.
            weights: See :func:`expected_best`.
            slowest: The seconds of the slowest config, if it is not among ``costs``.
        """
        logs = np.log(costs)
        works = np.isfinite(logs)
        weights = np.ones(len(costs)) if weights is None else weights
        worst = float(logs[works].max()) if slowest is None else math.log(slowest)
        expected = expected_best(logs, min(trial_count, len(logs)), worst, weights)
        return cls(tuple(expected.tolist()), weighted_median(logs[works], weights[works]), worst)


@dataclass(frozen=True)
class RandomSearch:
    """Random search in one space, against which runs in that space are scored in log latency.

    Latency itself has a heavy tail, so the score of a run with many failures could become arbitrarily low.

    Attributes:
        baseline: R_t, the expected log of the lowest latency, up to the last trial of a score: shape (last,).
        first: The first trial of a score, counted from 1.
        best: The log of the lowest latency known in the space.
        slowest: The log latency that counts for a run that has not found a working program.
    """

    baseline: Floats
    first: int
    best: float
    slowest: float

    @classmethod
    def from_draws(
        cls, draws: RandomDraws, best: float, trial_count: int, start: int = 0, least_gain: float = EXACT_GAIN
    ) -> Self:
        """Choose the trials that a score covers: after the start, as many as :func:`find_cutoff` returns.

        Args:
            draws: The results of random draws.
            best: The lowest latency known in the space, in seconds.
            trial_count: The maximum number of trials in a score.
            start: The number of initial trials that all runs share. They are excluded unless there are no others.
            least_gain: The least difference from the best log latency that counts, because scores are divided by it.
        """
        baseline = np.array(draws.expected[:trial_count])
        baseline = np.where(baseline - math.log(best) < least_gain, math.log(best), baseline)
        start = start if start < len(baseline) else 0
        last = start + find_cutoff(draws.median, baseline, math.log(best))
        return cls(baseline[:last], start + 1, math.log(best), draws.slowest)

    @property
    def last(self) -> int:
        """The last trial of a score."""
        return len(self.baseline)

    def scores(self, so_far: Floats) -> Floats | None:
        """Return the score of each run, or None if nothing can be gained.

        Args:
            so_far: The lowest seconds after each trial, shape (runs, trials).
        """
        logs = np.minimum(np.log(so_far), self.slowest)
        curves, start = score_curve(logs[:, : self.last], self.baseline, self.best), self.first - 1
        scores = mean_score(curves[:, start:], self.baseline[start:], self.best)
        return scores if np.isfinite(scores).all() else None
