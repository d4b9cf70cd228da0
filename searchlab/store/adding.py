"""Adding a log to the database of a store."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from ..errors import SearchlabError, encodable
from ..log.format import Log, Record, decode_log, read_bytes, scan
from ..log.result import Result
from .database import transaction
from .held import Key


@dataclass
class Added:
    """What :meth:`~searchlab.store.store.Store.add` did.

    known: the number of logs without a trial that was new. left_out: the logs that it did not take -> why.
    """

    runs: int = 0
    trials: int = 0
    known: int = 0
    left_out: dict[Path, str] = field(default_factory=dict)


def add_log(database: sqlite3.Connection, path: Path) -> tuple[bool, int]:
    """Add the log at ``path``, in one transaction. Whether its run is new, and the number of new trials.

    Raises SearchlabError if the log cannot be read, or measured nothing.
    """
    lines = read_bytes(path).split(b"\n")[:-1]  # what follows the last newline is torn
    digest = _digest(lines)
    if _holds(database, digest):
        return False, 0
    log = decode_log(path, _joined(lines))
    key = _key(log)
    with transaction(database):
        if _holds(database, digest):  # another process has added it meanwhile
            return False, 0
        return _insert(database, key, log, lines, digest)


def values_of(key: Key) -> list[str]:
    return [key.workload, key.target, key.machine, key.space, key.fingerprint]


def _key(log: Log) -> Key:
    """What ``log`` measured. Raises SearchlabError if it measured nothing."""
    header, path = log.header, log.path
    if header.measure.get("kind") == "table":
        raise SearchlabError(f"{path} measured nothing: a table answered")
    if ":" in header.fingerprint:
        raise SearchlabError(f"{path} was imported for analysis only, and has no programs; import it with --space")
    if not log.records:
        raise SearchlabError(f"{path} has no trial yet")
    try:
        return Key.of(header)
    except SearchlabError as error:
        raise SearchlabError(f"{path}: {error}") from None


def _insert(database: sqlite3.Connection, key: Key, log: Log, lines: list[bytes], digest: str) -> tuple[bool, int]:
    header = _digest(lines[:1])
    run, known, trials = _run_of(database, header, lines)
    is_new = run is None
    if is_new:
        texts = log.header.name, str(log.path.absolute())
        run = database.execute(
            "INSERT INTO runs (header, workload, target, machine, space, fingerprint, strategy, origin, created, "
            "lines, trials) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
            [header, *values_of(key), *map(encodable, texts), log.header.created],
        ).lastrowid
    database.execute("INSERT INTO states VALUES (?, ?, ?)", [digest, run, len(lines)])
    if len(lines) <= known:  # an earlier copy
        return False, 0
    programs = [_program(line.item) for line in scan(_joined(lines))]
    rows = [(run, number, lines[number], programs[number]) for number in range(known, len(lines))]
    database.executemany("INSERT INTO lines VALUES (?, ?, ?, ?)", rows)
    seconds = Result(log).best.seconds if np.isfinite(log.costs).any() else None
    database.execute(
        "UPDATE runs SET lines = ?, trials = ?, seconds = ? WHERE id = ?", [len(lines), len(log.records), seconds, run]
    )
    return is_new, len(log.records) - trials


def _holds(database: sqlite3.Connection, digest: str) -> bool:
    return database.execute("SELECT 1 FROM states WHERE digest = ?", [digest]).fetchone() is not None


def _run_of(database: sqlite3.Connection, header: str, lines: list[bytes]) -> tuple[int | None, int, int]:
    """The run whose log begins as ``lines`` do, its number of lines, and of trials; None if there is none."""
    for run, known, trials in database.execute("SELECT id, lines, trials FROM runs WHERE header = ?", [header]):
        held = database.execute(
            "SELECT line FROM lines WHERE run = ? AND number < ? ORDER BY number", [run, len(lines)]
        ).fetchall()
        if [line for (line,) in held] == lines[: len(held)]:
            return run, known, trials
    return None, 0, 0


def _digest(lines: list[bytes]) -> str:
    """The digest of a log of these lines, as the header of a run that started from it has it."""
    return hashlib.sha256(_joined(lines)).hexdigest()[:32]


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _program(item: object) -> str | None:
    """What names the program of a line of a log; None if there is none."""
    if not isinstance(item, Record):
        return None
    return item.program or (msgspec.json.encode(item.config).decode() if item.failure is None else None)
