"""What a policy is doing, for whoever waits for it: a policy that never answers is named."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import SearchlabWarning

PATIENCE = 60.0
"""Seconds that a policy may take for a call before the user is told."""

LOOK_SECONDS = 1.0


class _Doing:
    """A call of a policy."""

    def __init__(self, policy: str, method: str) -> None:
        self.policy = policy
        self.method = method
        self.since = time.monotonic()
        self.warned = False


_doing: list[_Doing] = []
_watch: threading.Thread | None = None


def busy(least: float = 0.0) -> str:
    """What a policy of this process has been doing for ``least`` seconds or more, a sentence; empty if nothing."""
    for doing in _doing[-1:]:
        if (seconds := time.monotonic() - doing.since) >= least:
            return f"{doing.method} of policy {doing.policy!r} has taken {seconds:.0f} s"
    return ""


@contextmanager
def taking(policy: str, method: str) -> Iterator[None]:
    """Within, ``method`` of ``policy`` is called. Warns (SearchlabWarning) once where it takes longer than PATIENCE."""
    global _watch
    if _watch is None or not _watch.is_alive():  # it ends with a process, and a fork has none
        _watch = threading.Thread(target=_look, daemon=True)
        _watch.start()
    doing = _Doing(policy, method)
    _doing.append(doing)
    try:
        yield
    finally:
        _doing.remove(doing)


def _look() -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        for doing in _doing[-1:]:
            if not doing.warned and (said := busy(PATIENCE)):
                doing.warned = True
                text = f"{said}, and it may never end; Ctrl-C ends the run and keeps what was measured"
                warnings.warn(text, SearchlabWarning, stacklevel=1)
