"""What a process that runs candidates can do to this machine, as far as Linux lets it be bound.

No privilege is needed. Landlock, from Linux 6.12 on, keeps its signals to itself and to what it starts. An older kernel
has no such thing; there the process that waits for the candidates is the parent of its parent. A limit on its memory
keeps candidates from making the machine swap.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same numbers on all machines but Alpha
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_SCOPE_SIGNAL = 1 << 1  # LANDLOCK_SCOPE_SIGNAL
_SCOPES_SIGNALS = 6  # the first version of Landlock that does
_NO_NEW_PRIVS = 38  # PR_SET_NO_NEW_PRIVS
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SIGNS = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
"""The words by which Python, C++, LLVM and the C library say that memory was refused."""


class _Ruleset(ctypes.Structure):
    """``struct landlock_ruleset_attr``."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def die_with(parent: int) -> None:
    """Have Linux end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


def isolate(parent: int) -> None:
    """Bind this process, which is about to run candidates, and end it with its ``parent``.

    To be called before it has threads: they would not be bound.
    """
    die_with(parent)
    if not confine_signals():
        go_between()


def confine_signals() -> bool:
    """From now on, this process can signal nothing but itself and what it starts; False if the kernel cannot do that.

    Source: Linux, Documentation/userspace-api/landlock.rst, "IPC scoping".
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION) < _SCOPES_SIGNALS:
        return False
    rules = _Ruleset(0, 0, _SCOPE_SIGNAL)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    if ruleset < 0:
        return False
    try:
        return bool(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def go_between() -> None:
    """Go on as a child of this process, which only waits for it, and then ends as it ended.

    What kills its parent kills this go-between; the process that waits for both sees that, and goes on.
    """
    us = os.getpid()
    child = os.fork()
    if child == 0:
        die_with(us)
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left its core, if any
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(us, -code)
    os._exit(max(code, 0))


def limit_memory(megabytes: int) -> None:
    """Let this process take so much more memory than it has now; 0 takes the limit away.

    The limit is RLIMIT_DATA. It counts private writable memory, also of threads and of mapped files. It does not count
    address space that is only reserved; a JIT and the runtime of CUDA reserve gigabytes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard
    if megabytes:
        *_, data, _ = Path("/proc/self/statm").read_text().split()  # in pages: proc(5)
        soft = int(data) * resource.getpagesize() + (megabytes << 20)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def with_limit(text: str, megabytes: int, held: int = 0) -> str:
    """``text`` of a failure; with the limit, where memory was refused or the process held as much as the limit."""
    if megabytes and (held >= megabytes or any(sign in text for sign in _SIGNS)):
        return f"{text}; a candidate may take {megabytes} MB of memory (memory_limit_mb)"
    return text
