"""Processes of this machine that work for us: fresh ones, and forks of a server that has imported TVM already."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, BinaryIO

from ..errors import SearchlabError
from .messages import End, Fork, HasEnded

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
    """A process that imports TVM, and then forks workers; see ``forkserver.py``. Any thread may ask it.

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
            self._process = start("searchlab.measure.forkserver", theirs.fileno(), stderr, self.environment)

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
