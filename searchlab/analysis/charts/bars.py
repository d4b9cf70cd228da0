"""The stacked bars of a report as plain numbers: where the time went, and which trials failed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...records import FAILURES
from ..measures import TIME_PARTS
from ..model import WorkloadSummary


class Bar(msgspec.Struct, frozen=True):
    """The bar of one strategy: a value for each part. total: the whole that the values are parts of."""

    strategy: str
    values: Sequence[float]
    total: float


class Bars(msgspec.Struct, frozen=True):
    """A bar for each strategy of a workload, in the order of its summary."""

    parts: Sequence[str]
    rows: Sequence[Bar]


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
