"""The contract of schedulers, over every registered one: decisions follow from tasks, seed and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from searchlab.conformance.check import (
    accelerate_clock,
    check_constructor,
    run_in_two_processes,
    seed_global_streams,
)
from searchlab.model import SCHEDULERS, ScheduledTask, Scheduler
from searchlab.plugins import Plugin

ROUNDS = 40
BATCH = 8

pytestmark = pytest.mark.parametrize("name", SCHEDULERS.entry_points_by_name())


def make_tasks(count: int, equal: bool = False) -> list[ScheduledTask]:
    """Return tasks with several operators, sizes and weights, in two models; or ``equal`` ones."""
    if equal:
        return [ScheduledTask("toy", (1.0, 1.0), 1000, "gemm") for _ in range(count)]
    return [
        ScheduledTask(f"toy{i}", (float(i % 3), 1.0), 10 ** (6 + i % 4), ("gemm", "conv2d", "")[i % 3])
        for i in range(count)
    ]


def make_costs(task: int, number: int, equal: bool, fails: bool) -> list[float]:
    """Return the costs of a task's round in seconds. They fall from round to round; one trial in each round fails."""
    if fails:
        return [math.inf] * BATCH
    if equal:
        return [1e-3] * BATCH
    noise = np.random.default_rng([task, number]).random(BATCH - 1)
    return [math.inf, *((1 + task) * 1e-4 * (1 + (1 + noise) / (1 + number))).tolist()]


def start(name: str, tasks: Sequence[ScheduledTask]) -> Scheduler:
    return SCHEDULERS.make(Plugin(name), tasks, seed=0)


def decide(name: str, count: int, *, equal: bool = False, fails: Sequence[int] = (), ends: bool = False) -> list[int]:
    """Return the tasks that a scheduler chooses; if ``ends`` is true, each task ends after its fifth round."""
    scheduler = start(name, make_tasks(count, equal))
    choices: list[int] = []
    for _ in range(ROUNDS):
        open_tasks = [task for task in range(count) if not ends or choices.count(task) < 5]
        if not open_tasks:
            break
        task = scheduler.ask(open_tasks)
        assert task in open_tasks
        is_last = ends and choices.count(task) == 4  # a round in which the search has nothing more to propose
        scheduler.tell(task, [] if is_last else make_costs(task, choices.count(task), equal, task in fails))
        choices.append(task)
    return [int(task) for task in choices]


def decide_twice(name: str) -> list[int]:
    return decide(name, 6) + decide(name, 6, equal=True)


def test_its_constructor_takes_tasks_seed_and_options(name: str) -> None:
    check_constructor(SCHEDULERS.load(name), 1, requires_seed=True)


def test_each_task_gets_one_round_first(name: str) -> None:
    assert decide(name, 6)[:6] == list(range(6))


@pytest.mark.parametrize(
    "model",
    [
        {"count": 1},
        {"count": 6, "ends": True},
        {"count": 6, "fails": (2,)},
        {"count": 6, "fails": range(6)},
        {"count": 4, "equal": True},
    ],
    ids=["one task", "tasks end", "a task fails", "all fail", "equal tasks"],
)
def test_it_schedules_every_kind_of_model(name: str, model: dict[str, Any]) -> None:
    decide(name, **model)


def test_its_decisions_follow_from_the_seed(name: str) -> None:
    with seed_global_streams(1, must_be_untouched=True):
        before = decide_twice(name)
    with seed_global_streams(2):
        assert decide_twice(name) == before
    with accelerate_clock(SCHEDULERS.load(name)):
        assert decide_twice(name) == before
    first, second = run_in_two_processes(decide_twice, name)
    assert first == second == before


@pytest.mark.parametrize("equal", [False, True])
def test_it_resumes_from_the_rounds_it_was_told(name: str, equal: bool) -> None:
    choices = decide(name, 6, equal=equal)
    resumed = start(name, make_tasks(6, equal))
    for number, task in enumerate(choices[:-1]):
        resumed.tell(task, make_costs(task, choices[:number].count(task), equal, False))
    assert [resumed.ask(range(6)) for _ in range(2)] == [choices[-1]] * 2
