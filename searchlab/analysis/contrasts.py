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
from enum import StrEnum
from functools import cached_property
from itertools import combinations, count
from math import comb
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from ..arrays import Floats
from ..stats.inference import Answer, Difference, paired_difference
from ..stats.intervals import probability_of_improvement
from ..stats.ranks import (
    ALPHA,
    holm,
    rank_biserial_correlation,
    rank_sum_test,
    round_to_largest,
    signed_rank_test,
)
from .runs import ComparedRuns
from .words import fill_template, listed

Runs = Mapping[int, float]
"""The numbers of a strategy's runs, by seed. Higher is better."""
Level = Callable[[str, str], float]
"""A function that returns the significance level for two strategies; see :meth:`ReportTests.compute_level`."""
K = TypeVar("K")
Key = tuple[str, str, str, str]
"""The key of a test: the workload (empty for all workloads), the name of the test, and the two strategies."""

_FAMILY = """
    {% if not test_count %}Nothing here is tested; all numbers describe these runs.{% else %}
    Strategies are tested by the {{ area }}: {{ test_count | counted("test") }}, for each pair of strategies, on each
    workload and across all workloads.
    {% if registered_pairs %}Registered before the runs: {{ registered_pairs }}. What is registered is first tested on
    these workloads together, and on individual or other workloads only if every such result is significant. All other
    pairs are exploratory.
    {%- else %}No contrast was registered before the runs, so all tests are exploratory.{% endif %}
    p-values are corrected by Holm's procedure, so that the chance that any two equal strategies are called different is
    at most {{ level }} % {% if registered_pairs %}in each of these two families{% else %}on this page{% endif %}.
    Intervals are not corrected, and contrasts.csv.gz also has p-values without correction.
    {%- if late_pairs %} Added after runs had begun, and therefore not registered: {{ late_pairs }}. To register this,
    run the study again with a new --out.{% endif %}{% endif %}
"""


class TestKind(StrEnum):
    """How two strategies were tested, or why they were not; see :class:`Contrast`."""

    __test__ = False  # pytest does not collect it

    RANK_SUM = "rank-sum"
    SIGNED_RANK = "signed-rank"
    PAIRED_T = "paired-t"
    OTHER_WORKLOADS = "workloads like these"  # the test for a claim about other workloads

    SAME_RUNS = "one run"
    DIFFERENT_MEASUREMENT = "measured in different ways"
    NO_COMMON_SEED = "no seed in common"
    ONE_COMMON_SEED = "one seed in common"
    EQUAL_DIFFERENCES = "the same difference from every seed"


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two strategies by the area under the curve.

    Attributes:
        workload: The workload, or "" for all workloads.
        first: The strategy for which a positive difference or effect speaks.
        second: The strategy that it is compared with.
        test: On one workload, "signed-rank", which pairs runs by seed, or "rank-sum", which does not. Over several
            workloads, "paired-t", a test of the mean difference on these workloads. Otherwise, the reason why there is
            no p-value: "one run" if one of the strategies yields the same run for every seed; "measured in different
            ways" if their targets or protocols differ; or, over several workloads, "no seed in common" or "one seed in
            common" (on at least one workload), or "the same difference from every seed".
        runs: The number of pairs of runs or, for "rank-sum", of runs of the strategy with fewer runs.
        difference: The mean difference in area over shared seeds, first minus second, with its 95 % interval for that
            difference alone. Its p-values are corrected for all tests in their family; see :class:`Family`.
        effect: What the test compares: the rank-biserial correlation or, for "paired-t", the mean difference. It is in
            [-1, 1], and positive if ``first`` is better.
        p: The two-sided p-value, not corrected.
    """

    workload: str = ""
    first: str
    second: str
    test: TestKind
    runs: int
    difference: Difference
    effect: float = 0.0
    p: float | None = None

    @property
    def adjusted_p(self) -> float | None:
        """The corrected p-value of ``test``, or None if there is no test."""
        return self.difference.on_these.p

    @property
    def pair(self) -> tuple[str, str]:
        return self.first, self.second

    @property
    def is_significant(self) -> bool:
        return self.adjusted_p is not None and self.adjusted_p <= ALPHA

    def is_ahead(self, strategy: str, other: str) -> bool:
        """Return whether ``strategy`` is significantly better than ``other``."""
        return self.is_significant and (strategy, other) == (self.pair if self.effect > 0 else self.pair[::-1])

    def reversed(self) -> Contrast:
        """Return the comparison of the second strategy with the first."""
        second, first = self.pair
        opposite = {"effect": -self.effect, "difference": self.difference.reversed()}
        return msgspec.structs.replace(self, first=first, second=second, **opposite)


def find_contrast(contrasts: Iterable[Contrast], first: str, second: str) -> Contrast | None:
    """Return the comparison of ``first`` with ``second``, or None if ``contrasts`` lacks this pair."""
    for contrast in contrasts:
        if {*contrast.pair} == {first, second}:
            return contrast if contrast.first == first else contrast.reversed()
    return None


class Family(
    msgspec.Struct,
    frozen=True,
    rename={"test_count": "tests", "registered_pairs": "registered", "late_pairs": "late", "description": "says"},
):
    """The tests in a report, whose p-values are corrected in two families: registered contrasts, and all others.

    Attributes:
        test_count: The number of tests.
        registered_pairs: The pairs that the study registered before the runs; all others are exploratory.
        late_pairs: The pairs that were added after runs had begun, which are therefore exploratory.
        description: A description of the families in words.
    """

    test_count: int
    registered_pairs: list[tuple[str, str]]
    late_pairs: list[tuple[str, str]]
    description: str


class RankTest(NamedTuple):
    """A rank test of two strategies, or why there is none; see :class:`Contrast`."""

    test: TestKind
    runs: int
    effect: float = 0.0
    p: float | None = None


def compare_pairs(
    runs: Mapping[str, Runs],
    reasons_for_no_test: Mapping[tuple[str, str], TestKind | None],
    compute_level: Level,
    workload: str = "",
) -> list[Contrast]:
    """Compare every pair of strategies with the test described above, without correcting p-values.

    Args:
        runs: The numbers of each strategy.
        reasons_for_no_test: Why some pairs of strategies, in the order of ``runs``, are not tested.
        compute_level: See :meth:`ReportTests.compute_level`.
        workload: The name of the workload.
    """
    numbers = np.array([number for strategy_runs in runs.values() for number in strategy_runs.values()])
    rounded_numbers = iter(round_to_largest(numbers).tolist())
    runs = {name: {seed: next(rounded_numbers) for seed in strategy_runs} for name, strategy_runs in runs.items()}
    contrasts = []
    for first, second in combinations(runs, 2):
        difference = paired_difference(*pair_by_seed(runs[first], runs[second])[:, np.newaxis])
        if reason := reasons_for_no_test.get((first, second)):
            difference = replace(difference, on_these=Answer.without_test(difference.value, reason))
            result = RankTest(reason, min(len(runs[first]), len(runs[second])))
        else:
            result = compare_ranks(runs[first], runs[second], compute_level(first, second))
        contrasts.append(
            Contrast(workload=workload, first=first, second=second, difference=difference, **result._asdict())
        )
    return contrasts


def compare_ranks(first: Runs, second: Runs, level: float) -> RankTest:
    """Compare two strategies by ranks.

    The test is the signed-rank test or, if the strategies share too few seeds for ``level``, the rank-sum test.
    """
    common_seeds = sorted(first.keys() & second.keys())
    if 2.0 ** (2 - len(common_seeds)) <= level:
        pairs = [np.array([runs[seed] for seed in common_seeds]) for runs in (first, second)]
        effect, p = rank_biserial_correlation(*pairs), signed_rank_test(*pairs)
        return RankTest(TestKind.SIGNED_RANK, len(common_seeds), effect, p)
    samples = [np.array([runs[seed] for seed in sorted(runs)]) for runs in (first, second)]
    effect, p = 2 * probability_of_improvement(*samples) - 1, rank_sum_test(*samples)
    return RankTest(TestKind.RANK_SUM, min(map(len, samples)), effect, p)


def pair_by_seed(first: Runs, second: Runs) -> Floats:
    """Return the numbers of two strategies for the same seeds, with NaN where one has no run: shape (2, seeds)."""
    return np.array([[runs.get(seed, math.nan) for seed in sorted({*first, *second})] for runs in (first, second)])


def count_seeds_needed(level: float) -> int:
    """Return the smallest number of seeds with which two strategies can differ significantly at ``level``."""
    return next(n for n in count(1) if 2 / comb(2 * n, n) <= level)


@dataclass(frozen=True)
class ReportTests:
    """The tests in a report, before their p-values are known.

    Attributes:
        on_workloads: The pair of strategies of each test on a single workload.
        over_all: The pair of strategies of each test over all workloads, of which a pair has at most two.
        registered_pairs: The registered contrasts, in the order of the study.
    """

    on_workloads: Sequence[tuple[str, str]]
    over_all: Sequence[tuple[str, str]]
    registered_pairs: Sequence[tuple[str, str]]

    @cached_property
    def _unordered_registered_pairs(self) -> set[frozenset[str]]:
        return set(map(frozenset, self.registered_pairs))

    def is_registered(self, first: str, second: str) -> bool:
        """Return whether two strategies, in either order, form a registered contrast."""
        return frozenset((first, second)) in self._unordered_registered_pairs

    @cached_property
    def _test_counts(self) -> dict[bool, int]:
        """The number of tests that a test on one workload is corrected for, by whether its contrast is registered."""
        on_workloads = Counter(self.is_registered(*pair) for pair in self.on_workloads)
        over_all = [pair for pair in self.over_all if self.is_registered(*pair)]
        # If there are tests on other workloads, they have half of the level.
        family_count = 2 if len(over_all) > len(set(over_all)) else 1
        exploratory_over_all = len(self.over_all) - len(over_all)
        return {True: family_count * on_workloads[True], False: on_workloads[False] + exploratory_over_all}

    def count_tests(self, first: str, second: str) -> int:
        """Return the number of tests that a test of this pair on one workload is corrected for, if all others fail."""
        return self._test_counts[self.is_registered(first, second)]

    def compute_level(self, first: str, second: str) -> float:
        """Return the significance level for a test of this pair on one workload, if it is the first to be rejected.

        For a registered contrast, this is the level after all contrasts were significant over all workloads.
        """
        return ALPHA / self.count_tests(first, second)

    def correct(self, contrasts: Iterable[Contrast]) -> list[Contrast]:
        """Return all contrasts of a report, with the p-values of their differences corrected."""
        contrasts = list(contrasts)
        corrected = self.correct_p(collect_p_values(contrasts))
        return [_with_p_values(contrast, corrected) for contrast in contrasts]

    def correct_p(self, p: Mapping[Key, float]) -> dict[Key, float]:
        """Return the p-values of all tests, corrected as described above."""
        registered = {key: value for key, value in p.items() if self.is_registered(*key[2:])}
        on_these = {key: value for key, value in registered.items() if key[1] == TestKind.PAIRED_T}
        on_others = {key: value for key, value in registered.items() if not key[0] and key not in on_these}
        on_workloads = {key: value for key, value in registered.items() if key[0]}
        exploratory = {key: value for key, value in p.items() if key not in registered}
        corrected = correct_family(on_these)
        largest_first_p = max(corrected.values(), default=0.0)
        second_families = [family for family in (on_others, on_workloads) if family]
        for family in second_families:
            corrected |= {
                key: max(largest_first_p, min(1.0, len(second_families) * value))
                for key, value in correct_family(family).items()
            }
        return corrected | correct_family(exploratory)

    def describe(
        self, test_count: int, late_pairs: Sequence[tuple[str, str]], area: str = "area under the curve"
    ) -> Family:
        """Describe the families of tests.

        Args:
            test_count: The number of tests that have a p-value.
            late_pairs: The contrasts that were added after runs had begun, which do not count as registered.
            area: The name of the area by which strategies are compared.
        """
        description = fill_template(
            _FAMILY,
            test_count=test_count,
            registered_pairs=_format_pairs(self.registered_pairs),
            late_pairs=_format_pairs(late_pairs),
            area=area,
            level=f"{100 * ALPHA:g}",
        )
        return Family(test_count, list(self.registered_pairs), list(late_pairs), description)


def collect_p_values(contrasts: Iterable[Contrast]) -> dict[Key, float]:
    """Return the p-value of each test, for claims about these workloads and for claims about others like them."""
    return {
        (contrast.workload, test, contrast.first, contrast.second): p
        for contrast in contrasts
        for test, p in ((contrast.test, contrast.p), (TestKind.OTHER_WORKLOADS, contrast.difference.on_others.p))
        if p is not None
    }


def _with_p_values(contrast: Contrast, p: Mapping[Key, float]) -> Contrast:
    difference = contrast.difference
    p_of_these = p.get((contrast.workload, contrast.test, *contrast.pair))
    p_of_others = p.get((contrast.workload, TestKind.OTHER_WORKLOADS, *contrast.pair))
    difference = replace(
        difference,
        on_these=replace(difference.on_these, p=p_of_these),
        on_others=replace(difference.on_others, p=p_of_others),
    )
    return msgspec.structs.replace(contrast, difference=difference)


def correct_family(p: Mapping[K, float]) -> dict[K, float]:
    """Correct the p-values of a family of tests by Holm's procedure."""
    return dict(zip(p, holm(np.array(list(p.values()))).tolist(), strict=True))


def find_registered_pairs(comparison: ComparedRuns) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the contrasts in the logs that were registered before the runs, and those that were added later.

    A contrast was registered if it is in the logs of all runs of both strategies, which use the same space. Both lists
    are in the study's order.
    """
    pairs_by_strategy: dict[str, list[list[tuple[str, str]]]] = {}  # the contrasts in the log of each run
    for workload_runs in comparison.values():
        for run in workload_runs.runs:
            prefix = run.strategy.removesuffix(run.log.header.name)
            pairs = [(prefix + first, prefix + second) for first, second in run.log.header.contrasts]
            pairs_by_strategy.setdefault(run.strategy, []).append(pairs)
    registered_pairs: list[tuple[str, str]] = []
    late_pairs: list[tuple[str, str]] = []
    for pair in dict.fromkeys(
        pair for log_pairs in pairs_by_strategy.values() for pairs in log_pairs for pair in pairs
    ):
        if pairs_by_strategy.keys() >= set(pair) and pair[::-1] not in [*registered_pairs, *late_pairs]:
            is_registered = all(pair in pairs for name in pair for pairs in pairs_by_strategy[name])
            (registered_pairs if is_registered else late_pairs).append(pair)
    return registered_pairs, late_pairs


def _format_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return listed([f"{first} against {second}" for first, second in pairs], None)
