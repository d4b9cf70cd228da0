"""Isolate the processes that run candidates, and detect changes that a candidate makes to its process.

No privileges are needed. On Linux 6.12 or later, Landlock confines a process's signals to itself and the processes that
it starts. On older kernels, an extra process between the candidates and the process that waits for them absorbs such
signals. A memory limit prevents candidates from making the machine swap. :func:`describe_changes` detects changes to a
process that might otherwise affect the next candidate in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

_SYS_LANDLOCK_CREATE_RULESET = 444  # these numbers are the same on all architectures except Alpha
_SYS_LANDLOCK_ADD_RULE = 445
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
_LANDLOCK_RULE_PATH_BENEATH = 1
_LANDLOCK_ACCESS_FS_EXECUTE = 1 << 0
_LANDLOCK_ACCESS_FS_WRITE_FILE = 1 << 1
_LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2
_LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3
_LANDLOCK_ACCESS_NET_BIND_TCP = 1 << 0
_LANDLOCK_ACCESS_NET_CONNECT_TCP = 1 << 1
_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0
_LANDLOCK_SCOPE_SIGNAL = 1 << 1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

_READ_FILE = _LANDLOCK_ACCESS_FS_EXECUTE | _LANDLOCK_ACCESS_FS_READ_FILE
_READ_DIRECTORY = _READ_FILE | _LANDLOCK_ACCESS_FS_READ_DIR
_TCP = _LANDLOCK_ACCESS_NET_BIND_TCP | _LANDLOCK_ACCESS_NET_CONNECT_TCP

_FILE_RIGHTS_BY_VERSION = (0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
"""All rights to files, from Landlock version 1 on."""

_TCP_VERSION = 4
"""The first version of Landlock with rights to TCP."""

_SCOPE_VERSION = 6
"""The first version of Landlock with scopes."""

_OUT_OF_MEMORY_TEXTS = ("MemoryError", "bad_alloc", "out of memory", "Cannot allocate memory")
"""How Python, C++, LLVM and the C library report a lack of memory."""

_STATUS_FIELDS = ("Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed", "Seccomp")
"""The fields of ``/proc/self/status`` to compare; see proc(5)."""

_LIMIT_COUNT = 16
"""The number of Linux's resource limits; see getrlimit(2)."""

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def die_with_parent(parent_pid: int) -> None:
    """Make Linux kill this process when its parent ends, whatever the reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the call
        os._exit(1)


def isolate(parent_pid: int) -> None:
    """Confine this process, which is about to run candidates, and make it end when its parent ends.

    Call this before the process starts threads, which would not be confined.
    """
    die_with_parent(parent_pid)
    if not confine_signals():
        continue_in_child()


def confine_signals() -> bool:
    """Confine this process's signals to itself and the processes that it starts, and return whether this succeeded.

    Source: Linux, Documentation/userspace-api/landlock.rst, "IPC scoping".
    """
    return _get_landlock_version() >= _SCOPE_VERSION and _restrict(0, 0, _LANDLOCK_SCOPE_SIGNAL, {})


def confine(readable_paths: Iterable[Path], writable_dir: Path) -> bool:
    """Confine this process to reading files in ``readable_paths`` and writing in ``writable_dir``, without TCP.

    Returns whether this succeeded, which requires Landlock (Linux 5.13). Files that are open remain usable. A path in
    ``readable_paths`` may be a directory, a file or a device. Devices may be written to.
    """
    if (version := _get_landlock_version()) < 1:
        return False
    write_rights = _FILE_RIGHTS_BY_VERSION[min(version, len(_FILE_RIGHTS_BY_VERSION)) - 1]
    rights_by_path = {}
    for path in readable_paths:
        if path.is_char_device():
            rights_by_path[path] = _READ_FILE | _LANDLOCK_ACCESS_FS_WRITE_FILE
        elif path.exists():
            rights_by_path[path] = _READ_DIRECTORY if path.is_dir() else _READ_FILE
    rights_by_path[writable_dir] = write_rights
    scopes = _LANDLOCK_SCOPE_SIGNAL | _LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET if version >= _SCOPE_VERSION else 0
    return _restrict(write_rights, _TCP if version >= _TCP_VERSION else 0, scopes, rights_by_path)


def leave_network() -> bool:
    """Move this process, which must have one thread, to a network of its own. Return whether this succeeded.

    It needs user namespaces, which some containers and distributions do not allow.
    """
    return sys.platform == "linux" and int(ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)) == 0


def _get_landlock_version() -> int:
    """Return the version of Landlock that this kernel offers, or a number below 1."""
    if sys.platform != "linux":
        return 0
    return int(
        ctypes.CDLL(None).syscall(
            _SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
        )
    )


def _restrict(file_rights: int, network_rights: int, scopes: int, rights_by_path: Mapping[Path, int]) -> bool:
    """Restrict this process with Landlock, except for ``rights_by_path``, and return whether this succeeded."""
    libc = ctypes.CDLL(None)
    attributes = struct.pack("3Q", file_rights, network_rights, scopes)  # landlock_ruleset_attr
    ruleset = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        for path, rights in rights_by_path.items():
            path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", rights, path_fd)  # landlock_path_beneath_attr
                if libc.syscall(_SYS_LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0):
                    return False
            finally:
                os.close(path_fd)
        return bool(
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            and libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0
        )
    finally:
        os.close(ruleset)


def continue_in_child() -> None:
    """Continue in a child process. This process only waits for the child, and then ends in the same way.

    If a candidate kills its parent, only this intermediate process ends, and its own parent detects that.
    """
    own_pid = os.getpid()
    child_pid = os.fork()
    if child_pid == 0:
        die_with_parent(own_pid)
        return
    _, status = os.waitpid(child_pid, 0)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has already dumped its core, if at all
        if -exit_code != signal.SIGKILL:
            signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(own_pid, -exit_code)
    os._exit(max(exit_code, 0))


def limit_memory(limit_mb: int) -> None:
    """Limit the memory of this process to ``limit_mb`` more than it uses now, or remove the limit if this is 0.

    The limit is RLIMIT_DATA. It counts private writable memory, including thread stacks and mapped files. It does not
    count address space that is only reserved: a JIT compiler and the CUDA runtime reserve gigabytes of it.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    soft_limit = hard_limit
    if limit_mb:
        *_, data_pages, _ = Path("/proc/self/statm").read_text().split()  # in pages: proc(5)
        soft_limit = int(data_pages) * resource.getpagesize() + (limit_mb << 20)
        if hard_limit != resource.RLIM_INFINITY:
            soft_limit = min(soft_limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (soft_limit, hard_limit))


def add_memory_limit(text: str, limit_mb: int, peak_mb: int = 0) -> str:
    """Return ``text``, and add the limit if memory ran out. ``peak_mb`` is the process's peak memory, if known."""
    if limit_mb and (peak_mb >= limit_mb or any(message in text for message in _OUT_OF_MEMORY_TEXTS)):
        return f"{text}; a candidate may use {limit_mb} MB of memory (memory_limit_mb)"
    return text


def become_subreaper() -> None:
    """Make this process the parent of any descendant whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children(excluded_pids: Container[int] = ()) -> None:
    """Kill this process's children except ``excluded_pids``, and their descendants; see :func:`become_subreaper`."""
    for _ in range(1000):  # a process that is killed may leave children, which this process then adopts
        child_pids = [child_pid for child_pid in _list_children() if child_pid not in excluded_pids]
        if not child_pids:
            return
        for child_pid in child_pids:
            with contextlib.suppress(OSError):
                os.kill(child_pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(child_pid, 0)


def describe_changes(initial_state: dict[str, Any]) -> str:
    """Return which parts of this process's state a candidate has changed, or "" if none.

    ``initial_state`` is the result of :func:`read_process_state` before the candidate ran.
    """
    try:
        final_state = read_process_state()
    except Exception as error:  # for example, because no more files can be opened
        return f"state that cannot be read: {type(error).__name__}"
    return ", ".join(name for name, value in initial_state.items() if value != final_state[name])


def read_process_state() -> dict[str, Any]:
    """Return what outlives a candidate and affects the next one's result, by the names that error messages use.

    This takes less than a millisecond. It covers the operating system's settings of this process, but no objects in
    Python, which only the code of a space could change. If a candidate has changed too much, any exception is raised.
    """
    # limit_memory() changes the soft limit of RLIMIT_DATA for each candidate, so only the hard limit is compared.
    limits: dict[int, Any] = {number: resource.getrlimit(number) for number in range(_LIMIT_COUNT)}
    limits[resource.RLIMIT_DATA] = limits[resource.RLIMIT_DATA][1]
    status_lines = Path("/proc/self/status").read_bytes().splitlines()
    working_dir = os.stat(".")
    return {
        "open files": _list_open_files(),
        "resource limits": limits,
        "environment": _read_environment(),
        "working directory": (working_dir.st_dev, working_dir.st_ino),
        "process status": [line for line in status_lines if line.partition(b":")[0].decode() in _STATUS_FIELDS],
        "timers": [any(signal.getitimer(timer)) for timer in _TIMERS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "process group": os.getpgid(0),
        "child processes": _list_children(),
    }


def _list_open_files() -> dict[str, tuple[int, int]]:
    inodes_by_descriptor = {}
    for file_descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself, which is now closed
            status = os.fstat(int(file_descriptor))
            inodes_by_descriptor[file_descriptor] = status.st_dev, status.st_ino
    return inodes_by_descriptor


def _read_environment() -> list[bytes]:
    """Return the C environment, since ``os.environ`` does not reflect changes made by native code."""
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    variables: list[bytes] = []
    while environ and (variable := environ[len(variables)]):
        variables.append(variable)
    return variables


def _list_children() -> list[int]:
    paths = [Path("/proc/self/task", thread_id, "children") for thread_id in os.listdir("/proc/self/task")]
    try:
        return [int(pid) for path in paths for pid in path.read_bytes().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        import psutil

        return [child.pid for child in psutil.Process().children()]
