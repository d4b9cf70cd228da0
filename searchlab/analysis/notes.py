"""The notes on a workload's runs in a report: what its comparison leaves out, and how comparable the times are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..log.reliability import find_largest_drift
from .runs import LoggedRun, StrategyRuns, WorkloadRuns
from .words import counted, fill_template, format_number, listed

MAX_DRIFT = 0.1  # a report mentions runs during which the sentinel's time changed by more than this fraction

MEASUREMENT = ("target", "measure")
"""The fields of the header that describe how programs were measured."""

_CONDITIONS = ("host", "workers", "versions")

_DRIFT = """
    The machine drifted during {% if run_count > 1 %}{{ run_count }} of {{ total }} runs, most of all in {% endif %}
    {{- log_name }}, where the first program once took {{ "%.2f" | format(ratio) }} times as long as in its own trial.
"""


def write_notes(workload_runs: WorkloadRuns, ranked_strategies: Sequence[StrategyRuns]) -> list[str]:
    """Return sentences that help readers to interpret the comparison of strategies, which are in the order of rank."""
    return [
        *_note_equal_proposals(workload_runs),
        *_note_unfinished_runs(workload_runs),
        *_note_early_ends(workload_runs, ranked_strategies),
        *_note_different_lengths(workload_runs, ranked_strategies),
        *_note_untested_runs(workload_runs, ranked_strategies),
        *_note_different_seeds(workload_runs, ranked_strategies),
        *write_measurement_notes(workload_runs),
    ]


def _note_equal_proposals(workload_runs: WorkloadRuns) -> Iterator[str]:
    """Yield a sentence for each group of strategies that proposed the same, as they do before they learn."""
    horizon = workload_runs.horizon
    names_by_proposals: dict[frozenset[tuple[int, str]], list[str]] = {}
    for name, runs in workload_runs.strategies.items():
        proposals = frozenset((run.seed, "\n".join(run.log.configs[:horizon])) for run in runs.compared_runs)
        names_by_proposals.setdefault(proposals, []).append(name)
    for names in names_by_proposals.values():
        if len(names) > 1 and horizon:
            yield (
                f"{listed(names, None)} proposed the same configs in all {horizon} trials, so they differ only in "
                f"the noise of measurements: they had not begun to use what they learn, which takes more trials."
            )


def _note_unfinished_runs(workload_runs: WorkloadRuns) -> Iterator[str]:
    if logs := [run.log_name for run in workload_runs.empty_runs]:
        yield f"Not counted, because there are no trials yet: {listed(logs)}."
    if logs := [run.log_name for run in workload_runs.runs if run.is_running]:
        yield f"Still running, and included up to now: {listed(logs)}."


def _note_early_ends(workload_runs: WorkloadRuns, ranked_strategies: Sequence[StrategyRuns]) -> Iterator[str]:
    for strategy_runs in ranked_strategies:
        lengths_by_reason: dict[str, list[int]] = {}
        for run in workload_runs.runs_by_strategy[strategy_runs.strategy]:
            has_spent_seconds = (
                run.log.run_end and run.log.run_end.seconds is not None and workload_runs.by == "seconds"
            )
            if run.end_reason and not has_spent_seconds and run.log.trial_count < workload_runs.horizon:
                lengths_by_reason.setdefault(run.end_reason, []).append(run.log.trial_count)
        for reason, lengths in lengths_by_reason.items():
            span = " to ".join(dict.fromkeys((f"{min(lengths)}", f"{max(lengths)}")))
            yield (
                f"{counted(len(lengths), 'run')} of {strategy_runs.strategy} ended after {span} of "
                f"{workload_runs.horizon} trials, because {reason}; the best program found by then counts for the "
                f"remaining trials."
            )


def _note_different_lengths(workload_runs: WorkloadRuns, ranked_strategies: Sequence[StrategyRuns]) -> Iterator[str]:
    if workload_runs.by == "trials" and len({runs.trial_count for runs in ranked_strategies}) > 1:
        longer = [
            f"{runs.strategy} completed {runs.trial_count}"
            for runs in ranked_strategies
            if runs.trial_count > workload_runs.horizon
        ]
        yield (
            f"All are compared over the first {workload_runs.horizon} trials, which every strategy has completed: "
            f"{listed(longer)}. To compare more, continue the others."
        )


def _note_untested_runs(workload_runs: WorkloadRuns, ranked_strategies: Sequence[StrategyRuns]) -> Iterator[str]:
    """Yield sentences on the runs that were stopped too early, and on strategies whose runs are all the same."""
    limit = f"trial {workload_runs.horizon}"
    if workload_runs.by == "seconds":
        limit = f"{workload_runs.seconds_horizon:.3g} seconds"
    for strategy_runs in ranked_strategies:
        if runs := strategy_runs.interrupted_runs:
            end = "Not yet at" if any(run.is_running for run in runs) else "Stopped before"
            yield f"{end} {limit}, and therefore excluded: {listed([run.log_name for run in runs])}."
        if strategy_runs.is_deterministic:
            yield (
                f"{strategy_runs.strategy} produces the same run from each of {len(strategy_runs.runs)} seeds, which "
                f"does not show how runs vary, so it is not tested."
            )


def _note_different_seeds(workload_runs: WorkloadRuns, ranked_strategies: Sequence[StrategyRuns]) -> Iterator[str]:
    more = [
        f"{runs.strategy} has {len(runs.complete_runs)}"
        for runs in ranked_strategies
        if len(runs.complete_runs) > len(runs.compared_runs)
    ]
    if more:
        yield (
            f"All are compared over the {counted(len(workload_runs.seeds), 'seed')} that every strategy has completed: "
            f"{listed(more)}. To compare more, run the others with these seeds."
        )
    if fewer := workload_runs.labels_of_fewer_seeds:
        yield (
            f"Compared over fewer seeds than others: {listed([*fewer.values()])}. Means are over all of these, and "
            "differences over the seeds that both strategies have."
        )


def write_measurement_notes(workload_runs: WorkloadRuns) -> list[str]:
    """Return sentences on how comparable the times in a workload's logs are.

    They report differences between the logs, machine drift, differences that the machine cannot resolve, whether the
    fastest trials were measured again, and for how many trials a table used the nearest config.
    """
    runs = workload_runs.runs
    return [
        *_note_different_measurement(runs),
        *_note_different_conditions(runs),
        *_note_drift(runs),
        *_note_resolution(workload_runs),
        *_note_finalists(runs),
        *_note_nearest_configs(workload_runs),
    ]


def _note_different_measurement(runs: Sequence[LoggedRun]) -> Iterator[str]:
    if difference := describe_measurement_difference(runs):
        yield f"{difference}."


def _note_finalists(runs: Sequence[LoggedRun]) -> Iterator[str]:
    if run_count := sum(run.log.finalist_times is not None for run in runs):
        yield (
            f"The fastest trials of {counted(run_count, 'run')} were measured again after the search. The best "
            "programs are shown with these times; the comparison uses the times measured during the search."
        )


def find_header_difference(runs: Sequence[LoggedRun], fields: Iterable[str]) -> tuple[str, LoggedRun, Any, Any] | None:
    """Return the first header field in which a run differs from the first run, with that run and both values."""
    for field in fields:
        first = getattr(runs[0].log.header, field)
        for run in runs[1:]:
            if (value := getattr(run.log.header, field)) != first:
                return field, run, msgspec.to_builtins(first), msgspec.to_builtins(value)
    return None


def describe_measurement_difference(runs: Sequence[LoggedRun]) -> str:
    """Return a sentence on how two runs of a workload were measured differently, or "" if all were measured alike."""
    first_run, *other_runs = runs
    for run in other_runs:
        headers = first_run.log.header, run.log.header
        differences = [
            f"{field}.{name} is {first!r} in the first and {second!r} in the second"
            for field in MEASUREMENT
            for name, (first, second) in _find_differences(*(getattr(header, field) for header in headers)).items()
        ]
        if differences:
            return (
                f"{first_run.log_name} and {run.log_name} measured {run.workload} in different ways, so strategies "
                f"measured differently are compared, but not tested: {'; '.join(differences[:3])}"
            )
    return ""


def _find_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of each key in which two mappings differ.

    If keys of both differ, keys that only one of them has are omitted: for example, each kind of measurement has
    settings of its own.
    """
    keys = dict.fromkeys([*first, *second])
    pairs = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    return {key: pair for key, pair in pairs.items() if key in first and key in second} or pairs


def _note_different_conditions(runs: Sequence[LoggedRun]) -> Iterator[str]:
    if differences := [difference for field in _CONDITIONS if (difference := find_header_difference(runs, (field,)))]:
        fields = listed([field for field, *_ in differences])
        _, run, *_ = differences[0]
        yield f"The logs differ in their {fields} ({runs[0].log_name} and {run.log_name}): compare times with care."


def _note_drift(runs: Sequence[LoggedRun]) -> Iterator[str]:
    drifts = [(ratio, run) for run in runs if (ratio := find_largest_drift(run.log)) is not None]
    if large_drifts := [(ratio, run) for ratio, run in drifts if abs(ratio - 1) > MAX_DRIFT]:
        ratio, run = max(large_drifts, key=lambda drift: abs(math.log(drift[0])))
        yield fill_template(_DRIFT, run_count=len(large_drifts), total=len(drifts), log_name=run.log_name, ratio=ratio)


def _note_resolution(workload_runs: WorkloadRuns) -> Iterator[str]:
    """Yield which strategies' best times differ from the fastest by less than the machine resolves."""
    medians = {
        strategy: float(np.median([run.log.costs.min(initial=math.inf) for run in runs]))
        for strategy, runs in workload_runs.runs_by_strategy.items()
    }
    fastest = min(medians, key=lambda strategy: medians[strategy])
    resolutions = [run.log.header.machine.get("resolution") for run in workload_runs.runs]
    resolution = max((value for value in resolutions if isinstance(value, float)), default=0.0)
    if close := [strategy for strategy, cost in medians.items() if 1 < cost / medians[fastest] < 1 + resolution]:
        yield (
            f"Two measurements of the same program may differ by {format_number(100 * resolution)} % on this machine. "
            f"The best times of {listed(close)} (medians over the runs) differ from that of {fastest} by less."
        )


def _note_nearest_configs(workload_runs: WorkloadRuns) -> Iterator[str]:
    shares = []
    for strategy, runs in workload_runs.runs_by_strategy.items():
        is_nearest = np.concatenate([run.log.nearest for run in runs])
        if is_nearest.any():
            shares.append(f"{100 * int(is_nearest.sum()) / len(is_nearest):.1f} % of the trials of {strategy}")
    if shares:
        yield (
            f"Some proposed configs are not in the table, so the nearest config in it was used for {', '.join(shares)}."
        )
