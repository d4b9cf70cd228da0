"""The summary of a report: comparisons on each workload and over all workloads, and answers to registered contrasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from ..log.plan import Claim
from ..stats.inference import Answer, Difference, paired_difference
from ..stats.ranks import average_ranks, round_to_largest
from .claims import ClaimVerdict, judge_claims
from .columns import OVERALL_COLUMNS, Table, Tables, make_strategy_columns, make_table
from .contrasts import (
    Contrast,
    Family,
    ReportTests,
    TestKind,
    collect_p_values,
    compare_pairs,
    find_contrast,
    find_registered_pairs,
    pair_by_seed,
)
from .explanations import Explanation, explain_contrast
from .measures import OverallStrategy, StrategySummary, rank_over_all, sort_by_area
from .notes import MEASUREMENT, write_notes
from .runs import TARGET_FRACTION, BestKnown, ComparedRuns, CurveAxis, StrategyRuns, WorkloadRuns
from .verdict import UNFINISHED_SENTENCE, Standing, compare_leader, judge_contrast, write_answer, write_verdict
from .words import counted, name_area

Ranking = Mapping[str, StrategySummary]
"""The strategies on a workload by name, largest mean area first."""


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
        first: The strategy that the contrast asks about.
        second: The strategy that it is compared with.
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
    by: CurveAxis = "trials"

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
        for fields in [*data["workloads"], data["overall"] or {}]:
            fields.pop("contrasts", None)
            for row in fields.get("strategies", []):
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


def summarize(comparison: ComparedRuns, claims: Sequence[Claim] = ()) -> Summary:
    """Summarise runs read by :func:`~searchlab.analysis.read.read_runs`. Equal logs yield equal numbers.

    Args:
        comparison: The runs, by workload.
        claims: The published claims to test.
    """
    by: CurveAxis = next((workload_runs.by for workload_runs in comparison.values()), "trials")
    rankings = {workload: _rank_strategies(workload_runs) for workload, workload_runs in comparison.items()}
    strategies, overall_contrasts = compare_over_all(comparison, rankings)
    registered_pairs, late_pairs = find_registered_pairs(comparison)
    reasons_by_workload = {
        workload: _find_reasons_for_no_test(comparison[workload], ranking) for workload, ranking in rankings.items()
    }
    tests = ReportTests(
        [pair for reasons in reasons_by_workload.values() for pair, reason in reasons.items() if reason is None],
        [(first, second) for _, _, first, second in collect_p_values(overall_contrasts)],
        registered_pairs,
    )
    contrasts = list(overall_contrasts)
    for workload, ranking in rankings.items():
        areas = {name: row.area_by_seed for name, row in ranking.items()}
        contrasts += compare_pairs(areas, reasons_by_workload[workload], tests.compute_level, workload)
    contrasts_by_workload: dict[str, list[Contrast]] = {workload: [] for workload in ("", *comparison)}
    for contrast in tests.correct(contrasts):
        contrasts_by_workload[contrast.workload].append(contrast)
    workloads = [
        _summarize_workload(
            comparison[workload],
            ranking,
            contrasts_by_workload[workload],
            tests,
            is_only_workload=len(rankings) == 1,
        )
        for workload, ranking in rankings.items()
    ]
    main_contrasts = contrasts_by_workload[workloads[0].workload if len(workloads) == 1 else ""]
    return Summary(
        target=TARGET_FRACTION,
        workloads=workloads,
        family=tests.describe(len(collect_p_values(contrasts)), late_pairs, name_area(by)),
        overall=_summarize_all(comparison, rankings, strategies, contrasts_by_workload[""], tests)
        if strategies
        else None,
        answers=answer_registered_contrasts(registered_pairs, main_contrasts, comparison),
        claims=judge_claims(comparison, claims),
        by=by,
    )


def _rank_strategies(workload_runs: WorkloadRuns) -> Ranking:
    rows = sort_by_area(map(StrategySummary.from_runs, workload_runs.strategies.values()))
    return {row.strategy: row for row in rows}


# --- one workload -----------------------------------------------------------------------------------------------------


def _find_reasons_for_no_test(workload_runs: WorkloadRuns, ranking: Ranking) -> dict[tuple[str, str], TestKind | None]:
    """Return why each pair of strategies is not tested, or None if it is."""
    strategies = workload_runs.strategies
    return {
        (first, second): _find_reason_for_no_test(strategies[first], strategies[second])
        for first, second in combinations(ranking, 2)
    }


def _find_reason_for_no_test(first: StrategyRuns, second: StrategyRuns) -> TestKind | None:
    """Return why two strategies are not tested on a workload, or None if they are."""
    if first.is_deterministic or second.is_deterministic:
        return TestKind.SAME_RUNS
    if any(getattr(first.header, field) != getattr(second.header, field) for field in MEASUREMENT):
        return TestKind.DIFFERENT_MEASUREMENT
    return None


def _summarize_workload(
    workload_runs: WorkloadRuns,
    ranking: Ranking,
    contrasts: list[Contrast],
    tests: ReportTests,
    *,
    is_only_workload: bool,
) -> WorkloadSummary:
    """Summarise a workload, given its strategies and their corrected contrasts."""
    rows = list(ranking.values())
    standing = compare_leader(rows[0].strategy, contrasts, tests) if len(rows) > 1 else None
    has_explanations = is_only_workload and rows
    return WorkloadSummary(
        workload=workload_runs.workload,
        flops=workload_runs.flops,
        unit=workload_runs.unit,
        cluster=workload_runs.cluster,
        horizon=workload_runs.horizon,
        best=workload_runs.best,
        target_gflops=workload_runs.target_gflops if workload_runs.best else None,
        strategies=rows,
        contrasts=contrasts,
        standing=standing,
        verdict=write_verdict(rows, standing, name_area(workload_runs.by), is_finished=workload_runs.is_finished),
        notes=write_notes(workload_runs, [workload_runs.strategies[name] for name in ranking]),
        explanations=_explain_leader(rows[0].strategy, contrasts, tests, [workload_runs]) if has_explanations else [],
    )


NO_ANSWER_NOTES = {
    TestKind.NO_COMMON_SEED: "The strategies do not have a seed in common on every workload.",
    TestKind.SAME_RUNS: "One of the two produces the same run from every seed, which does not show how runs vary.",
    TestKind.DIFFERENT_MEASUREMENT: "The two were measured in different ways.",
}
"""Why there is no answer over all workloads."""


# --- all workloads ----------------------------------------------------------------------------------------------------


def compare_over_all(
    comparison: ComparedRuns, rankings: Mapping[str, Ranking]
) -> tuple[list[OverallStrategy], list[Contrast]]:
    """Compare the strategies that ran on all of several workloads, largest mean area first.

    Args:
        comparison: The runs, by workload.
        rankings: The strategies on each workload.

    Returns:
        The strategies, and the contrasts of all pairs in their order, with uncorrected p-values. Both are empty if no
        two strategies share a seed on every workload.
    """
    strategies = rank_over_all(list(rankings.values())) if len(rankings) > 1 else []
    contrasts = [
        _compare_two_over_all(first.strategy, second.strategy, comparison, rankings)
        for first, second in combinations(strategies, 2)
    ]
    if all(contrast.test is TestKind.NO_COMMON_SEED for contrast in contrasts):
        return [], []
    return strategies, contrasts


def _compare_two_over_all(
    first: str, second: str, comparison: ComparedRuns, rankings: Mapping[str, Ranking]
) -> Contrast:
    """Compare two strategies over all workloads."""
    areas = [pair_by_seed(ranking[first].area_by_seed, ranking[second].area_by_seed) for ranking in rankings.values()]
    clusters = [workload_runs.cluster for workload_runs in comparison.values()]
    first_areas, second_areas = [pair[0] for pair in areas], [pair[1] for pair in areas]
    difference = paired_difference(first_areas, second_areas, clusters)
    reasons = (
        _find_reason_for_no_test(workload_runs.strategies[first], workload_runs.strategies[second])
        for workload_runs in comparison.values()
    )
    reason = next(filter(None, reasons), None)
    if difference.workloads < len(rankings):
        reason = TestKind.NO_COMMON_SEED
    if reason:
        no_test = Answer.without_test(difference.value, NO_ANSWER_NOTES[reason])
        # Workloads vary even if runs do not.
        on_others = difference.on_others if reason is TestKind.SAME_RUNS else no_test
        difference = replace(difference, on_these=no_test, on_others=on_others)
    elif difference.on_these.p is None:
        reason = TestKind.ONE_COMMON_SEED if difference.pairs < 2 else TestKind.EQUAL_DIFFERENCES
    return Contrast(
        first=first,
        second=second,
        test=reason or TestKind.PAIRED_T,
        runs=sum(int((~np.isnan(first_area - second_area)).sum()) for first_area, second_area in areas),
        difference=difference,
        effect=difference.value,
        p=difference.on_these.p,
    )


def _summarize_all(
    comparison: ComparedRuns,
    rankings: Mapping[str, Ranking],
    strategies: list[OverallStrategy],
    contrasts: list[Contrast],
    tests: ReportTests,
) -> Overall:
    """Summarise all workloads, given the strategies that ran on each, in the order of rank, and corrected contrasts."""
    all_runs = list(comparison.values())
    area = name_area(all_runs[0].by)
    names = [strategy.strategy for strategy in strategies]
    means = np.array([[rows[name].area.value for name in names] for rows in rankings.values()])
    standing = compare_leader(names[0], contrasts)
    over = f" across {counted(len(comparison), 'workload')}"
    is_finished = all(workload_runs.is_finished for workload_runs in all_runs)
    sentences = [write_verdict(strategies, standing, f"mean {area}", over, is_finished=is_finished)]
    if not tests.is_registered(*names[:2]):
        sentences.append(write_answer(contrasts[0], area))
    return Overall(
        workloads=list(comparison),
        strategies=strategies,
        contrasts=contrasts,
        ranks=dict(zip(names, average_ranks(round_to_largest(means)).tolist(), strict=True)),
        standing=standing,
        verdict=" ".join(sentences),
        explanations=_explain_leader(names[0], contrasts, tests, all_runs),
    )


# --- explanations and answers -----------------------------------------------------------------------------------------


def _explain_leader(
    leader: str, contrasts: Sequence[Contrast], tests: ReportTests, comparison: Sequence[WorkloadRuns]
) -> list[Explanation]:
    """Explain the differences from the leader, except in registered contrasts, which are answered."""
    return [
        explain_contrast(contrast, comparison)
        for contrast in contrasts
        if contrast.first == leader and not tests.is_registered(*contrast.pair)
    ]


def answer_registered_contrasts(
    registered_pairs: Sequence[tuple[str, str]],
    contrasts: Sequence[Contrast],
    comparison: ComparedRuns,
) -> list[ContrastAnswer]:
    """Answer the registered contrasts, in the study's order.

    Args:
        registered_pairs: The strategies in the registered contrasts.
        contrasts: The corrected contrasts over all workloads, or on the only workload. Registered contrasts that are
            not among them, because a strategy did not run on every workload, are skipped.
        comparison: The runs, by workload.
    """
    all_runs = list(comparison.values())
    is_finished = all(workload_runs.is_finished for workload_runs in all_runs)
    answers = []
    for first, second in registered_pairs:
        if contrast := find_contrast(contrasts, first, second):
            sentence = write_answer(contrast, name_area(all_runs[0].by))
            answers.append(
                ContrastAnswer(
                    first=first,
                    second=second,
                    verdict=judge_contrast(contrast),
                    sentence=sentence if is_finished else f"{sentence} {UNFINISHED_SENTENCE}",
                    difference=contrast.difference,
                    explanation=explain_contrast(contrast, all_runs),
                )
            )
    return answers
