"""Finding all problems of a log, and repairing a damaged log without losing a trial. Nothing in a log is executed."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import SearchlabError
from ..workload import parse_workload
from .format import Ended, Final, Header, Record, read_bytes, scan
from .lock import lock


@dataclass(frozen=True)
class Problem:
    """A problem of a line of a log; lines count from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Examined:
    """The problems and the good lines of a log.

    prefix: the lines that a run can resume from: the header, and the trials from 0 up to the first that is missing.
    rest: the good lines after that. trials, rest_trials: the number of trials in each.
    """

    path: Path
    problems: tuple[Problem, ...]
    prefix: tuple[bytes, ...]
    rest: tuple[bytes, ...]
    trials: int
    rest_trials: int


def examine(path: Path) -> Examined:
    """Every problem of the log at ``path``. Raises SearchlabError if it cannot be read at all."""
    problems: list[Problem] = []
    prefix: list[bytes] = []
    rest: list[bytes] = []
    trials = rest_trials = 0
    for line in scan(read_bytes(path)):
        problem = line.problem
        if isinstance(line.item, Header):
            if wrong := _wrong_workload(line.item):
                problem = wrong
            else:
                prefix.append(line.data)
        elif isinstance(line.item, Record):
            if prefix and not rest and line.item.index == trials:
                trials += 1
                prefix.append(line.data)
            else:
                rest_trials += 1
                rest.append(line.data)
        elif isinstance(line.item, Final | Ended):
            (rest if rest or not prefix else prefix).append(line.data)
        if problem:
            problems.append(Problem(line.number, problem))
    if not problems and not prefix:
        problems.append(Problem(1, "the log is empty: it holds no header yet"))
    return Examined(path, tuple(problems), tuple(prefix), tuple(rest), trials, rest_trials)


def _wrong_workload(header: Header) -> str:
    """The problem with the workload that a header names; empty if there is none."""
    try:
        parse_workload(header.workload)
    except SearchlabError as error:
        return f"the header is damaged: {error}"
    return ""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair: ``saved`` is the damaged original, and ``rest`` holds the later trials, if any."""

    trials: int
    saved: Path
    rest: Path | None
    rest_trials: int


def repair(path: Path) -> Repaired | None:
    """Repair the log at ``path``; None if nothing is wrong with it.

    The log then holds the trials up to the first that is missing, and its run can resume from there: trial i of a run
    must be the i-th that its policy asks for. The original is kept as ``*.damaged``. Good trials after the gap are kept
    in ``*.rest``, under the header and with their own numbers. Raises SearchlabError, and changes nothing, if the
    header is damaged, if another process writes the log, or if it is compressed.
    """
    if path.suffix == ".gz":
        raise SearchlabError(f"{path} is compressed; unpack it with gunzip, and repair the unpacked log")
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, with its lock
    except OSError as error:
        raise SearchlabError(f"cannot read the log {path}: {error.strerror}") from None
    with file:
        try:
            lock(file)
        except OSError:
            raise SearchlabError(f"another process is writing {path}; wait for it") from None
        examined = examine(path)
        if not examined.problems:
            return None
        if not examined.prefix:
            raise SearchlabError(
                f"{path} cannot be repaired: line 1: {examined.problems[0].text}. Without a header, "
                f"its trials cannot be used; copy the first line from another log of the same run"
            )
        try:
            saved = _free(path, ".damaged")
            shutil.copyfile(path, saved)
            rest = None
            if examined.rest:
                rest = _free(path, ".rest")
                _write(rest, [examined.prefix[0], *examined.rest])
            _write(path, examined.prefix)
        except OSError as error:
            raise SearchlabError(f"cannot write files beside {path}: {error.strerror}; the log is unchanged") from None
    return Repaired(examined.trials, saved, rest, examined.rest_trials)


def _free(path: Path, ending: str) -> Path:
    """``path`` with ``ending``, and with a number if that exists already; such a name is never taken for a log."""
    names = (path.with_name(f"{path.name}{ending}{number or ''}") for number in range(1 << 16))
    return next(name for name in names if not name.exists())


def _write(path: Path, lines: list[bytes] | tuple[bytes, ...]) -> None:
    """Write all of ``lines`` to ``path``, or nothing."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
