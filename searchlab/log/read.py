"""Read logs: files in JSON Lines format, which may be compressed (``*.jsonl.gz``), or tables in Parquet files.

All readers of lines use :func:`scan_lines`. :func:`read_log` raises an error at the first problem, and
:func:`searchlab.log.writer.check_log` collects all problems. Reading a log never executes anything in it. For tables in
Parquet files, see :mod:`searchlab.log.table`.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import MAX_TEXT_LENGTH, SearchlabError, warn
from ..files import check_unpacked, find_files, read_bytes, read_each
from ..parquet import PARQUET
from ..schema import UNREADABLE, drop_unknown_keys
from .format import CodeChange, FinalistTimes, Header, Log, Record, RunEnd, parse_minor_version
from .table import decode_table, extract_header_bytes

T = TypeVar("T")

HEADER_START = b'{"kind":"header","searchlab_log":'
"""The first bytes of a log."""

LOG_SUFFIXES = (".jsonl", ".jsonl.gz", PARQUET)
"""The file-name endings of logs."""

RUNS_SUFFIX = f".runs{PARQUET}"
"""The file-name ending of the files that contain a strategy's runs over the tables of a suite, which are not logs."""

RESULT_FILE_NAME = f"result{RUNS_SUFFIX}"
"""The name of this file in a directory that ``suite run --out`` writes."""

WRITABLE_SUFFIX = ".jsonl"
"""The ending of logs that runs write and resume."""

MAX_LINES = 10_000_000
"""The maximum number of lines in a log."""

MAX_NUMBER = 10**300
"""The largest number in a header. The size of a space may exceed 2^63, but it must be a finite float64."""

MAX_NESTING = 20
"""The number of levels to which a header's options may be nested."""


class UnknownLine(msgspec.Struct, frozen=True):
    """A line of a kind that this version of searchlab does not know."""

    kind: str


LINE_KINDS = ("header", "trial", "finalists", "ended", "changed")
"""The kinds of lines."""

_LineAfterHeader = Record | FinalistTimes | RunEnd | CodeChange
_LINE_DECODER = msgspec.json.Decoder(_LineAfterHeader)


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a log.

    Attributes:
        number: The line's number, from 1.
        content: The line's content, or None if the line is damaged.
        problem: The message to print after "line 3: ", or "" if nothing is wrong.
        is_torn: Whether the line is an incomplete last line, written when the run was killed.
        ignored_fields: A clause for each field that this version does not know and has ignored.
    """

    number: int
    line_bytes: bytes
    content: Header | Record | FinalistTimes | RunEnd | CodeChange | UnknownLine | None
    problem: str = ""
    is_torn: bool = False
    ignored_fields: tuple[str, ...] = ()


def scan_lines(path: Path, log_bytes: bytes) -> Iterator[Line]:
    """Yield every line of the log at ``path`` whose bytes are ``log_bytes``, with its problem if it has one.

    Raises SearchlabError if the log is a damaged table.
    """
    return _scan_table_lines(path, log_bytes) if path.suffix == PARQUET else _scan_json_lines(log_bytes)


def _scan_table_lines(path: Path, log_bytes: bytes) -> Iterator[Line]:
    try:
        header_bytes, other_lines, trials = decode_table(path, log_bytes)
        header_line, batch_number = decode_header_line(header_bytes), -1
        yield header_line
        records = msgspec.convert(trials, list[Record])
        for record in records:
            yield Line(record.index + 2, b"", record, _find_problem(record, batch_number))
            batch_number = max(batch_number, record.batch_number or 0)
        header = header_line.content
        is_newer = isinstance(header, Header) and header.has_newer_format
        for number, line in enumerate(msgspec.json.decode(other_lines, type=list[msgspec.Raw]), len(records) + 2):
            content, ignored_fields = _decode_known_fields(bytes(line), FinalistTimes | RunEnd | CodeChange, is_newer)
            if not isinstance(content, UnknownLine):
                _check_follows(content, min(content.trial_count, len(records)))
            yield Line(number, bytes(line), content, ignored_fields=ignored_fields)
    except UNREADABLE as error:
        raise SearchlabError(f"cannot read the table {path}: it is damaged ({error}); download it again") from None


def _scan_json_lines(log_bytes: bytes) -> Iterator[Line]:
    *lines, incomplete_line = log_bytes.split(b"\n")
    next_trial = 0
    damaged_count = 0  # the number of damaged lines since the last trial, each of which may be a trial
    batch_number, is_newer = -1, False
    for number, line_bytes in enumerate(lines, 1):
        if number == 1:
            header_line = decode_header_line(line_bytes)
            is_newer = isinstance(header_line.content, Header) and header_line.content.has_newer_format
            yield header_line
            continue
        try:
            content, ignored_fields = _decode_line(line_bytes, is_newer)
            if isinstance(content, FinalistTimes | RunEnd | CodeChange):
                _check_follows(content, next_trial)
        except UNREADABLE as error:
            damaged_count += 1
            yield Line(number, line_bytes, None, f"it is damaged: {error}")
            continue
        problem = ""
        if isinstance(content, Record):
            if not next_trial <= content.index <= next_trial + damaged_count:
                problem = f"it contains trial {content.index} instead of trial {next_trial + damaged_count}"
            elif problem := _find_problem(content, batch_number):
                problem = "; ".join((problem, *ignored_fields))
            next_trial, damaged_count, batch_number = content.index + 1, 0, max(batch_number, content.batch_number or 0)
        yield Line(number, line_bytes, content, problem, ignored_fields=ignored_fields)
    if incomplete_line:
        number = 1 + len(lines)
        remedy = "resuming the run discards it" if number > 1 else "the run rewrites it"
        header = None if number > 1 else decode_header_line(incomplete_line).content
        problem = f"it is incomplete: its end is missing; {remedy}"
        yield Line(number, incomplete_line, header, problem, is_torn=True)


def _find_problem(record: Record, batch_number: int) -> str:
    """Return what is wrong with a trial that follows a trial of this batch, or "" if nothing is."""
    if record.batch_number is not None and record.batch_number < batch_number:
        return f"its batch is {record.batch_number}, after batch {batch_number}"
    if not record.seconds and record.failure is None:
        return "the trial has neither times (seconds) nor a failure"
    return ""


def _decode_line(line_bytes: bytes, is_newer: bool) -> tuple[Any, tuple[str, ...]]:
    """Decode a line that follows the header; see :func:`_decode_known_fields`."""
    try:
        return _LINE_DECODER.decode(line_bytes), ()
    except msgspec.ValidationError:
        return _decode_known_fields(line_bytes, _LineAfterHeader, is_newer)


def _decode_known_fields(line_bytes: bytes, line_type: Any, is_newer: bool) -> tuple[Any, tuple[str, ...]]:
    """Decode ``line_bytes`` as ``line_type``, ignoring unknown fields, for each of which a clause is returned.

    If ``is_newer``, that is if the log's format is newer, a line may be of an unknown kind. Raises the errors in
    ``UNREADABLE``.
    """
    fields = msgspec.json.decode(line_bytes)
    name = fields.get("kind") if isinstance(fields, dict) else None
    if is_newer and isinstance(name, str) and name not in LINE_KINDS:
        return UnknownLine(name), ()
    known_fields, ignored_fields = drop_unknown_keys(fields, line_type)
    return msgspec.convert(known_fields, line_type), ignored_fields


def decode_header_line(line_bytes: bytes) -> Line:
    """Return the first line of a log, whose bytes are ``line_bytes``, with its problem if it has one."""
    try:
        fields = msgspec.json.decode(line_bytes)
        version = fields.get("searchlab_log") if isinstance(fields, dict) else None
        if version is None:
            problem = "it is not a header: the file is not a searchlab log, or its first line is missing"
            return Line(1, line_bytes, None, problem)
        if parse_minor_version(version) is None:
            problem = f"its log format is {version!r}; this version of searchlab reads formats 1.x"
            return Line(1, line_bytes, None, problem)
        known_fields, ignored_fields = drop_unknown_keys(fields, Header)
        header = msgspec.convert(known_fields, Header)
        _check_plain(msgspec.structs.replace(header, computation=None, random_draws=None))
        if header.computation:
            _check_plain(msgspec.structs.replace(header.computation, content=""))
        return Line(1, line_bytes, header, ignored_fields=ignored_fields)
    except UNREADABLE as error:
        return Line(1, line_bytes, None, f"the header is damaged: {error}")


def _check_plain(value: Any, depth: int = 0) -> None:
    """Raise msgspec.ValidationError if ``value`` contains a long name, a huge number, or is nested too deeply."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT_LENGTH:
            raise msgspec.ValidationError(
                f"{value[:20]!r}... has {len(value):,} characters; at most {MAX_TEXT_LENGTH:,} are read"
            )
    elif isinstance(value, int | float):
        if abs(value) > MAX_NUMBER:
            raise msgspec.ValidationError(f"it contains a number of {len(str(value)):,} digits")
    elif value is not None:
        if depth > MAX_NESTING:
            raise msgspec.ValidationError(f"it is nested more than {MAX_NESTING} levels deep")
        if isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        for item in chain(value, value.values()) if isinstance(value, dict) else value:
            _check_plain(item, depth + 1)


def _check_follows(line: FinalistTimes | RunEnd | CodeChange, trial_count: int) -> None:
    """Raise msgspec.ValidationError if ``line`` cannot follow the first ``trial_count`` trials."""
    if line.trial_count != trial_count:
        raise msgspec.ValidationError(f"it follows {trial_count} trials, but refers to {line.trial_count} trials")
    if not isinstance(line, FinalistTimes):
        return
    if not line.finalists or not all(
        0 <= finalist.index < trial_count and finalist.seconds for finalist in line.finalists
    ):
        raise msgspec.ValidationError("it lists no trials, a trial that does not precede it, or a trial without times")
    if len({len(finalist.seconds) for finalist in line.finalists}) > 1:
        raise msgspec.ValidationError("its trials were not measured in the same rounds")


def read_log_bytes(path: Path, under: Path | None = None) -> bytes:
    """Return the bytes of the log at ``path``, unpacked by gzip and with spaces in place of a byte order mark.

    Raises SearchlabError if the log cannot be read, is no regular file, is outside ``under``, or has too many lines.
    """
    memory_size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    log_bytes = read_bytes(path, under=under, kind="the log", limit=memory_size // 2)
    if path.suffix == PARQUET:
        return log_bytes
    log_bytes = decompress_gzip(path, log_bytes) if path.suffix == ".gz" else log_bytes
    if (line_count := log_bytes.count(b"\n")) > MAX_LINES:
        raise SearchlabError(
            f"cannot read the log {path}: it has {line_count:,} lines, and at most {MAX_LINES:,} are read"
        )
    return b" " * len(BOM_UTF8) + log_bytes[len(BOM_UTF8) :] if log_bytes.startswith(BOM_UTF8) else log_bytes


def decompress_gzip(path: Path, log_bytes: bytes) -> bytes:
    """Return the content of the gzip file at ``path``, whose bytes are ``log_bytes``.

    Raises SearchlabError if the file is damaged, or too large; see :func:`~searchlab.files.check_unpacked`.
    """
    chunks, size, line_length = [], 0, 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(log_bytes)) as file:
            while chunk := file.read(1 << 20):
                chunks.append(chunk)
                size += len(chunk)
                line_length = len(chunk) - chunk.rfind(b"\n") - 1 if b"\n" in chunk else line_length + len(chunk)
                check_unpacked(path, len(log_bytes), size, line_length)
    except (OSError, EOFError, zlib.error) as error:
        raise SearchlabError(f"cannot read {path}: the gzip file is damaged ({error}); download it again") from None
    return b"".join(chunks)


def find_logs(path: Path) -> list[Path]:
    """Return ``path`` if it is not a directory. Otherwise, return the logs in it; see :func:`files.find_files`."""
    if not path.is_dir():
        return [path]
    return [log for log in find_files(path, LOG_SUFFIXES) if not log.name.endswith(RUNS_SUFFIX)]


def read_logs_in(paths: Sequence[Path], read: Callable[[Path], T]) -> list[T]:
    """Return ``read(log)`` for each log in ``paths``, which are logs or directories of logs.

    A log in a directory that cannot be read is skipped with a SearchlabWarning.

    Raises:
        SearchlabError: If a log in ``paths`` cannot be read, if none can be read, or if there are no logs.
    """
    log_paths = dict.fromkeys(log_path for path_or_directory in paths for log_path in find_logs(path_or_directory))
    if not log_paths:
        raise make_no_logs_error(paths)
    return read_each(log_paths, read, required=paths)


def make_no_logs_error(paths: Iterable[Path]) -> SearchlabError:
    """Return the error to raise if there are no logs in ``paths``."""
    where = ", ".join(map(str, paths)) or "an empty list of logs"
    return SearchlabError(f"no logs (*.jsonl) in {where}; pass logs, or directories of logs")


def read_header(path: str | Path) -> Header:
    """Read only a log's header. Raises SearchlabError in the same cases as :func:`read_log`."""
    path = Path(path)
    log_bytes = read_log_bytes(path)
    if path.suffix == PARQUET:
        return _collect_lines(path, [decode_header_line(extract_header_bytes(path, log_bytes))], 0).header
    header_line, line_end, _ = log_bytes.partition(b"\n")
    return decode_log(path, header_line + line_end).header


def read_log(path: str | Path) -> Log:
    """Read the log at ``path``, ignoring an incomplete last line. The log is not locked.

    Raises SearchlabError if the file cannot be read, is not a log, or is damaged. The error names the damaged line.
    """
    path = Path(path)
    return decode_log(path, read_log_bytes(path))


def read_existing_log(path: Path) -> Log | None:
    """Read the log at ``path`` for a run that may resume it.

    Returns None if the log does not exist, contains only an incomplete header, or is compressed. Raises SearchlabError
    in the same cases as :func:`read_log`.
    """
    if path.suffix in (".gz", PARQUET) or not path.is_file():
        return None
    log_bytes = read_log_bytes(path)
    if b"\n" not in log_bytes and (log_bytes.startswith(HEADER_START) or HEADER_START.startswith(log_bytes)):
        return None
    return decode_log(path, log_bytes)


def decode_log(path: Path, log_bytes: bytes) -> Log:
    """Decode the log whose bytes are ``log_bytes``. Raises SearchlabError at the first problem."""
    if path.suffix == PARQUET:
        return _collect_lines(path, scan_lines(path, log_bytes), len(log_bytes))
    if b'"searchlab_log"' not in log_bytes.partition(b"\n")[0] and not HEADER_START.startswith(log_bytes):
        raise SearchlabError(
            f'{path} is not a searchlab log: its first line has no "searchlab_log"; convert the files of other tuners '
            f"with `searchlab import`"
        )
    return _collect_lines(path, scan_lines(path, log_bytes), log_bytes.rfind(b"\n") + 1)


def _collect_lines(path: Path, lines: Iterable[Line], size: int) -> Log:
    contents_by_type: dict[type, list[Any]] = defaultdict(list)
    unknown_fields: list[str] = []
    for line in lines:
        if line.is_torn:
            break
        if line.problem:
            raise SearchlabError(f"{path}, line {line.number}: {line.problem}")
        unknown_fields += [f"line {line.number}: {clause}" for clause in line.ignored_fields]
        contents_by_type[type(line.content)].append(line.content)
    if not contents_by_type[Header]:
        raise SearchlabError(f"{path} has no header yet, so it cannot be read")
    header, records = contents_by_type[Header][0], contents_by_type[Record]
    if unknown_fields and not header.has_newer_format:
        more = f" (and {len(unknown_fields) - 1} more)" if len(unknown_fields) > 1 else ""
        warn(f"{path}, {unknown_fields[0]}; it is ignored{more}")
    final, ended = (next(reversed(contents_by_type[line_type]), None) for line_type in (FinalistTimes, RunEnd))
    return Log(
        path,
        header,
        tuple(records),
        final if final and final.trial_count == len(records) else None,
        ended if ended and ended.trial_count == len(records) else None,
        tuple(contents_by_type[CodeChange]),
        size,
    )
