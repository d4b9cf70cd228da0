"""The files next to a study's logs: its plan, with its claims and the budget of every run, and a copy of the study.

:meth:`searchlab.run.study.Study.run` writes both files when it begins. Reports use the plan to determine which logs
still belong to the study, and ``searchlab watch`` uses it to determine which runs have yet to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec

from ..errors import SearchlabError
from ..files import FileMissing, open_file, read_text, write_file
from ..schema import UNREADABLE
from .budget import Budget

PLAN_FILE_NAME = "plan.json"
"""The name of the plan file."""

TOML_COPY_NAME, JSON_COPY_NAME = "study-as-run.toml", "study-as-run.json"
"""The names of the copy of a study file, and of a study created by a script. Do not use them for other files."""

_MAX_LEVELS = 4
"""The maximum number of levels of a study above its logs: RESULTS/workload/space/strategy/seed0.jsonl."""

_MAX_COPY_SIZE = 100_000
"""The maximum number of bytes that are read from a copy."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a study, described by the names that reports use.

    Attributes:
        log: The path of its log relative to the plan's directory, with "/" as the separator.
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
            raise ValueError(f"{self.log!r} is not the path of a log in the plan's directory")


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published claim about a strategy, which reports test on the study's runs.

    Attributes:
        text: The claim, in one sentence.
        source: Where the claim was published: the paper, and the section, figure or table.
        published: The published numbers, if there are any.
        strategy: The name or label of the strategy that the claim is about.
        against: The strategy or strategies with which it is compared. The claim must hold against each of them.
        relation: ``"better"`` if the strategy is claimed to be better, ``"no worse"`` if it is claimed to be worse
            by at most ``margin``, and ``"level"`` if it is claimed to differ by at most ``margin``.
        measure: The measure to compare by, a column of ``summary.json``. Measures with a unit are compared by their
            ratio (the geometric mean over seeds and workloads), and all others by their difference.
        trials: The number of initial trials to compare in each run, by default all trials that both strategies have.
        seconds: Compare only the trials of each run within this charged time, in seconds.
        margin: The largest difference that does not matter, 0.01 by default. For a ratio, 0.01 means 1 %.
    """

    text: str
    source: str
    strategy: str
    against: str | list[str]
    published: str = ""
    relation: Literal["better", "no worse", "level"] = "better"
    measure: Literal["area", "best_gflops", "trials_to_target", "seconds_to_target"] = "area"
    trials: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    margin: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.01

    def __post_init__(self) -> None:
        if not self.opponents or self.strategy in self.opponents:
            raise ValueError(
                f"a claim must compare a strategy with one or more other strategies, not {self.strategy!r} with "
                f"{self.against!r}"
            )

    @property
    def opponents(self) -> list[str]:
        return [self.against] if isinstance(self.against, str) else self.against


class StudyPlan(msgspec.Struct, frozen=True):
    """A study's runs, in planned order, and its claims."""

    searchlab_study: Annotated[int, msgspec.Meta(ge=1, le=1)]
    runs: tuple[PlannedRun, ...]
    claims: tuple[Claim, ...] = ()

    @property
    def runs_by_log(self) -> Mapping[str, PlannedRun]:
        return {run.log: run for run in self.runs}


def write_plan(directory: Path, runs: Sequence[PlannedRun], claims: Sequence[Claim] = ()) -> None:
    """Write the plan for ``runs`` to ``directory``. Raises SearchlabError if this fails."""
    write_file(
        directory / PLAN_FILE_NAME, msgspec.json.encode(StudyPlan(1, tuple(runs), tuple(claims))), under=directory
    )


def read_plan(directory: Path) -> StudyPlan | None:
    """Return the plan in ``directory``, or None if it does not exist. Raises SearchlabError if it is damaged."""
    path = directory / PLAN_FILE_NAME
    try:
        return msgspec.json.decode(read_text(path, under=directory), type=StudyPlan)
    except FileMissing:
        return None
    except UNREADABLE as error:
        raise SearchlabError(f"{path} is damaged: {error}; run the study again to recreate it, or delete it") from None


def write_study_copy(directory: Path, name: str, text: str) -> None:
    """Write the copy of a study unless it is up to date. A directory that is not writable is left unchanged."""
    path = directory / name
    with suppress(SearchlabError):
        if not path.exists() or read_text(path, under=directory) != text:
            write_file(path, text, under=directory)


def read_study_copies(logs: Iterable[Path]) -> list[tuple[Path, str]]:
    """Return the path and text of each study copy in the directories above ``logs``, sorted by path."""
    directories = {
        above for parent in {log.parent for log in logs} for above in [parent, *parent.parents][:_MAX_LEVELS]
    }
    study_files = sorted(
        directory / name
        for directory in directories
        for name in (TOML_COPY_NAME, JSON_COPY_NAME)
        if (directory / name).is_file()
    )
    texts = []
    for path in study_files:
        with suppress(OSError, SearchlabError), open_file(path, under=path.parent) as file:
            texts.append((path, file.read(_MAX_COPY_SIZE).decode("utf-8", errors="replace")))
    return texts
