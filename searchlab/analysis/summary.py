"""A comparison as numbers: for each workload the best known, a row for each strategy, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec

from .contrasts import PageTests, contrasts, p_values, registered_pairs, with_adjusted
from .measures import AREA, TRIALS, StrategySummary
from .model import Contrast, Summary, WorkloadSummary
from .overall import answers, overall, together
from .read import footing_notes
from .runs import TARGET, ComparedRuns, WorkloadRuns, alike
from .verdict import ranked, verdict
from .words import listed


def summarize(comparison: ComparedRuns) -> Summary:
    """Summarise what :func:`~searchlab.analysis.read.read_runs` has read; equal logs give equal numbers."""
    drafts = {item.workload: _workload(item) for item in comparison.values()}
    over_all = together(list(drafts.values()))
    tested = [
        pair
        for draft in drafts.values()
        for pair in combinations([row.strategy for row in draft.strategies if not row.one_run], 2)
    ]
    over_them = [(first, second) for _, _, first, second in (over_all.p if over_all else ())]
    tests = PageTests.of(tested, over_them, registered_pairs(comparison))
    contrasts_of = {workload: _contrasts(draft, tests) for workload, draft in drafts.items()}
    p = {key: value for workload, own in contrasts_of.items() for key, value in p_values(workload, own).items()}
    adjusted = tests.adjusted(p | (over_all.p if over_all else {}))
    workloads = [
        _judged(comparison[workload], draft, with_adjusted(workload, contrasts_of[workload], adjusted), tests)
        for workload, draft in drafts.items()
    ]
    waiting = any(item.waiting for item in comparison.values())
    return Summary(
        TARGET,
        workloads,
        tests.family(len(adjusted)),
        overall(over_all, adjusted, so_far=waiting) if over_all else None,
        answers(tests.registered, workloads, over_all, adjusted),
    )


def _contrasts(item: WorkloadSummary, tests: PageTests) -> list[Contrast]:
    """Return the contrasts by every measure; p-values are not corrected yet."""
    single = [row.strategy for row in item.strategies if row.one_run]
    found = []
    for name in StrategySummary.compared_by():
        sign = -1 if StrategySummary.measures[name].better is max else 1
        numbers = {r.strategy: {seed: sign * value for seed, value in r.by_seed(name).items()} for r in item.strategies}
        found += contrasts(name, numbers, single, tests.level if name == AREA else None)
    return found


def _judged(runs: WorkloadRuns, item: WorkloadSummary, compared: list[Contrast], tests: PageTests) -> WorkloadSummary:
    in_start = _in_start(runs, item.strategies)
    said = verdict(item.strategies, compared, TARGET, tests, in_start=in_start, so_far=bool(runs.waiting))
    return msgspec.structs.replace(item, contrasts=compared, verdict=said)


def _workload(item: WorkloadRuns) -> WorkloadSummary:
    """Summarise a workload, without contrasts and verdict: these need the numbers of all workloads."""
    rows = ranked([StrategySummary(name, runs) for name, runs in item.strategies.items()])
    return WorkloadSummary(
        workload=item.workload,
        flops=item.flops,
        unit=item.unit,
        horizon=item.horizon,
        best=item.best,
        target_gflops=item.target if item.best else None,
        strategies=rows,
        contrasts=[],
        verdict="",
        notes=_length_notes(item, rows) + footing_notes(item.runs),
    )


def _in_start(item: WorkloadRuns, rows: Sequence[StrategySummary]) -> str:
    """Return a clause on the seeds whose start, shared by the first two of ``rows``, reached the target, if any."""
    if len(rows) < 2:
        return ""
    first, second = ({run.seed: run for run in item.strategies[row.strategy].compared} for row in rows[:2])
    hits = rows[0].by_seed(TRIALS)
    common = first.keys() & second.keys()
    there = sum(hits[seed] <= alike([first[seed].log.configs, second[seed].log.configs]) for seed in common)
    seeds = f"{there} of {len(common)} seed{'s' * (len(common) != 1)}"
    return f"; in {seeds} their shared random start reached it" if there else ""


def _length_notes(item: WorkloadRuns, rows: Sequence[StrategySummary]) -> list[str]:
    """Return sentences on runs that are left out, on the budget, and on strategies that are one run."""
    notes = []
    if waiting := [run.file for run in item.waiting]:
        has, are = ("has", "is") if len(waiting) == 1 else ("have", "are")
        notes.append(f"{listed(waiting)} {has} no trial yet and {are} not counted.")
    if running := [run.file for run in item.runs if run.running]:
        are, their = ("is", "its trials") if len(running) == 1 else ("are", "their trials")
        notes.append(f"{listed(running)} {are} still running: this covers {their} up to now.")
    for row in rows:
        notes += _ended_notes(item, row.strategy)
    if len({row.trials for row in rows}) > 1:
        longer = listed([f"{row.strategy} has {row.trials}" for row in rows if row.trials > item.horizon])
        notes.append(f"All are compared over the first {item.horizon} trials, which every strategy has: {longer}.")
    for row in rows:
        if row.interrupted:
            runs = item.strategies[row.strategy].interrupted
            was, it_is = ("were", "they are") if len(runs) > 1 else ("was", "it is")
            end = "did not come to" if any(run.running for run in runs) else f"{was} stopped before"
            notes.append(
                f"{listed([run.file for run in runs])} {end} trial {item.horizon}: {it_is} left out of the comparison, "
                f"except for ERT."
            )
        if row.one_run:
            notes.append(
                f"{row.strategy} makes the same run from each of {len(row.trials_by_seed)} seeds: it counts as one "
                f"run, without an interval and without a test."
            )
    return notes


def _ended_notes(item: WorkloadRuns, strategy: str) -> list[str]:
    """Return a sentence for each reason why runs of ``strategy`` ended before they had all trials."""
    by_reason: dict[tuple[str, bool], list[int]] = {}
    for run in item.by_strategy[strategy]:
        if ended := run.log.ended:
            by_reason.setdefault((ended.reason, ended.by_policy), []).append(run.log.trials)
    notes = []
    for (reason, by_policy), lengths in by_reason.items():
        one = len(lengths) == 1
        runs, keep = ("1 run", "it keeps its") if one else (f"{len(lengths)} runs", "they keep their")
        selves = "" if not by_policy else " by itself" if one else " by themselves"
        span = f"{min(lengths)}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
        notes.append(
            f"{runs} of {strategy} ended{selves} after {span} of {item.horizon} trials, where {reason}: {keep} best "
            f"from there on."
        )
    return notes
