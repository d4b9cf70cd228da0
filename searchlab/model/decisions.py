"""The log of a scheduler's decisions: a header, then one line of JSON for each round."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..plugins import Plugin

FILE = "decisions.ndjson"
"""The name of the file. Its suffix is not that of a run's log, so it is not read as one."""

FORMAT = 1


class DecisionsHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Everything except the measurements that determines which task gets each round."""

    decisions: int = FORMAT
    scheduler: Plugin
    seed: int
    batch: int
    tasks: dict[str, int]  # how often each task occurs, by workload


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scheduler's decision about one round, with the outcome."""

    round: int
    task: str  # the workload of the chosen task
    trials: int  # the number of trials in the round; 0 if the task's search has ended
    total: int  # the number of trials in all rounds so far
    best: float | None  # the task's lowest cost so far in seconds, or None if no program has worked
    model: float | None  # the estimated time of the model in seconds, or None if it is unknown


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
        self._held: list[Decision] = []
        data = path.read_bytes() if path.is_file() else b""
        complete = data[: data.rfind(b"\n") + 1]  # the last line is incomplete if the process was killed
        lines = complete.splitlines()
        try:
            if lines:
                self._check(msgspec.json.decode(lines[0], type=DecisionsHeader), header)
                self._held = [msgspec.json.decode(line, type=Decision) for line in lines[1:]]
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except msgspec.MsgspecError as error:
            raise SearchlabError(f"{path} is damaged: {error}; choose a different directory") from None
        except OSError as error:
            raise SearchlabError(f"cannot write {path}: {error.strerror}") from None
        self._last = len(complete) - len(lines[-1]) - 1 if self._held else 0  # where the last decision begins
        self._cut(len(complete))
        if not lines:
            self._write(header)

    def _check(self, old: DecisionsHeader, new: DecisionsHeader) -> None:
        if old.decisions != FORMAT:
            raise SearchlabError(
                f"{self.path} has format {old.decisions}, but this version of searchlab reads format {FORMAT}"
            )
        for name in ("tasks", "scheduler", "seed", "batch"):
            before, now = getattr(old, name), getattr(new, name)
            if before != now:
                raise SearchlabError(
                    f"{self.path} was begun with a different {name}: {_shown(before, now)}; repeat the original "
                    "command, or choose a different directory"
                )

    def add(self, decision: Decision) -> None:
        """Append a decision, or compare it with one that is already logged. Raises SearchlabError if they differ."""
        place = len(self.decisions)
        if place >= len(self._held):
            self._write(decision)
        else:
            before = self._held[place]
            larger = decision.trials > before.trials  # a smaller round means that the budget is smaller than before
            if before.task != decision.task or (larger and place + 1 < len(self._held)):
                raise SearchlabError(
                    f"{self.path} cannot be resumed: in round {place}, {before.trials} trials went to {before.task}, "
                    f"but now {decision.trials} go to {decision.task}; the logs, the scheduler or its version have "
                    f"changed. Choose a different directory"
                )
            if larger:
                self._cut(self._last)  # the round had been shortened by a smaller budget
                self._write(decision)
        self.decisions.append(decision)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        os.lseek(self._file, size, os.SEEK_SET)

    def _write(self, line: DecisionsHeader | Decision) -> None:
        try:
            os.write(self._file, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise SearchlabError(f"cannot write {self.path}: {error.strerror}; free some space and repeat") from None

    def close(self) -> None:
        os.close(self._file)


def _shown(before: Any, now: Any) -> str:
    if isinstance(before, dict):
        only = [name for name in before if name not in now] + [name for name in now if name not in before]
        return f"{len(before)} tasks before and {len(now)} now" + (f", such as {only[0]}" if only else "")
    return f"{msgspec.to_builtins(before)!r} before and {msgspec.to_builtins(now)!r} now"
