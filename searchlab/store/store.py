"""A store: the runs of all studies in one SQLite file, which several processes may read and write concurrently.

Its journal is a write-ahead log, which needs shared memory, so a store must be on a local disk rather than a network
file system. When no process has the store open, it is a single file. It contains three database tables:

- ``runs`` has one row per run, with the run's :class:`Key` and the time of its fastest program. ``header`` is the
  digest of the log's first line, and ``lines`` is the number of lines.
- ``lines`` contains each log's lines verbatim. ``program`` is the hash of a trial's program or, if a program ran but
  has no hash, the trial's config.
- ``states`` has one row for each time that a log was added, with its digest and number of lines at that time. Logs only
  grow, so each of these states can be restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from ..errors import SearchlabError, did_you_mean, encodable, first_line
from ..log.format import (
    Header,
    Log,
    Record,
    computation_of,
    decode_log,
    find_logs,
    read_bytes,
    scan,
    workload_name,
)  # fmt: skip
from ..log.result import Best, Result, Results
from ..machine.host import host_model
from ..schema import UNREADABLE
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload

VARIABLE = "SEARCHLAB_STORE"  # the environment variable that names the default store
WORD = "store"  # specifies a warm start from the default store; store:PATH specifies the store at PATH

TargetSpec = str | Mapping[str, Any] | Target
Seconds = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)] | None
_RunRow = tuple[int, int, Seconds]  # the run, its number of lines, and the time of its fastest program in seconds
_StateRow = tuple[str, int, int]  # the digest of a log, its number of lines at that time, and the run

_HELD = """
SELECT workload, target, machine, space, fingerprint, COUNT(*), SUM(trials),
  (SELECT COUNT(DISTINCT program) FROM lines JOIN runs AS own ON lines.run = own.id WHERE own.workload = runs.workload
    AND own.target = runs.target AND own.machine = runs.machine AND own.space = runs.space
    AND own.fingerprint = runs.fingerprint),
  MIN(seconds), strategy, created, origin,  -- SQLite takes the last four from the row of the minimum
  (SELECT line FROM lines WHERE run = runs.id AND number = 0)
FROM runs WHERE ?1 IS NULL OR workload = ?1
GROUP BY workload, target, machine, space, fingerprint ORDER BY workload, target, machine, MIN(seconds) IS NULL, 9
"""
_RUNS = """
SELECT id, lines, seconds FROM runs
WHERE workload = ? AND target = ? AND machine = ? AND space = ? AND fingerprint = ?
ORDER BY seconds IS NULL, seconds, id
"""
_LINES = "SELECT line FROM lines WHERE run = ? AND number < ? ORDER BY number"


class Key(msgspec.Struct, frozen=True, array_like=True):
    """A workload, a space, a target and a machine. Programs with different keys are never compared."""

    workload: str
    target: str  # see spelled_target
    machine: str  # see Header.measured_on
    space: str  # the name of the space's plug-in
    fingerprint: str  # the fingerprint of the space

    @classmethod
    def of(cls, header: Header) -> Key:
        """Return a log's key from its header. Raises SearchlabError if the workload is unknown."""
        texts = header.measured_on, header.space.name, header.fingerprint
        return cls(workload_name(header), spelled_target(header.target), *map(encodable, texts))

    @property
    def values(self) -> list[str]:
        return list(msgspec.structs.astuple(self))


class Held(msgspec.Struct, frozen=True, array_like=True):
    """The content of a store for one :class:`Key`, with its fastest program."""

    key: Key
    runs: int
    trials: int
    programs: int  # the number of distinct programs that were built
    seconds: Seconds  # the fastest program's time, like Best.seconds; None if no trial succeeded
    strategy: str  # the strategy that found the fastest program
    created: Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)]  # when the strategy's run began, in seconds since 1970
    log: str  # the path from which the log of this run was added
    line: bytes  # the first line of this log

    @property
    def header(self) -> Header:
        """The header of the log that contains the fastest program. Raises SearchlabError if it is damaged."""
        for line in scan(self.line + b"\n"):
            if isinstance(line.item, Header):
                return line.item
        raise SearchlabError(f"the store is damaged: the log {self.log} has no header; rebuild it from the logs")

    @property
    def gflops(self) -> float | None:
        """The throughput of the fastest program, in :attr:`unit`."""
        return computation_of(self.header).flops / self.seconds / 1e9 if self.seconds else None

    @property
    def unit(self) -> str:
        return computation_of(self.header).unit

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.structs.asdict(self)
        del facts["line"]
        key = msgspec.structs.asdict(facts.pop("key"))
        key["target"] = json.loads(self.key.target)
        return {**key, **facts, "gflops": self.gflops, "unit": self.unit}


@dataclass
class Added:
    """The result of :meth:`Store.add`."""

    runs: int = 0  # new runs
    trials: int = 0  # new trials
    known: int = 0  # logs without a new trial
    left_out: dict[Path, str] = field(default_factory=dict)  # logs that were not added, and why


@dataclass(frozen=True, init=False)
class Store:
    """A database of everything that has been measured in any study.

    It stores complete logs, so the store can be rebuilt from the logs, and the logs from the store. Several processes
    may read and write it concurrently. It must be on a local disk.

    Attributes:
        path: The path of the file, by default the user's store.

    Example:
        >>> import searchlab
        >>> store = searchlab.Store("store.db")
        >>> store.add("gemm.jsonl").runs
        1
        >>> store.best("gemm:32x32x32")
        <Best on gemm:32x32x32: ... GFLOPS in trial ...>
    """

    path: Path

    def __init__(self, path: str | Path | None = None) -> None:
        object.__setattr__(self, "path", default_path() if path is None else Path(path))

    def add(self, *logs: str | Path | Result) -> Added:
        """Add runs that are not yet in the store, and new trials from logs that have grown.

        Logs that cannot be read are skipped, and so are logs whose costs come from a table. Plug-ins that logs name are
        not imported.

        Args:
            *logs: Logs, directories of logs, or results.

        Raises:
            SearchlabError: If every log is skipped, or if the file is not a store or cannot be written.
        """
        paths = [one.log.path if isinstance(one, Result) else Path(one) for one in logs]
        found = [path for given in paths for path in find_logs(given)]
        if not found:
            raise SearchlabError(f"no logs (*.jsonl) to add in {', '.join(map(str, paths))}")
        added = Added()
        with opened(self.path, write=True) as database:
            for path in found:
                try:
                    is_new, trials = _add_log(database, path)
                except SearchlabError as error:
                    added.left_out[path] = str(error)
                    continue
                added.runs += is_new
                added.trials += trials
                added.known += not trials
        if len(added.left_out) == len(found):
            raise SearchlabError(next(iter(added.left_out.values())))
        return added

    def find(
        self,
        workload: str | Workload | None = None,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        space: str | None = None,
    ) -> list[Held]:
        """Return the store's content for each :class:`Key`, filtered by the arguments that are not None.

        Args:
            workload: The workload.
            target: The target.
            machine: Part of the machine's name.
            space: The name of the space.

        Raises:
            SearchlabError: If the store does not exist.
        """
        wanted = None if target is None else spelled_target(resolve_target(target))
        part = (machine or "").lower()
        return [
            one
            for one in self._held(workload)
            if wanted in (None, one.key.target) and part in one.key.machine.lower() and space in (None, one.key.space)
        ]

    def results(
        self,
        workload: str | Workload | None = None,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        space: str | None = None,
    ) -> Results:
        """Return all runs that match the arguments; see :meth:`find`. For each key, the fastest run comes first."""
        keys = [one.key for one in self.find(workload, target=target, machine=machine, space=space)]
        rows = [row for key in keys for row in self._rows(_RUNS, key.values, _RunRow)]
        return Results(Result(self._log(run, lines)) for run, lines, _ in rows)

    def best(
        self,
        workload: str | Workload,
        *,
        target: TargetSpec | None = None,
        machine: str | None = None,
        log: str | Path | None = None,
    ) -> Best:
        """Return the fastest program of a workload in any space.

        Args:
            workload: The workload.
            target: The target, by default this CPU with all its cores.
            machine: Part of the name of one machine, by default this machine.
            log: The path of a new file to which the log of the program's run is written.

        Raises:
            SearchlabError: If the store contains no such program. The message lists where the workload was measured.
        """
        resolved = resolve_target("native" if target is None else target)
        held = self._held(workload)
        if machine is not None:
            names = {one.key.machine for one in held if one.key.target == spelled_target(resolved)}
            matching = {name for name in names if machine.lower() in name.lower()}
            if machine not in matching and len(matching) > 1:
                several = "; ".join(sorted(matching))
                raise SearchlabError(f"{machine!r} matches several machines: {several}; pass a longer part of the name")
            machine = machine if machine in matching or not matching else matching.pop()
        for run, lines in self._fastest(held, resolved, machine):
            if log is not None:
                _write(Path(log), self._lines(run, lines))
            return Result(self._log(run, lines)).best
        raise SearchlabError(self.nothing(self._name(workload), held, resolved, machine))

    def fastest(self, held: list[Held], target: Target) -> Iterator[Result]:
        """Yield the successful runs in ``held`` for ``target`` on this machine, fastest first."""
        for run, lines in self._fastest(held, target, None):
            yield Result(self._log(run, lines))

    def nothing(self, workload: str, held: list[Held], target: Target, machine: str | None = None) -> str:
        """Return the text of the error that ``held`` contains no program for the other arguments."""
        where = in_words(spelled_target(target), _this_machine(target) if machine is None else machine)
        said = f"the store {self.path} contains no working program that computes {workload} for {where}"
        if held:
            return f"{said}; for this workload, it contains only these programs: {places(held)}"
        return f"{said} or any other target{did_you_mean(workload, {one.key.workload for one in self._held()})}"

    def states(self, keys: Iterable[Key]) -> list[tuple[str, Log]]:
        """Return the log of each run with one of ``keys``, earliest first, and the digest that warm starts record."""
        sql = (
            f"SELECT states.digest, own.lines, own.id FROM ({_RUNS}) AS own "
            f"JOIN states ON states.run = own.id AND states.lines = own.lines"
        )
        rows = [row for key in keys for row in self._rows(sql, key.values, _StateRow)]
        runs = [(digest, self._log(run, lines)) for digest, lines, run in rows]
        return sorted(runs, key=lambda run: (run[1].header.created, run[0]))

    def log_of(self, digest: str) -> Log | None:
        """Return the log that had this digest when it was added, without later lines, or None if there is none."""
        rows = self._rows("SELECT digest, lines, run FROM states WHERE digest = ?", [digest], _StateRow)
        return self._log(rows[0][2], rows[0][1]) if rows else None

    def _held(self, workload: str | Workload | None = None) -> list[Held]:
        held = self._rows(_HELD, [None if workload is None else self._name(workload)], Held)
        for one in held:
            try:
                msgspec.json.decode(one.key.target, type=dict[str, Any])
            except UNREADABLE as error:
                raise self._damaged(f"it refers to the target {one.key.target!r}: {error}") from None
        return held

    def _name(self, workload: str | Workload) -> str:
        """Return the name of ``workload``, which may be known only from logs in the store."""
        try:
            return str(parse_workload(workload))
        except SearchlabError:
            if self._rows("SELECT id FROM runs WHERE workload = ? LIMIT 1", [str(workload)], tuple[int]):
                return str(workload)
            raise

    def _fastest(self, held: list[Held], target: Target, machine: str | None) -> list[tuple[int, int]]:
        """Return each run in which a trial succeeded, and its number of lines, fastest run first."""
        at = spelled_target(target), _this_machine(target) if machine is None else machine
        keys = [one.key for one in held if (one.key.target, one.key.machine) == at]
        rows = [row for key in keys for row in self._rows(_RUNS, key.values, _RunRow)]
        ran = [(seconds, run, lines) for run, lines, seconds in rows if seconds is not None]
        return [(run, lines) for _, run, lines in sorted(ran)]

    def _log(self, run: int, count: int) -> Log:
        """Return a run's log as it was when it had ``count`` lines."""
        sql = "SELECT workload, target, machine, space, fingerprint, origin FROM runs WHERE id = ?"
        rows = self._rows(sql, [run], tuple[str, str, str, str, str, str])
        lines = self._lines(run, count)
        if not rows or len(lines) != count:
            raise self._damaged("lines of a log are missing")
        *key, origin = rows[0]
        log = decode_log(self.path / origin.lstrip("/"), _joined(lines))
        if Key.of(log.header) != Key(*key):
            raise self._damaged(f"the log {origin} differs from its index")
        return log

    def _lines(self, run: int, count: int) -> list[bytes]:
        return [line for (line,) in self._rows(_LINES, [run, count], tuple[bytes])]

    def _rows(self, sql: str, values: list[Any], kind: Any) -> list[Any]:
        """Return the rows of a query. Raises SearchlabError if a row does not have the type ``kind``."""
        with opened(self.path) as database:
            rows = database.execute(sql, values).fetchall()
        try:
            return msgspec.convert([(row[:5], *row[5:]) for row in rows] if kind is Held else rows, list[kind])
        except msgspec.ValidationError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, why: str) -> SearchlabError:
        return SearchlabError(f"the store {self.path} is damaged: {why}; rebuild it from the logs")


# --- adding a log -----------------------------------------------------------------------------------------------------


def _add_log(database: sqlite3.Connection, path: Path) -> tuple[bool, int]:
    """Add a log in one transaction, and return whether its run is new and the number of new trials.

    Raises SearchlabError if the log cannot be read or contains no measurements.
    """
    lines = read_bytes(path).split(b"\n")[:-1]  # without an incomplete last line
    digest = _digest(lines)
    known = "SELECT 1 FROM states WHERE digest = ?", [digest]
    if database.execute(*known).fetchone():
        return False, 0
    log = decode_log(path, _joined(lines))
    key = _key(log)
    with transaction(database):
        if database.execute(*known).fetchone():  # another process has since added it
            return False, 0
        return _insert(database, key, log, lines, digest)


def _key(log: Log) -> Key:
    """Return the key of ``log``. Raises SearchlabError if the log contains no measurements."""
    header, path = log.header, log.path
    if header.measure.get("kind") == "table":
        raise SearchlabError(f"{path} contains no measurements: its costs come from a table")
    if ":" in header.fingerprint:
        raise SearchlabError(f"{path} was imported for analysis only and has no programs; import it with --space")
    if not log.records:
        raise SearchlabError(f"{path} contains no trials yet")
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
            [header, *key.values, *map(encodable, texts), log.header.created],
        ).lastrowid
    database.execute("INSERT INTO states VALUES (?, ?, ?)", [digest, run, len(lines)])
    if len(lines) <= known:  # an earlier copy of the log
        return False, 0
    programs = [_program(line.item) for line in scan(_joined(lines))]
    rows = [(run, number, lines[number], programs[number]) for number in range(known, len(lines))]
    database.executemany("INSERT INTO lines VALUES (?, ?, ?, ?)", rows)
    seconds = Result(log).best.seconds if np.isfinite(log.costs).any() else None
    database.execute(
        "UPDATE runs SET lines = ?, trials = ?, seconds = ? WHERE id = ?", [len(lines), len(log.records), seconds, run]
    )
    return is_new, len(log.records) - trials


def _run_of(database: sqlite3.Connection, header: str, lines: list[bytes]) -> tuple[int | None, int, int]:
    """Return the run with the log ``lines``, and its numbers of lines and trials, or None, 0, 0 if it is unknown."""
    for run, known, trials in database.execute("SELECT id, lines, trials FROM runs WHERE header = ?", [header]):
        held = [line for (line,) in database.execute(_LINES, [run, len(lines)])]
        if held == lines[: len(held)]:
            return run, known, trials
    return None, 0, 0


def _program(item: object) -> str | None:
    """Return the hash or config that identifies the program in a log's line, or None if the line has no program."""
    if not isinstance(item, Record):
        return None
    return item.program or (msgspec.json.encode(item.config).decode() if item.failure is None else None)


def _digest(lines: list[bytes]) -> str:
    """Return a log's digest, which is recorded in the header of any run that starts from the log."""
    return hashlib.sha256(_joined(lines)).hexdigest()[:32]


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _write(path: Path, lines: list[bytes]) -> None:
    try:
        with open(path, "xb") as file:
            file.write(_joined(lines))
    except (OSError, ValueError) as error:
        raise SearchlabError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


# --- the database -----------------------------------------------------------------------------------------------------

APPLICATION = 0x734C6162  # identifies this application in the header of the SQLite file
VERSION = 1  # the version of the database schema
PATIENCE = 30.0  # how long to wait for another process that writes, in seconds; adding a log takes milliseconds

SCHEMA = (
    """CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  header TEXT NOT NULL,
  workload TEXT NOT NULL,
  target TEXT NOT NULL,
  machine TEXT NOT NULL,
  space TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  strategy TEXT NOT NULL,
  origin TEXT NOT NULL,
  created REAL NOT NULL,
  lines INTEGER NOT NULL,
  trials INTEGER NOT NULL,
  seconds REAL
)""",
    "CREATE INDEX runs_by_key ON runs (workload, target, machine, fingerprint)",
    "CREATE INDEX runs_by_header ON runs (header)",
    """CREATE TABLE lines (
  run INTEGER NOT NULL REFERENCES runs,
  number INTEGER NOT NULL,
  line BLOB NOT NULL,
  program TEXT,
  PRIMARY KEY (run, number)
) WITHOUT ROWID""",
    """CREATE TABLE states (
  digest TEXT PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES runs,
  lines INTEGER NOT NULL
) WITHOUT ROWID""",
)


@contextmanager
def opened(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the store at ``path``; if ``write`` is true, create it if necessary.

    Outside :func:`transaction`, each statement is a separate transaction.

    Raises:
        SearchlabError: If ``write`` is false and the store does not exist, or if SQLite reports any error, including
            within the context.
    """
    try:
        with closing(_opened(path, write)) as database:
            yield database
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        message = next((message for start, message in _MESSAGES.items() if name.startswith(start)), "")
        raise SearchlabError(
            message.format(path=path) or f"cannot use the store {path}: SQLite reports {first_line(error)}"
        ) from None
    except UnicodeDecodeError:  # in SQLite's own message, which contains a damaged name
        raise SearchlabError(_MESSAGES["SQLITE_CORRUPT"].format(path=path)) from None


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Execute all statements in this context or none, while no other process can write."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _opened(path: Path, write: bool) -> sqlite3.Connection:
    """Open the database. Unlike SQLite itself, wait for processes that are creating or closing it."""
    until = time.monotonic() + PATIENCE
    while True:
        uri = f"{path.absolute().as_uri()}?mode={_mode(path, write)}"
        database = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
        try:
            _prepare(database, path, write)
            return database
        except BaseException as error:
            database.close()
            busy = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _mode(path: Path, write: bool) -> str:
    """Return the mode in which SQLite opens the file. Readers never write to it."""
    try:
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.stat()
    except FileNotFoundError:
        if write:
            return "rwc"
        raise SearchlabError(f"the store {path} does not exist; `searchlab store add` creates it from logs") from None
    except (OSError, ValueError) as error:  # a ValueError is raised for an invalid name, such as one with a null byte
        raise SearchlabError(
            f"cannot open the store {path}: {getattr(error, 'strerror', None) or error}; choose another file"
        ) from None
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "rwc" if write else "rw"
    if write:
        raise SearchlabError(_MESSAGES["SQLITE_READONLY"].format(path=path))
    # A reader that cannot create the journal files treats the store as immutable, unless a journal exists.
    return "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"


def _prepare(database: sqlite3.Connection, path: Path, write: bool) -> None:
    """Configure a connection. Raises SearchlabError unless the database is a store of this version."""
    database.text_factory = lambda data: data.decode("utf-8", "backslashreplace")  # tolerates damaged text
    database.execute("PRAGMA trusted_schema = OFF")
    if write:
        with transaction(database):
            if not _schema(database) and not _number(database, "application_id"):
                for statement in SCHEMA:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {APPLICATION}")
                database.execute(f"PRAGMA user_version = {VERSION}")
    if _number(database, "application_id") != APPLICATION:
        raise SearchlabError(f"{path} is another program's database, not a searchlab store; choose another file")
    if (version := _number(database, "user_version")) != VERSION:
        raise SearchlabError(
            f"the store {path} has version {version}, but this version of searchlab reads version {VERSION}; use "
            f"the version that created it, or build a new store from the logs"
        )
    if _schema(database) != set(SCHEMA):
        raise SearchlabError(f"the store {path} is damaged: it does not have the expected tables; {_REBUILD}")
    if not write:
        database.execute("PRAGMA query_only = ON")
        return
    if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise SearchlabError(
            f"the file system of {path} does not allow processes to share a store; choose a local disk"
        )
    database.execute("PRAGMA synchronous = NORMAL")  # if the machine crashes, only the last logs may be lost


def _schema(database: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _number(database: sqlite3.Connection, pragma: str) -> int:
    return int(database.execute(f"PRAGMA {pragma}").fetchone()[0])


_REBUILD = "rebuild it from the logs with `searchlab store add`"

_MESSAGES = {
    "SQLITE_BUSY": f"another process has locked the store {{path}} for over {PATIENCE:.0f} seconds; try again later",
    "SQLITE_LOCKED": "another process has locked the store {path}; try again later",
    "SQLITE_NOTADB": "{path} is not a searchlab store; choose another file",
    "SQLITE_READONLY": "cannot write to the store {path}: it or its directory is read-only; choose another file",
    "SQLITE_CANTOPEN": "cannot open the store {path}: it is not a file, or is not readable or writable",
    "SQLITE_CORRUPT": f"the store {{path}} is damaged; {_REBUILD}",
    "SQLITE_FULL": "cannot write to the store {path}: the disk is full; free some space and add the logs again",
}
"""The messages for SQLite errors, by the start of the error's name."""


# --- targets and machines ---------------------------------------------------------------------------------------------


def spelled_target(target: Target | Mapping[str, Any]) -> str:
    """Return a target as canonical JSON, without its cache sizes, which do not affect the programs that it can run."""
    spec = target.spec if isinstance(target, Target) else target
    return json.dumps({name: value for name, value in spec.items() if name != "caches"}, sort_keys=True)


def in_words(target: str, machine: str) -> str:
    """Describe where programs were measured: ``"llvm mcpu=znver5 num-cores=2 on AMD EPYC 9755"``."""
    spec = json.loads(target)
    options = [f"{name}={value}" for name, value in spec.items() if name != "kind"]
    return f"{' '.join([str(spec.get('kind')), *options])} on {machine or 'an unknown machine'}"


def places(held: Iterable[Held]) -> str:
    """Describe up to four places where ``held`` was measured, with the number of programs for each."""
    counts: dict[tuple[str, str], int] = {}
    for one in held:
        place = one.key.target, one.key.machine
        counts[place] = counts.get(place, 0) + one.programs
    said = [f"{count:,} for {in_words(*place)}" for place, count in counts.items()]
    return "; ".join(said[:4]) + (f"; and {len(said) - 4} other places" if len(said) > 4 else "")


def _this_machine(target: Target) -> str:
    """Return this machine's name in the form that logs record for ``target``."""
    return ", ".join(host_model(target.kind).values())


# --- the location of a store ------------------------------------------------------------------------------------------


def default_path() -> Path:
    """Return the default store's path: ``SEARCHLAB_STORE``, or ``searchlab/store.db`` in the user's data directory.

    The data directory is ``XDG_DATA_HOME`` if that is an absolute path, or ``~/.local/share`` otherwise (XDG Base
    Directory Specification 0.8). Raises SearchlabError if the user has no home directory.
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        try:
            data = Path.home() / ".local" / "share"
            if not os.environ.get("HOME", "set"):  # Path.home() then returns /
                raise RuntimeError
        except RuntimeError:
            raise SearchlabError(
                f"this user has no home directory for a store; set {VARIABLE} to the path of a file"
            ) from None
    return data / "searchlab" / "store.db"


def named_store(entry: str, base: Path) -> Path | None:
    """Return the path of the store that a warm-start entry specifies, or None if the entry is a path to logs.

    Relative paths start from ``base``. Raises SearchlabError if ``"store"`` is ambiguous.
    """
    word, colon, path = entry.partition(":")
    if word != WORD:
        return None
    if not colon and (base / WORD).exists():
        raise SearchlabError(
            f'the warm start "{WORD}" means the default store, but {base / WORD} also exists; use "./{WORD}" for the '
            f'logs there or "{WORD}:" for the default store'
        )
    return base / path if path else default_path()
