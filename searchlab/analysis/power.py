"""From the runs there are, how many seeds and workloads it would take to see a difference of the area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

from ..arrays import Floats
from ..errors import SearchlabError, did_you_mean
from .measures import AREA, StrategySummary
from .model import Summary
from .stats.family import RESERVED
from .stats.power import Variation, seeds_for, variation, workloads_for
from .stats.ranks import ALPHA


@dataclass(frozen=True)
class Need:
    """What one pair of strategies takes. Numbers are None where more would be needed than anyone can run.

    seeds_alone: on one workload, for a claim on it. seeds_together: on each of the workloads, for a claim on these.
    workloads: with the present number of seeds, for a claim on workloads like these; also None for one workload.
    """

    first: str
    second: str
    variation: Variation
    seeds_alone: int | None
    seeds_together: int | None
    workloads: int | None


@dataclass(frozen=True)
class PowerPlan:
    """What all pairs take, the least first.

    Attributes:
        difference: The difference of the area under the curve to see.
        power: The probability to see it.
        tests: The size of the family that a test is one of.
        registered: Whether these tests are registered contrasts, each first one test over all workloads.
        workloads: Workloads of the runs that there are.
        seeds: The most seeds of any strategy on a workload.
        needs: One entry per pair.
    """

    difference: float
    power: float
    tests: int
    registered: bool
    workloads: int
    seeds: int
    needs: list[Need]


NEW = "a new policy"


def power_plan(
    summary: Summary,
    difference: float,
    power: float,
    tests: int | None = None,
    strategy: str = "",
    *,
    registered: int | None = None,
    new: bool = False,
) -> PowerPlan:
    """The plan for a ``difference`` of the area under the curve, to be seen with probability ``power``.

    Pairs without two seeds in common that differ are left out.

    Args:
        summary: The runs that there are.
        difference: Of the areas of two strategies.
        power: The probability to see it.
        tests: Over how many tests the correction goes; by default all of the report, or as large a part of them as the
            pairs of ``strategy`` are of all pairs.
        strategy: Only its pairs with the others; all pairs if empty.
        registered: The number of registered contrasts that a pair is one of, in place of ``tests``.
        new: Whether to add, for a policy that has no run yet, a pair with ``strategy`` that varies as the median of the
            others does.

    Raises:
        SearchlabError: If there is no such strategy.
    """
    names = sorted({row.strategy for item in summary.workloads for row in item.strategies})
    if strategy and strategy not in names:
        raise SearchlabError(f"there is no strategy {strategy!r} among these runs{did_you_mean(strategy, names)}")
    everything = list(combinations(names, 2))
    which = [pair for pair in everything if not strategy or strategy in pair]
    tests = registered or tests or max(1, summary.family.tests * len(which) // max(1, len(everything)))
    rows = [item.by_strategy for item in summary.workloads]
    seeds = max((len(row.seeds) for own in rows for row in own.values()), default=0)
    alpha = ALPHA * (RESERVED if registered else 1) / tests

    def need(first: str, second: str, varies: Variation, here: int) -> Need:
        return Need(
            first,
            second,
            varies,
            seeds_alone=seeds_for(varies, difference, 1, power=power, alpha=alpha),
            seeds_together=seeds_for(varies, difference, here, power=power, alpha=alpha),
            workloads=workloads_for(varies, difference, seeds, power=power, alpha=alpha),
        )

    needs = []
    for first, second in which:
        differences = [_differences(row[first], row[second]) for row in rows if first in row and second in row]
        varies = variation(differences)
        if varies is None:
            continue
        needs.append(need(first, second, varies, len(differences)))
    needs.sort(key=lambda one: (one.variation.seeds, one.first, one.second))
    if new and needs:
        between = [one.variation.workloads for one in needs if one.variation.workloads is not None]
        usual = Variation(median(one.variation.seeds for one in needs), median(between) if between else None)
        needs.insert(0, need(NEW, strategy, usual, len(rows)))
    return PowerPlan(difference, power, tests, registered is not None, len(rows), seeds, needs)


def _differences(first: StrategySummary, second: StrategySummary) -> Floats:
    """By seed, of those that both have."""
    ours, theirs = first.by_seed(AREA), second.by_seed(AREA)
    common: Sequence[int] = sorted(ours.keys() & theirs.keys())
    return np.array([ours[seed] - theirs[seed] for seed in common], dtype=np.float64)
