"""Scheduler checks: a function for each rule in the contract of :class:`~searchlab.model.Scheduler`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..model import SCHEDULERS, ScheduledTask, Scheduler
from ..plugins import PluginSpec
from .check import (
    Breach,
    Check,
    Subject,
    check_constructor,
    global_streams,
    global_streams_untouched,
    in_two_processes,
    other_clock,
    rule,
)  # fmt: skip

RUNS = ("signature", "starts", "chooses")
STEADY = (*RUNS, "same-seed", "global-random-state")
ROUNDS = 40
BATCH = 8


class SchedulerSubject(Subject):
    """A scheduler to check."""

    def start(self, tasks: Sequence[ScheduledTask]) -> Scheduler:
        """Instantiate the scheduler. Raises Refused if it rejects the options."""
        refused = f"scheduler {self.plugin.name!r} rejected its options"
        scheduler: Scheduler = self.make(Scheduler, refused, tasks, seed=self.seed, **self.plugin.options)
        return scheduler

    def replayed(self, count: int, *, equal: bool = False, fails: Sequence[int] = (), ends: bool = False) -> list[int]:
        """Return the tasks that the scheduler chooses in :data:`ROUNDS` rounds for a model with ``count`` tasks.

        Args:
            count: The number of tasks.
            equal: Whether all tasks are the same and never improve.
            fails: The tasks whose trials all fail.
            ends: Whether each task ends after its fifth round.
        """
        tasks = toy_tasks(count, equal)
        scheduler = self.start(tasks)
        chosen: list[int] = []
        for _ in range(ROUNDS):
            open_tasks = [task for task in range(count) if not ends or chosen.count(task) < 5]
            if not open_tasks:
                break
            task = scheduler.ask(open_tasks)
            if task not in open_tasks:
                raise Breach(f"it chose {task!r} from the open tasks {open_tasks}")
            last = ends and chosen.count(task) == 4  # a round in which the search has nothing more to propose
            scheduler.tell(task, [] if last else toy_costs(task, chosen.count(task), equal, task in fails))
            chosen.append(task)
        return [int(task) for task in chosen]


def toy_tasks(count: int, equal: bool = False) -> list[ScheduledTask]:
    """Return tasks with several operators, sizes and weights, in two models."""
    if equal:
        return [ScheduledTask("toy", (1.0, 1.0), 1000, "gemm") for _ in range(count)]
    return [
        ScheduledTask(f"toy{i}", (float(i % 3), 1.0), 10 ** (6 + i % 4), ("gemm", "conv2d", "")[i % 3])
        for i in range(count)
    ]


def toy_costs(task: int, number: int, equal: bool, fails: bool) -> list[float]:
    """Return the costs of a task's round in seconds. Costs fall from round to round; one trial in each round fails."""
    if fails:
        return [math.inf] * BATCH
    if equal:
        return [1e-3] * BATCH
    noise = np.random.default_rng([task, number]).random(BATCH - 1)
    return [math.inf, *((1 + task) * 1e-4 * (1 + (1 + noise) / (1 + number))).tolist()]


def _check_same(before: list[int], after: list[int], when: str) -> None:
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            raise Breach(f"{when} task {new} instead of task {old} in round {place}")


@rule("give every option a default, and accept no *args or **kwargs: def __init__(self, tasks, *, seed, alpha=0.2)")
def signature(one: SchedulerSubject) -> None:
    """The constructor accepts the tasks by position, and seed and options by keyword; each option has a default."""
    check_constructor(one.cls, 1, seeded=True)


@rule("see the line above")
def starts(one: SchedulerSubject) -> None:
    """It can be instantiated."""
    one.start(toy_tasks(6))


@rule("choose one of open_tasks in `choose`, and do not override `ask`", ["starts"])
def chooses(one: SchedulerSubject) -> None:
    """It gives each task one round in order, and then chooses one of the open tasks for every round."""
    first = one.replayed(6)[:6]
    if first != list(range(6)):
        raise Breach(f"its first rounds are for the tasks {first}")


@rule("do not assume several tasks: a model may have one", RUNS)
def one_task(one: SchedulerSubject) -> None:
    """It schedules a model with a single task."""
    one.replayed(1)


@rule("choose only from open_tasks: a task ends if its space is exhausted or its costs no longer fall", RUNS)
def ended_tasks(one: SchedulerSubject) -> None:
    """It never chooses a task whose search has ended."""
    one.replayed(6, ends=True)


@rule("costs are infinite until a trial succeeds; check that they are finite before subtracting or dividing them", RUNS)
def failed_tasks(one: SchedulerSubject) -> None:
    """It continues if all trials of one task, or of all tasks, fail."""
    one.replayed(6, fails=(2,))
    one.replayed(6, fails=range(6))


@rule("do not divide by a gain or by the difference of two costs", RUNS)
def equal_tasks(one: SchedulerSubject) -> None:
    """It schedules tasks that are all the same and do not improve."""
    one.replayed(4, equal=True)


@rule("derive random decisions from the seed: use self.rng()", [*RUNS, "equal-tasks"])
def same_seed(one: SchedulerSubject) -> None:
    """The same seed and costs give the same decisions."""
    for equal in (False, True):
        chosen = []
        for _ in range(2):
            with global_streams(0):
                chosen.append(one.replayed(6, equal=equal))
        _check_same(chosen[0], chosen[1], "when started again, it chooses")


@rule("draw from your own generator: self.rng()", [*RUNS, "same-seed"])
def global_random_state(one: SchedulerSubject) -> None:
    """It neither draws from nor seeds the global random streams of Python and NumPy."""
    chosen = []
    for seed in (1, 2):
        with global_streams(seed), global_streams_untouched():
            chosen.append(one.replayed(6) + one.replayed(6, equal=True))
    _check_same(chosen[0], chosen[1], "with different global random streams, it chooses")


@rule("change the state only in `tell`: a resumed model tells the logged rounds without asking", STEADY)
def resumes(one: SchedulerSubject) -> None:
    """Its state depends only on the rounds that it was told, not on how often it was asked."""
    for equal in (False, True):
        tasks, chosen = toy_tasks(6, equal), one.replayed(6, equal=equal)
        resumed = one.start(tasks)
        for place, task in enumerate(chosen[:-1]):
            resumed.tell(task, toy_costs(task, chosen[:place].count(task), equal, False))
        again = [resumed.ask(range(6)) for _ in range(2)]
        _check_same([chosen[-1]] * 2, again, "when it was told the rounds without being asked, it chooses")


@rule("do not read a clock", STEADY)
def clock(one: SchedulerSubject) -> None:
    """Its decisions do not depend on the time."""
    before = one.replayed(6)
    with other_clock(one.cls):
        _check_same(before, one.replayed(6), "when clocks run faster, it chooses")


@rule("do not iterate over sets, and do not use hash()", STEADY)
def every_process(one: SchedulerSubject) -> None:
    """Its decisions are the same in every process."""
    _check_same(*in_two_processes(_decisions, one), "in another process, it chooses")


def _decisions(one: SchedulerSubject) -> list[int]:
    return one.replayed(6) + one.replayed(6, equal=True)


RULES = (
    signature, starts, chooses, one_task, ended_tasks, failed_tasks, equal_tasks, same_seed, global_random_state,
    resumes, clock, every_process,
)  # fmt: skip


def scheduler_checks(plugin: PluginSpec, *, seed: int = 0) -> list[Check]:
    """Return the checks for a scheduler, in order.

    Args:
        plugin: The scheduler.
        seed: The scheduler's seed.

    Raises:
        SearchlabError: If the plug-in or an option is unknown.
    """
    named, cls = SCHEDULERS.named(plugin)
    SCHEDULERS.check_options(named.name, cls, named.options)
    subject = SchedulerSubject(named, cls, seed, 60.0)
    return [Check(rule, subject) for rule in RULES]
