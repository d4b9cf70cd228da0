"""A long-lived worker process, talked to over a socket, that can die without harm."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import time
from abc import ABC, abstractmethod
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from ..errors import SearchlabError
from .channel import Channel
from .forks import Environment, Forked, fork, last_line, start
from .isolation import with_limit
from .messages import Answer, Broken, Ready, SetUp, Started, decoded

AnswerT = TypeVar("AnswerT", bound=Answer)

START_SECONDS = 120.0
"""How long a worker may take to import TVM, or to make a workload's inputs and reference."""
SEND_SECONDS = 20.0
"""How long an idle worker may take to read a message."""
END_SECONDS = 1.0
"""How long a worker that has closed its connection may take to end by itself."""
LONGEST = 1 << 28
"""The most bytes of an answer of a process that runs candidates."""


class WorkerDied(Exception):
    """The worker ended while it was waited for; the text says how."""


class Spoiled(WorkerDied):
    """What came from the worker was no answer to what it was asked: an earlier candidate may have written it."""


class Child(Protocol):
    """A process that somebody started for us: ``subprocess.Popen``, or a fork of the fork server."""

    pid: int

    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


class Worker(ABC):
    """A process at the other end of :attr:`channel`, and a group of processes of its own.

    It is not made with ``multiprocessing``, which would run a user's script again in every worker. Its temporary files
    go to the folder ``scratch``, where one is given. Only the beginning of its standard error is kept, as much as a
    pipe holds, to say why it died; all else that it prints is lost.
    """

    longest = 1 << 40
    """The most bytes of a message from the process."""

    def __init__(self, threads: int, scratch: str = "") -> None:
        ours, theirs = socket.socketpair()
        kept, errors = os.pipe()
        self._errors = open(kept, "rb", buffering=0)  # noqa: SIM115 - closed by kill()
        os.set_blocking(kept, False)
        os.set_blocking(errors, False)  # what does not fit is lost, and nobody waits
        environment = os.environ | {
            "TVM_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
        } | ({"TMPDIR": scratch} if scratch else {})  # fmt: skip
        try:
            with theirs, open(errors, "wb") as stderr:
                self._process = self._start(theirs.fileno(), stderr, environment)
        except BaseException:
            ours.close()
            self._errors.close()
            raise
        self.channel = Channel(ours.detach(), self.longest)

    @abstractmethod
    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> Child: ...

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        """Send ``message``, pickled. A worker that does not take it is ended, which :meth:`recv` then reports."""
        self._printed()  # by what it did before
        try:
            self.channel.send(pickle.dumps(message), SEND_SECONDS)
        except TimeoutError:  # stopped, for example
            self.end()
        except OSError:
            pass

    def recv_bytes(self) -> bytes:
        """The next message. Raises WorkerDied."""
        try:
            return self.channel.recv()
        except EOFError:
            raise WorkerDied(self._fate()) from None
        except ValueError as error:
            self.end()
            raise WorkerDied(f"sent what is no answer: {error}") from None

    def _fate(self) -> str:
        """How the worker ended. One that has only closed its connection is killed."""
        until = time.monotonic() + END_SECONDS
        while self.alive and time.monotonic() < until:
            time.sleep(0.001)
        if self.alive:
            self.end()
            self._process.wait()
            return "closed its connection and went on; it was killed"
        code = self._process.wait()
        fate = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = last_line(self._printed())
        return f"{fate}: {said}" if said else fate

    def _printed(self) -> bytes:
        """What it has written to its standard error since this was last asked."""
        return self._errors.read(1 << 20) or b""

    def end(self) -> None:
        """End the worker at once; any thread may do so, and the one that waits in :meth:`recv` is told of it."""
        if self._process.returncode is None:  # it has not been waited for, so the number is still its own
            for kill in (os.killpg, os.kill):  # a candidate may have moved the worker to another group
                with contextlib.suppress(OSError):
                    kill(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker, and any compiler that it has started."""
        self.end()
        self._process.wait()
        self.channel.close()
        self._errors.close()


class FreshWorker(Worker):
    """``python -m MODULE``, which is told the file number of its connection, and the process number of its parent."""

    def __init__(self, threads: int, scratch: str = "", *, module: str) -> None:
        self._module = module
        super().__init__(threads, scratch)

    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> Child:
        return start(self._module, connection, stderr, environment)


class MeasuringWorker(Worker):
    """A worker that builds or runs programs, once it is set up with a space or a workload: see ``worker.py``.

    It is a fork of this process's fork server. Raises SearchlabError where that cannot import TVM.
    """

    _process: Forked
    longest = LONGEST

    def __init__(self, threads: int, scratch: str = "", memory_limit_mb: int = 0) -> None:
        self._threads = threads
        self._memory_limit_mb = memory_limit_mb
        super().__init__(threads, scratch)
        self.told: SetUp | None = None
        """What the worker was last told to set itself up with."""
        self.holds: SetUp | None = None
        """What it was last set up with."""
        self.extracts: set[str] = set()
        """The features that it has imported all for."""
        self._sent = 0
        self.changed = ""
        """What a candidate has changed in it; it is then not used for another."""

    def send(self, message: Any) -> None:
        self._sent += 1
        super().send(message)

    def recv(self, *expected: type[AnswerT]) -> AnswerT:
        """The next answer, of one of the ``expected`` types.

        Raises:
            WorkerDied: If the worker has ended, or has sent anything else; it is then killed.
            Spoiled: If the answer is to an earlier message; the worker is then killed.
        """
        frame = self.recv_bytes()
        try:
            reply = decoded(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.end()
            raise WorkerDied(f"sent what is no answer: {error}") from None
        if reply.number != self._sent and not isinstance(reply.answer, Started):
            self.end()
            raise Spoiled("answered what it was not asked")
        if not isinstance(reply.answer, expected):
            self.end()
            raise WorkerDied(f"answered out of turn, with {type(reply.answer).__name__}")
        self.changed = reply.changed
        return reply.answer

    @property
    def usable(self) -> bool:
        """Whether the next candidate finds it as the last one did: nothing has changed in it, or comes from it."""
        return not self.changed and not self.channel.poll() and self.alive

    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> Forked:
        return fork(connection, stderr, environment, self._threads, self._memory_limit_mb)

    def _fate(self) -> str:
        fate = super()._fate()  # which waits for its end
        return with_limit(fate, self._memory_limit_mb, self._process.end.megabytes if self._process.end else 0)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of a core that it took, once it has ended."""
        return self._process.end.cpu_seconds if self._process.end else 0.0

    @property
    def ready(self) -> bool:
        """Whether the worker has taken in what it was told."""
        return self.told is not None and self.holds is self.told

    def tell(self, message: SetUp) -> None:
        """Tell the worker to set itself up; its answer is for :meth:`hear`."""
        self.told = message
        self.send(message)

    def hear(self) -> None:
        """Receive an answer to :meth:`tell`. Raises WorkerDied, and SearchlabError where it cannot be set up."""
        match self.recv(Started, Ready, Broken):
            case Started():  # a new worker says so first
                pass
            case Ready():
                self.holds = self.told
            case Broken(text):
                raise SearchlabError(f"a measuring process cannot take in {self.told}: {text}")

    def excuse(self, death: WorkerDied) -> None:
        """Raise SearchlabError for a ``death`` during set-up, unless the worker was used before, and killed since."""
        if self.holds is None:
            raise SearchlabError(f"a measuring process {death} while it started; check your TVM installation") from None
