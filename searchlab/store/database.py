"""The file of a store: an SQLite database, which several processes may read and write at the same time.

Its journal is a write-ahead log, which needs memory that the processes share: a store must be on a disk of this
machine, not on a network file system. While no process has it open, it is one file.

- ``runs`` has a row for each run: the key of what it measured, and its fastest program. ``header`` is the digest of the
  first line of its log, and ``lines`` the number of lines.
- ``lines`` has the lines of each log, as they are. A trial has the hash of its ``program``, or its config if a program
  that ran has no hash.
- ``states`` has the digest of each log as it was when it was added, and how many of the lines these are. A log only
  grows, so every state of it can be restored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import SearchlabError, first_line

APPLICATION = 0x734C6162
"""What SQLite's header says that the database is of."""

VERSION = 1
"""The version of the tables."""

PATIENCE = 30.0
"""Seconds to wait for another process that writes. Each log is a transaction of milliseconds."""

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
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The store at ``path``, to be read. Raises SearchlabError if there is none, and for all that SQLite refuses."""
    with _explained(path), closing(_patiently(_open_to_read, path)) as database:
        yield database


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """The store at ``path``, to be written; made if there is none. Raises SearchlabError for all that SQLite refuses.

    Each statement is a transaction of its own, but within :func:`transaction`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.stat()
            if not _is_writable(path):
                raise SearchlabError(_SENTENCES["SQLITE_READONLY"].format(path=path))
    except (OSError, ValueError) as error:
        raise _cannot_open(path, error) from None
    with _explained(path), closing(_patiently(_open_to_write, path)) as database:
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing; no other process writes meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _mode_to_read(path: Path) -> str:
    """How SQLite is to open the store at ``path``, of which a reader writes nothing."""
    try:
        path.stat()
    except FileNotFoundError:
        raise SearchlabError(f"there is no store at {path}; searchlab store add creates one from logs") from None
    except (OSError, ValueError) as error:
        raise _cannot_open(path, error) from None
    if _is_writable(path):
        return "rw"
    # A process that may not write beside the store reads it as a file that nobody writes, if nobody does.
    return "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"


def _patiently(open_: Callable[[Path], sqlite3.Connection], path: Path) -> sqlite3.Connection:
    """The database that ``open_`` gives. SQLite itself does not wait for a process that makes a store, or closes it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return open_(path)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _open_to_read(path: Path) -> sqlite3.Connection:
    with _closed_if_refused(_connected(path, _mode_to_read(path))) as database:
        _check(database, path)
        database.execute("PRAGMA query_only = ON")
        return database


def _open_to_write(path: Path) -> sqlite3.Connection:
    with _closed_if_refused(_connected(path, "rwc")) as database:
        with transaction(database):
            if not _schema(database) and not _number(database, "application_id"):
                for statement in SCHEMA:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {APPLICATION}")
                database.execute(f"PRAGMA user_version = {VERSION}")
        _check(database, path)
        if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise SearchlabError(
                f"the file system of {path} cannot hold a store, which several processes share; choose a local disk"
            )
        database.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may cost the last logs, no more
        return database


@contextmanager
def _closed_if_refused(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield database
    except BaseException:
        database.close()
        raise


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    where = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(where, uri=True, timeout=PATIENCE, isolation_level=None)
    database.text_factory = lambda data: data.decode("utf-8", "backslashreplace")  # a damaged text is only another
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _check(database: sqlite3.Connection, path: Path) -> None:
    """Raise SearchlabError if the database is no store that this searchlab reads."""
    if _number(database, "application_id") != APPLICATION:
        raise SearchlabError(f"{path} is a database of another program, not a searchlab store; name another file")
    if (version := _number(database, "user_version")) != VERSION:
        raise SearchlabError(
            f"{path} is a store of version {version}, and this searchlab reads version {VERSION}; use the searchlab "
            f"that made it, or make another store of the logs"
        )
    if _schema(database) != set(SCHEMA):
        raise SearchlabError(f"{path} is damaged: its tables are not those of a store; {_ANEW}")


def _schema(database: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _number(database: sqlite3.Connection, pragma: str) -> int:
    return int(database.execute(f"PRAGMA {pragma}").fetchone()[0])


_ANEW = "rebuild it from the logs with searchlab store add"

_SENTENCES = {
    "SQLITE_BUSY": f"another process has locked the store {{path}} for more than {PATIENCE:.0f} seconds; wait for it",
    "SQLITE_LOCKED": "another process has locked the store {path}; wait for it",
    "SQLITE_NOTADB": "{path} is no store of searchlab; name another file",
    "SQLITE_READONLY": "the store {path} cannot be written: it, or its directory, is read-only; choose another file",
    "SQLITE_CANTOPEN": "cannot open the store {path}: it is no file, or it cannot be read or written here",
    "SQLITE_CORRUPT": f"the store {{path}} is damaged; {_ANEW}",
    "SQLITE_FULL": "cannot write the store {path}: the disk is full; free space, and add the logs again",
}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Whatever SQLite refuses becomes a SearchlabError of one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        known = next((said for start, said in _SENTENCES.items() if name.startswith(start)), "")
        said = known.format(path=path) or f"the store {path} cannot be used: SQLite says {first_line(error)}"
        raise SearchlabError(said) from None
    except UnicodeDecodeError:  # of SQLite's own message, which holds a damaged name
        raise SearchlabError(_SENTENCES["SQLITE_CORRUPT"].format(path=path)) from None


def _cannot_open(path: Path, error: OSError | ValueError) -> SearchlabError:
    """error: a ValueError if no file can have this name, as one with a zero byte."""
    return SearchlabError(
        f"cannot open the store {path}: {getattr(error, 'strerror', None) or error}; name another file"
    )
