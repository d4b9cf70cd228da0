"""How two strategies compare on one workload: every pair of them by area is tested, and by other measures described.

**Which test.** Most policies begin with the random trials of their seed, so that runs of one seed begin alike and
seeds pair the runs of two strategies. Policies with a start of their own (cmaes, qmc) share no trials; pairs by seed
are then no better than any other pairs, and no worse. The signed-rank test uses pairs: the luck of a seed's random
trials cancels within its pair, and with ten seeds it finds differences for which the rank-sum test needs twice as
many. Yet n pairs cannot give it less than p = 2 / 2^n, and the correction over all tests of a report asks a pair for a
level far below 0.05. Where two strategies have too few seeds in common for that with one to spare, the rank-sum test is
taken, whose least p-value 2 / C(2n, n) falls far faster. Trials in common only make its p-values larger: they draw
the two samples together, which narrows the spread of the rank sum under the hypothesis that the strategies are the
same. The choice depends on the numbers of seeds, strategies and workloads alone, never on their results, so the chance
that any two equal strategies are called different stays at most 5 %.

Effect, direction, interval and p-value of a pair are of the same runs: of the pairs, or of both samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import combinations
from math import comb

import numpy as np

from ..arrays import Floats
from .model import DESCRIBED, ONE_RUN, RANK_SUM, SIGNED_RANK, Contrast
from .stats.aggregates import Sample, improvement
from .stats.intervals import improvement_interval, share_interval
from .stats.ranks import rank_sum_test, rounded, signed_rank

About = Callable[..., Contrast]
Runs = Mapping[int, float]
"""A number for each run of a strategy, by seed; lower is better, infinity is censored."""
Level = Callable[[str, str], float]
"""What the p-value of two strategies is held against: see :meth:`~searchlab.analysis.family.PageTests.level`."""


def contrasts(
    measure: str, runs: Mapping[str, Runs], single: Collection[str] = (), level: Level | None = None
) -> list[Contrast]:
    """Every pair of strategies, in order, by the test that the head of this file justifies; p is not corrected yet.

    single: the strategies that make the same run from every seed; there is no sample to test them by. level: None for a
    measure that is described only.
    """
    runs = _rounded(runs)
    compared: list[Contrast] = []
    for first, second in combinations(runs, 2):
        about = partial(Contrast, first=first, second=second, measure=measure)
        one, other = runs[first], runs[second]
        common = sorted(one.keys() & other.keys())
        if first in single or second in single:
            compared.append(untested(about, ONE_RUN, [_sample(one)], [_sample(other)]))
        elif level is not None and 2.0 ** (2 - len(common)) <= level(first, second):
            compared.append(_paired(about, _sample(one, common), _sample(other, common)))
        else:
            compared.append(_unpaired(about, _sample(one), _sample(other), tested=level is not None))
    return compared


def _rounded(runs: Mapping[str, Runs]) -> dict[str, Runs]:
    every = iter(rounded(np.array([value for of_one in runs.values() for value in of_one.values()])).tolist())
    return {name: {key: next(every) for key in of_one} for name, of_one in runs.items()}


def _sample(runs: Runs, seeds: Collection[int] | None = None) -> Floats:
    """The numbers of the runs from ``seeds``, by default of all, in order; higher is better."""
    return -np.array([runs[seed] for seed in sorted(runs if seeds is None else seeds)])


def _paired(about: About, ours: Floats, theirs: Floats) -> Contrast:
    effect, p = signed_rank(ours, theirs)
    share = share_interval(float((ours > theirs).sum() + (ours == theirs).sum() / 2), len(ours))
    return about(
        test=SIGNED_RANK, runs=len(ours), improvement=share.value, lower=share.lower, upper=share.upper,
        effect=effect, p=p, note=share.note,
    )  # fmt: skip


def _unpaired(about: About, ours: Floats, theirs: Floats, *, tested: bool) -> Contrast:
    chance = improvement_interval([ours], [theirs])
    return about(
        test=RANK_SUM if tested else DESCRIBED, runs=min(len(ours), len(theirs)), improvement=chance.value,
        lower=chance.lower, upper=chance.upper, effect=2 * chance.value - 1,
        p=rank_sum_test(ours, theirs) if tested else None, note=chance.note,
    )  # fmt: skip


def untested(about: About, why: str, one: Sample, other: Sample) -> Contrast:
    """Two strategies that no test compares. one, other: their numbers, higher is better, by workloads of both."""
    better = improvement(one, other)
    runs = min(sum(map(len, sample)) for sample in (one, other))
    return about(test=why, runs=runs, improvement=better, effect=2 * better - 1)


def seeds_needed(level: float) -> int:
    """How many seeds each of two strategies must have for a difference between them to be significant at ``level``."""
    n = 1
    while 2 / comb(2 * n, n) > level:
        n += 1
    return n
