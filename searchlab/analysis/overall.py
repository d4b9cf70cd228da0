"""What strategies come to over all workloads of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .contrasts import contrasts
from .diagram import diagram
from .model import AREA, Estimate, Overall, OverallStrategy, StrategySummary, WorkloadSummary
from .stats.aggregates import interquartile_mean
from .verdict import significance


def overall(workloads: Sequence[WorkloadSummary]) -> Overall | None:
    """None for one workload, and where no two strategies ran on all of them, with a seed in common on each."""
    rows = [item.by_strategy for item in workloads]
    names = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    common = [set.intersection(*(set(row[name].seeds) for name in names)) for row in rows] if names else []
    if len(workloads) < 2 or len(names) < 2 or not all(common):
        return None
    strategies = sorted((_strategy([row[name] for row in rows]) for name in names), key=lambda s: -s.area.value)
    names = [strategy.strategy for strategy in strategies]
    compared = contrasts(AREA, {name: _numbers([row[name] for row in rows], workloads, common) for name in names})
    means = np.array([[np.mean(row[name].area.by_seed) for name in names] for row in rows])
    first, second = (_area_text(strategy.area) for strategy in strategies[:2])
    return Overall(
        workloads=[item.workload for item in workloads],
        strategies=strategies,
        contrasts=compared,
        diagram=diagram(names, means),
        verdict=f"Over {len(workloads)} workloads {names[0]} converges fastest by area under the curve "
        f"({first}, {names[1]} {second}); {significance(names, compared, AREA, unit='run')}.",
    )


def _strategy(rows: Sequence[StrategySummary]) -> OverallStrategy:
    areas = [np.array(row.area.by_seed) for row in rows]
    scores = [np.array(row.score_by_seed) for row in rows if row.score_by_seed is not None]
    return OverallStrategy(
        rows[0].strategy,
        Estimate.of(areas, interquartile_mean),
        Estimate.of(scores) if len(scores) == len(rows) else None,
        float(np.mean([row.ecdf_area for row in rows])),
    )


def _area_text(area: Estimate) -> str:
    """Without an interval that has no width: where each workload has one seed, there is nothing to resample."""
    return f"{area.value:.2f}" + f" [{area.lower:.2f}, {area.upper:.2f}]" * (area.lower < area.upper)


def _numbers(
    rows: Sequence[StrategySummary], workloads: Sequence[WorkloadSummary], seeds: Sequence[set[int]]
) -> dict[tuple[str, int], float]:
    """(workload, seed) -> the negative area of that run, for the ``seeds`` of each workload: lower is better."""
    return {
        (item.workload, seed): -area
        for row, item, wanted in zip(rows, workloads, seeds, strict=True)
        for seed, area in zip(row.seeds, row.area.by_seed, strict=True)
        if seed in wanted
    }
