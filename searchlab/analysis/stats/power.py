"""How many seeds and workloads it takes to see a difference: pure functions.

The design is that of :mod:`.inference`: paired runs with the same seed on each workload, and a t test of their mean
difference, once with the seeds as what varies and once with the workloads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from ...arrays import Floats
from .inference import FEWEST_WORKLOADS
from .intervals import DECIMALS

MOST = 100_000
"""Seeds or workloads beyond which nobody goes."""


@dataclass(frozen=True)
class Variation:
    """How paired differences vary, as standard deviations in the unit of the measure.

    seeds: of one pair of runs from another on the same workload. workloads: of the true difference on one workload from
    that on another; None where fewer than 2 workloads say so.
    """

    seeds: float
    workloads: float | None


def variation(differences: Sequence[Floats]) -> Variation | None:
    """The variance components of paired differences, an array per workload; None where no workload has 2 that differ.

    The estimates of the analysis of variance, with means of workloads counted alike: what the means vary by, less what
    the seeds make of it, and at least 0 (Searle, Casella and McCulloch, "Variance components", 1992, chapter 3).
    """
    several = [own for own in differences if len(own) > 1]
    if not several:
        return None
    freedom = sum(len(own) - 1 for own in several)
    within = sum(float(((own - own.mean()) ** 2).sum()) for own in several) / freedom
    if not round(within, 2 * DECIMALS):
        return None
    means = np.array([own.mean() for own in differences if len(own)])
    if len(means) < 2:
        return Variation(math.sqrt(within), None)
    of_means = within * float(np.mean([1 / len(own) for own in differences if len(own)]))
    return Variation(math.sqrt(within), math.sqrt(max(0.0, float(means.var(ddof=1)) - of_means)))


def t_power(difference: float, error: float, df: float, alpha: float) -> float:
    """Chance that a two-sided t test at ``alpha`` sees ``difference`` and its direction.

    error: the standard error of the estimate. From the noncentral t distribution (Cohen, "Statistical power analysis
    for the behavioral sciences", 1988, chapter 2).
    """
    from scipy.stats import nct  # here, since it takes most of a second, and a report does not need it

    return float(nct.sf(stdtrit(df, 1 - alpha / 2), df, difference / error))


def seeds_for(variation: Variation, difference: float, workloads: int, *, power: float, alpha: float) -> int | None:
    """Seeds on each of these ``workloads`` to see a mean ``difference`` on them; None beyond ``MOST``."""

    def enough(seeds: int) -> bool:
        error = variation.seeds / math.sqrt(workloads * seeds)
        return t_power(difference, error, workloads * (seeds - 1), alpha) >= power

    return _least(2, enough)


def workloads_for(variation: Variation, difference: float, seeds: int, *, power: float, alpha: float) -> int | None:
    """Workloads, with so many ``seeds`` each, to see a mean ``difference`` on workloads like them.

    None beyond ``MOST``, and where it is unknown how workloads vary. At least ``FEWEST_WORKLOADS``.
    """
    if variation.workloads is None:
        return None
    deviation = math.hypot(variation.workloads, variation.seeds / math.sqrt(seeds))

    def enough(workloads: int) -> bool:
        return t_power(difference, deviation / math.sqrt(workloads), workloads - 1, alpha) >= power

    return _least(FEWEST_WORKLOADS, enough)


def _least(start: int, enough: Callable[[int], bool]) -> int | None:
    """The least number from ``start`` that is ``enough``, where all larger ones are too."""
    step = start
    while not enough(step):
        if step >= MOST:
            return None
        start, step = step + 1, min(2 * step, MOST)
    low, high = start, step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
