"""How much of a study's work is done, and how long the rest takes, according to its logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np

from ..arrays import Floats
from .budget import UNLIMITED
from .format import Log
from .plan import PlannedRun

INTERRUPTION_SECONDS = 600.0
"""The time between two trials, in seconds, above which the run is assumed to have been interrupted in between."""


@dataclass(frozen=True)
class RunStatus:
    """How much of a planned run is done.

    Attributes:
        charged: The charged seconds so far, the last value of ``Log.elapsed_seconds``.
        trial_seconds: Wall-clock time spent on trials, in seconds.
        wait_count: The number of trials on which this time was spent.
    """

    run: PlannedRun
    trial_count: int = 0
    charged: float = 0.0
    trial_seconds: float = 0.0
    wait_count: int = 0
    is_complete: bool = False

    @classmethod
    def from_log(cls, run: PlannedRun, log: Log | None) -> Self:
        """Return the status of ``run`` according to ``log``, its log, or None if it has none."""
        if log is None:
            return cls(run)
        times = [log.header.created_at, *(record.recorded_at for record in log.records)]
        waits = [wait for wait in np.diff(times).tolist() if 0 <= wait < INTERRUPTION_SECONDS]
        charged = float(log.elapsed_seconds[-1]) if log.records else 0.0
        return cls(run, len(log.records), charged, math.fsum(waits), len(waits), run.budget.is_complete(log))

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run.workload, self.run.space, self.run.strategy


class Forecast(
    msgspec.Struct,
    frozen=True,
    rename={"run_count": "runs", "complete_count": "complete", "trial_count": "trials"},
):
    """The remaining work for one strategy in one space for one workload, over all seeds.

    Attributes:
        trial_count: The maximum number of remaining trials; None if neither the budget nor a log limits it.
        seconds: The time for these trials if the runs follow one another; None if unknown.
    """

    workload: str
    space: str
    strategy: str
    run_count: int
    complete_count: int
    trial_count: int | None
    seconds: float | None


def forecast(statuses: Sequence[RunStatus]) -> list[Forecast]:
    """Forecast the remaining work for each strategy, in the order of ``statuses``.

    The time per trial is estimated from the strategy's logs in the same space or, if there are none, from all logs in
    that space or, failing that, from all logs. If there are no logs, only a budget of seconds limits the time.
    """
    groups: dict[tuple[str, str, str], list[RunStatus]] = {}
    sums_by_key: dict[tuple[str, ...], Floats] = {}  # of the four numbers below
    for status in statuses:
        groups.setdefault(status.key, []).append(status)
        numbers = np.array([status.trial_count, status.charged, status.trial_seconds, status.wait_count])
        for key in (status.key, status.key[:2], ()):
            sums_by_key[key] = sums_by_key.get(key, 0.0) + numbers
    forecasts = []
    for key, group in groups.items():
        candidate_sums = [sums_by_key[candidate_key] for candidate_key in (key, key[:2], ())]
        group_sums = next((sums for sums in candidate_sums if sums[-1]), None)  # of those that contain trials
        estimates = [_estimate_remainder(status, group_sums) for status in group if not status.is_complete]
        trial_count = math.fsum(trial_count for trial_count, _ in estimates)
        seconds = math.fsum(seconds for _, seconds in estimates)
        forecasts.append(
            Forecast(
                *key,
                len(group),
                len(group) - len(estimates),
                int(trial_count) if math.isfinite(trial_count) else None,
                seconds if math.isfinite(seconds) else None,
            )
        )
    return forecasts


def sum_forecasts(forecasts: Sequence[Forecast]) -> tuple[int | None, float | None]:
    """Return the maximum number of trials and the seconds left in all runs. A number that is unknown is None."""
    trial_counts = [estimate.trial_count for estimate in forecasts if estimate.trial_count is not None]
    seconds = [estimate.seconds for estimate in forecasts if estimate.seconds is not None]
    count = len(forecasts)
    return (
        sum(trial_counts) if len(trial_counts) == count else None,
        math.fsum(seconds) if len(seconds) == count else None,
    )


def _estimate_remainder(status: RunStatus, sums: Floats | None) -> tuple[float, float]:
    """Return the maximum number of trials and seconds left in a run, or infinity for a number that is unknown.

    ``sums`` are the trial_count, charged, trial_seconds and wait_count of the runs from which the time is estimated.
    """
    budget = status.run.budget
    trial_count = math.inf if budget.trials == UNLIMITED else max(0.0, float(budget.trials - status.trial_count))
    seconds = math.inf if budget.seconds is None else max(0.0, budget.seconds - status.charged)
    if sums is None:
        return trial_count, seconds
    done_count, charged, trial_seconds, wait_count = sums.tolist()
    if charged and math.isfinite(seconds):
        trial_count = min(trial_count, seconds // (charged / done_count) + 1)
    return trial_count, trial_count * trial_seconds / wait_count
