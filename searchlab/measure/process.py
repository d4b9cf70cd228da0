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

from ..errors import SearchlabError
from .memory import with_limit
from .messages import Broken, Ready, SetUp, Started

START_SECONDS = 120.0
"""How long a worker may take to import TVM, or to make a workload's inputs and reference."""


class WorkerDied(Exception):
    """The worker ended while it was waited for; the text says how."""


class Worker:
    """``python -m MODULE`` at the other end of :attr:`connection`.

    It is not made with ``multiprocessing``, which would run a user's script again in every worker. Its temporary files
    go to the folder ``scratch``, where one is given. Only the beginning of its standard error is kept, as much as a
    pipe holds, to say why it died; all else that it prints is lost.
    """

    def __init__(self, threads: int, scratch: str = "", memory_limit_mb: int = 0, *, module: str) -> None:
        ours, theirs = socket.socketpair()
        kept, errors = os.pipe()
        self._errors = open(kept, "rb", buffering=0)  # noqa: SIM115 - closed by kill()
        os.set_blocking(kept, False)
        os.set_blocking(errors, False)  # what does not fit is lost, and nobody waits
        self._memory_limit_mb = memory_limit_mb
        words = [str(theirs.fileno()), str(os.getpid()), str(memory_limit_mb)]
        with theirs, open(errors, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the parent alone
                env=os.environ | {
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "TVM_NUM_THREADS": str(threads),
                    "OMP_NUM_THREADS": str(threads),
                } | ({"TMPDIR": scratch} if scratch else {}),
            )  # fmt: skip
        self.connection = Connection(ours.detach())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        self._printed()  # by what it did before
        with contextlib.suppress(OSError):  # a worker that is gone is found out by recv
            self.connection.send(message)

    def recv(self) -> Any:
        """The next message. Raises WorkerDied."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(self._fate()) from None

    def _fate(self) -> str:
        code, megabytes = self._wait()
        fate = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._printed().decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        fate = f"{fate}: {said[:200]}" if said else fate
        return with_limit(fate, self._memory_limit_mb, megabytes)

    def _wait(self) -> tuple[int, int]:
        """The exit code, and the most memory that the worker held in MB, 0 where that is not known any more."""
        if self._process.returncode is not None:
            return self._process.returncode, 0
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, usage.ru_maxrss >> 10

    def _printed(self) -> bytes:
        """What it has written to its standard error since this was last asked."""
        return self._errors.read(1 << 20) or b""

    def end(self) -> None:
        """End the worker at once; any thread may do so, and the one that waits in :meth:`recv` is told of it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker, and any compiler that it has started."""
        if self.alive:  # and so still the leader of a session, and group, of its own
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()
        self._errors.close()


class MeasuringWorker(Worker):
    """A worker that builds or runs programs, once it is set up with a space or a workload: see ``worker.py``."""

    def __init__(self, threads: int, scratch: str = "", memory_limit_mb: int = 0) -> None:
        super().__init__(threads, scratch, memory_limit_mb, module="searchlab.measure.worker")
        self.told: object = None
        """What the worker was last told to set itself up with."""
        self.holds: object = None
        """What it was last set up with."""
        self.extracts: set[str] = set()
        """The features that it has imported all for."""

    @property
    def ready(self) -> bool:
        """Whether the worker has taken in what it was told."""
        return self.told is not None and self.holds is self.told

    def tell(self, subject: object, message: SetUp) -> None:
        """Tell the worker to set itself up with ``subject``, by ``message``; its answer is for :meth:`hear`."""
        self.told = subject
        self.send(message)

    def hear(self) -> None:
        """Receive an answer to :meth:`tell`. Raises WorkerDied, and SearchlabError where it cannot be set up."""
        match self.recv():
            case Started():  # a new worker says so first
                pass
            case Ready():
                self.holds = self.told
            case Broken(text):
                raise SearchlabError(f"a measuring process cannot take in {self.told}: {text}")

    def set_up(self) -> bool:
        """Wait until the worker is ready; False if it had been killed since it was last used. Raises SearchlabError."""
        is_new = self.holds is None
        try:
            while not self.ready:
                if not self.connection.poll(START_SECONDS):
                    raise WorkerDied(f"did not answer within {START_SECONDS:g} s")
                self.hear()
        except WorkerDied as death:
            if is_new:
                raise SearchlabError(f"a measuring process {death} while it started; is TVM whole?") from None
            self.kill()
            return False
        return True
