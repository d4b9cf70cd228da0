"""Schedulers that fail or break their contract end tuning with one sentence, and lose nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pytest

from searchlab.errors import SearchlabError
from searchlab.model import ScheduledTask, Scheduler
from searchlab.model.scheduler import choose_task, tell_scheduler


class Bad(Scheduler):
    """A scheduler that misbehaves in ``tell`` as specified by ``how``."""

    how = ""

    def choose(self, open_tasks: Sequence[int]) -> int:
        return open_tasks[0]

    def tell(self, task: int, costs: Sequence[float]) -> None:
        match self.how:
            case "leaves":
                sys.exit(0)
            case "raises":
                raise ValueError("no")
            case "raises a BaseException":
                raise BaseException("no")
            case "replaces":
                self.histories = {}  # type: ignore[assignment]
            case "deletes":
                del self.histories
            case "none":
                self.histories = [None] * 2  # type: ignore[list-item]
            case "lies":
                super().tell(task, [1e-9])
            case "empties the costs":
                costs.clear()  # type: ignore[attr-defined]
                super().tell(task, [1e-3])
            case "forgets":
                return
            case _:
                super().tell(task, costs)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("leaves", "failed in tell: SystemExit"),
        ("raises", "failed in tell: ValueError: no"),
        ("raises a BaseException", "failed in tell"),
        ("replaces", "broke its contract"),
        ("deletes", "failed in tell: AttributeError"),
        ("none", "failed in tell"),
        ("lies", "broke its contract"),
        ("forgets", "call super"),
    ],
)
def test_a_scheduler_that_misbehaves_in_tell_is_named(how: str, message: str) -> None:
    scheduler = Bad([ScheduledTask("a"), ScheduledTask("b")], seed=0)
    scheduler.how = how
    with pytest.raises(SearchlabError, match=f"Bad' {message}|Bad' broke.*{message}"):
        tell_scheduler(scheduler, 0, [1e-3, 2e-3])


@pytest.mark.parametrize("how", ["", "empties the costs"])
def test_sound_rounds_are_told(how: str) -> None:
    scheduler = Bad([ScheduledTask("a"), ScheduledTask("b")], seed=0)
    scheduler.how = how
    costs = [1e-3, 2e-3]
    tell_scheduler(scheduler, 1, costs)
    assert costs == [1e-3, 2e-3] and scheduler.histories == [[], [1e-3]]


@pytest.mark.parametrize("task", [True, 1.0, 7, -1, "0", None, np.int64(5), np.True_])
def test_a_choice_that_is_no_open_task_is_refused(task: object) -> None:
    scheduler = Bad([ScheduledTask("a"), ScheduledTask("b")], seed=0)
    scheduler.ask = lambda _: task  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(SearchlabError, match="it chose"):
        choose_task(scheduler, [0, 1])
    scheduler.ask = lambda _: np.int32(1)  # type: ignore[assignment, method-assign, return-value]
    assert choose_task(scheduler, [0, 1]) == 1


class Meddling(Bad):
    """A scheduler that forgets the costs of a task when it chooses it."""

    def choose(self, open_tasks: Sequence[int]) -> int:
        self.histories[open_tasks[0]].clear()
        return open_tasks[0]


def test_a_scheduler_that_changes_its_histories_is_named() -> None:
    scheduler = Meddling([ScheduledTask("a")], seed=0)
    scheduler.tell(0, [1e-3])
    with pytest.raises(SearchlabError, match="Meddling' broke its contract: choose changed its histories"):
        choose_task(scheduler, [0])
