"""The data types for the summary of a report."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from ..log.plan import Claim
from ..stats.inference import Difference
from ..stats.ranks import ALPHA
from .columns import OVERALL_COLUMNS, Table, Tables, make_strategy_columns, make_table
from .measures import OverallStrategy, StrategySummary
from .runs import BestKnown, By
from .words import counted


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
        first: The first strategy.
        second: The second strategy.
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


class Outcome(StrEnum):
    """What the tests of the leading strategy show."""

    AHEAD = "ahead"  # it is better than every strategy that it was tested against
    AHEAD_OF_SOME = "ahead of some"
    UNDECIDED = "undecided"
    TOO_FEW_SEEDS = "too few seeds"  # undecided, and no result with so few seeds would be significant
    CONTRADICTED = "contradicted"  # another strategy is significantly better by ranks, although its mean is smaller
    UNTESTED = "untested"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the leading strategy with all others by area.

    Attributes:
        leader: The strategy with the largest mean area.
        better: The strategies that are significantly better than the leader, with their corrected p-values.
        behind: The strategies that are significantly worse.
        undecided: The strategies that cannot be told apart from the leader.
        untested: The remaining strategies, with the reason why there is no test; see :class:`Contrast`.
        seeds: The smallest number of seeds (over all workloads: of runs) in the tests of ``undecided``.
        seeds_needed: The number of seeds that a significant difference needs at least, or None if it is smaller.
    """

    leader: str
    better: dict[str, float]
    behind: dict[str, float]
    undecided: dict[str, float]
    untested: dict[str, str]
    seeds: int
    seeds_needed: int | None

    @property
    def outcome(self) -> Outcome:
        if self.better:
            return Outcome.CONTRADICTED
        if self.behind:
            return Outcome.AHEAD_OF_SOME if self.undecided else Outcome.AHEAD
        if self.undecided:
            return Outcome.TOO_FEW_SEEDS if self.seeds_needed else Outcome.UNDECIDED
        return Outcome.UNTESTED


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


class Explanation(msgspec.Struct, frozen=True):
    """A difference between two strategies in practice; see :mod:`.why`.

    Attributes:
        size: How much faster the best programs are; empty if a strategy has found none.
        why: Why the worse strategy loses; empty if the difference is not significant.
    """

    size: str
    why: str


class WorkloadSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison of strategies on one workload.

    Attributes:
        workload: The name of the workload.
        flops: The floating-point operations per execution; 10^9 if unknown.
        unit: The unit of throughput; see :mod:`searchlab.units`.
        cluster: See :attr:`searchlab.workload.Workload.cluster`.
        horizon: The number of trials that every strategy has, and over which strategies are compared.
        best: The best known program.
        target_gflops: The throughput that counts as converged; None while nothing has succeeded.
        strategies: The strategies, largest mean area first.
        contrasts: The contrasts of all pairs of strategies.
        standing: The comparison of the leading strategy with all others; None with fewer than two strategies.
        verdict: The standing in words.
        notes: Sentences on what the comparison leaves out, and on how comparable the times are.
        explanations: If this is the only workload, explanations as in :class:`Overall`.
    """

    workload: str
    flops: int
    unit: str = "GFLOPS"
    cluster: str = ""
    horizon: int
    best: BestKnown | None
    target_gflops: float | None
    strategies: list[StrategySummary]
    contrasts: list[Contrast]
    standing: Standing | None = None
    verdict: str
    notes: list[str]
    explanations: list[Explanation] = []

    def make_table(self, tables: Tables) -> Table[StrategySummary]:
        """Return the table of strategies that ``tables`` selects."""
        return make_table(self.strategies, make_strategy_columns(self.unit), tables)

    @property
    def by_strategy(self) -> dict[str, StrategySummary]:
        return {row.strategy: row for row in self.strategies}


class ContrastAnswer(msgspec.Struct, frozen=True, rename={"sentence": "says"}):
    """The answer to one registered contrast: is ``first`` better than ``second``?

    Attributes:
        first: The first strategy.
        second: The second strategy.
        verdict: ``better`` or ``worse`` if a test is significant and agrees with the mean difference, which a test of
            ranks may contradict; ``level`` if not and the interval is within the region of practical equivalence;
            ``untested`` if there is no test; otherwise ``undecided``.
        sentence: The effect, its interval, and p on these workloads and on workloads like these.
        difference: The difference in area, ``first`` minus ``second``. Its p-values are corrected for all tests in the
            report, but its intervals are not.
        explanation: The difference in practice.
    """

    first: str
    second: str
    verdict: str
    sentence: str
    difference: Difference
    explanation: Explanation


class Comparand(msgspec.Struct, frozen=True, kw_only=True, rename={"sentence": "says"}):
    """The strategy that a claim is about, compared with one of its opponents.

    Attributes:
        against: The opponent.
        verdict: As in :class:`ClaimVerdict`.
        value: The mean difference (strategy minus opponent) or, if the measure has a unit, the mean ratio of the two.
        lower, upper: The ends of the 95 % interval of ``value``, on which the verdict is based; None if there is none.
        p: The p-value for the hypothesis of no difference, corrected for all tests of claims in the report.
        scope: The workloads to which the interval and ``p`` apply: "workloads like these", "these kernels on other
            devices" or, if there are too few workloads for either, only the compared ones ("these 3 workloads").
        workloads: The number of workloads on which both ran. The strategy is better on ``ahead`` of these workloads,
            the same on ``level``, and worse on ``behind``.
        seeds: The number of pairs of runs on the workload with the fewest pairs.
        unreached: The fraction of compared runs that did not reach the target; they count as using the whole budget.
        sentence: A sentence that states these numbers.
    """

    against: str
    verdict: str
    value: float
    lower: float | None
    upper: float | None
    p: float | None
    scope: str
    workloads: int
    ahead: int
    level: int
    behind: int
    seeds: int
    unreached: float
    sentence: str


class ClaimVerdict(msgspec.Struct, frozen=True, kw_only=True, rename={"sentence": "says", "comparands": "against"}):
    """A published claim, and the verdict on it.

    Attributes:
        claim: The claim, as in the study.
        verdict: The first of ``fails``, ``undecided``, ``untested`` and ``holds`` that applies to any opponent.
        sentence: The effect and its interval for the opponent that decides the verdict.
        comparands: The comparison with each opponent.
    """

    claim: Claim
    verdict: str
    sentence: str
    comparands: list[Comparand]


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison, over all workloads, of the strategies that ran on every workload.

    Attributes:
        workloads: The names of the workloads.
        strategies: The strategies, largest mean area first.
        contrasts: The contrasts of all pairs by area over shared seeds, tested for a difference on these workloads.
        ranks: The average ranks by mean area on each workload; 1 for a strategy that is best everywhere.
        standing: The comparison of the leading strategy with all others.
        verdict: The standing in words.
        explanations: The explanations of the differences from the leader, except in registered contrasts.
    """

    workloads: list[str]
    strategies: list[OverallStrategy]
    contrasts: list[Contrast]
    ranks: dict[str, float]
    standing: Standing
    verdict: str
    explanations: list[Explanation]

    def make_table(self, tables: Tables) -> Table[OverallStrategy]:
        """Return the table of strategies that ``tables`` selects."""
        return make_table(self.strategies, OVERALL_COLUMNS, tables)


class Summary(msgspec.Struct, frozen=True):
    """All numbers in a report.

    Attributes:
        target: The fraction of the best known throughput that counts as converged.
        workloads: The comparison on each workload.
        family: The report's tests.
        overall: The comparison over all workloads. None for a single workload, or if no two strategies share a seed
            on every workload.
        answers: The answers to the registered contrasts, in the study's order.
        claims: The published claims in the study, with their verdicts.
        by: Whether the area by which strategies are compared is over trials or seconds.
    """

    target: float
    workloads: list[WorkloadSummary]
    family: Family
    overall: Overall | None = None
    answers: list[ContrastAnswer] = []
    claims: list[ClaimVerdict] = []
    by: By = "trials"

    def __repr__(self) -> str:
        strategies = {row.strategy for workload_summary in self.workloads for row in workload_summary.strategies}
        return f"<Summary of {counted(len(strategies), 'strategy')} on {counted(len(self.workloads), 'workload')}>"

    @property
    def main(self) -> Overall | WorkloadSummary | None:
        """The comparison over all workloads, or on the only workload."""
        return self.workloads[0] if len(self.workloads) == 1 else self.overall

    @property
    def contrasts(self) -> list[Contrast]:
        """The contrasts in :attr:`main` of strategies that have seeds in common."""
        contrasts = self.main.contrasts if self.main else []
        return [contrast for contrast in contrasts if contrast.difference.workloads]

    def to_json(self) -> dict[str, Any]:
        """Return the summary, without contrasts, as plain dicts, lists, strings and finite numbers, rounded.

        The numbers of each seed are left out, since those are the numbers of the runs.
        """
        data: dict[str, Any] = msgspec.to_builtins(self)
        for item in [*data["workloads"], data["overall"] or {}]:
            item.pop("contrasts", None)
            for row in item.get("strategies", []):
                for value in row.values():
                    if isinstance(value, dict):
                        value.pop("by_seed", None)
        rounded: dict[str, Any] = _round(data)
        return rounded


def _round(data: Any) -> Any:
    """Round all floats to six significant digits."""
    if isinstance(data, dict):
        return {key: _round(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_round(value) for value in data]
    return float(f"{data:.6g}") if isinstance(data, float) else data
