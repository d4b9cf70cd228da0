"""Schedulers that each break one rule of the contract, as a stranger might."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from searchlab.model import ScheduledTask, Scheduler


class Sound(Scheduler):
    """The task with the highest weighted cost per round. It breaks no rule."""

    def choose(self, open_tasks: Sequence[int]) -> int:
        return max(open_tasks, key=self.score)

    def score(self, task: int) -> float:
        cost = self.histories[task][-1]
        return self.tasks[task].weight * (cost if math.isfinite(cost) else 0.0) / len(self.histories[task])


class AnyOption(Sound):
    def __init__(self, tasks: Sequence[ScheduledTask], *, seed: int, **options: Any) -> None:
        super().__init__(tasks, seed=seed)


class NoStart(Sound):
    def __init__(self, tasks: Sequence[ScheduledTask], *, seed: int) -> None:
        super().__init__(tasks, seed=seed)
        self.flops = tasks.flops  # type: ignore[attr-defined]


class SlowestFirst(Sound):
    """Skips the first round of small tasks."""

    def ask(self, open_tasks: Sequence[int]) -> int:
        new = [task for task in open_tasks if not self.histories[task]]
        return max(new, key=lambda task: self.tasks[task].flops) if new else self.choose(open_tasks)


class NeedsASecond(Sound):
    """Measures by how much the first is ahead of the second."""

    def choose(self, open_tasks: Sequence[int]) -> int:
        scores = sorted(map(self.score, range(len(self.tasks))))
        self.lead = scores[-1] - scores[-2]
        return super().choose(open_tasks)


class ForgetsTheEnded(Sound):
    def choose(self, open_tasks: Sequence[int]) -> int:
        return super().choose(range(len(self.tasks)))


class NeedsSuccess(Sound):
    def score(self, task: int) -> float:
        return float(int(self.tasks[task].weight * self.histories[task][-1] * 1e9)) / len(self.histories[task])


class DividesByGain(Sound):
    def choose(self, open_tasks: Sequence[int]) -> int:
        costs = [cost for history in self.histories for cost in history if math.isfinite(cost)]
        spread = max(costs) - min(costs) if len(costs) > 1 else 1.0
        return max(open_tasks, key=lambda task: self.score(task) / spread)


class Unseeded(Sound):
    def score(self, task: int) -> float:
        return float(np.random.default_rng().random())


class GlobalStream(Sound):
    def score(self, task: int) -> float:
        return super().score(task) * (1 + 1e-3 * random.random())


class CountsAsks(Sound):
    asked = 0

    def choose(self, open_tasks: Sequence[int]) -> int:
        self.asked += 1
        return open_tasks[self.asked % len(open_tasks)]


class Clocked(Sound):
    started = time.monotonic()

    def score(self, task: int) -> float:
        return super().score(task) if time.monotonic() - self.started < 1e5 else float(task)


class OrderOfHashes(Sound):
    def score(self, task: int) -> float:
        return float(hash(f"round {len(self.histories[task])} of task {task}"))


BROKEN: dict[str, list[type[Scheduler]]] = {
    "signature": [AnyOption],
    "starts": [NoStart],
    "chooses": [SlowestFirst],
    "one-task": [NeedsASecond],
    "ended-tasks": [ForgetsTheEnded],
    "failed-tasks": [NeedsSuccess],
    "equal-tasks": [DividesByGain],
    "same-seed": [Unseeded],
    "global-random-state": [GlobalStream],
    "resumes": [CountsAsks],
    "clock": [Clocked],
    "every-process": [OrderOfHashes],
}
