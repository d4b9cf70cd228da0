"""The decisions of the built-in schedulers, against the formulas of their papers and sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from searchlab.errors import SearchlabError
from searchlab.model import SCHEDULERS, ScheduledTask, Scheduler
from searchlab.model.scheduler import choose_task
from searchlab.model.schedulers import UCB, Ansor, Gradient, RoundRobin
from searchlab.plugins import Plugin

TASKS = [ScheduledTask(f"task{i}", (weight,), 1000, "") for i, weight in enumerate((1.0, 2.0, 1.0))]


def tell_costs(scheduler: Scheduler, *histories: Sequence[float]) -> Scheduler:
    """``scheduler`` after one round for each cost in ``histories``, the tasks in turn."""
    for number in range(max(map(len, histories))):
        for task, history in enumerate(histories):
            if number < len(history):
                scheduler.tell(task, [history[number]])
    return scheduler


def test_round_robin_goes_round() -> None:
    scheduler = RoundRobin(TASKS, seed=0)
    choices = []
    for _ in range(7):
        choices.append(scheduler.ask([0, 1, 2]))
        scheduler.tell(choices[-1], [1.0])
    assert choices == [0, 1, 2, 0, 1, 2, 0]
    assert scheduler.ask([0, 2]) == 2


def test_the_gradient_is_metaschedules() -> None:
    scheduler = tell_costs(Gradient(TASKS, seed=0, alpha=0.5, window=2), [9.0, 6.0, 5.0, 4.0], [3.0], [5.0, 5.0])
    assert isinstance(scheduler, Gradient)
    assert scheduler.expected_gain(0) == pytest.approx(0.5 * (6.0 - 4.0) / 2 + 0.5 * 4.0 / 4)
    assert scheduler.expected_gain(1) == pytest.approx(2 * 0.5 * 3.0)
    assert scheduler.expected_gain(2) == pytest.approx(0.5 * 5.0 / 2)
    assert scheduler.ask([0, 1, 2]) == 1 and scheduler.ask([0, 2]) == 2


def test_ansor_expects_a_task_to_come_close_to_similar_ones() -> None:
    tasks = [
        ScheduledTask("fast", flops=1000, op="gemm"),
        ScheduledTask("slow", flops=1000, op="gemm"),
        ScheduledTask("other", flops=1000, op="conv2d"),
    ]
    scheduler = tell_costs(Ansor(tasks, seed=0, alpha=0.0), [1.0, 1.0, 1.0], [8.0, 8.0, 8.0, 8.0], [8.5, 8.5, 8.5, 8.5])
    # On its own, the slow task can lose 8/4 in its next round. A similar one takes 1, so 2 is expected: a fall by 6.
    assert scheduler.ask([0, 1, 2]) == 1
    dissimilar = [tasks[0], TASKS[0], tasks[2]]
    assert tell_costs(Ansor(dissimilar, seed=0, alpha=0.0), [1.0] * 3, [8.0] * 4, [8.5] * 4).ask([0, 1, 2]) == 2


def test_ansor_drops_a_similarity_that_does_not_hold() -> None:
    tasks = [ScheduledTask("fast", flops=1000, op="gemm"), ScheduledTask("slow", flops=1000, op="gemm"), TASKS[0]]
    scheduler = tell_costs(Ansor(tasks, seed=0), [1.0], [8.0], [6.0])
    for rounds in range(2, 8):
        assert scheduler.ask([0, 1, 2]) == 1, rounds
        scheduler.tell(1, [8.0])
    assert scheduler.ask([0, 1, 2]) == 2  # after 7 rounds, 6 more than the fast one


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1),  # 0.6 * 2 s against 1 * 4 s
        ({"objective": "requirement", "requirement": 1.0}, 1),  # neither model is fast enough
        ({"objective": "requirement", "requirement": 3.0}, 1),
        ({"objective": "geometric-mean"}, 0),  # the only task of the first model against almost all of the second
    ],
)
def test_the_objectives_of_ansor_count_models(options: dict[str, Any], expected: int) -> None:
    tasks = [ScheduledTask("a", (0.5, 0.1)), ScheduledTask("b", (0.0, 1.0))]  # models of 1 s and of 4.2 s
    assert tell_costs(Ansor(tasks, seed=0, **options), [2.0], [4.0]).ask([0, 1]) == expected


def test_a_model_that_is_fast_enough_does_not_count() -> None:
    tasks = [ScheduledTask("a", (0.9, 0.0)), ScheduledTask("b", (0.0, 1.0))]  # models of 3.6 s and of 4 s
    assert tell_costs(Ansor(tasks, seed=0), [4.0], [4.0]).ask([0, 1]) == 1
    required = Ansor([tasks[1], tasks[0]], seed=0, objective="requirement", requirement=3.8)
    assert tell_costs(required, [4.0], [4.0]).ask([0, 1]) == 0


def test_ucb_leaves_a_task_that_gains_nothing_for_one_that_does() -> None:
    tasks = [ScheduledTask("stuck"), ScheduledTask("falls")]
    stuck, falls = [10.0] * 6, [10.0, 8.0, 6.5, 5.5, 5.0, 4.7]
    assert tell_costs(UCB(tasks, seed=0, explore=0.0), stuck, falls).ask([0, 1]) == 1
    assert (
        tell_costs(Gradient(tasks, seed=0, alpha=0.0), stuck, falls).ask([0, 1]) == 0
    )  # 10 / 6 promises more than 4.7 / 6


@pytest.mark.parametrize("name", SCHEDULERS.entry_points_by_name())
def test_a_task_without_a_program_does_not_hold_up_the_others(name: str) -> None:
    scheduler = SCHEDULERS.make(Plugin(name), TASKS, seed=0)
    for number in range(12):
        task = choose_task(scheduler, [0, 1, 2])
        scheduler.tell(task, [math.inf] if task == 1 else [1.0 / (1 + number)])
    assert min(map(len, scheduler.histories)) >= 1
    assert len(scheduler.histories[0]) + len(scheduler.histories[2]) >= 8


class Astray(RoundRobin):
    def choose(self, open_tasks: Sequence[int]) -> int:
        return 7


def test_a_choice_outside_the_open_tasks_is_an_error() -> None:
    scheduler = tell_costs(Astray(TASKS, seed=0), [1.0], [1.0], [1.0])
    with pytest.raises(SearchlabError, match="broke its contract: it chose 7 from the tasks"):
        choose_task(scheduler, [0, 1, 2])


def test_options_are_checked() -> None:
    with pytest.raises(SearchlabError, match="alpha"):
        Gradient(TASKS, seed=0, alpha=2.0)
    with pytest.raises(SearchlabError, match="unknown scheduler 'gradeint'; did you mean 'gradient'|did you mean"):
        SCHEDULERS.load("gradeint")
