"""All charts of a report as plain numbers, computed once for its page, its pictures and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ...records import FAILURES
from ..measures import TIME_PARTS
from ..model import Summary, WorkloadSummary
from ..runs import ComparedRuns, strategy_order
from .figures import Figure
from .overall import overall_figures
from .workload import workload_figures


class Bar(msgspec.Struct, frozen=True):
    """The bar of one strategy: a value for each part. total: the whole that the values are parts of."""

    strategy: str
    values: Sequence[float]
    total: float


class Bars(msgspec.Struct, frozen=True):
    """A bar for each strategy of a workload, in the order of its summary."""

    parts: Sequence[str]
    rows: Sequence[Bar]


@dataclass(frozen=True)
class Charts:
    """The charts of a report, by workload.

    figures: line charts; under "" those over all workloads, where there are any. strategies: the order that gives each
    strategy its colour.
    """

    strategies: Sequence[str]
    figures: Mapping[str, Sequence[Figure]]
    time: Mapping[str, Bars]
    failures: Mapping[str, Bars]


def all_charts(summary: Summary, comparison: ComparedRuns) -> Charts:
    """The charts of ``summary``, which is that of ``comparison``."""
    items = {item.workload: item for item in summary.workloads}
    figures = {workload: workload_figures(item, comparison[workload]) for workload, item in items.items()}
    if summary.overall:
        figures[""] = overall_figures(summary.overall, summary.workloads)
    return Charts(
        strategies=strategy_order(comparison),
        figures=figures,
        time={workload: time_bars(item) for workload, item in items.items()},
        failures={workload: failure_bars(item) for workload, item in items.items()},
    )


def time_bars(item: WorkloadSummary) -> Bars:
    """Where the seconds of each strategy went, on average over seeds; the total is their sum."""
    rows = []
    for row in item.strategies:
        runs = len(row.trials_by_seed)
        values = [getattr(row.seconds, part) / runs for part in TIME_PARTS]
        rows.append(Bar(row.strategy, values, row.seconds.total / runs))
    return Bars(TIME_PARTS, rows)


def failure_bars(item: WorkloadSummary) -> Bars:
    """The failed trials of each strategy by kind, for the kinds that there are; the total is the number of trials."""
    kinds = [kind for kind in FAILURES if any(row.failures[kind] for row in item.strategies)]
    rows = [
        Bar(row.strategy, [row.failures[kind] for kind in kinds], sum(row.trials_by_seed)) for row in item.strategies
    ]
    return Bars(kinds, rows)
