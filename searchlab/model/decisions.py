"""The log of a scheduler's decisions: a header, then one line of JSON for each round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..log.journal import Journal
from ..plugins import Plugin

DECISIONS_FILE = "decisions.ndjson"
"""The name of the file. Its suffix is not that of a run's log, so it is not read as one."""

FORMAT_VERSION = 1


class DecisionsHeader(msgspec.Struct, frozen=True, kw_only=True, rename={"format_version": "decisions"}):
    """Everything except the measurements that determines which task gets each round.

    Attributes:
        format_version: The version of the format.
        tasks: How often each task occurs, by workload.
    """

    format_version: int = FORMAT_VERSION
    scheduler: Plugin
    seed: int
    batch: int
    tasks: dict[str, int]


class Decision(
    msgspec.Struct,
    frozen=True,
    rename={"best_seconds": "best", "model_seconds": "model"},
    kw_only=True,
    omit_defaults=True,
):
    """A scheduler's decision about one round, with the outcome.

    Attributes:
        task: The workload of the chosen task.
        trials: The number of trials in the round; 0 if the task's search has ended.
        total: The number of trials in all rounds so far.
        best_seconds: The task's lowest cost so far, or None if no program has worked.
        model_seconds: The estimated time of the model, or None if it is unknown.
    """

    round: int
    task: str
    trials: int
    total: int
    best_seconds: float | None
    model_seconds: float | None


class DecisionLog:
    """The log of a scheduler's decisions. A resumed call repeats the logged decisions and then appends new ones.

    Args:
        path: The file, which is created if it does not exist.
        header: The settings of the current call.

    Raises:
        SearchlabError: If the file is damaged or was written with different settings.
    """

    def __init__(self, path: Path, header: DecisionsHeader) -> None:
        self.path = path
        self.decisions: list[Decision] = []
        self._journal = Journal(path, Decision, header)
        try:
            self._check(self._journal.header, header)
        except BaseException:
            self.close()
            raise

    def _check(self, old_header: DecisionsHeader, new_header: DecisionsHeader) -> None:
        if old_header.format_version != FORMAT_VERSION:
            raise SearchlabError(
                f"{self.path} has format {old_header.format_version}, but this version of searchlab reads format "
                f"{FORMAT_VERSION}"
            )
        for name in ("tasks", "scheduler", "seed", "batch"):
            before, now = getattr(old_header, name), getattr(new_header, name)
            if before != now:
                raise SearchlabError(
                    f"{self.path} was begun with a different {name}: {_describe_change(before, now)}; repeat the "
                    "original command, or choose a different directory"
                )

    def add(self, decision: Decision) -> None:
        """Append a decision, or compare it with one that is already logged. Raises SearchlabError if they differ."""
        logged_decisions, round_number = self._journal.entries, len(self.decisions)
        if round_number >= len(logged_decisions):
            self._journal.append(decision)
        else:
            original = logged_decisions[round_number]
            is_larger = decision.trials > original.trials  # a smaller round means that the budget is now smaller
            if original.task != decision.task or (is_larger and round_number + 1 < len(logged_decisions)):
                raise SearchlabError(
                    f"{self.path} cannot be resumed: in round {round_number}, {original.trials} trials went to "
                    f"{original.task}, but now {decision.trials} go to {decision.task}; the logs, the scheduler or its "
                    f"version have changed. Choose a different directory"
                )
            if is_larger:
                self._journal.replace_last(decision)  # the round had been shortened by a smaller budget
        self.decisions.append(decision)

    def close(self) -> None:
        self._journal.close()


def _describe_change(before: Any, now: Any) -> str:
    if isinstance(before, dict):
        differing_names = [name for name in before if name not in now] + [name for name in now if name not in before]
        example = f", such as {differing_names[0]}" if differing_names else ""
        return f"{len(before)} tasks before and {len(now)} now{example}"
    return f"{msgspec.to_builtins(before)!r} before and {msgspec.to_builtins(now)!r} now"
