"""The lock that allows only one process at a time to measure this machine."""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..console import one_line
from ..errors import SearchlabError, warn

SILENT_WAIT_SECONDS = 2.0
"""How long a process waits for the lock before it says who holds it, in seconds."""

POLL_SECONDS = 0.25
"""The interval at which a waiting process tries to get the lock, in seconds."""

LOCK_VARIABLE = "SEARCHLAB_LOCK"
"""The environment variable with the path of the lock's file, for users who share a machine."""

MAX_HOLDER_LENGTH = 500
"""The maximum number of characters that describe the lock's holder."""


def _make_unusable_error(path: Path, problem: str) -> SearchlabError:
    return SearchlabError(
        f"cannot use {path} to keep other processes from measuring at the same time: {problem}; set {LOCK_VARIABLE} to "
        f"the path of a file that all users of this machine may write"
    )


def lock_path() -> Path:
    """Return the path of the lock's file: the value of SEARCHLAB_LOCK or, by default, a file of this user.

    The default does not depend on TMPDIR or XDG_RUNTIME_DIR, which differ between the sessions of a user. Raises
    SearchlabError if the directory of the default belongs to another user.
    """
    if path := os.environ.get(LOCK_VARIABLE):
        return Path(path)
    folder = Path(f"/tmp/searchlab-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        folder_status = folder.lstat()
        is_own = stat.S_ISDIR(folder_status.st_mode) and folder_status.st_uid == os.getuid()
        problem = "" if is_own else "it belongs to another user"
    except OSError as error:
        problem = str(error.strerror)
    if problem:
        raise _make_unusable_error(folder, problem)
    return folder / "measuring.lock"


class MachineLock:
    """This process's hold on the machine. It may be acquired several times, and is free once each hold is released.

    POSIX record locks are used because a forked process does not inherit them and the kernel releases them when the
    process ends, however it ends. The file contains a description of the holder. It is never removed, because a process
    that waits may have opened it.

    Attributes:
        get_path: The function that returns the path of the lock's file.
    """

    def __init__(self) -> None:
        self.get_path = lock_path
        self._reset()

    def _reset(self) -> None:
        self._mutex = threading.Lock()
        self._hold_count = 0
        self._file_descriptor = -1

    def acquire(self, report: Callable[[str], None] = warn) -> Callable[[], None]:
        """Wait until no other process holds the lock, and return a function that releases this hold.

        Args:
            report: Called once with a sentence about the holder if the lock is not free after ``SILENT_WAIT_SECONDS``.

        Raises:
            SearchlabError: If the lock's file cannot be used.
        """
        with self._mutex:
            if not self._hold_count:
                self._file_descriptor = _wait_for_lock(self.get_path(), report)
            self._hold_count += 1
        owner_pid, is_released = os.getpid(), False

        def release() -> None:
            nonlocal is_released
            if is_released or os.getpid() != owner_pid:
                return
            is_released = True
            with self._mutex:
                self._hold_count -= 1
                if not self._hold_count:
                    os.close(self._file_descriptor)

        return release

    def forget(self) -> None:
        """Reset this object in a forked process, which does not hold its parent's lock."""
        if self._hold_count:
            os.close(self._file_descriptor)
        self._reset()


MACHINE = MachineLock()
os.register_at_fork(after_in_child=MACHINE.forget)


@contextmanager
def lock_machine(exclusive: bool = True, report: Callable[[str], None] = warn) -> Iterator[None]:
    """If ``exclusive`` is true, keep all other processes from measuring this machine within this context."""
    release = MACHINE.acquire(report) if exclusive else lambda: None
    try:
        yield
    finally:
        release()


def _wait_for_lock(path: Path, report: Callable[[str], None]) -> int:
    report_time, is_reported = time.monotonic() + SILENT_WAIT_SECONDS, False
    while True:
        try:
            file_descriptor = _open_file(path)
            if _try_lock(file_descriptor, path):
                _write_holder(file_descriptor)
                return file_descriptor
        except OSError as error:
            raise _make_unusable_error(path, str(error.strerror)) from None
        try:
            if not is_reported and time.monotonic() >= report_time:
                is_reported = True
                report(f"waiting for {_read_holder(file_descriptor)}, which measures this machine")
        finally:
            os.close(file_descriptor)
        time.sleep(POLL_SECONDS)


def _try_lock(file_descriptor: int, path: Path) -> bool:
    """Try to lock an open file, and return whether it is now locked and still the file at ``path``."""
    try:
        fcntl.lockf(file_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file_descriptor), os.stat(path))
    except (BlockingIOError, PermissionError, FileNotFoundError):  # POSIX permits EACCES for a lock that is held
        return False
    except BaseException:
        os.close(file_descriptor)
        raise


def _open_file(path: Path) -> int:
    """Open the lock's file, and create it if it does not exist. Links and special files are refused."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    while True:
        try:
            file_descriptor = os.open(path, flags)
        except FileNotFoundError:
            try:  # in a sticky directory, Linux may refuse to open another user's file with O_CREAT
                mode = 0o600 if LOCK_VARIABLE not in os.environ else 0o666
                file_descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            except FileExistsError:
                continue
        file_status = os.fstat(file_descriptor)
        if not stat.S_ISREG(file_status.st_mode) or file_status.st_nlink > 1:
            os.close(file_descriptor)
            raise _make_unusable_error(path, "it is not a regular file with a single name")
        return file_descriptor


def _write_holder(file_descriptor: int) -> None:
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    command = shlex.join([os.path.basename(sys.argv[0] or sys.executable), *sys.argv[1:]])
    text = f"process {os.getpid()} of {user} (since {time.strftime('%F %T')}: {command})"
    with suppress(OSError):  # the description is only a courtesy, and the disk may be full
        os.ftruncate(file_descriptor, 0)
        os.pwrite(file_descriptor, text[:MAX_HOLDER_LENGTH].encode(errors="replace"), 0)


def _read_holder(file_descriptor: int) -> str:
    text = os.pread(file_descriptor, 4 * MAX_HOLDER_LENGTH, 0).decode(errors="replace")
    return one_line(text)[:MAX_HOLDER_LENGTH] or "another process"
