"""Folders for temporary files, which do not pile up: the next run removes what a killed process has left."""

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
"""What a file system answers that has no locks."""


class ScratchFolder:
    """A new folder ``name``, by default among the temporary files of the system; a context manager that removes it.

    Folders of processes that are gone are removed first. A process holds a lock on its folder as long as it lives; an
    age or a process number would say less. Raises SearchlabError if there is no place for temporary files.
    """

    def __init__(self, parent: str | None = None, prefix: str = PREFIX) -> None:
        _clear(parent or tempfile.gettempdir(), prefix)
        lock: int | None = None
        while lock is None:  # another process may take the folder for left behind before it is locked
            try:
                self.name = tempfile.mkdtemp(prefix=prefix, dir=parent)
            except OSError as error:
                if parent is not None:
                    raise SearchlabError(f"cannot write in {parent}: {error.strerror}") from None
                raise SearchlabError(
                    f"there is no place for temporary files: {error.strerror or error}; free space, or set TMPDIR to a "
                    f"directory that can be written"
                ) from None
            lock = _locked(self.name, ours=True)
        self._lock = lock

    def cleanup(self) -> None:
        shutil.rmtree(self.name, ignore_errors=True)  # a process that was just killed may still write there
        os.close(self._lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _clear(parent: str, prefix: str) -> None:
    """Remove the folders of this user's processes that are gone."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            own = entry.name.startswith(prefix) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if own and (lock := _locked(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(folder: str, ours: bool = False) -> int | None:
    """A descriptor that holds the lock on ``folder``; None if another process holds it, or has removed the folder.

    ours: whether this process has made it. On a file system without locks it then has the folder without one, and
    nobody can tell when that is left behind.
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
        if ours and error.errno in NO_LOCKS:
            return lock
    os.close(lock)
    return None
