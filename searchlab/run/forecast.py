"""What a study would run, and for how long, judged by the logs that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..log.format import Log, read_held
from .plan import Run


@dataclass(frozen=True)
class Forecast:
    """The runs of one strategy in one space of one workload, from every seed.

    runs, complete: the number of them, and of those whose logs are complete. trials: to be measured still.
    seconds: that these take, by the trials that logs hold of the same runs, else of the same space, else of any; None
        if no log holds any. Of a table the trials are charged as they were recorded, and answered at once.
    """

    workload: str
    space: str
    strategy: str
    runs: int
    complete: int
    trials: int
    seconds: float | None


def forecast(runs: Sequence[Run]) -> list[Forecast]:
    """The forecast of ``runs``, in their order. Raises SearchlabError if one of their logs is damaged."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Log | None]]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.searched.name, run.strategy.name), []).append((run, read_held(run.log)))
    spent = {key: [log for _, log in group if log and log.records] for key, group in groups.items()}
    forecasts = []
    for key, group in groups.items():
        left = [0 if log and log.ended else max(0, run.trials - len(log.records if log else ())) for run, log in group]
        nearest = (
            spent[key],
            [log for other, logs in spent.items() if other[:2] == key[:2] for log in logs],
            [log for logs in spent.values() for log in logs],
        )
        logs = next((logs for logs in nearest if logs), [])
        each = sum(float(log.elapsed[-1]) for log in logs) / sum(len(log.records) for log in logs) if logs else None
        seconds = 0.0 if not sum(left) else each and sum(left) * each
        forecasts.append(Forecast(*key, len(group), left.count(0), sum(left), seconds))
    return forecasts
