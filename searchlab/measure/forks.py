"""The fork server, ``python -m searchlab.measure.forks``, which imports TVM and then forks workers.

Importing TVM takes seconds; forking a process that has imported it takes milliseconds. The server itself runs no
candidates and has only one thread. When the process that started the server ends, the server kills its forks and any
processes that their candidates have left behind.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable

from threadpoolctl import threadpool_limits

from .channel import Channel
from .isolation import become_subreaper, isolate, kill_children
from .messages import CheckExit, Exit, Fork
from .process import MAX_MESSAGE_BYTES

_forks: set[int] = set()
"""The process IDs of the workers that are not known to have ended."""


def serve() -> None:
    """Run the fork server until the process that started it ends."""
    # If PyTorch is installed, tvm_ffi imports it, which accounts for two thirds of the time for importing TVM.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from .worker import work

    del sys.modules["torch"]  # a plug-in may still import it
    with socket.socket(fileno=int(sys.argv[1])) as control_socket:
        become_subreaper()
        gc.freeze()  # so that forks do not scan, and thus copy, the objects that already exist
        while True:
            request_bytes, file_descriptors, _, _ = socket.recv_fds(control_socket, MAX_MESSAGE_BYTES, 2)
            if not request_bytes:
                kill_children()
                return
            number, message = pickle.loads(request_bytes)
            answer: int | str | Exit | None
            if isinstance(message, Fork):
                answer = _fork_worker(message, control_socket, work, *file_descriptors)
            else:
                answer = _check_exit(message)
            try:
                control_socket.send(pickle.dumps((number, answer)))
            except BrokenPipeError:
                kill_children()
                return


def _check_exit(message: CheckExit) -> Exit | None:
    try:
        pid, wait_status, resource_usage = os.wait4(message.pid, os.WNOHANG)
    except ChildProcessError:  # an interrupted call has already received the answer
        return Exit(-signal.SIGKILL)
    if pid == 0:
        return None
    _forks.discard(pid)
    kill_children(excluded_pids=_forks)  # processes that the worker's candidates have left behind
    return Exit(os.waitstatus_to_exitcode(wait_status), resource_usage.ru_maxrss >> 10)


def _fork_worker(
    message: Fork,
    control_socket: socket.socket,
    work: Callable[[Channel, int], None],
    connection_fd: int,
    stderr_fd: int,
) -> int | str:
    """Return the fork's process ID, or the reason why forking failed."""
    server_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:  # out of memory or process IDs
        return str(error.strerror)
    if pid:
        _forks.add(pid)
        _join_own_group(pid)
        os.close(connection_fd)
        os.close(stderr_fd)
        return pid
    exit_code = 1
    try:
        control_socket.close()
        os.dup2(stderr_fd, 2)
        os.close(stderr_fd)
        _join_own_group(0)
        isolate(parent_pid=server_pid)
        become_subreaper()
        _apply_state(message)
        work(Channel(connection_fd), message.memory_limit_mb)
        exit_code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(exit_code)


def _join_own_group(pid: int) -> None:
    """Put a fork in its own process group, which is used to kill it. Both processes do this, as either may be first."""
    with contextlib.suppress(OSError):  # it has ended already
        os.setpgid(pid, 0)


def _apply_state(message: Fork) -> None:
    """Give this process the state that it would have if the requesting process had started it directly."""
    for name, value in message.environment_changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.path[:] = message.sys_path
    importlib.invalidate_caches()  # folders may have changed since they were listed
    with contextlib.suppress(OSError):  # the folder is gone
        os.chdir(message.working_dir)
    threadpool_limits(message.thread_count)  # BLAS read its number of threads from the environment when it was imported


if __name__ == "__main__":
    serve()
