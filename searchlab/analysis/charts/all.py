"""All charts of a report as plain numbers, computed once for its page, its pictures and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model import Summary
from ..runs import ComparedRuns, strategy_order
from .bars import Bars, failure_bars, time_bars
from .figures import Figure
from .overall import overall_figures
from .workload import workload_figures


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
