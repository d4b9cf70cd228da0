"""The notes on a workload's runs in a report: what its comparison leaves out, and how comparable the times are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..log.reliability import largest_drift
from .runs import LoggedRun, StrategyRuns, WorkloadRuns
from .words import counted, listed, number_text

DRIFT = 0.1  # a report mentions runs during which the sentinel's time changed by more than this fraction

MEASUREMENT = ("target", "measure")
"""The fields of the header that describe how programs were measured."""

_CONDITIONS = ("host", "workers", "versions")


def workload_notes(item: WorkloadRuns, groups: Sequence[StrategyRuns]) -> list[str]:
    """Return sentences that help readers to interpret the comparison of ``groups``, which are in the order of rank."""
    return [
        *_equal_proposals(item),
        *_unfinished_runs(item),
        *_early_ends(item, groups),
        *_different_lengths(item, groups),
        *_untested_runs(item, groups),
        *_different_seeds(item, groups),
        *measurement_notes(item.runs),
    ]


def _equal_proposals(item: WorkloadRuns) -> Iterator[str]:
    """Yield a sentence for each group of strategies that proposed the same, as they do before they learn."""
    names_by_proposals: dict[frozenset[tuple[int, bytes]], list[str]] = {}
    for name, runs in item.strategies.items():
        proposals = frozenset((run.seed, b"\n".join(run.log.configs[: item.horizon])) for run in runs.compared_runs)
        names_by_proposals.setdefault(proposals, []).append(name)
    for names in names_by_proposals.values():
        if len(names) > 1 and item.horizon:
            yield (
                f"{listed(names, None)} proposed the same configs in all {item.horizon} trials, so they differ only in "
                f"the noise of measurements: they had not begun to use what they learn, which takes more trials."
            )


def _unfinished_runs(item: WorkloadRuns) -> Iterator[str]:
    if files := [run.file for run in item.empty_runs]:
        yield f"Not counted, because there are no trials yet: {listed(files)}."
    if files := [run.file for run in item.runs if run.running]:
        yield f"Still running, and included up to now: {listed(files)}."


def _early_ends(item: WorkloadRuns, groups: Sequence[StrategyRuns]) -> Iterator[str]:
    for group in groups:
        lengths_by_reason: dict[str, list[int]] = {}
        for run in item.by_strategy[group.strategy]:
            spent = run.log.ended and run.log.ended.seconds is not None and item.by == "seconds"
            if run.end_reason and not spent and run.log.trials < item.horizon:
                lengths_by_reason.setdefault(run.end_reason, []).append(run.log.trials)
        for reason, lengths in lengths_by_reason.items():
            span = " to ".join(dict.fromkeys((f"{min(lengths)}", f"{max(lengths)}")))
            yield (
                f"{counted(len(lengths), 'run')} of {group.strategy} ended after {span} of {item.horizon} trials, "
                f"because {reason}; the best program found by then counts for the remaining trials."
            )


def _different_lengths(item: WorkloadRuns, groups: Sequence[StrategyRuns]) -> Iterator[str]:
    if item.by == "trials" and len({group.trials for group in groups}) > 1:
        longer = [f"{group.strategy} completed {group.trials}" for group in groups if group.trials > item.horizon]
        yield (
            f"All are compared over the first {item.horizon} trials, which every strategy has completed: "
            f"{listed(longer)}. To compare more, continue the others."
        )


def _untested_runs(item: WorkloadRuns, groups: Sequence[StrategyRuns]) -> Iterator[str]:
    """Yield sentences on the runs that were stopped too early, and on strategies whose runs are all the same."""
    limit = f"{item.seconds_horizon:.3g} seconds" if item.by == "seconds" else f"trial {item.horizon}"
    for group in groups:
        if runs := group.interrupted_runs:
            end = "Not yet at" if any(run.running for run in runs) else "Stopped before"
            yield f"{end} {limit}, and therefore excluded: {listed([run.file for run in runs])}."
        if group.is_deterministic:
            yield (
                f"{group.strategy} produces the same run from each of {len(group.runs)} seeds, which does not show how "
                f"runs vary, so it is not tested."
            )


def _different_seeds(item: WorkloadRuns, groups: Sequence[StrategyRuns]) -> Iterator[str]:
    counts = [(group.strategy, len(group.complete_runs), len(group.compared_runs)) for group in groups]
    if more := [f"{name} has {complete}" for name, complete, compared in counts if complete > compared]:
        yield (
            f"All are compared over the {counted(len(item.seeds), 'seed')} that every strategy has completed: "
            f"{listed(more)}. To compare more, run the others with these seeds."
        )
    if fewer := item.fewer_seeds:
        yield (
            f"Compared over fewer seeds than others: {listed([*fewer.values()])}. Means are over all of these, and "
            "differences over the seeds that both strategies have."
        )


def measurement_notes(runs: Sequence[LoggedRun]) -> list[str]:
    """Return sentences on how comparable the times in a workload's logs are.

    They report differences between the logs, machine drift, differences that the machine cannot resolve, whether the
    fastest trials were measured again, and for how many trials a table used the nearest config.
    """
    notes = [f"{note}." for note in [measurement_difference(runs)] if note]
    notes += [*_header_note(runs), *_drift_note(runs), *_resolution_note(runs)]
    if retimed := sum(run.log.final is not None for run in runs):
        notes.append(
            f"The fastest trials of {counted(retimed, 'run')} were measured again after the search. The best programs "
            "are shown with these times; the comparison uses the times measured during the search."
        )
    return [*notes, *_nearest_note(runs)]


def header_difference(runs: Sequence[LoggedRun], fields: Iterable[str]) -> tuple[str, LoggedRun, Any, Any] | None:
    """Return the first header field in which a run differs from the first run, with that run and both values."""
    for field in fields:
        first = getattr(runs[0].log.header, field)
        for run in runs[1:]:
            if (value := getattr(run.log.header, field)) != first:
                return field, run, msgspec.to_builtins(first), msgspec.to_builtins(value)
    return None


def measurement_difference(runs: Sequence[LoggedRun]) -> str:
    """Return a sentence on how two runs of a workload were measured differently, or "" if all were measured alike."""
    header = runs[0].log.header
    for run in runs[1:]:
        differences = [
            f"{field}.{name} is {first!r} in the first and {second!r} in the second"
            for field in MEASUREMENT
            for name, (first, second) in _differences(getattr(header, field), getattr(run.log.header, field)).items()
        ]
        if differences:
            return (
                f"{runs[0].file} and {run.file} measured {run.workload} in different ways, so strategies measured "
                f"differently are compared, but not tested: {'; '.join(differences[:3])}"
            )
    return ""


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of each key in which two mappings differ. Keys of one alone count only if no others do."""
    keys = dict.fromkeys([*first, *second])
    pairs = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    return {key: pair for key, pair in pairs.items() if key in first and key in second} or pairs


def _header_note(runs: Sequence[LoggedRun]) -> Iterator[str]:
    if differences := [difference for field in _CONDITIONS if (difference := header_difference(runs, (field,)))]:
        fields = listed([field for field, *_ in differences])
        _, run, *_ = differences[0]
        yield f"The logs differ in their {fields} ({runs[0].file} and {run.file}): compare times with care."


def _drift_note(runs: Sequence[LoggedRun]) -> Iterator[str]:
    drifts = [(ratio, run) for run in runs if (ratio := largest_drift(run.log)) is not None]
    if large := [(ratio, run) for ratio, run in drifts if abs(ratio - 1) > DRIFT]:
        ratio, run = max(large, key=lambda pair: abs(math.log(pair[0])))
        most = "" if len(large) == 1 else f"{len(large)} of {len(drifts)} runs, most of all in "
        yield (
            f"The machine drifted during {most}{run.file}, where the first program once took {ratio:.2f} times as "
            "long as in its own trial."
        )


def _resolution_note(runs: Sequence[LoggedRun]) -> Iterator[str]:
    """Yield which strategies' best times differ from the fastest by less than the machine resolves."""
    best: dict[str, list[float]] = {}
    for run in runs:
        best.setdefault(run.strategy, []).append(float(run.log.costs.min(initial=math.inf)))
    medians = {strategy: float(np.median(costs)) for strategy, costs in best.items()}
    first = min(medians, key=lambda strategy: medians[strategy])
    values = [run.log.header.machine.get("resolution") for run in runs]
    resolution = max((value for value in values if isinstance(value, float)), default=0.0)
    if close := [strategy for strategy, cost in medians.items() if 1 < cost / medians[first] < 1 + resolution]:
        yield (
            f"Two measurements of the same program may differ by {number_text(100 * resolution)} % on this machine. "
            f"The best times of {listed(close)} (medians over the runs) differ from that of {first} by less."
        )


def _nearest_note(runs: Sequence[LoggedRun]) -> Iterator[str]:
    by_strategy: dict[str, list[LoggedRun]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    shares = []
    for strategy, strategy_runs in by_strategy.items():
        nearest = np.concatenate([run.log.nearest for run in strategy_runs])
        if nearest.any():
            shares.append(f"{100 * int(nearest.sum()) / len(nearest):.1f} % of the trials of {strategy}")
    if shares:
        yield (
            f"Some proposed configs are not in the table, so the nearest config in it was used for {', '.join(shares)}."
        )
