"""Folders for temporary files. If a killed process leaves one behind, the next run removes it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

from ..errors import SearchlabError

PREFIX = "searchlab-tmp-"

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
"""The errors that file systems without locks report."""


class ScratchFolder:
    """A new temporary folder. As a context manager, it removes the folder on exit.

    Folders left behind by processes that have ended are removed first. Each process holds a lock on its folder until it
    ends, which shows more reliably than a folder's age or a process ID whether the folder is in use.

    Args:
        parent: The directory in which to create the folder, or None for the system's temporary directory.
        prefix: The prefix of the folder's name.

    Attributes:
        name: The path of the folder.

    Raises:
        SearchlabError: If the folder cannot be created.
    """

    def __init__(self, parent: str | None = None, prefix: str = PREFIX) -> None:
        _clear(parent or tempfile.gettempdir(), prefix)
        lock: int | None = None
        while lock is None:  # another process may remove the folder before it is locked
            try:
                self.name = tempfile.mkdtemp(prefix=prefix, dir=parent)
            except OSError as error:
                if parent is not None:
                    raise SearchlabError(f"cannot write to {parent}: {error.strerror}") from None
                raise SearchlabError(
                    f"cannot create a temporary folder: {error.strerror or error}; free some space, or set TMPDIR to a "
                    f"writable directory"
                ) from None
            lock = _lock_folder(self.name, is_new=True)
        self._lock: int | None = lock

    def cleanup(self) -> None:
        """Remove the folder, unless it has already been removed."""
        if self._lock is not None:
            shutil.rmtree(self.name, ignore_errors=True)  # a process that was just killed may still write there
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _clear(parent: str, prefix: str) -> None:
    """Remove the folders that this user's processes left behind when they ended."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            is_own = entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if is_own and (lock := _lock_folder(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _lock_folder(folder: str, is_new: bool = False) -> int | None:
    """Return a descriptor that holds the lock on ``folder``, or None if it is locked or has been removed.

    On file systems without locks, a folder that is ``is_new`` is used without a lock, and no process removes it.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(folder)):
            return lock
    except OSError as error:
        if is_new and error.errno in NO_LOCKS:
            return lock
    os.close(lock)
    return None
