"""The score of ``autotuning_methodology``, number for number: pure functions over arrays.

Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", Future Generation Computer
Systems 159, 2024 (doi 10.1016/j.future.2024.05.021); its package, version 1.1. Where the two disagree, this is the
package.
What differs from :mod:`.random_search`, which the reports use:

==================  =============================================  =================================================
                    here                                           there
==================  =============================================  =================================================
random search       the cost at the expected rank of the best of   the expected cost itself
                    t draws, rounded
failed configs      left out of the distribution, so random        count as trials
                    search never meets one
runs                the median rank over runs, rounded; then one   a score for each run, then their mean
                    score
range               from the trials that random search needs for   from the first trial to the same end
                    1 % of the way from the median to the best,
                    to those that it needs for 95 %
==================  =============================================  =================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .curves import Floats

Ranks = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Methodology:
    """A space of which every config was measured.

    costs: of the configs that work, ascending, shape (N,). seconds_per_trial: what random search spends on a trial.
    median_seconds: the median over configs of what measuring one takes.
    """

    costs: Floats
    seconds_per_trial: float
    median_seconds: float

    @classmethod
    def of(cls, costs: Floats, seconds: Floats) -> Self:
        """costs: of every config, infinite where it fails; seconds: what measuring each takes. Both of shape (N,).

        Raises ValueError if fewer than two different costs are finite.
        """
        works = np.isfinite(costs)
        failed = ~works
        if len(np.unique(costs[works])) < 2:
            raise ValueError("fewer than two different costs are known, so nothing can be compared")
        mean = float(seconds[works].mean())
        if failed.any():  # their formula: the part that fails, times the mean of those that fail
            mean += float(failed.mean() * seconds[failed].mean())
        return cls(np.sort(costs[works]), mean, float(np.median(seconds)))

    # --- random search ------------------------------------------------------------------------------------------------

    def baseline(self, trials: Ranks) -> Floats:
        """The cost of random search after each of the numbers of ``trials``, which do not fall: shape (trials,).

        It is the cost at the expected rank M (N + 1) / (M + 1), counted from the slowest, through which a monotone
        cubic interpolation (PCHIP) goes at evenly spaced numbers of trials.
        """
        from scipy.interpolate import PchipInterpolator

        size = len(self.costs)
        ranks = np.minimum(np.round(trials * (size + 1) / (trials + 1)).astype(np.int64), size - 1)
        costs = self.costs[::-1][ranks]
        at, first = np.unique(trials, return_index=True)
        if len(trials) <= 2 or len(at) < 2:
            return costs
        smooth: Floats = PchipInterpolator(at, costs[first])(np.linspace(trials[0], trials[-1], len(trials)))
        return smooth

    def cutoff(self, part: float) -> int:
        """How many trials random search needs to go ``part`` of the way from the median cost to the best.

        For a part below 1 the best itself does not count: then it is the trials to the cost before it. Raises
        ValueError if there is no cost before it.
        """
        descending, size = self.costs[::-1], len(self.costs)
        best = self.costs[0]
        rank = int(np.argmax(descending <= best + (np.median(self.costs) - best) * (1 - part)))
        if part != 1 and descending[rank] == best:
            if rank == 0:
                raise ValueError("all costs are the best, so nothing can be compared")
            rank -= 1
        return math.ceil(rank / (size + 1 - rank))

    def span(self, start: float = 0.01, end: float = 0.95) -> tuple[int, int]:
        """The first and the last number of trials that a score is over: see :meth:`cutoff`.

        If they are less than two apart, they are moved apart by one or two. (The package bounds this by a cost, which
        it takes for a number of trials; here it has no bound.)
        """
        first, last = self.cutoff(start), self.cutoff(end)
        if last - first < 2:
            first, last = (0, last + 2) if first == 0 else (first - 1, last + 1)
        return first, last

    # --- a strategy ---------------------------------------------------------------------------------------------------

    def ranks(self, so_far: Floats) -> Floats:
        """The rank of each cost, 0 the best; NaN where a run has found nothing yet. Of the shape of ``so_far``."""
        ranks = np.searchsorted(self.costs, so_far).astype(np.float64)
        return np.where(np.isfinite(so_far), ranks, np.nan)

    def _costs_at(self, ranks: Floats) -> Floats:
        nearest = np.clip(np.round(ranks), 0, len(self.costs) - 1).astype(np.int64)
        costs: Floats = self.costs[nearest]
        return costs

    def standardised(self, costs: Floats, baseline: Floats) -> Floats:
        """0 as good as random search, 1 the best: (costs - baseline) / (best - baseline)."""
        scores: Floats = (costs - baseline) / (self.costs[0] - baseline)
        return scores

    def curve_over_trials(self, so_far: Floats, first: int, last: int) -> Floats:
        """The cost at the median rank over runs, rounded, after ``first`` to ``last`` trials.

        so_far: lowest cost up to each trial, infinite while all have failed: shape (runs, trials). A run that has found
        nothing yet is left out of the median. Raises ValueError where none has found anything, and for fewer trials
        than ``last``.
        """
        if so_far.shape[1] < last:
            raise ValueError(f"the runs have {so_far.shape[1]} trials, and the score is over {last}")
        ranks = self.ranks(so_far[:, first - 1 : last])
        if np.isnan(ranks).all(axis=0).any():
            raise ValueError(f"no run has found a config that works after {first} trials, where the score begins")
        return self._costs_at(np.nanmedian(ranks, axis=0))

    def score_over_trials(self, so_far: Floats) -> float:
        """The mean of the standardised curve over the trials of :meth:`span`, from 1. so_far: shape (runs, trials)."""
        first, last = self.span()
        first = max(first, 1)
        baseline = self.baseline(np.arange(first, last + 1))
        return float(self.standardised(self.curve_over_trials(so_far, first, last), baseline).mean())

    def curve_over_seconds(self, so_far: Floats, elapsed: Floats, at: Floats, seed: int = 0) -> Floats:
        """The cost of a strategy at the seconds ``at``: its rank by isotonic regression over all runs, rounded.

        so_far, elapsed: lowest cost, and seconds since the start, at the end of each trial: shape (runs, trials). The
        regression is the mean of one for each run (at least three), each fitted to a bootstrap sample. The package
        draws these from numpy's global stream: its curve is this one after ``np.random.seed(seed)``. Raises ValueError
        if a run has fewer than two trials in that range.
        """
        from sklearn.ensemble import BaggingRegressor
        from sklearn.isotonic import IsotonicRegression

        runs = len(so_far)
        ranks = self.ranks(so_far).T
        times = np.where(np.isnan(ranks), np.nan, elapsed.T)
        times, ranks = times[~np.isnan(ranks).all(axis=1)], ranks[~np.isnan(ranks).all(axis=1)]
        ends = np.sort(np.nanmax(times, axis=0)) if len(times) else np.empty(0)
        margin = 0.1 + 0.25 * runs / max(
            times.size, 1
        )  # beyond both ends, so that the regression has something to go by
        with np.errstate(invalid="ignore"):
            inside = (at[0] * (1 - margin) <= times) & (times <= at[-1] * (1 + margin))
        if not len(times) or (inside.sum(axis=0) < 2).any():
            raise ValueError(f"a run has fewer than two trials between {at[0]:g} and {at[-1]:g} seconds")
        x, y = times[inside], ranks[inside]
        count = max(runs, 3)
        regression = IsotonicRegression(increasing=False, y_min=y.min(), y_max=y.max(), out_of_bounds="clip")
        bagging = BaggingRegressor(
            regression, n_estimators=count, max_samples=1 / math.sqrt(count), bootstrap=True, random_state=seed
        )
        predicted = bagging.fit(x.reshape(-1, 1), y).predict(at.reshape(-1, 1))
        curve = self._costs_at(predicted)
        later = ends[ends > np.median(ends)]
        if len(later) and later[0] < at[-1]:  # beyond, too few runs go on; the curve stays where it is
            stop = int(np.argmax(at > later[0]))
            curve[stop:] = curve[stop]
        return curve

    def score_over_seconds(self, so_far: Floats, elapsed: Floats, resolution: int = 1000, seed: int = 0) -> float:
        """The mean of the standardised curve at ``resolution`` evenly spaced moments: the package's score.

        The moments lie between the two ends of :meth:`span`, with the median seconds of a config for each trial.
        so_far, elapsed, seed: see :meth:`curve_over_seconds`.
        """
        first, last = self.span()
        at = np.linspace(first * self.median_seconds, last * self.median_seconds, resolution)
        trials = np.round(np.maximum(at / self.seconds_per_trial, 1)).astype(np.int64)
        curve = self.curve_over_seconds(so_far, elapsed, at, seed)
        return float(self.standardised(curve, self.baseline(trials)).mean())
