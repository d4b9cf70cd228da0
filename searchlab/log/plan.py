"""The plan of a study, beside its logs: the run that each of them is to be, and its budget.

:meth:`searchlab.run.study.Study.run` writes it as it begins. So a report knows which logs the study still has, and who
watches the study knows what is to come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from ..errors import SearchlabError
from ..schema import UNREADABLE
from .budget import Budget

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
