"""Write and check logs."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError, did_you_mean, first_line, warn
from ..files import make_write_error, write_file
from ..parquet import PARQUET
from .format import (
    FORMAT_VERSION,
    IDENTITY_FIELDS,
    SPENT_FIELDS,
    CodeChange,
    FinalistTimes,
    Header,
    Log,
    Record,
    RunEnd,
    computation_of,
)
from .lease import LeasedFile, LogBusy, LogTruncated, is_locked
from .read import (
    LINE_KINDS,
    WRITABLE_SUFFIX,
    Line,
    UnknownLine,
    decode_header_line,
    read_existing_log,
    read_log,
    read_log_bytes,
    scan_lines,
)
from .table import encode_table


class LogWriter(AbstractContextManager["LogWriter"]):
    """A log to which only this process appends. It is created if it does not exist.

    A durable log is written after every record, and :meth:`sync` forces it to disk. Any other log is written by
    :meth:`sync` and :meth:`close`, and is never forced to disk. If an error occurs before a new log's first trial, the
    log is removed, because it would block the run that the user intended.

    Raises:
        SearchlabError: If the file is not a log or is damaged, if another process is writing it, or if its header
            differs from ``header`` in one of the :data:`~searchlab.log.format.IDENTITY_FIELDS` fields.
    """

    def __init__(self, path: str | Path, header: Header, durable: bool = True, existing_log: Log | None = None) -> None:
        """Open the log.

        Args:
            path: The path of the log.
            header: The header of the run.
            durable: Whether to write every record immediately, and to force the log to disk.
            existing_log: The log, if it has already been read and its header compared. It is read again if its size has
                changed.
        """
        self.path = Path(path)
        self._is_durable = durable
        self._unwritten_lines: list[bytes] = []
        self._new_records: list[Record] = []
        self._process_id = os.getpid()
        if self.path.suffix != WRITABLE_SUFFIX:
            unpack = ", or unpack the log with gunzip" if self.path.suffix == ".gz" else ""
            raise SearchlabError(
                f"cannot write the log {self.path}: choose a file name that ends in {WRITABLE_SUFFIX}{unpack}, because "
                f"runs are neither resumed nor found under other names"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise make_write_error(self.path, error) from None
        self._file = LeasedFile(self.path)
        try:
            self._open(header, existing_log)
        except BaseException:
            self._file.close()
            raise

    def _open(self, header: Header, existing_log: Log | None) -> None:
        if self._file.size != (existing_log.byte_count if existing_log else 0):  # not read yet, or changed since
            existing_log = read_existing_log(self.path)
            if existing_log is not None:
                check_identity(self.path, existing_log.header, header)
        self._has_created_log = existing_log is None
        self._log = existing_log or Log(self.path, header, ())  # without the records that are appended
        self._end_position = self._log.byte_count
        if existing_log is None:
            line = encode_line(self.path, header)
            if problem := decode_header_line(line).problem:
                raise SearchlabError(f"cannot write the log {self.path}, because it could not be read again: {problem}")
            self._unwritten_lines.append(line)
            self.sync()
            return
        if existing_log.byte_count < self._file.size:  # the last line is incomplete
            self._file.take_over(existing_log.byte_count)

    @property
    def log(self) -> Log:
        """The complete log, including all appended records."""
        return replace(self._log, records=(*self._log.records, *self._new_records), byte_count=self._end_position)

    def append(self, line: Record | FinalistTimes | RunEnd | CodeChange) -> None:
        self._check_process()  # before the line is checked, because the CPU times of a fork begin at zero
        if isinstance(line, Record):
            line = _add_batch_number(self.path, self._log.header, line)
        self._unwritten_lines.append(encode_line(self.path, line))
        if isinstance(line, FinalistTimes):
            self._log = replace(self._log, finalist_times=line)
        elif isinstance(line, RunEnd):
            self._log = replace(self._log, run_end=line)
        elif isinstance(line, CodeChange):
            self._log = replace(self._log, changes=(*self._log.changes, line))
        else:
            if self._log.finalist_times or self._log.run_end:  # they refer to fewer trials
                self._log = replace(self._log, finalist_times=None, run_end=None)
            self._new_records.append(line)
        if not isinstance(line, Record):
            self.sync()
        elif self._is_durable:
            self._write()

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise SearchlabError(
                f"cannot write the log {self.path}: this process is a fork of the process that writes it; a policy "
                f"that forks must end its child process with os._exit before returning"
            )

    def _write(self) -> None:
        self._check_process()
        data = b"".join(line + b"\n" for line in self._unwritten_lines)
        try:  # if this is interrupted at any point, the same bytes are written to the same position again
            self._file.write(data, self._end_position)
        except LogTruncated as error:
            warn(f"{error}; all {len(self.log.records):,} trials are written again")
            self._unwritten_lines, self._end_position = encode_log(self.path, self.log).splitlines(), 0
            self._write()
        else:
            self._end_position, self._unwritten_lines = self._end_position + len(data), []

    def sync(self) -> None:
        """Write the appended records, and force a durable log to disk. Call this once per batch."""
        self._write()
        if self._is_durable:
            self._file.sync()

    def close(self) -> None:
        try:
            if os.getpid() == self._process_id:
                self._write()
        finally:
            self._file.close()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (
            kind
            and self._has_created_log
            and not (self._new_records or self._log.run_end)
            and os.getpid() == self._process_id
        ):
            self._file.remove()  # while it is still locked
        self.close()


def encode_line(path: Path, line: Header | Record | FinalistTimes | RunEnd | CodeChange) -> bytes:
    """Encode a line of the log at ``path``. Raises SearchlabError if no log can contain it."""
    with _converting_errors(path):
        return msgspec.json.encode(line)


@contextmanager
def _converting_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise SearchlabError(
            f"cannot write the log {path}: {first_line(error)}; options, labels, and knobs' names and values must be "
            f"plain numbers or Unicode text"
        ) from None


def _add_batch_number(path: Path, header: Header, record: Record) -> Record:
    """Return ``record`` with the number of its batch. Raises SearchlabError if one of its times is negative."""
    if (seconds := min(getattr(record, name) for name in SPENT_FIELDS)) < 0:
        raise SearchlabError(f"cannot write the log {path}: trial {record.index} has an invalid time of {seconds:g} s")
    if record.batch_number is None:
        record = msgspec.structs.replace(record, batch_number=record.index // max(1, header.batch))
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
    records = [_add_batch_number(path, log.header, record) for record in log.records]
    last_lines = [line for line in (log.finalist_times, log.run_end) if line]
    other_lines: list[Record | FinalistTimes | RunEnd | CodeChange] = [*log.changes, *last_lines]
    if path.suffix == PARQUET:
        with _converting_errors(path):
            return encode_table(msgspec.json.encode(log.header), msgspec.json.encode(other_lines), records)
    lines = sorted(
        [*other_lines, *records], key=lambda line: line.index + 0.5 if isinstance(line, Record) else line.trial_count
    )
    data = b"".join(encode_line(path, line) + b"\n" for line in (log.header, *lines))
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

    Raises SearchlabError if another process is writing it, or it cannot be renamed.
    """
    if is_locked(path):
        raise LogBusy(f"another process is writing {path}; wait for it to finish before you discard it")
    new_paths = (path.with_name(f"{path.name}.discarded-{number}") for number in itertools.count(1))
    new_path = next(new_path for new_path in new_paths if not os.path.lexists(new_path))
    try:
        return path.rename(new_path)
    except OSError as error:
        raise make_write_error(path, error) from None


def describe_remedies(header: Header) -> str:
    """Return what a user can do about a log that cannot be continued with ``header``, as a clause."""
    other = "choose another directory (--out)" if header.label else "choose another log file"
    return f"{other}, or pass --discard (in Python, discard=True), which moves the old log aside and starts again"


def check_identity(path: Path, old_header: Header, new_header: Header) -> None:
    """Raise OtherRun if the log at ``path`` with ``old_header`` does not belong to the run with ``new_header``."""
    if old_header.has_newer_format:
        raise OtherRun(
            f"{path} has the log format {old_header.format_version}, which is read-only here: this version of "
            f"searchlab writes format {FORMAT_VERSION}",
            "choose a different log file",
        )
    old_facts, new_facts = msgspec.to_builtins(old_header), msgspec.to_builtins(new_header)
    for name in IDENTITY_FIELDS:
        if old_facts[name] != new_facts[name]:
            entry_kind = _ENTRY_KIND_BY_FIELD.get(name)
            can_relabel = new_header.label and entry_kind
            remedies = f"give that {entry_kind} a new label, " if can_relabel else "start the same run as before, "
            raise OtherRun(
                f"{path} belongs to a different run: its {name} is {_format_value(old_facts[name])}, not "
                f"{_format_value(new_facts[name])}",
                remedies + describe_remedies(new_header),
            )


_ENTRY_KIND_BY_FIELD = {
    **dict.fromkeys(("policy", "cost_model", "features", "batch", "warm_start", "starts"), "policy"),
    "space": "space",
}
"""The kind of entry in a study file that determines a field of the header."""


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


def compress_log(log_path: Path, new_path: Path) -> None:
    """Write a log to ``new_path`` (``*.parquet`` or ``*.gz``) and remove the original. Equal logs yield equal files."""
    try:
        write_log(new_path, read_log(log_path))
    except SearchlabError as error:
        raise SearchlabError(f"{error}; the complete log remains at {log_path}") from None
    log_path.unlink()


@dataclass(frozen=True)
class LogCheck:
    """A log's problems, and the number of intact lines, from which a run can resume.

    Attributes:
        path: The path of the log.
        problems: The damaged lines, and those with fields or of kinds that the log's format does not define.
        trial_count: The number of trials before the first damaged line.
        intact_line_count: The number of lines before the first damaged line.
        is_damaged: Whether any line is damaged, so that the run can be resumed only from the intact lines.
        newer_features: A clause for each kind of line and each field of a newer format that this version does not know.
    """

    path: Path
    problems: tuple[Line, ...]
    trial_count: int
    intact_line_count: int
    is_damaged: bool = False
    newer_features: tuple[str, ...] = ()


def check_log(path: Path) -> LogCheck:
    """Find all problems in the log at ``path``. Raises SearchlabError if the file cannot be read."""
    problems: list[Line] = []
    newer_features: dict[str, None] = {}
    trial_count = intact_line_count = 0
    has_newer_format = is_damaged = False
    for line in scan_lines(path, read_log_bytes(path)):
        if isinstance(line.content, Header):
            has_newer_format = line.content.has_newer_format
            try:
                computation_of(line.content)
            except SearchlabError as error:
                line = msgspec.structs.replace(line, problem=f"the header is damaged: {error}")
        ignored_fields = line.ignored_fields
        if isinstance(line.content, UnknownLine):
            ignored_fields = (
                f"unknown kind of line {line.content.kind!r}{did_you_mean(line.content.kind, LINE_KINDS)}",
            )
        is_damaged = is_damaged or bool(line.problem)
        if has_newer_format:
            newer_features |= dict.fromkeys(clause.partition(";")[0] for clause in ignored_fields)
        elif ignored_fields and not line.problem:
            line = msgspec.structs.replace(line, problem="; ".join(ignored_fields))
        if line.problem:
            problems.append(line)
        if not is_damaged:
            trial_count += isinstance(line.content, Record)
            intact_line_count = line.number
    if not problems and not intact_line_count:
        problems.append(Line(1, b"", None, "the log is empty: it has no header yet"))
    return LogCheck(path, tuple(problems), trial_count, intact_line_count, is_damaged, tuple(newer_features))
