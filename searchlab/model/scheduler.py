"""The contract of task schedulers, which decide which task of a model gets the next trials."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import SearchlabError
from ..options import ChecksOptions
from ..plugins import PluginKind
from ..policy import Origin


@dataclass(frozen=True)
class ScheduledTask:
    """A task as schedulers see it.

    Attributes:
        name: The workload, such as ``"conv2d:1x56x56x64x64x3x3:p1"``.
        weights: How often the task occurs in each model that is tuned.
        flops: The number of floating-point operations per execution; 0 if unknown.
        op: The operator, such as ``"conv2d"``; empty if the task is not similar to any other.

    Example:
        >>> import searchlab
        >>> searchlab.ScheduledTask("gemm:64x64x64", weights=(2, 1), flops=524288, op="gemm").weight
        3
    """

    name: str
    weights: tuple[float, ...] = (1.0,)
    flops: int = 0
    op: str = ""

    @property
    def weight(self) -> float:
        """How often the task occurs in all models together."""
        return sum(self.weights)


class Scheduler(ChecksOptions, ABC):
    """An algorithm that decides which task of a model gets the next round of trials.

    Its state is a function of the tasks, the options, the seed and the rounds told so far, in order. It must not depend
    on anything else, because tuning is resumed by repeating the logged rounds. Each task first gets one round, because
    the model's time is unknown until all tasks have a program; from then on, :meth:`choose` decides.

    Args:
        tasks: The tasks, at least one.
        seed: The seed for all random decisions.

    Attributes:
        origin: The published algorithm that this class implements or resembles. Subclasses do not inherit it.
        tasks: The tasks.
        histories: For each task, its lowest cost in seconds after each of its rounds; infinite until a trial succeeds.

    Example:
        >>> import searchlab
        >>> class Slowest(searchlab.Scheduler):
        ...     def choose(self, open_tasks):
        ...         return max(open_tasks, key=lambda task: self.tasks[task].weight * self.histories[task][-1])
        >>> names = "gemm:8x8x8", "gemm:16x16x16"
        >>> scheduler = Slowest([searchlab.ScheduledTask(name) for name in names], seed=0)
        >>> for costs in [2e-6, 3e-6], [7e-6]:
        ...     scheduler.tell(scheduler.ask([0, 1]), costs)
        >>> scheduler.ask([0, 1])
        1
    """

    origin: ClassVar[Origin | None] = None

    def __init__(self, tasks: Sequence[ScheduledTask], *, seed: int) -> None:
        self.tasks = tuple(tasks)
        self.seed = seed
        self.histories: list[list[float]] = [[] for _ in self.tasks]

    def ask(self, open_tasks: Sequence[int]) -> int:
        """Return the task that gets the next round: the first one without a round, or the result of :meth:`choose`.

        Args:
            open_tasks: The numbers of the tasks whose search has not ended, in ascending order; at least one.
        """
        new_tasks = [task for task in open_tasks if not self.histories[task]]
        return new_tasks[0] if new_tasks else self.choose(open_tasks)

    @abstractmethod
    def choose(self, open_tasks: Sequence[int]) -> int:
        """Return one of ``open_tasks``, each of which has had at least one round. It must not change the state."""

    def tell(self, task: int, costs: Sequence[float]) -> None:
        """Learn from the costs of a round.

        Args:
            task: The task's number.
            costs: The costs of the round's trials in seconds; infinite for failures. May be empty. A task's first round
                includes the cost of its untuned program.
        """
        self.histories[task].append(_find_lowest_cost(self.histories[task], costs))

    def rng(self) -> np.random.Generator:
        """Return the random stream for the next decision, which depends on the seed and the number of rounds."""
        return np.random.default_rng([self.seed, sum(map(len, self.histories))])

    def highest(self, open_tasks: Sequence[int], scores: Sequence[float]) -> int:
        """Return the task with the highest score: the first if several have it, or a random one if all are equal.

        Tasks without a working program are ignored. If there are no others, the one with the fewest rounds is returned.
        """
        candidates = [
            (task, score)
            for task, score in zip(open_tasks, scores, strict=True)
            if math.isfinite(self.histories[task][-1])
        ]
        if not candidates:
            return min(open_tasks, key=lambda task: len(self.histories[task]))
        values = [score for _, score in candidates]
        if max(values) == min(values):
            return candidates[int(self.rng().integers(len(candidates)))][0]
        return candidates[int(np.argmax(values))][0]


SCHEDULERS = PluginKind("scheduler", "searchlab.schedulers", Scheduler, positional=1)  # type: ignore[type-abstract]


def choose_task(scheduler: Scheduler, open_tasks: Sequence[int]) -> int:
    """Return the task that ``scheduler`` chooses. Raises SearchlabError if the plug-in breaks its contract."""
    with SCHEDULERS.convert_errors(type(scheduler), "choose"):
        histories = _copy_histories(scheduler)
        task: Any = scheduler.ask(list(open_tasks))
        are_unchanged = _copy_histories(scheduler) == histories
    if not are_unchanged:
        raise _make_contract_error(scheduler, "choose changed its histories; only tell may do so")
    if isinstance(task, bool | np.bool_) or not isinstance(task, int | np.integer) or task not in open_tasks:
        raise _make_contract_error(scheduler, f"it chose {task!r} from the tasks {list(open_tasks)}")
    return int(task)


def tell_scheduler(scheduler: Scheduler, task: int, costs: Sequence[float]) -> None:
    """Tell ``scheduler`` the costs of a round. Raises SearchlabError if the plug-in fails or breaks its contract."""
    with SCHEDULERS.convert_errors(type(scheduler), "tell"):
        expected_histories = _copy_histories(scheduler)
        expected_histories[task].append(_find_lowest_cost(expected_histories[task], costs))
        scheduler.tell(task, list(costs))
        are_equal = _copy_histories(scheduler) == expected_histories
    if not are_equal:
        raise _make_contract_error(
            scheduler, "its histories are not those of the rounds; call super().tell, and do not change them"
        )


def _copy_histories(scheduler: Scheduler) -> list[list[float]]:
    return [list(history) for history in scheduler.histories]


def _find_lowest_cost(history: Sequence[float], costs: Sequence[float]) -> float:
    """Return a task's lowest cost after its rounds in ``history`` and another one; infinite if no trial succeeded."""
    return min([*history[-1:], *costs], default=math.inf)


def _make_contract_error(scheduler: Scheduler, violation: str) -> SearchlabError:
    return SearchlabError(f"scheduler {SCHEDULERS.name_of(type(scheduler))!r} broke its contract: {violation}")
