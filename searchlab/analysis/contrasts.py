"""Which strategies differ by more than the noise of their seeds: every pair of them, with Holm's correction.

**Which test.** Most policies begin with the random trials of their seed, so that runs of one seed begin alike and
seeds pair the runs of two strategies. Policies with a start of their own (cmaes, qmc) share no trials; pairs by seed
are then no better than any other pairs, and no worse. The signed-rank test uses pairs: the luck of a seed's random
trials cancels within its pair, and with ten seeds it finds differences for which the rank-sum test needs twice as
many. Yet n pairs cannot give it less than p = 2 / 2^n, and with m pairs of strategies Holm's correction asks one of
them for 0.05 / m. Where two strategies have too few seeds in common for that with one to spare, the rank-sum test is
taken, whose least p-value 2 / C(2n, n) falls far faster. Trials in common only make its p-values larger: they draw
the two samples together, which narrows the spread of the rank sum under the hypothesis that the strategies are the
same. The choice depends on the numbers of seeds and of strategies alone, never on their results, so the chance that
any two equal strategies are called different stays at most 5 %.

Effect, direction, interval and p-value of a pair are of the same runs: of the pairs, or of both samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import comb

import msgspec
import numpy as np

from .model import NO_SEED, ONE_RUN, RANK_SUM, SIGNED_RANK, Contrast
from .stats.aggregates import Sample, improvement
from .stats.curves import Floats
from .stats.intervals import improvement_interval, share_interval
from .stats.ranks import ALPHA, holm, pairs, rank_sum_test, rounded, signed_rank_effect, signed_rank_test

About = Callable[..., Contrast]
Key = tuple[str, int]
Runs = Mapping[Key, float]
"""A number for each run of a strategy, by workload and seed; lower is better, infinity is censored."""


def contrasts(measure: str, runs: Mapping[str, Runs], single: Collection[str] = ()) -> list[Contrast]:
    """Every pair of strategies, in order, by the test that the head of this file justifies.

    single: the strategies that make the same run from every seed; there is no sample to test them by.

    Where there are several workloads, two strategies are compared over the workloads and seeds that both have: else
    they would differ in the pooled values of a rank-sum test merely because workloads do. If they have no seed in
    common on one of the workloads, they are not tested.
    """
    runs = _rounded(runs)
    workloads = {workload for of_one in runs.values() for workload, _ in of_one}
    names = list(runs)
    which = [(names[i], names[j]) for i, j in pairs(len(names))]
    needed = ALPHA / max(1, sum(one not in single and other not in single for one, other in which))
    compared: list[Contrast] = []
    for first, second in which:
        common = runs[first].keys() & runs[second].keys()
        of_both = {workload for workload, _ in common}
        about = partial(Contrast, first=first, second=second, measure=measure)
        if first in single or second in single:
            compared.append(_untested(about, ONE_RUN, runs[first], runs[second]))
        elif len(workloads) > 1 and of_both != workloads:
            compared.append(_untested(about, NO_SEED, runs[first], runs[second]))
        elif 2.0 ** (2 - len(common)) <= needed:
            compared.append(_paired(about, *_samples(runs[first], runs[second], common)))
        else:
            kept = common if len(workloads) > 1 else runs[first].keys() | runs[second].keys()
            compared.append(_pooled(about, *_samples(runs[first], runs[second], kept)))
    adjusted = iter(holm(np.array([c.p for c in compared if c.p is not None])).tolist())
    return [c if c.p is None else msgspec.structs.replace(c, adjusted=next(adjusted)) for c in compared]


def _rounded(runs: Mapping[str, Runs]) -> dict[str, Runs]:
    every = iter(rounded(np.array([value for of_one in runs.values() for value in of_one.values()])).tolist())
    return {name: {key: next(every) for key in of_one} for name, of_one in runs.items()}


def _samples(one: Runs, other: Runs, kept: Collection[Key]) -> tuple[Sample, Sample]:
    """The numbers of the runs in ``kept``, by workload and then by seed; higher is better."""
    workloads = sorted({workload for workload, _ in kept})

    def sample(runs: Runs) -> list[Floats]:
        keys = sorted(key for key in runs if key in kept)
        return [-np.array([runs[key] for key in keys if key[0] == workload]) for workload in workloads]

    return sample(one), sample(other)


def _paired(about: About, one: Sample, other: Sample) -> Contrast:
    ours, theirs = np.concatenate(one), np.concatenate(other)
    share = share_interval(float((ours > theirs).sum() + (ours == theirs).sum() / 2), len(ours))
    return about(
        test=SIGNED_RANK, runs=len(ours), improvement=share.value, lower=share.lower, upper=share.upper,
        effect=signed_rank_effect(ours, theirs), p=signed_rank_test(ours, theirs), note=share.note,
    )  # fmt: skip


def _pooled(about: About, one: Sample, other: Sample) -> Contrast:
    ours, theirs = np.concatenate(one), np.concatenate(other)
    chance = improvement_interval(one, other)
    return about(
        test=RANK_SUM, runs=min(len(ours), len(theirs)), improvement=chance.value, lower=chance.lower,
        upper=chance.upper, effect=2 * improvement([ours], [theirs]) - 1, p=rank_sum_test(ours, theirs),
        note=chance.note,
    )  # fmt: skip


def _untested(about: About, why: str, one: Runs, other: Runs) -> Contrast:
    of_both = {workload for workload, _ in one} & {workload for workload, _ in other}
    samples = _samples(one, other, [key for key in (*one, *other) if key[0] in of_both])
    better = improvement(*samples)
    return about(test=why, runs=min(len(one), len(other)), improvement=better, effect=2 * better - 1)


def seeds_needed(strategies: int) -> int:
    """How many seeds each of ``strategies`` must have for a difference between two of them to be significant at all."""
    tests = len(pairs(strategies))
    n = 1
    while 2 / comb(2 * n, n) > ALPHA / tests:
        n += 1
    return n
