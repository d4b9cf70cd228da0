"""Which strategies differ by more than the noise of their seeds: every pair of them, with Holm's correction.

**Which test.** Runs of one seed begin with the same random trials, whatever the policy, so that seeds pair the runs of
two strategies. The signed-rank test uses this: the luck of a seed's random trials cancels within its pair, and with
ten seeds it finds differences for which the rank-sum test needs twice as many. Yet n pairs cannot give it less than
p = 2 / 2^n, and with m pairs of strategies Holm's correction asks one of them for 0.05 / m. Where the seeds are too few
for that with one to spare, or are not the same, the rank-sum test is taken, whose least p-value 2 / C(2n, n) falls far
faster. Trials in common only make its p-values larger: they draw the two samples together, which
narrows the spread of the rank sum under the hypothesis that the strategies are the same. The choice depends on the
numbers of seeds and of strategies alone, never on their results, so the chance that any two equal strategies are
called different stays at most 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

import numpy as np

from .model import Contrast
from .stats.aggregates import Sample, improvement, improvement_interval
from .stats.curves import Floats
from .stats.ranks import ALPHA, holm, pairs, rank_sum_test, signed_rank_test

RANK_SUM, SIGNED_RANK = "rank-sum", "signed-rank"

Runs = Mapping[tuple[str, int], float]
"""A number for each run of a strategy, by workload and seed; lower is better, infinity is censored."""


def contrasts(measure: str, runs: Mapping[str, Runs]) -> list[Contrast]:
    """Every pair of strategies, in order, by the test that the head of this file justifies.

    Where there is more than one workload, all strategies must have runs on the same workloads with the same seeds:
    else strategies would differ in the pooled values of a rank-sum test merely because workloads do.
    """
    names = list(runs)
    which = [(names[i], names[j]) for i, j in pairs(len(names))]
    tests = [_test(runs[one], runs[other], ALPHA / len(which)) for one, other in which]
    adjusted = holm(np.array([p for _, p in tests]))
    samples = {name: _sample(numbers) for name, numbers in runs.items()}
    compared = []
    for (one, other), (test, p), corrected in zip(which, tests, adjusted, strict=True):
        lower, upper = improvement_interval(samples[one], samples[other])
        compared.append(
            Contrast(
                first=one,
                second=other,
                measure=measure,
                test=test,
                runs=min(len(runs[one]), len(runs[other])),
                improvement=improvement(samples[one], samples[other]),
                lower=lower,
                upper=upper,
                p=p,
                adjusted=float(corrected),
            )
        )
    return compared


def _test(one: Runs, other: Runs, needed: float) -> tuple[str, float]:
    if one.keys() == other.keys() and 2.0 ** (2 - len(one)) <= needed:
        return SIGNED_RANK, signed_rank_test(_values(one), _values(other))
    return RANK_SUM, rank_sum_test(_values(one), _values(other))


def _values(runs: Runs) -> Floats:
    return np.array([runs[key] for key in sorted(runs)], dtype=np.float64)


def _sample(runs: Runs) -> Sample:
    """The runs by workload, higher is better."""
    workloads = sorted({workload for workload, _ in runs})
    return [-np.array([value for key, value in runs.items() if key[0] == workload]) for workload in workloads]


def seeds_needed(strategies: int) -> int:
    """How many seeds each of ``strategies`` must have for a difference between two of them to be significant at all."""
    tests = len(pairs(strategies))
    n = 1
    while 2 / comb(2 * n, n) > ALPHA / tests:
        n += 1
    return n
