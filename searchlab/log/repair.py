"""What is wrong with a log, all of it; and a damaged log made whole again, with nothing lost. Executes nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from .format import FINAL, FORMAT, Final, Header, Record, check_final, read_bytes
from ..workload import parse_workload


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
    data = read_bytes(path)
    lines = data.splitlines()
    if not lines:
        return Examined(path, (Problem(1, "it is empty: it holds no header yet"),), (), (), 0, 0)
    problems: list[Problem] = []
    header = _header(lines[0], problems)
    prefix: list[bytes] = [lines[0]] if header else []
    rest: list[bytes] = []
    trials = rest_trials = expected = 0
    lost = 0  # damaged lines since the last trial, each of which may have been one
    for number, line in enumerate(lines[1:], 2):
        if number == len(lines) and not data.endswith(b"\n"):
            problems.append(Problem(number, "it is torn: it has no end; the run cuts it off when it goes on"))
            break
        try:
            found: Record | Final
            if line.startswith(FINAL):
                found = msgspec.json.decode(line, type=Final)
                check_final(found, expected)
            else:
                found = msgspec.json.decode(line, type=Record)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems.append(Problem(number, f"it is damaged: {error}"))
            lost += 1
            continue
        if isinstance(found, Record):
            if not expected <= found.index <= expected + lost:
                problems.append(Problem(number, f"it is of trial {found.index} where {expected + lost} should be"))
            expected, lost = found.index + 1, 0
            if header and not rest and found.index == trials:
                trials += 1
                prefix.append(line)
            else:
                rest_trials += 1
                rest.append(line)
        else:
            (rest if rest or not header else prefix).append(line)
    if len(lines) == 1 and header and not data.endswith(b"\n"):
        problems.append(Problem(1, "it is torn: it has no end; the run writes it anew"))
    return Examined(path, tuple(problems), tuple(prefix), tuple(rest), trials, rest_trials)


def _header(line: bytes, problems: list[Problem]) -> Header | None:
    """The header, or None, adding why, where it is none."""
    try:
        fields = msgspec.json.decode(line)
        version = fields.get("searchlab_log") if isinstance(fields, dict) else None
        if version is None:
            problems.append(Problem(1, "it is no header: this is not a searchlab log, or its first line is lost"))
            return None
        if version != FORMAT:
            problems.append(Problem(1, f"its log format is {version!r}; this searchlab reads format {FORMAT}"))
            return None
        header = msgspec.json.decode(line, type=Header)
        parse_workload(header.workload)
    except (msgspec.DecodeError, UnicodeDecodeError, SearchlabError) as error:
        problems.append(Problem(1, f"the header is damaged: {error}"))
        return None
    return header


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
        found = examine(path)
        if not found.problems:
            return None
        if not found.prefix:
            raise SearchlabError(
                f"{path} cannot be repaired: line 1: {found.problems[0].text}. Without a header nothing says what its "
                f"trials are of; take the first line from another log of the same run"
            )
        try:
            saved = _free(path, ".damaged")
            shutil.copyfile(path, saved)
            rest = None
            if found.rest:
                rest = _free(path, ".rest")
                _write(rest, [found.prefix[0], *found.rest])
            _write(path, found.prefix)
        except OSError as error:
            raise SearchlabError(f"cannot write beside {path}: {error.strerror}; it is as it was") from None
    return Repaired(found.trials, saved, rest, found.rest_trials)


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
