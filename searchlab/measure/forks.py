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
from .messages import End, Fork, HasEnded
from .process import MAX_MESSAGE_BYTES

_forks: set[int] = set()
"""The process IDs of the workers that are not known to have ended."""


def serve() -> None:
    """Run the fork server until the process that started it ends."""
    # If PyTorch is installed, tvm_ffi imports it, which accounts for two thirds of the time for importing TVM.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from .worker import work

    del sys.modules["torch"]  # a plug-in may still import it
    with socket.socket(fileno=int(sys.argv[1])) as control:
        become_subreaper()
        gc.freeze()  # so that forks do not scan, and thus copy, the objects that already exist
        while True:
            data, files, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 2)
            if not data:
                kill_children()
                return
            number, message = pickle.loads(data)
            answer = _fork(message, control, work, *files) if isinstance(message, Fork) else _reap(message)
            try:
                control.send(pickle.dumps((number, answer)))
            except BrokenPipeError:
                kill_children()
                return


def _reap(message: HasEnded) -> End | None:
    try:
        pid, status, usage = os.wait4(message.pid, os.WNOHANG)
    except ChildProcessError:  # an interrupted call has already received the answer
        return End(-signal.SIGKILL)
    if pid == 0:
        return None
    _forks.discard(pid)
    kill_children(but=_forks)  # processes that the worker's candidates have left behind
    return End(os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10)


def _fork(
    message: Fork, control: socket.socket, work: Callable[[Channel, int], None], connection: int, errors: int
) -> int | str:
    """Return the fork's process ID, or the reason why forking failed."""
    own_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:  # out of memory or process IDs
        return str(error.strerror)
    if pid:
        _forks.add(pid)
        _join_own_group(pid)
        os.close(connection)
        os.close(errors)
        return pid
    code = 1
    try:
        control.close()
        os.dup2(errors, 2)
        os.close(errors)
        _join_own_group(0)
        isolate(parent=own_pid)
        become_subreaper()
        _apply_state(message)
        work(Channel(connection), message.memory_limit_mb)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _join_own_group(pid: int) -> None:
    """Put a fork in its own process group, which is used to kill it. Both processes do this, as either may be first."""
    with contextlib.suppress(OSError):  # it has ended already
        os.setpgid(pid, 0)


def _apply_state(message: Fork) -> None:
    """Give this process the state that it would have if the requesting process had started it directly."""
    for name, value in message.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.path[:] = message.path
    importlib.invalidate_caches()  # folders may have changed since they were listed
    with contextlib.suppress(OSError):  # the folder is gone
        os.chdir(message.folder)
    threadpool_limits(message.threads)  # BLAS read its number of threads from the environment when it was imported


if __name__ == "__main__":
    serve()
