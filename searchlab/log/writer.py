"""Write and check logs."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError, did_you_mean, first_line
from ..files import write_error, write_file
from ..parquet import PARQUET
from .format import (
    FORMAT_VERSION,
    IDENTITY_FIELDS,
    SPENT_FIELDS,
    Changed,
    Ended,
    Final,
    Header,
    Log,
    Record,
    computation_of,
)
from .lease import LeasedFile, LogBusy, LogTruncated, is_locked
from .read import (
    LINE_KINDS,
    WRITABLE_SUFFIX,
    Line,
    UnknownLine,
    header_line,
    is_newer,
    read_existing_log,
    read_log,
    read_log_bytes,
    scan,
)
from .table import encode_table


class LogWriter(AbstractContextManager["LogWriter"]):
    """A log to which only this process appends. It is created if it does not exist.

    A durable log is written after every record, and :meth:`sync` forces it to disk. Any other log is written by
    :meth:`sync` and :meth:`close`, and is never forced to disk. If an error occurs before a new log's first trial, the
    log is removed, because it would block the run that the user intended.

    Attributes:
        header: The header in the file.
        records: The trials that the log contained when it was opened.
        final: The finalists, or None unless they were chosen from exactly the current trials.
        ended: Why the run ended, or None unless it ended after exactly the current trials.

    Raises:
        SearchlabError: If the file is not a log or is damaged, if another process is writing it, or if its header
            differs from ``header`` in one of the :data:`~searchlab.log.format.IDENTITY_FIELDS` fields.
    """

    def __init__(self, path: str | Path, header: Header, durable: bool = True, existing: Log | None = None) -> None:
        """Open the log.

        Args:
            path: The path of the log.
            header: The header of the run.
            durable: Whether to write every record immediately, and to force the log to disk.
            existing: The log's content, if it has already been read. It is read again if the file's size has changed.
        """
        self.path = Path(path)
        self._durable = durable
        self._lines: list[bytes] = []
        self._new_records: list[Record] = []
        self._process = os.getpid()
        if self.path.suffix != WRITABLE_SUFFIX:
            unpack = ", or unpack the log with gunzip" if self.path.suffix == ".gz" else ""
            raise SearchlabError(
                f"cannot write the log {self.path}: choose a file name that ends in {WRITABLE_SUFFIX}{unpack}, because "
                f"runs are neither resumed nor found under other names"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.path, error) from None
        self._file = LeasedFile(self.path)
        try:
            self._open(header, existing)
        except BaseException:
            self._file.close()
            raise

    def _open(self, header: Header, existing: Log | None) -> None:
        if self._file.size != (existing.size if existing else 0):  # not read yet, or changed since
            existing = read_existing_log(self.path)
        self._created = existing is None
        log = existing or Log(self.path, header, ())
        self.header, self.records, self.final, self.ended = log.header, log.records, log.final, log.ended
        self._changes, self._end = log.changes, log.size
        if existing is None:
            line = encode_line(self.path, header)
            if problem := header_line(line).problem:
                raise SearchlabError(f"cannot write the log {self.path}, because it could not be read again: {problem}")
            self._lines.append(line)
            self.sync()
            return
        check_identity(self.path, existing.header, header)
        if existing.size < self._file.size:  # the last line is incomplete
            self._file.take_over(existing.size)

    @property
    def log(self) -> Log:
        """The complete log, including all appended records."""
        records = (*self.records, *self._new_records)
        return Log(self.path, self.header, records, self.final, self.ended, self._changes, self._end)

    def append(self, record: Record | Final | Ended | Changed) -> None:
        self._check_process()
        if isinstance(record, Record):
            record = _with_batch(self.path, self.header, record)
        self._lines.append(encode_line(self.path, record))
        if isinstance(record, Final):
            self.final = record
        elif isinstance(record, Ended):
            self.ended = record
        elif isinstance(record, Changed):
            self._changes = (*self._changes, record)
        else:
            self.final, self.ended = None, None
            self._new_records.append(record)
        if not isinstance(record, Record):
            self.sync()
        elif self._durable:
            self._write()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise SearchlabError(
                f"cannot write the log {self.path}: this process is a fork of the process that writes it; a policy "
                f"that forks must end its child process with os._exit before returning"
            )

    def _write(self) -> None:
        self._check_process()
        data = b"".join(line + b"\n" for line in self._lines)
        if data:  # if this is interrupted at any point, the same bytes are written to the same position again
            with self._saving_trials():
                self._file.write(data, self._end)
        self._end, self._lines = self._end + len(data), []

    def sync(self) -> None:
        """Write the appended records, and force a durable log to disk. Call this once per batch."""
        self._write()
        if self._durable:
            with self._saving_trials():
                self._file.sync(self._end)

    @contextmanager
    def _saving_trials(self) -> Iterator[None]:
        """Save all trials in another log if this one has been cut."""
        try:
            yield
        except LogTruncated as error:
            self._lines = []
            copy = find_unused_path(self.path, ".saved", WRITABLE_SUFFIX)
            write_log(copy, self.log)
            raise LogTruncated(
                f"{error}; all {len(self.log.records):,} trials are in {copy}: rename it to continue"
            ) from None

    def close(self) -> None:
        try:
            if os.getpid() == self._process:
                self._write()
        finally:
            self._file.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind and self._created and not (self._new_records or self.ended) and os.getpid() == self._process:
            self._file.remove()  # while it is still locked
        self.close()


def find_unused_path(path: Path, mark: str, ending: str) -> Path:
    """Return a path for a file that does not exist yet, next to ``path``: its stem, ``mark``, a number, ``ending``."""
    paths = (path.with_name(f"{path.stem}{mark}-{number}{ending}") for number in itertools.count(1))
    return next(unused for unused in paths if not os.path.lexists(unused))


def encode_line(path: Path, item: Header | Record | Final | Ended | Changed) -> bytes:
    """Return ``item`` as a line of the log at ``path``. Raises SearchlabError if no log can contain it."""
    with _reporting_values(path):
        return msgspec.json.encode(item)


@contextmanager
def _reporting_values(path: Path) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise SearchlabError(
            f"cannot write the log {path}: {first_line(error)}; options, labels, and knobs' names and values must be "
            f"plain numbers or Unicode text"
        ) from None


def _with_batch(path: Path, header: Header, record: Record) -> Record:
    """Return ``record`` with the number of its batch. Raises SearchlabError if one of its times is negative."""
    if (seconds := min(getattr(record, name) for name in SPENT_FIELDS)) < 0:
        raise SearchlabError(f"cannot write the log {path}: trial {record.index} has an invalid time of {seconds:g} s")
    if record.batch is None:
        record = msgspec.structs.replace(record, batch=record.index // max(1, header.batch))
    return record


def write_log(path: Path, log: Log) -> None:
    """Write a complete log (``*.jsonl``, ``*.jsonl.gz`` or ``*.parquet``), replacing the file at ``path``.

    Raises SearchlabError if the log cannot be written.
    """
    write_file(path, encode_log(path, log), durable=True)


def encode_log(path: Path, log: Log) -> bytes:
    """Return the content of the file for a complete log, as the name of ``path`` demands. It is a function of the log.

    Raises SearchlabError if the log cannot be written.
    """
    records = [_with_batch(path, log.header, record) for record in log.records]
    notes: list[Record | Final | Ended | Changed] = [*log.changes, *(note for note in (log.final, log.ended) if note)]
    if path.suffix == PARQUET:
        with _reporting_values(path):
            return encode_table(msgspec.json.encode(log.header), msgspec.json.encode(notes), records)
    items = sorted([*notes, *records], key=lambda item: item.index + 0.5 if isinstance(item, Record) else item.trials)
    data = b"".join(encode_line(path, item) + b"\n" for item in (log.header, *items))
    return gzip.compress(data, mtime=0) if path.suffix == ".gz" else data


class OtherRun(SearchlabError):
    """A log belongs to a run other than the one that is to continue it.

    Attributes:
        difference: Why, without what the user can do about it.
    """

    def __init__(self, difference: str, remedies: str = "") -> None:
        super().__init__(f"{difference}; {remedies}" if remedies else difference)
        self.difference = difference


def move_aside(path: Path) -> Path:
    """Rename the log at ``path``, so that it no longer counts as a log, and return its new path.

    Raises SearchlabError if another process is writing it.
    """
    if is_locked(path):
        raise LogBusy(f"another process is writing {path}; wait for it to finish before you discard it")
    target = find_unused_path(path, f"{path.suffix}.discarded", "")
    path.rename(target)
    return target


def describe_remedies(header: Header) -> str:
    """Return what a user can do about a log that cannot be continued with ``header``, as a clause."""
    other = "choose another directory (--out)" if header.label else "choose another log file"
    return f"{other}, or pass --discard (in Python, discard=True), which moves the old log aside and starts again"


def check_identity(path: Path, old: Header, new: Header) -> None:
    """Raise OtherRun if the log at ``path`` with the header ``old`` does not belong to the run with ``new``."""
    if is_newer(old):
        raise OtherRun(
            f"{path} has the log format {old.searchlab_log}, which is read-only here: this version of searchlab writes "
            f"format {FORMAT_VERSION}",
            "choose a different log file",
        )
    for name in IDENTITY_FIELDS:
        old_value, new_value = (msgspec.to_builtins(getattr(header, name)) for header in (old, new))
        if old_value != new_value:
            entry = _ENTRIES.get(name)
            remedies = f"give that {entry} a new label, " if new.label and entry else "start the same run as before, "
            raise OtherRun(
                f"{path} belongs to a different run: its {name} is {_format_value(old_value)}, not "
                f"{_format_value(new_value)}",
                remedies + describe_remedies(new),
            )


_ENTRIES = {
    **dict.fromkeys(("policy", "cost_model", "features", "batch", "warm_start", "starts"), "policy"),
    "space": "space",
}
"""The kind of entry in a study file that determines a field of the header."""


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


def compress(log: Path, to: Path) -> None:
    """Write ``log`` to ``to`` (``*.parquet`` or ``*.gz``) and remove ``log``. Equal logs yield equal files."""
    try:
        write_log(to, read_log(log))
    except SearchlabError as error:
        raise SearchlabError(f"{error}; the complete log remains at {log}") from None
    log.unlink()


@dataclass(frozen=True)
class LogCheck:
    """A log's problems, and the number of intact lines, from which a run can resume.

    Attributes:
        path: The path of the log.
        problems: The damaged lines, and those with fields or of kinds that the log's format does not define.
        trials: The number of trials before the first damaged line.
        intact: The number of lines before the first damaged line.
        damaged: Whether any line is damaged, so that the run can be resumed only from the intact lines.
        notes: A sentence for each kind of line and each field of a newer format that this version does not know.
    """

    path: Path
    problems: tuple[Line, ...]
    trials: int
    intact: int
    damaged: bool = False
    notes: tuple[str, ...] = ()


def check_log(path: Path) -> LogCheck:
    """Find all problems in the log at ``path``. Raises SearchlabError if the file cannot be read."""
    problems: list[Line] = []
    notes: dict[str, None] = {}
    trials = intact = 0
    newer = damaged = False
    for line in scan(path, read_log_bytes(path)):
        if isinstance(line.item, Header):
            newer = is_newer(line.item)
            try:
                computation_of(line.item)
            except SearchlabError as error:
                line = msgspec.structs.replace(line, problem=f"the header is damaged: {error}")
        unknown = line.unknown
        if isinstance(line.item, UnknownLine):
            unknown = (f"unknown kind of line {line.item.kind!r}{did_you_mean(line.item.kind, LINE_KINDS)}",)
        damaged = damaged or bool(line.problem)
        if newer:
            notes |= dict.fromkeys(clause.partition(";")[0] for clause in unknown)
        elif unknown and not line.problem:
            line = msgspec.structs.replace(line, problem="; ".join(unknown))
        if line.problem:
            problems.append(line)
        if not damaged:
            trials += isinstance(line.item, Record)
            intact = line.number
    if not problems and not intact:
        problems.append(Line(1, b"", None, "the log is empty: it has no header yet"))
    return LogCheck(path, tuple(problems), trials, intact, damaged, tuple(notes))
