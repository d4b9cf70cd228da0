"""What is wrong with a log, all of it; and a damaged log made whole again, with nothing lost. Executes nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import SearchlabError
from .format import Final, Header, Record, read_bytes, scan


@dataclass(frozen=True)
class Problem:
    """What is wrong with a line of a log, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True)
class Examined:
    """What a log holds, line by line.

    prefix: the lines that are a log of their own, which a run can go on from: the header, and the trials that follow
    it from 0 on, none missing. rest: the later whole lines. trials: how many are in the prefix, and rest_trials in the
    rest.
    """

    path: Path
    problems: tuple[Problem, ...]
    prefix: tuple[bytes, ...]
    rest: tuple[bytes, ...]
    trials: int
    rest_trials: int


def examine(path: Path) -> Examined:
    """Every problem of the log at ``path``. Raises SearchlabError where it cannot be read at all."""
    problems: list[Problem] = []
    prefix: list[bytes] = []
    rest: list[bytes] = []
    trials = rest_trials = 0
    for line in scan(read_bytes(path)):
        if line.problem:
            problems.append(Problem(line.number, line.problem))
        if isinstance(line.item, Header):
            prefix.append(line.data)
        elif isinstance(line.item, Record):
            if prefix and not rest and line.item.index == trials:
                trials += 1
                prefix.append(line.data)
            else:
                rest_trials += 1
                rest.append(line.data)
        elif isinstance(line.item, Final):
            (rest if rest or not prefix else prefix).append(line.data)
    if not problems and not prefix:
        problems.append(Problem(1, "it is empty: it holds no header yet"))
    return Examined(path, tuple(problems), tuple(prefix), tuple(rest), trials, rest_trials)


@dataclass(frozen=True)
class Repaired:
    """What a repair made: the damaged original, and the later trials where there are any."""

    trials: int
    saved: Path
    rest: Path | None
    rest_trials: int


def repair(path: Path) -> Repaired | None:
    """Make the log at ``path`` whole; None where nothing is wrong with it.

    What is left is what a run can go on from: all whole trials up to the first that is missing, since trial i of a run
    must be what its policy asks for i-th. The original is kept as ``*.damaged``; whole trials after the gap are put
    into ``*.rest``, under the header and their own numbers. Raises SearchlabError, and touches nothing, where the
    header is damaged, another process writes the log, or it is compressed.
    """
    if path.suffix == ".gz":
        raise SearchlabError(f"{path} is compressed: unpack it with gunzip, and repair that")
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, with its lock
    except OSError as error:
        raise SearchlabError(f"cannot read the log {path}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SearchlabError(f"another process is writing {path}; wait for it") from None
        examined = examine(path)
        if not examined.problems:
            return None
        if not examined.prefix:
            raise SearchlabError(
                f"{path} cannot be repaired: line 1: {examined.problems[0].text}. Without a header its trials "
                f"mean nothing; take the first line from another log of the same run"
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
            raise SearchlabError(f"cannot write beside {path}: {error.strerror}; it is as it was") from None
    return Repaired(examined.trials, saved, rest, examined.rest_trials)


def _free(path: Path, ending: str) -> Path:
    """``path`` with ``ending``, and a number where that is taken; no such name is one of a log."""
    names = (path.with_name(f"{path.name}{ending}{number or ''}") for number in range(1 << 16))
    return next(name for name in names if not name.exists())


def _write(path: Path, lines: list[bytes] | tuple[bytes, ...]) -> None:
    """All of ``lines`` at ``path``, or nothing."""
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
