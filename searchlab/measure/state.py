"""What a candidate can change in the process that runs it, and what would then be charged to the next candidate."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import locale
import os
import random
import resource
import signal
import sys
import time
import warnings
from collections.abc import Container
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_STATUS = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed", "Seccomp")
"""The fields of ``/proc/self/status`` that are compared: see proc(5)."""

_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

_LIMITS = 16
"""The number of resource limits that Linux has: see getrlimit(2)."""

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def state() -> dict[str, Any]:
    """The state of this process that outlives a candidate, by what a message calls each part of it.

    Costs less than a millisecond. It holds what the process asks of the operating system and of Python; it cannot hold
    every object that a candidate could have changed, such as attributes of arbitrary modules.

    Raises:
        Exception: Anything, where a candidate has changed so much that the state cannot be read.
    """
    # Linux counts a soft limit of RLIMIT_DATA for each candidate: see limit_memory().
    limits = {
        number: resource.getrlimit(number) if number != resource.RLIMIT_DATA else resource.getrlimit(number)[1]
        for number in range(_LIMITS)
    }
    return {
        "open files": _open_files(),
        "resource limits": limits,
        "environment": (dict(os.environ), _environ()),
        "working directory": os.stat("."),
        "process status": _status(),
        "timers": [any(signal.getitimer(timer)) for timer in _TIMERS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "process group": os.getpgid(0),
        "child processes": _children(),
        "sys.path": list(sys.path),
        "sys": [getattr(sys, name) for name in ("stdin", "stdout", "stderr", "excepthook", "modules")],
        "import hooks": [*sys.meta_path, *sys.path_hooks],
        "tracing": (sys.gettrace(), sys.getprofile()),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collector": (gc.isenabled(), gc.get_threshold()),
        "warning filters": list(warnings.filters),
        "floating-point errors": np.geterr(),
        "random numbers": (random.getstate(), _numpy_random()),
        "locale": locale.setlocale(locale.LC_ALL),
        "modules": dict(sys.modules),
        "patched modules": {name: dict(vars(module)) for name, module in _watched().items()},
    }


class Watch:
    """Compares the state of this process before and after a candidate."""

    def __init__(self) -> None:
        self._before = state()

    def changed(self) -> str:
        """What has changed, as words; empty if nothing has."""
        try:
            after = state()
        except Exception as error:  # for example, no file can be opened any more
            return f"state that cannot be read: {type(error).__name__}"
        return ", ".join(part for part, before in self._before.items() if not _same(part, before, after[part]))


def kill_children(but: Container[int] = ()) -> None:
    """Kill the child processes of this one, except for ``but``, and what they have started.

    A subreaper becomes the parent of what its descendants leave behind: see :func:`adopt`.
    """
    for _ in range(1000):  # what is killed may leave children in its turn
        children = [child for child in _children() if child not in but]
        if not children:
            return
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(child, 0)


def adopt() -> None:
    """Have descendants whose parents end become children of this process, however they were forked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def _same(part: str, before: Any, after: Any) -> bool:
    if part == "working directory":
        return os.path.samestat(before, after)
    if part in ("modules", "patched modules"):  # what is added was imported, or computed once
        return all(_kept(part, name, value, after) for name, value in before.items())
    if part == "sys" or part == "tracing":
        return all(one is other for one, other in zip(before, after, strict=True))
    return bool(before == after)


def _kept(part: str, name: str, value: Any, after: dict[str, Any]) -> bool:
    if part == "modules":
        return after.get(name) is value
    return all(after[name].get(key) is own for key, own in value.items() if callable(own))


def _watched() -> dict[str, ModuleType]:
    return {"builtins": builtins, "os": os, "time": time, "signal": signal, "numpy": np}


def _open_files() -> dict[str, tuple[int, int]]:
    found = {}
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            status = os.fstat(int(file))
            found[file] = status.st_dev, status.st_ino
    return found


def _status() -> list[bytes]:
    lines = Path("/proc/self/status").read_bytes().splitlines()
    return [line for line in lines if line.partition(b":")[0].decode() in _STATUS]


def _environ() -> list[bytes]:
    """The environment as C has it: ``os.environ`` does not see what a program sets."""
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found: list[bytes] = []
    while environ and (entry := environ[len(found)]):
        found.append(entry)
    return found


def _children() -> list[int]:
    tasks = [Path("/proc/self/task", task, "children") for task in os.listdir("/proc/self/task")]
    try:
        return [int(pid) for task in tasks for pid in task.read_bytes().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        import psutil

        return [child.pid for child in psutil.Process().children()]


def _numpy_random() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()
    return kind, np.asarray(keys).tobytes(), *rest
