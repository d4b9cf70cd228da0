"""The plan of a study, beside its logs: the run that each of them is to be, and its budget.

:meth:`searchlab.run.study.Study.run` writes it as it begins. So a report knows which logs the study still has, and who
watches the study knows what is to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
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
