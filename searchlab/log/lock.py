"""The lock of a log: who writes it holds it, and others can see that."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

PATIENCE = 0.5
"""Seconds to wait for the lock: :func:`is_locked` holds it for a moment."""


def lock(file: int | IO[bytes]) -> None:
    """Lock a log that is open, until it is closed. Raises BlockingIOError if another process writes it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


def is_locked(path: Path) -> bool:
    """Whether a process writes the log at ``path`` now; False if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
