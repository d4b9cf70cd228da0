"""The lease of a log: only one process at a time, the one that holds its lock, writes it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ..errors import SearchlabError
from ..files import check_regular, make_write_error, open_file, replace_file
from ..machine.scratch import NO_LOCK_ERRORS

LOCK_TIMEOUT = 0.5
"""How long to wait for a lock, in seconds, since :func:`is_locked` may hold it briefly."""


class LogBusy(SearchlabError):
    """Another process is writing the log."""


class LogTruncated(SearchlabError):
    """Another process has shortened the log that this process was writing."""


class LogTakenOver(SearchlabError):
    """Another process has taken over the log that this process was writing."""


class LeasedFile:
    """A log's file, opened for a single writer and created if it does not exist. Sizes are in bytes.

    On some shared file systems, locks do not extend to other hosts. Therefore a writer appends only to files that it
    has created: :meth:`take_over` replaces any other file with a copy, so that a previous writer that is still running
    finds its file replaced. Raises LogBusy if another process is writing the log, and SearchlabError if the file cannot
    be opened or, in all methods, written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._converting_errors():
            try:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
                self._has_created_file = True
            except FileExistsError:
                self._descriptor = os.open(path, os.O_RDWR)
                self._has_created_file = False
            try:
                check_regular(os.fstat(self._descriptor), f"write the log {path}")
                _lock_if_supported(self._descriptor)
                self.size = os.fstat(self._descriptor).st_size
                if not self._is_in_place():
                    raise BlockingIOError  # another process has replaced or removed the file since it was opened
            except BlockingIOError:
                os.close(self._descriptor)
                raise self._busy_error() from None
            except BaseException:
                os.close(self._descriptor)
                raise

    def take_over(self, size: int) -> None:
        """Ensure that this process created the file, if necessary by copying the first ``size`` bytes of the original.

        Raises LogBusy if the log has changed since it was opened, and LogTakenOver if another process replaced it.
        """
        with self._converting_errors():
            is_in_place = self._is_in_place()
            if self._has_created_file:
                if not is_in_place:
                    raise LogTakenOver(
                        f"another process has taken over the log {self._path}, or the log was moved; this run stops "
                        f"here, but no trial is lost; execute each run in only one place"
                    )
                return
            with open(self._descriptor, "rb", closefd=False) as original:
                original.seek(0)
                data = original.read(size)
            status = os.fstat(self._descriptor)
            if not is_in_place or status.st_size != self.size:
                raise self._busy_error()
            new_descriptor = os.dup(self._descriptor)
            try:
                with replace_file(os.path.realpath(self._path), durable=True) as copy:
                    os.fchmod(copy.fileno(), status.st_mode & 0o777)
                    copy.write(data)
                    _lock_if_supported(copy)
                    os.dup2(copy.fileno(), new_descriptor, inheritable=False)  # keeps the lock
                os.dup2(new_descriptor, self._descriptor, inheritable=False)  # unlocks the original
                self._has_created_file = True
            finally:
                os.close(new_descriptor)

    def write(self, new_bytes: bytes, end_position: int) -> None:
        """Write ``new_bytes`` after the file's first ``end_position`` bytes, discarding the rest.

        The call can be repeated after an interrupt or an error.

        Raises:
            LogTruncated: If the file has become shorter.
            LogBusy, LogTakenOver: See :meth:`take_over`.
        """
        with self._converting_errors():
            if new_bytes:
                self.take_over(end_position)
            if (size := os.fstat(self._descriptor).st_size) < end_position:
                raise LogTruncated(
                    f"the log {self._path} was cut to {size:,} bytes by another process while its run continued"
                )
            while new_bytes:
                written_size = os.pwrite(self._descriptor, new_bytes, end_position)
                new_bytes, end_position = new_bytes[written_size:], end_position + written_size

    def sync(self) -> None:
        """Force the file to disk."""
        with self._converting_errors():
            os.fsync(self._descriptor)

    @contextmanager
    def _converting_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise make_write_error(self._path, error) from None

    def remove(self) -> None:
        """Remove the log if this process created it and no other process has taken it over."""
        if self._has_created_file and self._is_in_place():
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._descriptor)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def _busy_error(self) -> LogBusy:
        return LogBusy(f"another process is writing {self._path}; wait for it to finish, or choose a different log")


def lock(file: int | IO[bytes]) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError if another process holds the lock."""
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _lock_if_supported(file: int | IO[bytes]) -> None:
    """Lock an open log if its file system supports locks."""
    try:
        lock(file)
    except OSError as error:
        if error.errno not in NO_LOCK_ERRORS:
            raise


def is_locked(path: Path) -> bool:
    """Return whether a process is writing the log at ``path``, or False if the log cannot be read."""
    with suppress(OSError, SearchlabError), open_file(path) as file:  # an OSError where there are no locks
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
