"""The plan of a study, beside its logs: the run that each of them is to be, and its budget.

:meth:`searchlab.run.study.Study.run` writes it as it begins. So a report knows which logs the study still has, and who
watches the study knows what is to come.
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

PLAN = "plan.json"
"""The name of the file."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a study. log: the path of its log from the directory of the plan, with ``/``.

    workload, space, strategy: as reports name them.
    """

    log: str
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
    """Write the plan of ``runs`` to ``directory``. Raises SearchlabError if it cannot."""
    path, part = directory / PLAN, directory / f"{PLAN}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(StudyPlan(1, tuple(runs))))
        part.replace(path)
    except OSError as error:
        raise SearchlabError(f"cannot write {path}: {error.strerror}") from None


def read_plan(directory: Path) -> StudyPlan | None:
    """The plan in ``directory``; None if there is none. Raises SearchlabError if it is damaged."""
    path = directory / PLAN
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SearchlabError(f"cannot read {path}: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=StudyPlan)
    except UNREADABLE as error:
        raise SearchlabError(f"{path} is damaged: {error}; run the study again to rewrite it, or remove it") from None


TOML, JSON = "study-as-run.toml", "study-as-run.json"
"""Its name: of a copy of a study file, and of a study that a script made. They are no names that a user gives."""

_LEVELS = 4
"""How many directories above a log its study may be: RESULTS/workload/space/strategy/seed0.jsonl."""
_MOST = 100_000  # bytes that are read


def keep_study(directory: Path, name: str, text: str) -> None:
    """Write ``text`` to the file ``name`` in ``directory``, unless it is there.

    A directory that cannot be written to is left as it is: all of its runs may be complete.
    """
    path = directory / name
    with suppress(OSError):
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != text:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def kept_studies(logs: Iterable[Path]) -> list[tuple[Path, str]]:
    """The studies kept in the directories above ``logs``, in the order of their paths: each with its text."""
    places = {above for parent in {log.parent for log in logs} for above in [parent, *parent.parents][:_LEVELS]}
    found = sorted(place / name for place in places for name in (TOML, JSON) if (place / name).is_file())
    texts = []
    for path in found:
        with suppress(OSError), path.open("rb") as file:
            texts.append((path, file.read(_MOST).decode("utf-8", errors="replace")))
    return texts


AnyLog = TypeVar("AnyLog", Log, Columns)

UNLIMITED = sys.maxsize
"""The number of trials of a run that only other parts of its budget end, or its policy."""


class Budget(msgspec.Struct, frozen=True):
    """A run ends where the first part of its budget is spent.

    trials: the most trials. seconds: charged time, as :attr:`~searchlab.log.format.Log.elapsed` has it: proposing,
    training, building and running; None for no limit. stop_after: the number of trials in which the best throughput
    rose by at most 1 % (:data:`~searchlab.log.format.GAIN`), failures included; None to go on without a gain.

    Seconds and gains are judged after whole batches. So where a run ends follows from its log alone, and the log of a
    smaller budget is the beginning of the log of a larger one: that is why a budget is no part of a run's identity.
    """

    trials: int = UNLIMITED
    seconds: float | None = None
    stop_after: int | None = None

    def ends(self, log: Log, trials: int | None = None) -> Ended | None:
        """Why a run ends after the first ``trials`` of ``log`` (all by default), whole batches; None if it goes on.

        The number of trials is not judged, as it needs no line.
        """
        if trials is not None:
            log = replace(log, records=log.records[:trials])
        return self._ends(log, len(log.records)) if log.records else None

    def complete(self, log: Log) -> bool:
        """Whether ``log`` says that a run with this budget has nothing to add to it.

        If it does not say so, only the policy knows where the last batch ends.
        """
        by_line = log.ended is not None and (log.ended.by_policy or self.ends(log) is not None)
        return by_line or len(log.records) >= self.trials

    def cut(self, log: AnyLog) -> AnyLog:
        """The part of ``log`` within this budget; ``log`` itself if that is all of it."""
        whole, line = len(log.costs), log.ended
        spent = (self.seconds, None), (None, self.stop_after)  # as a line says that one of them ended the run
        judged = self.seconds is not None or self.stop_after is not None
        if judged and not (line and not line.by_policy and (line.seconds, line.stop_after) in spent):
            for end in log.starts[1:]:  # of each batch but the last, which may not be whole
                if end < min(whole, self.trials) and (ended := self._ends(log, end)):
                    return log.first(end, ended)
        return log if whole <= self.trials else log.first(self.trials)

    def _ends(self, log: Log | Columns, at: int) -> Ended | None:
        if self.seconds is not None and log.elapsed[at - 1] >= self.seconds:
            return Ended(trials=at, seconds=self.seconds)
        if self.stop_after is not None and at >= self.stop_after:
            before = np.min(log.costs[: at - self.stop_after], initial=math.inf)
            now = np.min(log.costs[:at])
            if before <= now * (1 + GAIN):
                return Ended(trials=at, stop_after=self.stop_after)
        return None
