"""The tests in a report: comparisons of strategies on one workload, and the two families that all tests form.

Strategies are tested only by the area under the curve: each pair on each workload and, over all workloads, once for a
claim about these workloads and once for a claim about similar ones.

``docs/design/statistics.md`` describes the families and the choice of tests. The tests of registered contrasts have two
steps: claims about these workloads and, only if all of these are significant, claims about similar workloads and on
single workloads, at half the level each (or at the whole level, if there is only one kind). On one workload, runs are
paired by seed (signed-rank test), unless two strategies share too few seeds to reach the required p-value with one seed
to spare (rank-sum test). This depends only on numbers of seeds, strategies and workloads, never on results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count
from math import comb
from typing import TypeVar

import msgspec
import numpy as np

from ..arrays import Floats
from ..stats.inference import no_answer, paired_difference
from ..stats.intervals import improvement
from ..stats.ranks import ALPHA, holm, rank_sum_test, round_to_largest, signed_rank
from .model import OTHERS, PAIRED_T, RANK_SUM, SIGNED_RANK, Contrast, Family
from .runs import ComparedRuns
from .words import counted, listed

Runs = Mapping[int, float]
"""The numbers of a strategy's runs, by seed. Higher is better."""
Level = Callable[[str, str], float]
"""A function that returns the significance level for two strategies; see :meth:`PageTests.level`."""
Pair = frozenset[str]
K = TypeVar("K")
Key = tuple[str, str, str, str]
"""The key of a test: the workload (empty for all workloads), the name of the test, and the two strategies."""


def contrasts(runs: Mapping[str, Runs], untested: Mapping[Pair, str], level: Level) -> list[Contrast]:
    """Compare every pair of strategies with the test described above, without correcting p-values.

    Args:
        runs: The numbers of each strategy.
        untested: Why some pairs of strategies are not tested.
        level: See :meth:`PageTests.level`.
    """
    values = iter(
        round_to_largest(np.array([value for by_seed in runs.values() for value in by_seed.values()])).tolist()
    )
    runs = {name: {seed: next(values) for seed in by_seed} for name, by_seed in runs.items()}
    compared = []
    for first, second in combinations(runs, 2):
        a, b = runs[first], runs[second]
        common = sorted(a.keys() & b.keys())
        difference = paired_difference(*pair_by_seed(a, b)[:, np.newaxis])
        contrast = Contrast(first=first, second=second, test=RANK_SUM, runs=min(len(a), len(b)), difference=difference)
        if why := untested.get(frozenset((first, second))):
            difference = replace(difference, on_these=no_answer(difference.value, why))
            contrast = msgspec.structs.replace(contrast, test=why, difference=difference)
        elif 2.0 ** (2 - len(common)) <= level(first, second):
            effect, p = signed_rank(*(np.array([own[seed] for seed in common]) for own in (a, b)))
            contrast = msgspec.structs.replace(contrast, test=SIGNED_RANK, runs=len(common), effect=effect, p=p)
        else:
            samples = [np.array([own[seed] for seed in sorted(own)]) for own in (a, b)]
            effect = 2 * improvement(*([sample] for sample in samples)) - 1
            contrast = msgspec.structs.replace(contrast, effect=effect, p=rank_sum_test(*samples))
        compared.append(contrast)
    return compared


def pair_by_seed(first: Runs, second: Runs) -> Floats:
    """Return the numbers of two strategies for the same seeds, with NaN where one has no run: shape (2, seeds)."""
    return np.array([[runs.get(seed, math.nan) for seed in sorted({*first, *second})] for runs in (first, second)])


def seeds_needed(level: float) -> int:
    """Return the smallest number of seeds with which two strategies can differ significantly at ``level``."""
    return next(n for n in count(1) if 2 / comb(2 * n, n) <= level)


@dataclass(frozen=True)
class PageTests:
    """The tests in a report, before their p-values are known."""

    registered: Sequence[tuple[str, str]]  # in the order of the study
    alone: Mapping[Pair, int]  # number of tests on single workloads
    overall: Mapping[Pair, int]  # number of tests over all workloads: 0, 1 or 2

    @classmethod
    def from_pairs(
        cls, alone: Iterable[tuple[str, str]], overall: Iterable[tuple[str, str]], registered: Iterable[tuple[str, str]]
    ) -> PageTests:
        """Count the tests of each pair. ``alone`` and ``overall`` contain one pair for each test."""
        return cls(list(registered), Counter(map(frozenset, alone)), Counter(map(frozenset, overall)))

    def correction(self, first: str, second: str) -> int:
        """Return the number of tests that a test of this pair on one workload is corrected for, if all others fail."""
        pairs = set(map(frozenset, self.registered))
        if frozenset((first, second)) in pairs:
            halved = any(self.overall.get(pair, 0) > 1 for pair in pairs)
            return sum(self.alone.get(pair, 0) for pair in pairs) * (1 + halved)
        return sum(n for tests in (self.alone, self.overall) for pair, n in tests.items() if pair not in pairs)

    def level(self, first: str, second: str) -> float:
        """Return the significance level for a test of this pair on one workload, if it is the first to be rejected.

        For a registered contrast, this is the level after all contrasts were significant over all workloads.
        """
        return ALPHA / self.correction(first, second)

    def adjusted(self, p: Mapping[Key, float]) -> dict[Key, float]:
        """Return the p-values of all tests, corrected as described above."""
        pairs = set(map(frozenset, self.registered))
        contrasts = {key: value for key, value in p.items() if frozenset(key[2:]) in pairs}
        first = {key: value for key, value in contrasts.items() if key[1] == PAIRED_T}
        like_these = {key: value for key, value in contrasts.items() if not key[0] and key not in first}
        alone = {key: value for key, value in contrasts.items() if key[0]}
        others = {key: value for key, value in p.items() if key not in contrasts}
        adjusted = adjust(first)
        last = max(adjusted.values(), default=0.0)
        shares = bool(like_these) + bool(alone)
        for second in (like_these, alone):
            adjusted |= {key: max(last, min(1.0, shares * value)) for key, value in adjust(second).items()}
        return adjusted | adjust(others)

    def family(self, number: int, late: Sequence[tuple[str, str]], area: str = "area under the curve") -> Family:
        """Describe the families of tests.

        Args:
            number: The number of tests that have a p-value.
            late: The contrasts that were added after runs had begun, which do not count as registered.
            area: The name of the area by which strategies are compared.
        """
        return Family(number, list(self.registered), list(late), _describe(number, self.registered, late, area))


def adjust(p: Mapping[K, float]) -> dict[K, float]:
    """Correct the p-values of a family of tests by Holm's procedure."""
    return dict(zip(p, holm(np.array(list(p.values()))).tolist(), strict=True))


def named_contrasts(comparison: ComparedRuns) -> dict[tuple[str, str], bool]:
    """Return the contrasts in the logs, in the study's order, and whether each was registered before the runs.

    It was if it is in the logs of all runs of both strategies. Both strategies of a contrast use the same space.
    """
    pairs_of: dict[str, list[list[tuple[str, str]]]] = {}  # by strategy, the contrasts in each run's log
    for item in comparison.values():
        for run in item.runs:
            prefix = run.strategy.removesuffix(run.log.header.name)
            pairs = [(prefix + first, prefix + second) for first, second in run.log.header.contrasts]
            pairs_of.setdefault(run.strategy, []).append(pairs)
    named: dict[tuple[str, str], bool] = {}
    for pair in (pair for runs in pairs_of.values() for pairs in runs for pair in pairs):
        if pairs_of.keys() >= set(pair) and pair[::-1] not in named:
            named[pair] = all(pair in pairs for name in pair for pairs in pairs_of[name])
    return named


def with_adjusted(workload: str, contrasts: Iterable[Contrast], adjusted: Mapping[Key, float]) -> list[Contrast]:
    corrected = []
    for contrast in contrasts:
        on_these, on_others = (
            adjusted.get((workload, test, contrast.first, contrast.second)) for test in (contrast.test, OTHERS)
        )
        difference = replace(
            contrast.difference,
            on_these=replace(contrast.difference.on_these, p=on_these),
            on_others=replace(contrast.difference.on_others, p=on_others),
        )
        corrected.append(msgspec.structs.replace(contrast, adjusted=on_these, difference=difference))
    return corrected


def p_values(workload: str, contrasts: Iterable[Contrast]) -> dict[Key, float]:
    """Return the p-value of each test, for claims about these workloads and for claims about others like them."""
    return {
        (workload, test, contrast.first, contrast.second): p
        for contrast in contrasts
        for test, p in ((contrast.test, contrast.p), (OTHERS, contrast.difference.on_others.p))
        if p is not None
    }


def _describe(number: int, registered: Sequence[tuple[str, str]], late: Sequence[tuple[str, str]], area: str) -> str:
    if not number:
        return "Nothing here is tested; all numbers describe these runs."
    kinds = "No contrast was registered before the runs, so all tests are exploratory."
    if registered:
        kinds = (
            f"Registered before the runs: {_names(registered)}. What is registered is first tested on these workloads "
            "together, and on individual or other workloads only if every such result is significant. All other pairs "
            "are exploratory."
        )
    sentences = [
        f"Strategies are tested by the {area}: {counted(number, 'test')}, for each pair of strategies, "
        f"on each workload and across all workloads. {kinds} p-values are corrected by Holm's procedure, so that the "
        f"chance that any two equal strategies are called different is at most {100 * ALPHA:g} % "
        f"{'in each of these two families' if registered else 'on this page'}. Intervals are not corrected, and "
        "contrasts.csv.gz also has p-values without correction.",
    ]
    if late:
        sentences.append(
            f"Added after runs had begun, and therefore not registered: {_names(late)}. To register this, run the "
            "study again with a new --out."
        )
    return " ".join(sentences)


def _names(pairs: Sequence[tuple[str, str]]) -> str:
    return listed([f"{first} against {second}" for first, second in pairs], None)
