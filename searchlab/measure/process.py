"""A long-lived worker process, talked to over a socket, that can die without harm."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Any


class WorkerDied(Exception):
    """The worker ended while it was waited for; the text says how."""


class Worker:
    """``python -m searchlab.measure.worker`` at the other end of :attr:`connection`.

    Not made with ``multiprocessing``, which would run a user's script again in every worker.
    """

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "searchlab.measure.worker", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent alone
                env=os.environ | {
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "TVM_NUM_THREADS": str(threads),
                    "OMP_NUM_THREADS": str(threads),
                },
            )  # fmt: skip
        self.connection = Connection(ours.detach())
        self.holds: object = None
        """What the worker was last set up with."""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # a worker that is gone is found out by recv
            self.connection.send(message)

    def recv(self) -> Any:
        """The next message. Raises WorkerDied."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(self._fate()) from None

    def call(self, message: Any) -> Any:
        self.send(message)
        return self.recv()

    def _fate(self) -> str:
        code = self._process.wait()
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()
