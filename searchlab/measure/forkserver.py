"""``python -m searchlab.measure.forkserver``: imports TVM once, and forks the processes that build and run programs.

Importing TVM takes seconds, and a fork of a process that has it takes milliseconds. This process runs no candidate, and
has one thread. When the process that has started it ends, it kills its forks, and what their candidates have left.
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

if __name__ == "__main__":
    # tvm_ffi imports PyTorch wherever that is installed: two thirds of the time that it takes to import TVM
    sys.modules["torch"] = None  # type: ignore[assignment]

from threadpoolctl import threadpool_limits

from .channel import Channel
from .forks import LARGEST
from .isolation import isolate
from .messages import End, Fork, HasEnded
from .state import adopt, kill_children
from .worker import work

if __name__ == "__main__":  # a plug-in may import it all the same
    del sys.modules["torch"]


_forks: set[int] = set()
"""The process numbers of the workers that have not been found to have ended."""


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as control:
        adopt()
        gc.freeze()  # nothing that is here now is garbage in a fork, so no fork need look at it, and so copy it
        while True:
            data, files, _, _ = socket.recv_fds(control, LARGEST, 2)
            if not data:
                kill_children()
                return
            number, message = pickle.loads(data)
            answer = fork(message, control, *files) if isinstance(message, Fork) else ended(message)
            try:
                control.send(pickle.dumps((number, answer)))
            except BrokenPipeError:
                kill_children()
                return


def ended(message: HasEnded) -> End | None:
    try:
        pid, status, usage = os.wait4(message.pid, os.WNOHANG)
    except ChildProcessError:  # one who was interrupted has been told
        return End(-signal.SIGKILL)
    if pid == 0:
        return None
    _forks.discard(pid)
    kill_children(but=_forks)  # of candidates: they have outlived the worker that ran them
    return End(os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10, usage.ru_utime + usage.ru_stime)


def fork(message: Fork, control: socket.socket, connection: int, errors: int) -> int | str:
    """The process number of the fork, or why there is none."""
    us = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:  # there is no memory or number left for a process
        return str(error.strerror)
    if pid:
        _forks.add(pid)
        own_group(pid)
        os.close(connection)
        os.close(errors)
        return pid
    code = 1
    try:
        control.close()
        os.dup2(errors, 2)
        os.close(errors)
        own_group(0)
        isolate(parent=us)
        adopt()
        be_as_told(message)
        work(Channel(connection), message.memory_limit_mb)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def own_group(pid: int) -> None:
    """Make a fork the first of a group, with which it is ended. Both sides do so, since either may come first."""
    with contextlib.suppress(OSError):  # it has ended already
        os.setpgid(pid, 0)


def be_as_told(message: Fork) -> None:
    """Have this process be as if it had been started by the one that asked for it, and now."""
    for name, value in message.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.path[:] = message.path
    importlib.invalidate_caches()  # a folder may have another file since
    with contextlib.suppress(OSError):  # it is gone, as it is for those who are in it
        os.chdir(message.folder)
    threadpool_limits(message.threads)  # BLAS was told the number of its threads when it was imported


if __name__ == "__main__":
    main()
