"""Processes of this machine that work for us: fresh ones, and forks of a server that has imported TVM already.

``python -m searchlab.measure.forks`` is the server. Importing TVM takes seconds, and a fork of a process that has it
takes milliseconds. The server runs no candidate, and has one thread. When the process that has started it ends, it
kills its forks, and what their candidates have left.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from threadpoolctl import threadpool_limits

from ..errors import SearchlabError
from .channel import Channel
from .isolation import isolate
from .messages import End, Fork, HasEnded
from .state import adopt, kill_children

LARGEST = 1 << 17
"""How many bytes a message to the fork server may have."""
END_SECONDS = 5.0
"""How long the fork server may take to end its forks."""
ANSWER_SECONDS = 120.0
"""How long the fork server may take to import TVM."""

Environment = Mapping[str, str]


def start(module: str, connection: int, stderr: BinaryIO, environment: Environment) -> subprocess.Popen[bytes]:
    """``python -m MODULE CONNECTION PARENT`` in a session of its own, which inherits the file ``connection``."""
    return subprocess.Popen(
        [sys.executable, "-m", module, str(connection), str(os.getpid())],
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C is for the parent alone
        env={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def fork(connection: int, stderr: BinaryIO, environment: Environment, threads: int, memory_limit_mb: int) -> Forked:
    """A worker at the other end of ``connection``. Raises SearchlabError where TVM cannot be imported."""
    global _server
    with _starting:
        if _server is None or not _server.usable:
            if _server is not None:
                _server.close()
            _server = ForkServer()
        server = _server
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it has been removed
        folder = ""
    changed = {name for name, _ in server.environment.items() ^ environment.items()}
    changes = {name: environment.get(name) for name in changed}
    return server.fork(Fork(threads, memory_limit_mb, sys.path, folder, changes), [connection, stderr.fileno()])


def last_line(printed: bytes) -> str:
    """The last line of ``printed`` that says anything, and not too much of it."""
    lines = printed.decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


class Forked:
    """A fork of ``server``."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.end: End | None = None
        """Once it has ended, and is known to."""

    @property
    def returncode(self) -> int | None:
        return self.end and self.end.code

    def poll(self) -> int | None:
        self.end = self.end or self._server.end_of(self.pid)
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.001)
        return code


class ForkServer:
    """A process that imports TVM, and then forks workers; see :func:`serve`. Any thread may ask it.

    environment: that it was started with.
    """

    def __init__(self) -> None:
        self.environment = os.environ | {"OMP_NUM_THREADS": "1"}  # a process that forks has one thread
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._asked = 0
        # Each message is read whole or not at all, so that an interrupt leaves none in the middle.
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(ANSWER_SECONDS)
        kept, errors = os.pipe()
        os.set_blocking(kept, False)
        self._errors = open(kept, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        with theirs, open(errors, "wb") as stderr:
            self._process = start("searchlab.measure.forks", theirs.fileno(), stderr, self.environment)

    @property
    def usable(self) -> bool:
        """Whether it is alive, and ours: not that of a process of which we are a fork."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork(self, message: Fork, files: list[int]) -> Forked:
        """Raises SearchlabError if there is no fork, and why."""
        try:
            answer: int | str = self._ask(message, files)
        except OSError:
            self.end()
            why = last_line(self._errors.read(1 << 20) or b"") or f"exit code {self._process.returncode}"
            raise SearchlabError(f"no measuring process can be started: {why}; check your TVM installation") from None
        if isinstance(answer, str):
            raise SearchlabError(f"no measuring process can be started: {answer}; are there too many processes?")
        return Forked(self, answer)

    def end_of(self, pid: int) -> End | None:
        """How a fork has ended; None for one that goes on."""
        try:
            end: End | None = self._ask(HasEnded(pid))
        except OSError:
            self.end()
            return End(-signal.SIGKILL)
        return end

    def end(self) -> None:
        """End the server, and with it its forks."""
        if self._owner == os.getpid():
            self._control.close()  # at which it ends its forks, and itself
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """End the server, and ask it no more: its forks have ended."""
        self.end()
        self._errors.close()

    def _ask(self, message: Fork | HasEnded, files: list[int] | None = None) -> Any:
        """Raises OSError if the server has ended, or does not answer."""
        with self._lock:
            self._asked = number = self._asked + 1
            socket.send_fds(self._control, [pickle.dumps((number, message))], files or [])
            while data := self._control.recv(LARGEST):
                of, answer = pickle.loads(data)
                if of == number:  # any other was for one who was interrupted
                    return answer
        raise ConnectionResetError


def _close() -> None:
    if _server is not None:
        _server.close()


_starting = threading.Lock()
_server: ForkServer | None = None
atexit.register(_close)


# --- the server -------------------------------------------------------------------------------------------------

_forks: set[int] = set()
"""The process numbers of the workers that have not been found to have ended."""


def serve() -> None:
    """Be the fork server."""
    # tvm_ffi imports PyTorch wherever that is installed: two thirds of the time that it takes to import TVM
    sys.modules["torch"] = None  # type: ignore[assignment]
    from .worker import work

    del sys.modules["torch"]  # a plug-in may import it all the same
    with socket.socket(fileno=int(sys.argv[1])) as control:
        adopt()
        gc.freeze()  # nothing that is here now is garbage in a fork, so no fork need look at it, and so copy it
        while True:
            data, files, _, _ = socket.recv_fds(control, LARGEST, 2)
            if not data:
                kill_children()
                return
            number, message = pickle.loads(data)
            answer = _fork(message, control, work, *files) if isinstance(message, Fork) else _ended(message)
            try:
                control.send(pickle.dumps((number, answer)))
            except BrokenPipeError:
                kill_children()
                return


def _ended(message: HasEnded) -> End | None:
    try:
        pid, status, usage = os.wait4(message.pid, os.WNOHANG)
    except ChildProcessError:  # one who was interrupted has been told
        return End(-signal.SIGKILL)
    if pid == 0:
        return None
    _forks.discard(pid)
    kill_children(but=_forks)  # of candidates: they have outlived the worker that ran them
    return End(os.waitstatus_to_exitcode(status), usage.ru_maxrss >> 10, usage.ru_utime + usage.ru_stime)


def _fork(
    message: Fork, control: socket.socket, work: Callable[[Channel, int], None], connection: int, errors: int
) -> int | str:
    """The process number of the fork, or why there is none."""
    us = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:  # there is no memory or number left for a process
        return str(error.strerror)
    if pid:
        _forks.add(pid)
        _own_group(pid)
        os.close(connection)
        os.close(errors)
        return pid
    code = 1
    try:
        control.close()
        os.dup2(errors, 2)
        os.close(errors)
        _own_group(0)
        isolate(parent=us)
        adopt()
        _be_as_told(message)
        work(Channel(connection), message.memory_limit_mb)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _own_group(pid: int) -> None:
    """Make a fork the first of a group, with which it is ended. Both sides do so, since either may come first."""
    with contextlib.suppress(OSError):  # it has ended already
        os.setpgid(pid, 0)


def _be_as_told(message: Fork) -> None:
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
    serve()
