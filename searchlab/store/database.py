"""The SQLite database of a store, which several processes may read and write at the same time.

Its journal is a write-ahead log, which needs shared memory: a store must be on a local disk, not on a network file
system. While no process has it open, it is a single file.

- ``runs`` has one row per run: the key of what it measured, and its fastest program. ``header`` is the digest of the
  first line of its log, and ``lines`` the number of lines.
- ``lines`` has the lines of each log, verbatim. A trial has the hash of its ``program``, or its config if a program
  that ran has no hash.
- ``states`` has the digest of each log as it was when it was added, and its number of lines then. A log only grows, so
  each of its states can be restored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..errors import SearchlabError, first_line

APPLICATION = 0x734C6162  # SQLite's header names the application of a database by this number
VERSION = 1  # of the tables
PATIENCE = 30.0  # seconds to wait for another process that writes; the transaction of a log takes milliseconds

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

    Outside :func:`transaction`, each statement is a transaction of its own.

    Raises:
        SearchlabError: If there is no store to read, or for any error of SQLite, also in the body of the ``with``.
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
    """Commit all statements or none. No other process writes in the meantime."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _opened(path: Path, write: bool) -> sqlite3.Connection:
    """Open the database, waiting for processes that create or close it, which SQLite itself does not do."""
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
        raise SearchlabError(f"there is no store at {path}; searchlab store add creates one from logs") from None
    except (OSError, ValueError) as error:  # a ValueError for a name that no file can have, e.g. with a zero byte
        raise SearchlabError(
            f"cannot open the store {path}: {getattr(error, 'strerror', None) or error}; name another file"
        ) from None
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "rwc" if write else "rw"
    if write:
        raise SearchlabError(_MESSAGES["SQLITE_READONLY"].format(path=path))
    # A reader that cannot create the files of the journal treats the store as immutable, unless a journal exists.
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
        raise SearchlabError(f"{path} is a database of another program, not a searchlab store; name another file")
    if (version := _number(database, "user_version")) != VERSION:
        raise SearchlabError(
            f"{path} is a store of version {version}, and this searchlab reads version {VERSION}; use the searchlab "
            f"that created it, or build a new store from the logs"
        )
    if _schema(database) != set(SCHEMA):
        raise SearchlabError(f"{path} is damaged: its tables are not those of a store; {_REBUILD}")
    if not write:
        database.execute("PRAGMA query_only = ON")
        return
    if database.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise SearchlabError(
            f"the file system of {path} does not support a store, which several processes share; choose a local disk"
        )
    database.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may lose the last logs, nothing else


def _schema(database: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _number(database: sqlite3.Connection, pragma: str) -> int:
    return int(database.execute(f"PRAGMA {pragma}").fetchone()[0])


_REBUILD = "rebuild it from the logs with searchlab store add"

_MESSAGES = {
    "SQLITE_BUSY": f"another process has locked the store {{path}} for more than {PATIENCE:.0f} seconds; wait for it",
    "SQLITE_LOCKED": "another process has locked the store {path}; wait for it",
    "SQLITE_NOTADB": "{path} is not a searchlab store; name another file",
    "SQLITE_READONLY": "cannot write to the store {path}: it or its directory is read-only; choose another file",
    "SQLITE_CANTOPEN": "cannot open the store {path}: it is not a file, or is not readable or writable",
    "SQLITE_CORRUPT": f"the store {{path}} is damaged; {_REBUILD}",
    "SQLITE_FULL": "cannot write to the store {path}: the disk is full; free some space and add the logs again",
}
"""What to say for an error of SQLite, by the start of its name."""
