"""Computing the numbers in a report: comparisons on each workload and over all workloads, and registered contrasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import msgspec
import numpy as np

from ..log.plan import Claim
from ..stats.inference import no_answer, paired_difference
from ..stats.ranks import average_ranks, round_to_largest
from .claims import claim_verdicts
from .contrasts import PageTests, contrasts, named_contrasts, p_values, pair_by_seed, with_adjusted
from .measures import AREA, OverallStrategy, StrategySummary, rank_over_all, sort_by_area
from .model import (
    FOOTING,
    NO_NOISE,
    NO_SEED,
    ONE_RUN,
    ONE_SEED,
    PAIRED_T,
    Contrast,
    ContrastAnswer,
    Explanation,
    Overall,
    Summary,
    WorkloadSummary,
    find_contrast,
)
from .notes import workload_notes
from .runs import TARGET, By, ComparedRuns, WorkloadRuns
from .verdict import SO_FAR, answer, answer_word, compare_leader, verdict
from .why import explain, practical_size
from .words import area_text, counted


def summarize(comparison: ComparedRuns, claims: Sequence[Claim] = ()) -> Summary:
    """Summarise runs read by :func:`~searchlab.analysis.read.read_runs`. Equal logs yield equal numbers.

    Args:
        comparison: The runs.
        claims: The published claims to test.
    """
    by: By = next((item.by for item in comparison.values()), "trials")
    area = area_text(by)
    drafts = {item.workload: _workload(item) for item in comparison.values()}
    strategies, over_all_workloads = compare_over_all(list(drafts.values()))
    pairs = [
        (first.strategy, second.strategy)
        for draft in drafts.values()
        for first, second in combinations(draft.strategies, 2)
        if not _no_test(first, second)
    ]
    of_all = p_values("", over_all_workloads)
    named = named_contrasts(comparison)
    registered = [pair for pair, in_time in named.items() if in_time]
    tests = PageTests.from_pairs(pairs, [(first, second) for _, _, first, second in of_all], registered)
    contrasts_of = {workload: _contrasts(draft, tests) for workload, draft in drafts.items()}
    p = {key: value for workload, own in contrasts_of.items() for key, value in p_values(workload, own).items()}
    adjusted = tests.adjusted(p | of_all)
    unfinished = [workload for workload, draft in drafts.items() if not _is_finished(draft, comparison[workload])]
    workloads = []
    for workload, draft in drafts.items():
        compared = with_adjusted(workload, contrasts_of[workload], adjusted)
        rows = draft.strategies
        names = [row.strategy for row in rows]
        standing = compare_leader(names[0], compared, tests) if len(rows) > 1 else None
        text = verdict(rows, standing, area, so_far=workload in unfinished)
        is_alone = len(drafts) == 1 and names
        why = _explanations(names[0], compared, registered, [comparison[workload]]) if is_alone else []
        workloads.append(
            msgspec.structs.replace(draft, contrasts=compared, standing=standing, verdict=text, explanations=why)
        )
    compared = workloads[0].contrasts if len(workloads) == 1 else with_adjusted("", over_all_workloads, adjusted)
    answered = answers(tests.registered, compared, area, comparison)
    if unfinished:
        answered = [msgspec.structs.replace(item, says=f"{item.says} {SO_FAR}") for item in answered]
    overall = None
    if strategies:
        overall = _overall(workloads, strategies, compared, registered, comparison, so_far=bool(unfinished))
    return Summary(
        TARGET,
        workloads,
        tests.family(len(adjusted), [pair for pair, in_time in named.items() if not in_time], area),
        overall,
        answered,
        claim_verdicts(comparison, claims),
        by,
    )


def _is_finished(item: WorkloadSummary, runs: WorkloadRuns) -> bool:
    """Return whether all runs on a workload, and all others of its study that have not begun, are complete."""
    return not (runs.waiting or runs.not_started) and all(row.complete for row in item.strategies)


# --- one workload -----------------------------------------------------------------------------------------------------


def _workload(item: WorkloadRuns) -> WorkloadSummary:
    """Summarise a workload without its contrasts and verdict, which depend on the numbers of all workloads."""
    rows = sort_by_area(StrategySummary(name, runs) for name, runs in item.strategies.items())
    return WorkloadSummary(
        workload=item.workload,
        flops=item.flops,
        unit=item.unit,
        cluster=item.cluster,
        horizon=item.horizon,
        best=item.best,
        target_gflops=item.target if item.best else None,
        strategies=rows,
        contrasts=[],
        verdict="",
        notes=workload_notes(item, [item.strategies[row.strategy] for row in rows]),
    )


def _contrasts(item: WorkloadSummary, tests: PageTests) -> list[Contrast]:
    """Return the contrasts of all pairs of strategies, with uncorrected p-values."""
    untested = {
        frozenset((first.strategy, second.strategy)): why
        for first, second in combinations(item.strategies, 2)
        if (why := _no_test(first, second))
    }
    return contrasts({row.strategy: row.by_seed(AREA) for row in item.strategies}, untested, tests.level)


def _no_test(first: StrategySummary, second: StrategySummary) -> str:
    """Return why two strategies are not tested on a workload, or "" if they are."""
    if first.one_run or second.one_run:
        return ONE_RUN
    return FOOTING if first.footing != second.footing else ""


NOTES = {
    NO_SEED: "The strategies do not have a seed in common on every workload.",
    ONE_RUN: "One of the two produces the same run from every seed, which does not show how runs vary.",
    FOOTING: "The two were measured in different ways.",
}
"""Why there is no answer over all workloads."""


# --- all workloads ----------------------------------------------------------------------------------------------------


def compare_over_all(workloads: Sequence[WorkloadSummary]) -> tuple[list[OverallStrategy], list[Contrast]]:
    """Compare the strategies that ran on all of several workloads, largest mean area first.

    Returns:
        The strategies, and the contrasts of all pairs in their order, with uncorrected p-values. Both are empty if no
        two strategies share a seed on every workload.
    """
    rows = [item.by_strategy for item in workloads]
    strategies = rank_over_all(rows) if len(workloads) > 1 else []
    compared = [
        _contrast_over_all(
            [row[first.strategy] for row in rows],
            [row[second.strategy] for row in rows],
            [item.cluster for item in workloads],
        )
        for first, second in combinations(strategies, 2)
    ]
    return ([], []) if all(contrast.test == NO_SEED for contrast in compared) else (strategies, compared)


def _contrast_over_all(
    first: Sequence[StrategySummary], second: Sequence[StrategySummary], clusters: Sequence[str]
) -> Contrast:
    """Compare two strategies over all workloads, given their summaries and the cluster for each workload."""
    areas = [pair_by_seed(a.by_seed(AREA), b.by_seed(AREA)) for a, b in zip(first, second, strict=True)]
    difference = paired_difference([own for own, _ in areas], [other for _, other in areas], clusters)
    why = next(filter(None, map(_no_test, first, second)), "")
    if difference.workloads < len(first):
        why = NO_SEED
    if why:
        none = no_answer(difference.value, NOTES[why])
        others = difference.on_others if why == ONE_RUN else none  # workloads vary even if runs do not
        difference = replace(difference, on_these=none, on_others=others)
    if difference.on_these.p is None:
        why = why or (ONE_SEED if difference.pairs < 2 else NO_NOISE)
    return Contrast(
        first=first[0].strategy,
        second=second[0].strategy,
        test=why or PAIRED_T,
        runs=sum(int((~np.isnan(own - other)).sum()) for own, other in areas),
        difference=difference,
        effect=difference.value,
        p=difference.on_these.p,
    )


def _overall(
    workloads: Sequence[WorkloadSummary],
    strategies: list[OverallStrategy],
    compared: list[Contrast],
    registered: Sequence[tuple[str, str]],
    comparison: ComparedRuns,
    *,
    so_far: bool,
) -> Overall:
    """Return the comparison over all workloads, given the corrected contrasts."""
    by = comparison[workloads[0].workload].by
    names = [strategy.strategy for strategy in strategies]
    rows = [item.by_strategy for item in workloads]
    means = np.array([[row[name].area.value for name in names] for row in rows])
    standing = compare_leader(names[0], compared)
    over = f" across {counted(len(workloads), 'workload')}"
    sentences = [verdict(strategies, standing, f"mean {area_text(by)}", over, so_far=so_far)]
    if tuple(names[:2]) not in registered and tuple(names[1::-1]) not in registered:
        sentences.append(answer(compared[0], area_text(by)))
    return Overall(
        workloads=[item.workload for item in workloads],
        strategies=strategies,
        contrasts=compared,
        ranks=dict(zip(names, average_ranks(round_to_largest(means)).tolist(), strict=True)),
        standing=standing,
        verdict=" ".join(sentences),
        explanations=_explanations(names[0], compared, registered, list(comparison.values())),
    )


def _explain(contrast: Contrast, items: Sequence[WorkloadRuns]) -> Explanation:
    loser, winner = contrast.pair[::-1] if contrast.difference.value > 0 else contrast.pair
    why = explain(loser, winner, items) if contrast.significant else ""
    return Explanation(practical_size(loser, winner, items), why)


def _explanations(
    leader: str, compared: Sequence[Contrast], registered: Sequence[tuple[str, str]], items: Sequence[WorkloadRuns]
) -> list[Explanation]:
    """Explain the differences from the leader, except in registered contrasts, which are answered."""
    pairs = [{*pair} for pair in registered]
    return [
        _explain(contrast, items) for contrast in compared if contrast.first == leader and {*contrast.pair} not in pairs
    ]


# --- registered contrasts ---------------------------------------------------------------------------------------------


def answers(
    registered: Sequence[tuple[str, str]], contrasts: Sequence[Contrast], area: str, comparison: ComparedRuns
) -> list[ContrastAnswer]:
    """Answer the registered contrasts, in the study's order.

    Args:
        registered: The contrasts.
        contrasts: The corrected contrasts over all workloads, or on the only workload. Registered contrasts that are
            not among them, because a strategy did not run on every workload, are skipped.
        area: The name of the area by which strategies are compared.
        comparison: The runs.
    """
    answered = []
    for first, second in registered:
        if contrast := find_contrast(contrasts, first, second):
            says, explanation = answer(contrast, area), _explain(contrast, list(comparison.values()))
            word = answer_word(contrast)
            answered.append(ContrastAnswer(first, second, word, says, contrast.difference, explanation))
    return answered
