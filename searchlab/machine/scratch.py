"""Folders for temporary files, which do not pile up: the next run removes what a killed process has left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

from ..errors import SearchlabError

PREFIX = "searchlab-tmp-"


class ScratchFolder:
    """A new folder ``name`` among the temporary files of the system, removed by :meth:`cleanup`; a context manager.

    Folders of processes that are gone are removed first. A process holds a lock on its folder as long as it lives; an
    age or a process number would say less. Raises SearchlabError if there is no place for temporary files.
    """

    def __init__(self) -> None:
        _clear()
        lock: int | None = None
        while lock is None:  # another process may take the folder for left behind before it is locked
            try:
                self.name = tempfile.mkdtemp(prefix=PREFIX)
            except OSError as error:
                raise SearchlabError(
                    f"there is no place for temporary files: {error.strerror or error}; free space, or set TMPDIR to a "
                    f"directory that can be written"
                ) from None
            lock = _locked(self.name)
        self._lock = lock

    def cleanup(self) -> None:
        shutil.rmtree(self.name, ignore_errors=True)  # a process that was just killed may still write there
        os.close(self._lock)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _clear() -> None:
    """Remove the folders of this user's processes that are gone."""
    with suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            own = entry.name.startswith(PREFIX) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if own and (lock := _locked(entry.path)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(folder: str) -> int | None:
    """A descriptor that holds the lock on ``folder``; None if another process holds it, or has removed the folder."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(folder)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None
