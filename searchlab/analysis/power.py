"""Estimating from existing runs how many seeds and workloads are needed to detect a difference in area.

The design is that of :mod:`.stats.inference`: runs with the same seed on a workload form a pair, and a t test is
applied to the mean difference within pairs, which varies either between seeds or between workloads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
from scipy.special import stdtrit

from ..arrays import Floats
from ..errors import SearchlabError, did_you_mean
from ..stats.inference import MIN_WORKLOADS
from ..stats.intervals import DECIMALS
from ..stats.ranks import ALPHA
from .contrasts import pair_by_seed
from .measures import StrategySummary
from .summary import Summary

MAX_RUNS = 100_000  # maximum number of seeds or workloads to consider, more than anyone would use
NEW_POLICY = "a new policy"


@dataclass(frozen=True)
class Variation:
    """The standard deviations of paired differences, in the measure's unit.

    Attributes:
        seeds: The deviation between pairs of runs on the same workload.
        workloads: The deviation of the true difference between workloads; None for fewer than 2 workloads.
    """

    seeds: float
    workloads: float | None


@dataclass(frozen=True)
class Need:
    """The numbers of runs that a pair of strategies needs. None means more than :data:`MAX_RUNS`, or unknown.

    Attributes:
        variation: The variation of the differences between ``first`` and ``second``, the names of the strategies.
        seeds_alone: The number of seeds on one workload, for a claim about it.
        seeds_together: The number of seeds on each of the workloads, for a claim about these.
        workloads: The number of workloads with the current number of seeds, for a claim about workloads like these.
    """

    first: str
    second: str
    variation: Variation
    seeds_alone: int | None
    seeds_together: int | None
    workloads: int | None


@dataclass(frozen=True)
class PowerPlan:
    """The numbers of runs that each pair of strategies needs to detect a difference.

    Attributes:
        difference: The difference in area to detect.
        power: The probability of detecting it.
        tests: The number of tests for which p-values are corrected.
        registered: Whether these are registered contrasts, each tested over all workloads.
        workloads: The number of workloads.
        seeds: The largest number of seeds of any strategy on any workload.
        needs: The pairs with the least variation by seed first, after the pair of a new policy, if any.
    """

    difference: float
    power: float
    tests: int
    registered: bool
    workloads: int
    seeds: int
    needs: list[Need]


def plan_power(
    summary: Summary,
    difference: float,
    power: float,
    tests: int | None = None,
    strategy: str = "",
    *,
    registered: int | None = None,
    new: bool = False,
) -> PowerPlan:
    """Plan how to detect a ``difference`` in area under the curve with probability ``power``.

    Pairs that do not share at least two seeds with different results are skipped.

    Args:
        summary: The summary of the existing runs.
        difference: The difference in area to detect.
        power: The probability of detecting it.
        tests: The number of tests for which p-values are corrected, by default all tests in the report or, with
            ``strategy``, a share of them in proportion to its pairs.
        strategy: The strategy that all considered pairs include, or an empty string to consider all pairs.
        registered: The number of registered contrasts, if the pair is to be one of them. It replaces ``tests``.
        new: Whether to add a pair of ``strategy`` and a policy that has not run, which is assumed to vary like the
            median pair.

    Raises:
        SearchlabError: If the strategy does not exist.
    """
    rankings = [workload_summary.by_strategy for workload_summary in summary.workloads]
    names = sorted({name for ranking in rankings for name in ranking})
    if strategy and strategy not in names:
        raise SearchlabError(f"no runs of the strategy {strategy!r}{did_you_mean(strategy, names)}")
    all_pairs = list(combinations(names, 2))
    pairs = [pair for pair in all_pairs if not strategy or strategy in pair]
    tests = registered or tests or max(1, summary.family.test_count * len(pairs) // max(1, len(all_pairs)))
    seeds = max((len(row.seeds) for ranking in rankings for row in ranking.values()), default=0)
    alpha = ALPHA / tests

    def compute_need(first: str, second: str, variation: Variation, workload_count: int) -> Need:
        return Need(
            first,
            second,
            variation,
            seeds_alone=find_seed_count(variation, difference, 1, power=power, alpha=alpha),
            seeds_together=find_seed_count(variation, difference, workload_count, power=power, alpha=alpha),
            # A contrast is tested on workloads like these at half of the level; the rest is for single workloads.
            workloads=find_workload_count(
                variation, difference, seeds, power=power, alpha=alpha / 2 if registered else alpha
            ),
        )

    needs = []
    for first, second in pairs:
        differences = [
            _subtract_areas(ranking[first], ranking[second])
            for ranking in rankings
            if first in ranking and second in ranking
        ]
        if variation := estimate_variation(differences):
            needs.append(compute_need(first, second, variation, len(differences)))
    needs.sort(key=lambda need: (need.variation.seeds, need.first, need.second))
    if new and needs:
        needs.insert(0, compute_need(NEW_POLICY, strategy, _find_median_variation(needs), len(rankings)))
    return PowerPlan(difference, power, tests, registered is not None, len(rankings), seeds, needs)


def _find_median_variation(needs: Sequence[Need]) -> Variation:
    by_workload = [deviation for need in needs if (deviation := need.variation.workloads) is not None]
    return Variation(
        seeds=median(need.variation.seeds for need in needs), workloads=median(by_workload) if by_workload else None
    )


def _subtract_areas(first: StrategySummary, second: StrategySummary) -> Floats:
    """Return the differences in area for the seeds that both strategies have."""
    minuends, subtrahends = pair_by_seed(first.area_by_seed, second.area_by_seed)
    differences = minuends - subtrahends
    return np.asarray(differences[~np.isnan(differences)])


def estimate_variation(differences: Sequence[Floats]) -> Variation | None:
    """Return the variance components of paired differences (one array per workload).

    Returns None if no workload has at least two distinct differences. The estimates are those of the analysis of
    variance, with equal weight for each workload. The variance between workloads is that of the means minus the part
    due to seeds, but at least 0 (Searle, Casella and McCulloch, "Variance components", 1992, chapter 3).
    """
    samples = [sample for sample in differences if len(sample) > 1]
    if not samples:
        return None
    df = sum(len(sample) - 1 for sample in samples)
    variance = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in samples) / df
    if not round(variance, 2 * DECIMALS):
        return None
    means = np.array([sample.mean() for sample in differences if len(sample)])
    if len(means) < 2:
        return Variation(math.sqrt(variance), None)
    due_to_seeds = variance * float(np.mean([1 / len(sample) for sample in differences if len(sample)]))
    return Variation(math.sqrt(variance), math.sqrt(max(0.0, float(means.var(ddof=1)) - due_to_seeds)))


def compute_t_power(difference: float, error: float, df: float, alpha: float) -> float:
    """Return the probability that a two-sided t test at ``alpha`` detects ``difference`` and its direction.

    It is computed from the noncentral t distribution (Cohen, "Statistical power analysis for the behavioral sciences",
    1988, chapter 2). ``error`` is the standard error of the estimate.
    """
    from scipy.stats import nct  # importing scipy.stats takes almost a second

    return float(nct.sf(stdtrit(df, 1 - alpha / 2), df, difference / error))


def find_seed_count(
    variation: Variation, difference: float, workloads: int, *, power: float, alpha: float
) -> int | None:
    """Return the number of seeds per workload that is needed to detect ``difference``, or None if it is too large."""

    def is_enough(seeds: int) -> bool:
        error = variation.seeds / math.sqrt(workloads * seeds)
        return compute_t_power(difference, error, workloads * (seeds - 1), alpha) >= power

    return _find_smallest(2, is_enough)


def find_workload_count(
    variation: Variation, difference: float, seeds: int, *, power: float, alpha: float
) -> int | None:
    """Return the number of workloads, with ``seeds`` each, needed to detect ``difference`` on workloads like these.

    It is at least MIN_WORKLOADS, or None if it would exceed MAX_RUNS or if the variation between workloads is unknown.
    """
    if variation.workloads is None:
        return None
    deviation = math.hypot(variation.workloads, variation.seeds / math.sqrt(seeds))

    def is_enough(workloads: int) -> bool:
        return compute_t_power(difference, deviation / math.sqrt(workloads), workloads - 1, alpha) >= power

    return _find_smallest(MIN_WORKLOADS, is_enough)


def _find_smallest(start: int, is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number, from ``start``, that is enough, assuming that all larger numbers also are."""
    step = start
    while not is_enough(step):
        if step >= MAX_RUNS:
            return None
        start, step = step + 1, min(2 * step, MAX_RUNS)
    return bisect_left(range(start, step), True, key=is_enough) + start
