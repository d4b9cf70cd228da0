"""Folders for temporary files. If a killed process leaves one behind, the next run removes it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

from ..errors import SearchlabError

FOLDER_PREFIX = "searchlab-tmp-"

NO_LOCK_ERRORS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
"""The errors that file systems without locks report."""


class ScratchFolder:
    """A new temporary folder. As a context manager, it removes the folder on exit.

    Folders left behind by processes that have ended are removed first. Each process holds a lock on its folder until it
    ends, which shows more reliably than a folder's age or a process ID whether the folder is in use.

    Args:
        parent_dir: The directory in which to create the folder, or None for the system's temporary directory.
        prefix: The prefix of the folder's name.

    Attributes:
        name: The path of the folder.

    Raises:
        SearchlabError: If the folder cannot be created.
    """

    def __init__(self, parent_dir: str | None = None, prefix: str = FOLDER_PREFIX) -> None:
        _remove_abandoned_folders(parent_dir or tempfile.gettempdir(), prefix)
        lock_fd: int | None = None
        while lock_fd is None:  # another process may remove the folder before it is locked
            try:
                self.name = tempfile.mkdtemp(prefix=prefix, dir=parent_dir)
            except OSError as error:
                if parent_dir is not None:
                    raise SearchlabError(f"cannot write to {parent_dir}: {error.strerror}") from None
                raise SearchlabError(
                    f"cannot create a temporary folder: {error.strerror or error}; free some space, or set TMPDIR to a "
                    f"writable directory"
                ) from None
            lock_fd = _lock_folder(self.name, is_new=True)
        self._lock_fd: int | None = lock_fd

    def cleanup(self) -> None:
        """Remove the folder, unless it has already been removed."""
        if self._lock_fd is not None:
            shutil.rmtree(self.name, ignore_errors=True)  # a process that was just killed may still write there
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove_abandoned_folders(parent_dir: str, prefix: str) -> None:
    """Remove the folders that this user's processes left behind when they ended."""
    with suppress(OSError):
        for entry in os.scandir(parent_dir):
            is_own = entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if is_own and (lock_fd := _lock_folder(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock_fd)


def _lock_folder(folder: str, is_new: bool = False) -> int | None:
    """Return a descriptor that holds the lock on ``folder``, or None if it is locked or has been removed.

    On file systems without locks, a folder that is ``is_new`` is used without a lock, and no process removes it.
    """
    try:
        lock_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock_fd), os.stat(folder)):
            return lock_fd
    except OSError as error:
        if is_new and error.errno in NO_LOCK_ERRORS:
            return lock_fd
    os.close(lock_fd)
    return None
