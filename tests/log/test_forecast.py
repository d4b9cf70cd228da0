"""What is left of a study, and how long it takes, according to the logs of its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from searchlab.log.budget import UNLIMITED, Budget
from searchlab.log.forecast import PAUSE, RunStatus, forecast, sum_forecasts
from searchlab.log.format import Ended, Log
from searchlab.log.plan import PlannedRun
from tests.support.logs import HEADER, make_record


def planned(strategy: str, *, workload: str = "w", space: str = "s", trials: int = 10, **limits: Any) -> PlannedRun:
    budget = Budget(trials, **limits)
    return PlannedRun(log="a.jsonl", workload=workload, space=space, strategy=strategy, seed=0, budget=budget)


def timed(*times: float) -> Log:
    """Return a log whose trials ended at ``times``, and are charged 0.33 s each."""
    records = tuple(
        msgspec.structs.replace(make_record(index), time=HEADER.created + at) for index, at in enumerate(times)
    )
    return Log(Path("a.jsonl"), HEADER, records)


def test_time_left_is_judged_by_the_nearest_logs_there_are() -> None:
    statuses = [
        RunStatus.from_log(planned("fast"), timed(2, 4, 6, 8)),
        RunStatus.from_log(planned("slow"), timed(20, 40)),
        RunStatus(planned("new")),
        RunStatus(planned("new", workload="other")),
        RunStatus.from_log(planned("done", trials=1, workload="third"), timed(5)),
    ]
    left = {(item.workload, item.strategy): (item.trials, item.seconds) for item in forecast(statuses)}
    each, overall = (4 * 2 + 2 * 20) / 6, (4 * 2 + 2 * 20 + 5) / 7
    assert left == {
        ("w", "fast"): (6, 12.0),
        ("w", "slow"): (8, 160.0),
        ("w", "new"): (10, 10 * each),
        ("other", "new"): (10, 10 * overall),
        ("third", "done"): (0, 0.0),
    }
    assert sum_forecasts(forecast(statuses)) == (34, 12 + 160 + 10 * each + 10 * overall)


def test_an_interruption_is_no_time_spent_on_a_trial() -> None:
    (left,) = forecast([RunStatus.from_log(planned("a"), timed(3, 6, 6 + PAUSE + 1, 9 + PAUSE + 1))])
    assert (left.trials, left.seconds) == (6, 18.0)


def test_budgets_of_seconds_limit_trials_and_time() -> None:
    limited = planned("a", trials=UNLIMITED, seconds=3.2)
    (left,) = forecast([RunStatus(limited)])
    assert (left.trials, left.seconds) == (None, 3.2), "nothing is known but the budget"
    (left,) = forecast([RunStatus.from_log(limited, timed(2, 4, 6))])
    assert (left.trials, left.seconds) == (7, 14.0), "the tenth trial exceeds 3.2 s"


def test_what_no_budget_limits_is_unknown() -> None:
    endless = RunStatus.from_log(planned("a", trials=UNLIMITED, stop_after=5), timed(1, 2))
    assert sum_forecasts(forecast([endless, RunStatus(planned("b"))])) == (None, None)
    ended = replace(timed(1, 2), ended=Ended(trials=2))
    assert RunStatus.from_log(endless.run, ended).complete
    assert sum_forecasts(forecast([RunStatus.from_log(endless.run, ended)])) == (0, 0.0)
