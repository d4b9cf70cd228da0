"""What strategies come to over all workloads of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .contrasts import contrasts
from .diagram import diagram
from .model import AREA, NO_SEED, Overall, OverallStrategy, StrategySummary, WorkloadSummary
from .stats.intervals import Interval, interquartile_interval, mean_of_means_interval
from .verdict import significance
from .words import listed


def overall(workloads: Sequence[WorkloadSummary], *, so_far: bool = False) -> Overall | None:
    """None for one workload, and where no two strategies ran on all of them, with a seed in common on each.

    so_far: whether a run has yet to begin.
    """
    rows = [item.by_strategy for item in workloads]
    names = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    if len(workloads) < 2 or len(names) < 2:
        return None
    strategies = sorted((_strategy([row[name] for row in rows]) for name in names), key=lambda s: -s.area.value)
    names = [strategy.strategy for strategy in strategies]
    single = [name for name in names if any(row[name].one_run for row in rows)]
    compared = contrasts(AREA, {name: _numbers([row[name] for row in rows], workloads) for name in names}, single)
    if all(contrast.test == NO_SEED for contrast in compared):
        return None
    means = np.array([[np.mean(row[name].area.by_seed) for name in names] for row in rows])
    first, second = (_area_text(strategy.area) for strategy in strategies[:2])
    so_far = so_far or not all(row[name].complete for row in rows for name in names)
    return Overall(
        workloads=[item.workload for item in workloads],
        strategies=strategies,
        contrasts=compared,
        diagram=diagram(names, means),
        verdict=f"{'So far, over' if so_far else 'Over'} {len(workloads)} workloads {names[0]} converges fastest by "
        f"area under the curve ({first}, {names[1]} {second}); {significance(names, compared, AREA, unit='run')}."
        + "".join(f" {note}" for note in dict.fromkeys(row.area.note for row in strategies[:2] if row.area.note))
        + _left_out(workloads, names),
    )


def _left_out(workloads: Sequence[WorkloadSummary], names: Sequence[str]) -> str:
    """Sentences on what the verdict does not rest on: runs that were stopped early, trials that some do not have."""
    rows = [item.by_strategy[name] for item in workloads for name in names]
    said = ""
    if stopped := [row for row in rows if row.interrupted]:
        number = sum(len(row.interrupted) for row in stopped)
        whose = listed(list(dict.fromkeys(row.strategy for row in stopped)))
        said += (
            f" {number} run{'s' * (number > 1)} of {whose} stopped early, and {'are' if number > 1 else 'is'} left out."
        )
    if unequal := [item for item in workloads if any(item.by_strategy[name].trials != item.horizon for name in names)]:
        budgets = listed([f"{item.horizon} on {item.workload}" for item in unequal])
        said += f" Strategies have unequal trials, and are compared over those that all have: {budgets}."
    return said


def _strategy(rows: Sequence[StrategySummary]) -> OverallStrategy:
    areas = [np.array(row.area.by_seed) for row in rows]
    scores = [np.array(row.score_by_seed) for row in rows if row.score_by_seed is not None]
    return OverallStrategy(
        rows[0].strategy,
        interquartile_interval(areas).within(0, 1),
        mean_of_means_interval(scores).within(-math.inf, 1) if len(scores) == len(rows) else None,
        float(np.mean([row.ecdf_area for row in rows])),
    )


def _area_text(area: Interval) -> str:
    if area.lower is None or area.upper is None:
        return f"{area.value:.2f}"
    return f"{area.value:.2f} [{area.lower:.2f}, {area.upper:.2f}]"


def _numbers(rows: Sequence[StrategySummary], workloads: Sequence[WorkloadSummary]) -> dict[tuple[str, int], float]:
    """(workload, seed) -> the negative area of that run: lower is better."""
    return {
        (item.workload, seed): -area
        for row, item in zip(rows, workloads, strict=True)
        for seed, area in zip(row.seeds, row.area.by_seed, strict=True)
    }
