"""What is beside the logs of a study: its plan, with the budget of every run, and a copy of the study.

:meth:`searchlab.run.study.Study.run` writes both when it begins. A report learns from the plan which logs still belong
to the study, and ``searchlab watch`` learns which runs are to come.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..schema import UNREADABLE
from .columns import Columns
from .format import GAIN, Ended, Log

AnyLog = TypeVar("AnyLog", Log, Columns)

UNLIMITED = sys.maxsize
"""The number of trials in a budget that does not limit them."""


class Budget(msgspec.Struct, frozen=True):
    """The budget of a run, which ends when the first part of it is spent.

    Seconds and gains are judged only after complete batches. Where a run ends therefore follows from its log alone, and
    the log of a smaller budget is the beginning of the log of a larger one. That is why a budget is not part of a run's
    identity.

    Attributes:
        trials: The maximum number of trials.
        seconds: The maximum of charged time (:attr:`~searchlab.log.format.Log.elapsed`); None for no limit.
        stop_after: The number of trials in which the best throughput rose by at most
            :data:`~searchlab.log.format.GAIN`, failures included; None to go on without a gain.
    """

    trials: int = UNLIMITED
    seconds: float | None = None
    stop_after: int | None = None

    def ends(self, log: Log, trials: int | None = None) -> Ended | None:
        """Return why a run ends after the first ``trials`` (default: all) of ``log``; None if it goes on.

        The maximum number of trials does not count, as no line of the log records it.
        """
        if trials is not None:
            log = replace(log, records=log.records[:trials])
        return self._ends(log, len(log.records)) if log.records else None

    def complete(self, log: Log) -> bool:
        """Whether ``log`` shows that a run with this budget has nothing to add to it.

        If it does not, only the policy knows where the last batch ends.
        """
        by_line = log.ended is not None and (log.ended.by_policy or self.ends(log) is not None)
        return by_line or len(log.records) >= self.trials

    def cut(self, log: AnyLog) -> AnyLog:
        """Return the part of ``log`` within this budget; ``log`` itself if that is all of it."""
        trials, line = len(log.costs), log.ended
        spent = (self.seconds, None), (None, self.stop_after)  # in the line of a run that one of them ended
        judged = self.seconds is not None or self.stop_after is not None
        if judged and not (line and not line.by_policy and (line.seconds, line.stop_after) in spent):
            for end in log.starts[1:]:  # the end of each batch but the last, which may be incomplete
                if end < min(trials, self.trials) and (ended := self._ends(log, end)):
                    return log.first(end, ended)
        return log if trials <= self.trials else log.first(self.trials)

    def _ends(self, log: Log | Columns, at: int) -> Ended | None:
        if self.seconds is not None and log.elapsed[at - 1] >= self.seconds:
            return Ended(trials=at, seconds=self.seconds)
        if self.stop_after is not None and at >= self.stop_after:
            before = np.min(log.costs[: at - self.stop_after], initial=math.inf)
            if before <= np.min(log.costs[:at]) * (1 + GAIN):
                return Ended(trials=at, stop_after=self.stop_after)
        return None


PLAN = "plan.json"
"""The name of the plan."""

TOML, JSON = "study-as-run.toml", "study-as-run.json"
"""The name of the copy of a study file, and of a study that a script made. No user gives a file such a name."""

_LEVELS = 4  # how far above a log its study may be: RESULTS/workload/space/strategy/seed0.jsonl
_LONGEST = 100_000  # bytes of a copy that are read


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a study, in the words of reports."""

    log: str  # path of its log from the directory of the plan, with "/"
    workload: str
    space: str
    strategy: str
    seed: int
    budget: Budget

    def __post_init__(self) -> None:
        path = PurePosixPath(self.log)
        if path.is_absolute() or ".." in path.parts or path.suffix != ".jsonl":
            raise ValueError(f"{self.log!r} is not the path of a log in the directory")


class StudyPlan(msgspec.Struct, frozen=True):
    """The runs of a study, in planned order."""

    searchlab_study: Annotated[int, msgspec.Meta(ge=1, le=1)]
    runs: tuple[PlannedRun, ...]

    @property
    def by_log(self) -> Mapping[str, PlannedRun]:
        return {run.log: run for run in self.runs}


def write_plan(directory: Path, runs: Sequence[PlannedRun]) -> None:
    """Write the plan of ``runs`` to ``directory``. Raises SearchlabError."""
    path, part = directory / PLAN, directory / f"{PLAN}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(StudyPlan(1, tuple(runs))))
        part.replace(path)
    except OSError as error:
        raise SearchlabError(f"cannot write {path}: {error.strerror}") from None


def read_plan(directory: Path) -> StudyPlan | None:
    """Read the plan in ``directory``; None if there is none. Raises SearchlabError if it is damaged."""
    path = directory / PLAN
    try:
        return msgspec.json.decode(path.read_bytes(), type=StudyPlan)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None
    except UNREADABLE as error:
        raise SearchlabError(f"{path} is damaged: {error}; run the study again to rewrite it, or remove it") from None


def keep_study(directory: Path, name: str, text: str) -> None:
    """Write the copy of a study, unless it is there; a directory that cannot be written to is left as it is."""
    path = directory / name
    with suppress(OSError):
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def kept_studies(logs: Iterable[Path]) -> list[tuple[Path, str]]:
    """Return the copies of studies in the directories above ``logs``, sorted by path, with their texts."""
    places = {above for parent in {log.parent for log in logs} for above in [parent, *parent.parents][:_LEVELS]}
    found = sorted(place / name for place in places for name in (TOML, JSON) if (place / name).is_file())
    texts = []
    for path in found:
        with suppress(OSError), path.open("rb") as file:
            texts.append((path, file.read(_LONGEST).decode("utf-8", errors="replace")))
    return texts
