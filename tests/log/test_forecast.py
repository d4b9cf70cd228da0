"""What is left of a study, and how long it takes, according to the logs of its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from searchlab.log.budget import UNLIMITED, Budget
from searchlab.log.forecast import INTERRUPTION_SECONDS, RunStatus, forecast, sum_forecasts
from searchlab.log.format import Log, RunEnd
from searchlab.log.plan import PlannedRun
from tests.support.logs import HEADER, make_record


def plan_run(strategy: str, *, workload: str = "w", space: str = "s", trials: int = 10, **limits: Any) -> PlannedRun:
    budget = Budget(trials, **limits)
    return PlannedRun(log="a.jsonl", workload=workload, space=space, strategy=strategy, seed=0, budget=budget)


def make_log(*times: float) -> Log:
    """Return a log whose trials ended at ``times``, and are charged 0.33 s each."""
    records = tuple(
        msgspec.structs.replace(make_record(index), recorded_at=HEADER.created_at + at)
        for index, at in enumerate(times)
    )
    return Log(Path("a.jsonl"), HEADER, records)


def test_the_time_left_is_estimated_from_the_nearest_logs() -> None:
    statuses = [
        RunStatus.from_log(plan_run("fast"), make_log(2, 4, 6, 8)),
        RunStatus.from_log(plan_run("slow"), make_log(20, 40)),
        RunStatus(plan_run("new")),
        RunStatus(plan_run("new", workload="other")),
        RunStatus.from_log(plan_run("done", trials=1, workload="third"), make_log(5)),
    ]
    forecasts = {(item.workload, item.strategy): (item.trial_count, item.seconds) for item in forecast(statuses)}
    each, overall = (4 * 2 + 2 * 20) / 6, (4 * 2 + 2 * 20 + 5) / 7
    assert forecasts == {
        ("w", "fast"): (6, 12.0),
        ("w", "slow"): (8, 160.0),
        ("w", "new"): (10, 10 * each),
        ("other", "new"): (10, 10 * overall),
        ("third", "done"): (0, 0.0),
    }
    assert sum_forecasts(forecast(statuses)) == (34, 12 + 160 + 10 * each + 10 * overall)


def test_an_interruption_is_no_time_spent_on_a_trial() -> None:
    (remaining,) = forecast(
        [RunStatus.from_log(plan_run("a"), make_log(3, 6, 6 + INTERRUPTION_SECONDS + 1, 9 + INTERRUPTION_SECONDS + 1))]
    )
    assert (remaining.trial_count, remaining.seconds) == (6, 18.0)


def test_budgets_of_seconds_limit_trials_and_time() -> None:
    limited = plan_run("a", trials=UNLIMITED, seconds=3.2)
    (remaining,) = forecast([RunStatus(limited)])
    assert (remaining.trial_count, remaining.seconds) == (None, 3.2), "nothing is known but the budget"
    (remaining,) = forecast([RunStatus.from_log(limited, make_log(2, 4, 6))])
    assert (remaining.trial_count, remaining.seconds) == (7, 14.0), "the tenth trial exceeds 3.2 s"


def test_what_no_budget_limits_is_unknown() -> None:
    endless = RunStatus.from_log(plan_run("a", trials=UNLIMITED, stop_after=5), make_log(1, 2))
    assert sum_forecasts(forecast([endless, RunStatus(plan_run("b"))])) == (None, None)
    log = replace(make_log(1, 2), run_end=RunEnd(trial_count=2))
    assert RunStatus.from_log(endless.run, log).is_complete
    assert sum_forecasts(forecast([RunStatus.from_log(endless.run, log)])) == (0, 0.0)
