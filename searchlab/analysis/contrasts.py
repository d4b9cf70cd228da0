"""The tests in a report: comparisons of strategies on one workload, and the family that all tests form.

Strategies are tested only by the area under the curve: each pair on each workload and, over all workloads, once for a
claim about these workloads and once for a claim about similar ones. Trials and seconds to the target are not tested.

**Choice of test.** Most policies begin with random trials that depend only on the seed, so the runs of two strategies
with the same seed form a pair. For policies with a different start (cmaes, qmc), pairing by seed is as good as any
other pairing. The signed-rank test compares runs within pairs, so the luck of a seed's random trials cancels out, and
ten seeds suffice where the rank-sum test needs twenty. However, its p-value for n pairs is at least 2 / 2^n, and the
correction for all tests in a report requires p-values far below 0.05. If two strategies share too few seeds to reach
such p-values with one seed to spare, the rank-sum test is used. Its smallest p-value, 2 / C(2n, n), decreases much
faster, and shared trials can only increase its p-values, because they reduce the spread of the rank sum. The choice
depends only on the numbers of seeds, strategies and workloads, so the error rate of a report remains at most 5 %.

The effect, direction, interval and p-value of a comparison are all computed from the same runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, count
from math import comb

import msgspec
import numpy as np

from ..arrays import Floats
from .model import DESCRIBED, ONE_RUN, RANK_SUM, SIGNED_RANK, Contrast, Family
from .runs import ComparedRuns
from .stats.intervals import Interval, Sample, improvement, improvement_interval, share_interval
from .stats.ranks import ALPHA, RESERVED, Gate, one_family, rank_sum_test, rounded, signed_rank
from .words import counted, listed

About = Callable[..., Contrast]
Runs = Mapping[int, float]
"""The numbers of a strategy's runs, by seed. Lower is better; a censored run is infinite."""
Level = Callable[[str, str], float]
"""A function that returns the significance level for two strategies; see :meth:`PageTests.level`."""
Pair = frozenset[str]
Key = tuple[str, str, str, str]
"""The key of a test: the workload (empty for all workloads), the name of the test, and the two strategies."""


def contrasts(
    measure: str, runs: Mapping[str, Runs], single: Collection[str] = (), level: Level | None = None
) -> list[Contrast]:
    """Compare every pair of strategies with the test that the module docstring describes, without correcting p-values.

    Args:
        measure: The name of the measure.
        runs: The numbers of each strategy.
        single: The strategies whose runs are the same for every seed, which are therefore not tested.
        level: See :meth:`PageTests.level`. None for a measure that is only described.
    """
    every = iter(rounded(np.array([value for own in runs.values() for value in own.values()])).tolist())
    runs = {name: {seed: next(every) for seed in own} for name, own in runs.items()}
    compared: list[Contrast] = []
    for first, second in combinations(runs, 2):
        about = partial(Contrast, first=first, second=second, measure=measure)
        one, other = runs[first], runs[second]
        common = sorted(one.keys() & other.keys())
        if first in single or second in single:
            compared.append(untested(about, ONE_RUN, [_sample(one, one)], [_sample(other, other)]))
        elif level is not None and 2.0 ** (2 - len(common)) <= level(first, second):
            compared.append(_paired(about, _sample(one, common), _sample(other, common)))
        else:
            compared.append(_unpaired(about, _sample(one, one), _sample(other, other), test=level is not None))
    return compared


def _sample(runs: Runs, seeds: Collection[int]) -> Floats:
    """Return the numbers of the runs with ``seeds``, negated so that higher is better, in the order of the seeds."""
    return -np.array([runs[seed] for seed in sorted(seeds)])


def _paired(about: About, ours: Floats, theirs: Floats) -> Contrast:
    effect, p = signed_rank(ours, theirs)
    share = share_interval(float((ours > theirs).sum() + (ours == theirs).sum() / 2), len(ours))
    return tested(about, SIGNED_RANK, len(ours), share, effect, p)


def _unpaired(about: About, ours: Floats, theirs: Floats, *, test: bool) -> Contrast:
    chance, runs = improvement_interval([ours], [theirs]), min(len(ours), len(theirs))
    p = rank_sum_test(ours, theirs) if test else None
    return tested(about, RANK_SUM if test else DESCRIBED, runs, chance, 2 * chance.value - 1, p)


def tested(about: About, test: str, runs: int, better: Interval, effect: float, p: float | None) -> Contrast:
    """Return the contrast of two strategies that were tested; ``better`` estimates how often the first is better."""
    return about(
        test=test,
        runs=runs,
        improvement=better.value,
        lower=better.lower,
        upper=better.upper,
        effect=effect,
        p=p,
        note=better.note,
    )


def untested(about: About, why: str, one: Sample, other: Sample) -> Contrast:
    """Return the contrast of two strategies that were not tested, given their numbers on each workload."""
    better = improvement(one, other)
    runs = min(sum(map(len, sample)) for sample in (one, other))
    return about(test=why, runs=runs, improvement=better, effect=2 * better - 1)


def seeds_needed(level: float) -> int:
    """Return the smallest number of seeds with which two strategies can differ significantly at ``level``."""
    return next(n for n in count(1) if 2 / comb(2 * n, n) <= level)


@dataclass(frozen=True)
class PageTests:
    """The tests in a report, before their p-values are known. Each registered contrast is a gate to its own tests."""

    registered: Sequence[tuple[str, str]]  # in the order of the study
    alone: Mapping[Pair, int]  # number of tests on single workloads
    overall: Mapping[Pair, int]  # number of tests over all workloads: 0, 1 or 2

    @classmethod
    def of(
        cls, alone: Iterable[tuple[str, str]], overall: Iterable[tuple[str, str]], registered: Iterable[tuple[str, str]]
    ) -> PageTests:
        """Count the tests of each pair. ``alone`` and ``overall`` contain one pair for each test."""
        counted = Counter(map(frozenset, alone)), Counter(map(frozenset, overall))
        return cls([pair for pair in registered if any(frozenset(pair) in own for own in counted)], *counted)

    @property
    def number(self) -> int:
        return sum(self.alone.values()) + sum(self.overall.values())

    def level(self, first: str, second: str) -> float:
        """Return the significance level for testing this pair on one workload, if no other such test is rejected.

        For a registered contrast, this is the level after its test over all workloads has been rejected.
        """
        pair, gates = frozenset((first, second)), [frozenset(pair) for pair in self.registered]
        if not gates:
            return ALPHA / max(1, self.number)
        gated = sum(self.alone.get(gate, 0) + self.overall.get(gate, 0) for gate in gates)
        if pair not in gates:
            return ALPHA * (1 - RESERVED) / max(1, self.number - gated)
        share = RESERVED if self.number > gated else 1.0
        over = self.overall.get(pair, 0)
        passed = 0.5 if over and len(gates) > 1 else 1.0
        return ALPHA * share * passed / len(gates) / max(1, over) / max(1, self.alone.get(pair, 0))

    def adjusted(self, p: Mapping[Key, float]) -> dict[Key, float]:
        """Return the p-values of all tests, corrected together."""
        gates = []
        for pair in self.registered:
            own = [key for key in p if set(key[2:]) == set(pair)]
            overall = [key for key in own if not key[0]]  # on these workloads, then on workloads like these
            groups = [[key] for key in overall[1:]] + [[key for key in own if key[0]]]
            if own:
                gates.append(Gate(overall[0] if overall else None, groups))
        return one_family(p, gates)

    def family(self, found: int) -> Family:
        """Describe the family of tests. ``found`` is the number of tests that have a p-value."""
        return Family(found, list(self.registered), _says(found, self.registered))


def registered_pairs(comparison: ComparedRuns) -> list[tuple[str, str]]:
    """Return the contrasts that are registered in the logs of all runs of both strategies, in the study's order.

    They were registered before these runs began. Both strategies of a contrast use the same space.
    """
    named: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for item in comparison.values():
        for run in item.runs:
            place = run.strategy.removesuffix(run.log.header.name)
            own = [(place + first, place + second) for first, second in run.log.header.contrasts]
            _, known = named.get(run.strategy, (place, own))
            named[run.strategy] = place, [pair for pair in known if pair in own]
    found: dict[Pair, tuple[str, str]] = {}
    for _, contrasts in named.values():
        for first, second in contrasts:
            if all(name in named and (first, second) in named[name][1] for name in (first, second)):
                found.setdefault(frozenset((first, second)), (first, second))
    return list(found.values())


def with_adjusted(workload: str, contrasts: Iterable[Contrast], adjusted: Mapping[Key, float]) -> list[Contrast]:
    return [msgspec.structs.replace(c, adjusted=adjusted.get((workload, c.test, c.first, c.second))) for c in contrasts]


def p_values(workload: str, contrasts: Iterable[Contrast]) -> dict[Key, float]:
    return {(workload, c.test, c.first, c.second): c.p for c in contrasts if c.p is not None}


def _says(number: int, registered: Sequence[tuple[str, str]]) -> str:
    if not number:
        return "Nothing here is tested; all numbers describe these runs."
    said = (
        f"Strategies are tested by the area under the curve: {counted(number, 'test')}, for each pair of strategies, "
        "on each workload and across all workloads. Together they form one family: the chance that this report "
        f"calls any two equal strategies different is at most {100 * ALPHA:g} %. Trials and seconds to the target "
        "are described, not tested. "
    )
    if not registered:
        return said + "No contrast was registered before the runs, so all tests are exploratory (Holm's correction)."
    names = listed([f"{first} against {second}" for first, second in registered], None)
    return said + (
        f"Registered before the runs: {names}. {'They share' if len(registered) > 1 else 'It receives'} "
        f"{100 * RESERVED:g} % of that chance. Each is first tested once across all workloads; individual workloads "
        f"are tested only if that test is significant. All other tests are exploratory."
    )
