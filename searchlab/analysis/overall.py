"""What strategies come to over all workloads of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from .contrasts import Contrast, contrasts
from .diagram import Diagram, diagram
from .estimates import Estimate
from .stats.aggregates import Sample, bootstrap, interquartile_mean, mean_of_means
from .stats.curves import Floats
from .verdict import AREA, noise

if TYPE_CHECKING:
    from .summary import StrategySummary, WorkloadSummary


class OverallStrategy(msgspec.Struct, frozen=True):
    """One strategy over all workloads; intervals are of runs resampled within each workload.

    area: interquartile mean of the area under the curve. score: mean over workloads of the score against random
    search, None where a workload has none. ecdf_area: mean over workloads.
    """

    strategy: str
    area: Estimate
    score: Estimate | None
    ecdf_area: float


class Overall(msgspec.Struct, frozen=True, kw_only=True):
    """Those strategies that have runs on every workload, the best by area first.

    contrasts: every pair of them by area, over the runs of all workloads with the seeds that all of them have; they say
    whether strategies differ on these workloads. diagram: by mean area on each workload; whether they differ on
    workloads like these.
    """

    workloads: list[str]
    strategies: list[OverallStrategy]
    contrasts: list[Contrast]
    diagram: Diagram
    verdict: str


def overall(workloads: Sequence[WorkloadSummary]) -> Overall | None:
    """None for one workload, and where no two strategies ran on all of them, with a seed in common on each."""
    rows = [{row.strategy: row for row in item.strategies} for item in workloads]
    names = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    common = [set.intersection(*(set(row[name].seeds) for name in names)) for row in rows] if names else []
    if len(workloads) < 2 or len(names) < 2 or not all(common):
        return None
    strategies = sorted((_strategy([row[name] for row in rows]) for name in names), key=lambda s: -s.area.value)
    names = [strategy.strategy for strategy in strategies]
    compared = contrasts(AREA, {name: _runs([row[name] for row in rows], workloads, common) for name in names})
    means = np.array([[np.mean(row[name].area.by_seed) for name in names] for row in rows])
    first, second = (_shown(strategy.area) for strategy in strategies[:2])
    return Overall(
        workloads=[item.workload for item in workloads],
        strategies=strategies,
        contrasts=compared,
        diagram=diagram(names, means),
        verdict=f"Over {len(workloads)} workloads {names[0]} converges fastest by area under the curve "
        f"({first}, {names[1]} {second}); {noise(names, compared, AREA, unit='run')}.",
    )


def _strategy(rows: Sequence[StrategySummary]) -> OverallStrategy:
    areas = [np.array(row.area.by_seed) for row in rows]
    scores = [np.array(row.score_by_seed) for row in rows if row.score_by_seed is not None]
    return OverallStrategy(
        rows[0].strategy,
        _estimate(areas, interquartile_mean),
        _estimate(scores, mean_of_means) if len(scores) == len(rows) else None,
        float(np.mean([row.ecdf_area for row in rows])),
    )


def _estimate(sample: Sample, statistic: Callable[[Sample], Floats]) -> Estimate:
    return Estimate(float(statistic(sample)), *bootstrap(sample, statistic))


def _shown(area: Estimate) -> str:
    """Without an interval that has no width: of one seed on each workload there is nothing to resample."""
    return f"{area.value:.2f}" + f" [{area.lower:.2f}, {area.upper:.2f}]" * (area.lower < area.upper)


def _runs(
    rows: Sequence[StrategySummary], workloads: Sequence[WorkloadSummary], seeds: Sequence[set[int]]
) -> dict[tuple[str, int], float]:
    """Less the area of the runs with ``seeds`` on each workload."""
    return {
        (item.workload, seed): -area
        for row, item, wanted in zip(rows, workloads, seeds, strict=True)
        for seed, area in zip(row.seeds, row.area.by_seed, strict=True)
        if seed in wanted
    }
