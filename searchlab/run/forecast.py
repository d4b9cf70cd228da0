"""What a study would run, and for how long, judged by the logs that there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..log.budget import UNLIMITED
from ..log.format import Log, read_held
from .plan import Run


@dataclass(frozen=True)
class Forecast:
    """The runs of one strategy in one space of one workload, from every seed.

    runs, complete: the number of them, and of those whose logs are complete.
    trials: to be measured still, at most; None if the budget has no number of them, and no log says what a trial takes.
    seconds: that these take, by the trials that logs hold of the same runs, else of the same space, else of any, and no
        more than the budget; None if none of these is known. Of a table the trials are charged as they were recorded,
        and answered at once.
    """

    workload: str
    space: str
    strategy: str
    runs: int
    complete: int
    trials: int | None
    seconds: float | None


def forecast(runs: Sequence[Run]) -> list[Forecast]:
    """The forecast of ``runs``, in their order. Raises SearchlabError if one of their logs is damaged."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Log | None]]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.searched.name, run.strategy.name), []).append((run, read_held(run.log)))
    spent = {key: [log for _, log in group if log and log.records] for key, group in groups.items()}
    forecasts = []
    for key, group in groups.items():
        nearest = (
            spent[key],
            [log for other, logs in spent.items() if other[:2] == key[:2] for log in logs],
            [log for logs in spent.values() for log in logs],
        )
        logs = next((logs for logs in nearest if logs), [])
        each = sum(float(log.elapsed[-1]) for log in logs) / sum(len(log.records) for log in logs) if logs else None
        left = [_left(run, log, each) for run, log in group if not (log and run.budget.complete(log))]
        trials, seconds = (math.fsum(part) for part in zip((0.0, 0.0), *left, strict=True))
        forecasts.append(
            Forecast(
                *key, len(group), len(group) - len(left),
                int(trials) if math.isfinite(trials) else None, seconds if math.isfinite(seconds) else None,
            )
        )  # fmt: skip
    return forecasts


def _left(run: Run, log: Log | None, each: float | None) -> tuple[float, float]:
    """The trials and the seconds that ``run`` takes still, at most, if a trial takes ``each``; infinite if unknown."""
    done, spent = (len(log.records), float(log.elapsed[-1])) if log and log.records else (0, 0.0)
    trials = math.inf if run.trials == UNLIMITED else float(run.trials - done)
    seconds = math.inf if run.seconds is None else max(0.0, run.seconds - spent)
    if each:
        trials, seconds = min(trials, seconds // each + 1), min(seconds, trials * each)
    return trials, seconds
