"""The built-in schedulers: round robin, and the algorithms of MetaSchedule, Ansor and DynaTune."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ..options import Between, Count, UnitInterval
from ..policy import Origin
from .scheduler import ScheduledTask, Scheduler


class RoundRobin(Scheduler):
    """Round robin: choose the task with the fewest rounds, or the first if there are several such tasks."""

    def choose(self, open_tasks: Sequence[int]) -> int:
        return min(open_tasks, key=lambda task: len(self.histories[task]))


class Gradient(Scheduler):
    """MetaSchedule's scheduler: choose the task whose next round promises the greatest gain.

    For a task whose lowest costs after its n rounds are h[0] to h[n - 1], and for a window w, the promised gain is
    ``weight * (alpha * (h[n - 1 - w] - h[n - 1]) / w + (1 - alpha) * h[n - 1] / n)``.

    Args:
        tasks: The tasks.
        seed: The seed for a random choice if all promised gains are equal.
        alpha: The weight of the gain in the last rounds; the remaining weight is given to the optimistic guess that the
            cost falls to 0 in as many rounds as the task has had.
        window: The number of last rounds over which the gain is averaged.
    """

    origin = Origin(
        "MetaSchedule's task scheduler",
        "TVM 0.10 to 0.27",
        "src/meta_schedule/task_scheduler/gradient_based.cc",
        "reproduction",
        (
            "rounds are as large as the policy's batch, not 64 trials",
            "its random decision, if all promises are equal, draws from NumPy's generator",
            "of several tasks without a working program, the one with the fewest rounds is chosen, not a random one",
        ),
    )

    def __init__(
        self, tasks: Sequence[ScheduledTask], *, seed: int, alpha: UnitInterval = 0.2, window: Count = 3
    ) -> None:
        super().__init__(tasks, seed=seed)
        self.alpha = alpha
        self.window = window

    def choose(self, open_tasks: Sequence[int]) -> int:
        return self.highest(open_tasks, [self.expected_gain(task) for task in open_tasks])

    def expected_gain(self, task: int) -> float:
        """Return by how many seconds the model's time is expected to decrease in the task's next round."""
        history = self.histories[task]
        gain = self.alpha * mean_gain(history, self.window) + (1 - self.alpha) * history[-1] / len(history)
        return self.tasks[task].weight * gain


def mean_gain(history: Sequence[float], window: int) -> float:
    """Return the mean decrease of a task's cost per round over the last ``window`` rounds; 0 if there were fewer."""
    return (history[-1 - window] - history[-1]) / window if len(history) > window else 0.0


SIMILAR = 1.618
"""Similar tasks have the same operator, and the same integer part of the logarithm of their FLOPs to this base."""


class Ansor(Scheduler):
    """Ansor's scheduler: choose the task whose next round is expected to lower an objective the most.

    A task is expected to come within a factor ``beta`` of the throughput of similar tasks, which have the same operator
    and about as many FLOPs. A task that remains slower in spite of many rounds is no longer considered similar.

    Args:
        tasks: The tasks.
        seed: The seed for a random choice if all gradients are equal.
        alpha: The weight of the gain in the last rounds.
        beta: The factor by which a task's throughput may be lower than that of similar tasks.
        window: The number of last rounds over which the gain is averaged.
        objective: The objective to minimise. ``sum`` is the total time of all models. ``requirement`` is the total time
            of the models that take longer than ``requirement``. ``geometric-mean`` is the geometric mean of the models'
            times, which equals ``sum`` for a single model.
        requirement: The time in seconds at which a model is fast enough.
    """

    origin = Origin(
        "Ansor's task scheduler",
        "TVM 0.8 to 0.16; OSDI 2020, section 6",
        "python/tvm/auto_scheduler/task_scheduler.py",
        "reproduction",
        (
            "similar tasks share the workload's operator, instead of the tags that TVM's schedules attach to operators",
            "the derivative of the objective is exact instead of a difference of 0.1 ms",
            "a task without a working program waits, as in MetaSchedule; Ansor would choose it forever",
            "the geometric mean needs no reference times, which do not affect the choice",
            "a task that has ended is never chosen, not even if all gradients are equal",
        ),
    )

    def __init__(
        self,
        tasks: Sequence[ScheduledTask],
        *,
        seed: int,
        alpha: UnitInterval = 0.2,
        beta: Annotated[float, Between(1)] = 2.0,
        window: Count = 3,
        objective: Literal["sum", "requirement", "geometric-mean"] = "sum",
        requirement: Annotated[float, Between(0)] = 0.0,
    ) -> None:
        super().__init__(tasks, seed=seed)
        self.alpha = alpha
        self.beta = beta
        self.window = window
        self.objective = objective
        self.requirement = requirement
        self._groups = [(task.op, int(math.log(task.flops + 1, SIMILAR))) if task.op else None for task in self.tasks]

    def choose(self, open_tasks: Sequence[int]) -> int:
        slopes = self._slopes()
        return self.highest(open_tasks, [slopes[task] * self._expected_decrease(task) for task in open_tasks])

    def tell(self, task: int, costs: Sequence[float]) -> None:
        super().tell(task, costs)
        if all(self.histories):  # as in Ansor, groups do not change until every task has had a round
            self._leave_group(task)

    def _slopes(self) -> list[float]:
        """Return the derivative of the objective with respect to each task's cost, df/dg_i."""
        weights = np.array([task.weights for task in self.tasks])  # (tasks, models)
        best = np.array([history[-1] for history in self.histories])
        times = np.where(np.isfinite(best), best, 0.0) @ weights  # (models,)
        if self.objective == "requirement":
            factors = (times > self.requirement).astype(float)
        elif self.objective == "geometric-mean":
            factors = 1 / np.maximum(times, np.finfo(float).tiny)
        else:
            factors = np.ones_like(times)
        slopes: list[float] = (weights @ factors).tolist()
        return slopes

    def _expected_decrease(self, task: int) -> float:
        """Return the expected decrease of a task's cost in its next round: the negated bracket in Ansor's equation."""
        history = self.histories[task]
        best = history[-1]
        expected = best - best / len(history)
        if similar_tasks := self._similar(task):
            speed = max(map(self._speed, [task, *similar_tasks]))
            expected = min(expected, self.beta * self.tasks[task].flops / speed)
        return self.alpha * mean_gain(history, self.window) + (1 - self.alpha) * (best - expected)

    def _similar(self, task: int) -> list[int]:
        """Return the other tasks in a task's group."""
        group = self._groups[task]
        return [number for number, label in enumerate(self._groups) if group and label == group and number != task]

    def _speed(self, task: int) -> float:
        """Return a task's throughput in FLOP/s."""
        history = self.histories[task]
        return self.tasks[task].flops / history[-1] if history else 0.0

    def _leave_group(self, task: int) -> None:
        if similar_tasks := self._similar(task):
            is_slow = self._speed(task) < max(map(self._speed, similar_tasks)) / self.beta
            most_rounds = max(len(self.histories[number]) for number in similar_tasks)
            if is_slow and len(self.histories[task]) > 5 + most_rounds:
                self._groups[task] = None


class UCB(Scheduler):
    """An idea from DynaTune: choose the task with the highest upper confidence bound on the gain of its next round.

    The relative gain of the n-th round is roughly proportional to 1/n. It is therefore multiplied by n and modelled by
    a normal distribution, whose mean is 1 before the first gain (the guess that :class:`Gradient` always makes) and
    whose variance is that of the gains so far. The bound is the mean plus ``explore`` standard errors of the mean.

    Args:
        tasks: The tasks.
        seed: The seed for a random choice if all bounds are equal.
        explore: The number of standard errors to add.
        prior: The weight of the initial guess, as a number of rounds.
    """

    origin = Origin(
        "DynaTune",
        "ICLR 2021",
        "Zhang, Li, Wang, Li: DynaTune: Dynamic Tensor Program Optimization in Deep Neural Network Compilation",
        "relative",
        (
            "the belief about the gain of the next round is normal, in closed form, instead of DynaTune's own model",
            "a slot of time is a round of trials",
        ),
    )

    def __init__(
        self,
        tasks: Sequence[ScheduledTask],
        *,
        seed: int,
        explore: Annotated[float, Between(0)] = 1.0,
        prior: Annotated[float, Between(0.01)] = 1.0,
    ) -> None:
        super().__init__(tasks, seed=seed)
        self.explore = explore
        self.prior = prior
        self._scaled: list[list[float]] = [[] for _ in self.tasks]  # n times the n-th relative gain

    def choose(self, open_tasks: Sequence[int]) -> int:
        return self.highest(open_tasks, [self._compute_bound(task) for task in open_tasks])

    def tell(self, task: int, costs: Sequence[float]) -> None:
        super().tell(task, costs)
        h = self.histories[task]
        if len(h) > 1 and math.isfinite(h[-2]):
            self._scaled[task].append((len(h) - 1) * (h[-2] - h[-1]) / h[-2])

    def _compute_bound(self, task: int) -> float:
        gains, h = self._scaled[task], self.histories[task]
        rounds = len(gains) + self.prior
        mean = (self.prior + math.fsum(gains)) / rounds
        variance = (self.prior + math.fsum((gain - mean) ** 2 for gain in gains)) / rounds
        gain = (mean + self.explore * math.sqrt(variance / rounds)) / len(h)
        return self.tasks[task].weight * h[-1] * min(gain, 1.0)
