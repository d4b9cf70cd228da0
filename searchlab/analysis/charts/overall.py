"""The line charts over all workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..measures import SECONDS, TRIALS, StrategySummary
from ..model import Overall, WorkloadSummary
from ..stats.aggregates import performance_profile, run_score_profile
from ..stats.curves import Floats
from .figures import BY_SECONDS, BY_TRIALS, POINTS, Figure, Series, View, shorten


def overall_figures(overall: Overall, workloads: Sequence[WorkloadSummary]) -> list[Figure]:
    """Performance profile and run-score distribution of the strategies that ran on every workload."""
    names = [row.strategy for row in overall.strategies]
    rows = [item.by_strategy for item in workloads]
    return [_performance_profile(names, rows), _run_scores(names, rows)]


def _performance_profile(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    views = []
    for key, measure in ((BY_TRIALS, TRIALS), (BY_SECONDS, SECONDS)):
        times = _times(names, rows, measure)
        quickest = times.min(axis=1, keepdims=True)
        ratios = np.divide(times, quickest, out=np.ones_like(times), where=np.isfinite(times) & (quickest > 0))
        at = np.geomspace(1, max(2.0, float(ratios.max())), POINTS)
        parts = performance_profile(times, at)
        views.append(View(
            key=key, name=key, label=f"times the {key} of the quickest", x=shorten(at), top=1.0,
            quantity="part of all (workload, seed) pairs",
            series=[Series(name, shorten(part)) for name, part in zip(names, parts, strict=True)],
        ))  # fmt: skip
    return Figure(
        key="profile", title="Performance profile", views=views,
        brief="how often the target was reached within so many times the fewest",
        says="The part of all workloads and seeds on which a strategy reached the target within so many times the "
        "trials, or seconds, of the quickest there. At 1: how often it was the quickest. At the right: how often it "
        "got there at all.",
    )  # fmt: skip


def _times(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]], measure: str) -> Floats:
    """What ``measure`` took, infinity where the target was not reached: shape (problems, strategies).

    A problem is a workload with a seed that all strategies have there.
    """
    times = []
    for row in rows:
        reached = {name: row[name].by_seed(measure) for name in names}
        common = set.intersection(*(set(by_seed) for by_seed in reached.values()))
        times += [[reached[name][seed] for name in names] for seed in sorted(common)]
    return np.array(times)


def _run_scores(names: Sequence[str], rows: Sequence[Mapping[str, StrategySummary]]) -> Figure:
    at = np.linspace(0, 1, 101)
    series = [
        Series(name, shorten(run_score_profile([np.array(row[name].area.by_seed) for row in rows], at)))
        for name in names
    ]
    view = View(
        key="area", name="area", label="area under the curve", x=shorten(at), series=series, top=1.0,
        quantity="part of all runs above it",
    )  # fmt: skip
    return Figure(
        key="runs", title="Distribution of runs", views=[view], ends=False,
        brief="how many of all runs have a larger area under the curve",
        says="The part of all runs of all workloads whose area under the convergence curve is above a value. A line "
        "that lies above another everywhere is better whatever one asks of it.",
    )  # fmt: skip
