"""The lease on a log: one process appends to it, on whichever host, and what it appends is never mixed with another's.

A writer writes only to a file that is its own: one that it has created, or a copy that takes the place of the file that
was there, in one step. On one host, a lock refuses a second writer at once. Where locks do not reach, as on some shared
directories, a second writer takes the log over, unless the log has grown since it was read. The first writer finds,
before it writes again, that the log is another file; it stops. So no clock decides, and a process that was only paused
does no harm when it goes on.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from ..errors import SearchlabError
from ..machine.scratch import NO_LOCKS
from .lock import lock


class LogBusy(SearchlabError):
    """Another process writes the log."""


class LogTaken(SearchlabError):
    """Another process has taken over the log, which this one was writing."""


class LeasedFile:
    """The file of a log, for one writer; created if it does not exist. All sizes are in bytes.

    Raises LogBusy if another process writes it, and OSError if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            self._own = True
        except FileExistsError:
            self._file = os.open(path, os.O_RDWR)
            self._own = False
        try:
            _lock(self._file)
            self.size = os.fstat(self._file).st_size
            if not self._is_there():
                raise BlockingIOError  # its writer has replaced or removed it since it was opened
        except BlockingIOError:
            os.close(self._file)
            raise self._busy() from None
        except BaseException:
            os.close(self._file)
            raise

    def own(self, size: int) -> None:
        """Make the first ``size`` bytes of the log, which are all that it is to keep, a file of our own.

        Raises LogBusy if the log has changed since it was opened, and LogTaken if it is not ours any more.
        """
        there = self._is_there()
        if self._own:
            if not there:
                raise LogTaken(
                    f"another process has taken over the log {self._path}, or it was moved; nothing that it holds is "
                    f"lost, and this run stops here; make a run in one place at a time"
                )
            return
        if not there or os.fstat(self._file).st_size != self.size:
            raise self._busy()
        part = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        new = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.fstat(self._file).st_mode & 0o777)
        try:
            _write(new, os.pread(self._file, size, 0), 0)
            os.fsync(new)
            _lock(new)
            os.replace(part, os.path.realpath(self._path))
        except BaseException:
            os.close(new)
            part.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._own = new, True
        _sync_folder(self._path)

    def write(self, data: bytes, end: int) -> None:
        """Write ``data`` after the first ``end`` bytes, which are all that the log is to keep. Raises as :meth:`own`.

        It may be repeated after an interrupt or an OSError.
        """
        self.own(end)
        _write(self._file, data, end)

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.fsync(self._file)

    def remove(self) -> None:
        """Remove the log, if it is ours."""
        if self._own and self._is_there():
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._file)

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _busy(self) -> LogBusy:
        return LogBusy(f"another process is writing {self._path}; wait for it, or choose another log")


def _lock(file: int) -> None:
    """Lock ``file``, if the file system supports locks. Raises BlockingIOError if another process holds its lock."""
    try:
        lock(file)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _write(file: int, data: bytes, start: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], start + written)


def _sync_folder(path: Path) -> None:
    """Force to the disk that ``path`` names another file now."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
