"""The parent's side of worker processes: connections, expendable processes, and the fork server.

The code that runs in the fork server is in ``forks.py``, and the code that runs in a measuring worker in ``worker.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

import msgspec

from ..errors import SearchlabError
from ..plugins import search_path
from .isolation import add_memory_limit
from .messages import (
    Answer,
    Broken,
    End,
    Failed,
    Fork,
    HasEnded,
    Ready,
    Reply,
    SetUp,
    SetUpFunction,
    SetUpRunner,
    Started,
    Work,
)

AnswerT = TypeVar("AnswerT", bound=Answer)
Environment = Mapping[str, str]
Process: TypeAlias = "subprocess.Popen[bytes] | ForkedProcess"

START_SECONDS = 120.0
"""The time limit for importing TVM, and for creating a workload's inputs and reference results."""

STOPPED_SECONDS = 30.0
"""How long a worker may be stopped by a signal before its time limit goes on."""

SLICE_SECONDS = 1.0
"""The longest wait after which a time limit is checked."""

SEND_SECONDS = 20.0
"""The time limit for an idle worker to read a message."""

WORKER_END_SECONDS = 1.0
"""The time limit for a worker that has closed its connection to end by itself."""

SERVER_END_SECONDS = 5.0
"""The time limit for the fork server to end its forks."""

MAX_ANSWER = 1 << 28
"""The maximum length of an answer from a process that runs candidates, in bytes."""

MAX_MESSAGE_BYTES = 1 << 17
"""The maximum length of a message to the fork server, in bytes."""

_HEADER = struct.Struct("<Q")
_PIECE = 1 << 20
_REPLIES = msgspec.msgpack.Decoder(Reply)


# --- connections ------------------------------------------------------------------------------------------------


class Channel:
    """One end of a connection that carries frames. Each frame is preceded by its length in eight bytes.

    The process at the other end may run a candidate that writes arbitrary bytes. Therefore :meth:`poll` never waits
    longer than requested, even in the middle of a frame, and memory is allocated only for bytes that have arrived.

    Args:
        file: The file descriptor of a connected stream socket. The channel takes ownership of it.
        max_length: The maximum length of a frame, in bytes.
    """

    def __init__(self, file: int, max_length: int = 1 << 30) -> None:
        self._socket = socket.socket(fileno=file)
        self._max_length = max_length
        self._data = bytearray()  # the part of the next frame that has arrived, including its header
        self._is_closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes, limit: Deadline | None = None) -> None:
        """Send a frame.

        Raises:
            OSError: If the other end is closed.
            TimeoutError: If the other end has not read the entire frame within the ``limit``.
        """
        data = memoryview(_HEADER.pack(len(frame)) + frame)
        self._socket.settimeout(limit.slice if limit else None)
        while data:
            try:
                data = data[self._socket.send(data) :]
            except TimeoutError:
                assert limit
                limit.count(limit.slice)
                if limit.is_over:
                    raise

    def poll(self, seconds: float | None = 0.0) -> bool:
        """Wait for up to ``seconds``, and return whether :meth:`recv` would then return or raise immediately."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while missing_bytes := self._count_missing_bytes():
            if not wait([self._socket], None if deadline is None else max(0.0, deadline - time.monotonic())):
                return False
            self._socket.settimeout(0)
            try:
                data = self._socket.recv(min(_PIECE, missing_bytes))  # never reads into the next frame
            except BlockingIOError:
                continue
            except OSError:  # reset by the other end
                data = b""
            self._data += data
            self._is_closed = not data
        return True

    def recv(self) -> bytes:
        """Wait for the next frame and return it.

        Raises:
            EOFError: If the other end is closed.
            ValueError: If the frame is longer than ``max_length``. No later frame can then be read.
        """
        self.poll(None)
        if self._is_closed:
            raise EOFError
        (length,) = _HEADER.unpack_from(self._data)
        if length > self._max_length:
            raise ValueError(f"a frame of {length} bytes exceeds the limit of {self._max_length} bytes")
        frame, self._data = bytes(memoryview(self._data)[_HEADER.size :]), bytearray()
        return frame

    def close(self) -> None:
        self._socket.close()

    def _count_missing_bytes(self) -> int:
        """Return the number of missing bytes in the header or frame, or 0 if :meth:`recv` can return or raise."""
        if self._is_closed:
            return 0
        if len(self._data) < _HEADER.size:
            return _HEADER.size - len(self._data)
        (length,) = _HEADER.unpack_from(self._data)
        return 0 if length > self._max_length else _HEADER.size + int(length) - len(self._data)


class Deadline:
    """A time limit for a worker's answer.

    It counts the time that this process spends waiting, in slices. A slice that takes longer than requested means that
    this process, and perhaps the whole machine, was suspended in the meantime, so the excess does not count. Neither
    does the time during which the worker is stopped by a signal, up to ``STOPPED_SECONDS``: a candidate may also stop
    itself.

    Attributes:
        used_seconds: The time that has counted so far, in seconds.
    """

    def __init__(self, seconds: float, worker: Worker | None = None) -> None:
        self.seconds = seconds
        self.slice = min(SLICE_SECONDS, seconds / 8)  # a suspension may use up one slice
        self.used_seconds = 0.0
        self._worker = worker
        self._unchecked_seconds = 0.0  # the part of ``used_seconds`` since the worker was last checked
        self._stopped_seconds = 0.0

    @property
    def seconds_left(self) -> float:
        """The number of seconds after which to check the limit again."""
        return max(0.01, min(self.slice, self.seconds - self.used_seconds))

    @property
    def is_over(self) -> bool:
        return self.used_seconds > self.seconds - 1e-6

    def count(self, seconds: float) -> None:
        """Count ``seconds`` of waiting."""
        self.used_seconds += seconds
        self._unchecked_seconds += seconds
        if self._unchecked_seconds >= self.slice or self.is_over:
            if self._worker and self._stopped_seconds < STOPPED_SECONDS and self._worker.is_stopped:
                self._stopped_seconds += self._unchecked_seconds
                self.used_seconds -= self._unchecked_seconds
            self._unchecked_seconds = 0.0


def wait_for_answers(sources: Sequence[Any], limits: Sequence[Deadline] = ()) -> list[Any]:
    """Wait for answers for a short time, and return the sources that have one. All waits for workers end here.

    Args:
        sources: Channels and other objects with a ``fileno()``. A channel has an answer once a complete frame has
            arrived or the other end is closed.
        limits: The time limits that count this wait.
    """
    # The operating system does not report data that a channel has already read.
    buffered = [source for source in sources if isinstance(source, Channel) and source.poll()]
    seconds = 0.0 if buffered else min([SLICE_SECONDS, *(limit.seconds_left for limit in limits)])
    start = time.monotonic()
    readable: list[Any] = wait(sources, seconds)
    elapsed = min(time.monotonic() - start, seconds)
    for limit in limits:
        limit.count(elapsed)
    return [s for s in sources if s in buffered or (s in readable and not (isinstance(s, Channel) and not s.poll()))]


# --- workers ------------------------------------------------------------------------------------------------------


class WorkerDied(Exception):
    """The worker ended before it answered. The message says how."""


class AnswerMismatch(WorkerDied):
    """The worker's answer does not belong to the latest message. An earlier candidate may have written it."""


class WorkerTimeout(WorkerDied):
    """The worker exceeded its time limit and was killed."""


def failure_of(death: WorkerDied, phase: Literal["building", "running"], seconds: float) -> Failed:
    """Return how a candidate failed whose worker died, or took too long, after ``seconds`` of ``phase``."""
    if isinstance(death, WorkerTimeout):
        return Failed("build_timeout" if phase == "building" else "run_timeout", f"{phase} {death}", seconds)
    return Failed("crash", f"the {phase} process {death}", seconds)


class Worker(ABC):
    """A process at the other end of :attr:`channel`, in its own process group.

    It is not started with ``multiprocessing``, which would run the user's script again in every worker. All its output
    is discarded, except for the standard error that fits into a pipe, which can explain why the process died.

    TVM and OpenMP use ``threads`` threads. If ``scratch`` is specified, temporary files are created in this folder.
    """

    max_length = 1 << 40  # the maximum length of a message from the process, in bytes

    def __init__(self, threads: int, scratch: str = "") -> None:
        parent_socket, child_socket = socket.socketpair()
        self._errors, errors = _error_pipe()
        number = str(threads)
        environment = os.environ | {"TVM_NUM_THREADS": number, "OMP_NUM_THREADS": number}
        if scratch:
            environment["TMPDIR"] = scratch
        try:
            with child_socket, errors:
                self._process = self._start(child_socket.fileno(), errors, environment)
        except BaseException:
            parent_socket.close()
            self._errors.close()
            raise
        self.channel = Channel(parent_socket.detach(), self.max_length)

    @abstractmethod
    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> Process: ...

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the worker, or a process that it has started and may be waiting for."""
        import psutil  # which reading settings does not need

        stop_states = psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP
        with contextlib.suppress(psutil.Error):  # one of them has ended
            worker = psutil.Process(self.pid)
            return any(process.status() in stop_states for process in (worker, *worker.children()))
        return False

    def answers_within(self, limit: Deadline) -> bool:
        """Wait for the next message, and return whether it has arrived within the ``limit``."""
        while not wait_for_answers([self.channel], [limit]):
            if limit.is_over:
                return self.channel.poll()
        return True

    def send(self, message: Any) -> None:
        """Pickle and send ``message``. A worker that does not read it is killed; :meth:`recv_bytes` then raises."""
        self._read_stderr()  # discard earlier output
        try:
            self.channel.send(pickle.dumps(message), Deadline(SEND_SECONDS, self))
        except TimeoutError:  # for example, because the worker has been stopped
            self.end()
        except OSError:
            pass

    def recv_bytes(self) -> bytes:
        """Return the next message. Raises WorkerDied."""
        try:
            return self.channel.recv()
        except EOFError:
            raise WorkerDied(self._describe_end()) from None
        except ValueError as error:
            self.end()
            raise WorkerDied(f"sent an invalid answer: {error}") from None

    def _describe_end(self) -> str:
        """Return how the worker ended. If it has only closed its connection, kill it first."""
        deadline = time.monotonic() + WORKER_END_SECONDS
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(0.001)
        if self.is_alive:
            self.end()
            self._process.wait()
            return "closed its connection without ending; it was killed"
        code = self._process.wait()
        fate = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        line = _last_line(self._read_stderr())
        return f"{fate}: {line}" if line else fate

    def _read_stderr(self) -> bytes:
        """Return the text that the worker has written to its standard error since the last call."""
        return self._errors.read(1 << 20) or b""

    def end(self) -> None:
        """Kill the worker. Any thread may call this; a thread that waits for a message then raises WorkerDied."""
        if self._process.returncode is None:  # not yet waited for, so its process ID cannot have been reused
            for kill in (os.killpg, os.kill):  # a candidate may have moved the worker to another group
                with contextlib.suppress(OSError):
                    kill(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the worker and any compiler that it has started, and release its resources."""
        self.end()
        self._process.wait()
        self.channel.close()
        self._errors.close()


class MeasuringWorker(Worker):
    """A worker that builds or runs programs after being set up with a space or a workload; see ``worker.py``.

    It is forked by this process's fork server. ``memory_limit_mb`` is the amount of memory that a candidate may use, in
    MB, or 0 for no limit. Raises SearchlabError if the fork server cannot import TVM.
    """

    _process: ForkedProcess
    max_length = MAX_ANSWER

    def __init__(self, threads: int, scratch: str = "", memory_limit_mb: int = 0) -> None:
        self._threads = threads
        self._memory_limit_mb = memory_limit_mb
        super().__init__(threads, scratch)
        self.set_up_message: SetUp | None = None  # the last set-up message sent to it
        self.is_set_up = False  # whether it has completed this set-up
        self._was_set_up = False  # whether it has completed any set-up
        self._has_started = False  # whether it has finished its imports
        self.imported_features: set[str] = set()  # the features whose modules it has imported
        self.is_used = False  # whether it has been sent any candidate
        self.changed_state = ""  # what a candidate has changed; if anything, it runs no more candidates
        self._sent = 0

    def send(self, message: Any) -> None:
        self._sent += 1
        self.is_used |= isinstance(message, Work)
        super().send(message)

    def recv(self, *expected: type[AnswerT]) -> AnswerT:
        """Return the next answer, which must have one of the ``expected`` types.

        Raises:
            WorkerDied: If the worker has ended or sends anything else, in which case it is killed.
            AnswerMismatch: If the answer does not belong to the latest message. The worker is then killed.
        """
        frame = self.recv_bytes()
        try:
            reply = _REPLIES.decode(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.end()
            raise WorkerDied(f"sent an invalid answer: {error}") from None
        if reply.number != self._sent and not isinstance(reply.answer, Started):
            self.end()
            raise AnswerMismatch("answered a message that was never sent")
        if not isinstance(reply.answer, expected):
            self.end()
            raise WorkerDied(f"sent an unexpected answer: {type(reply.answer).__name__}")
        self.changed_state = reply.changed_state
        return reply.answer

    @property
    def is_usable(self) -> bool:
        """Whether the worker is alive, has not sent anything more, and has not been changed by a candidate."""
        return not self.changed_state and not self.channel.poll() and self.is_alive

    def _start(self, connection: int, stderr: BinaryIO, environment: Environment) -> ForkedProcess:
        server = fork_server()
        try:
            folder = os.getcwd()
        except FileNotFoundError:  # it has been removed
            folder = ""
        names = {name for name, _ in server.start_environment.items() ^ environment.items()}
        changes = {name: environment.get(name) for name in names}
        message = Fork(self._threads, self._memory_limit_mb, sys.path, folder, changes)
        return server.fork(message, [connection, stderr.fileno()])

    def _describe_end(self) -> str:
        fate = super()._describe_end()  # waits until the process has ended
        return add_memory_limit(fate, self._memory_limit_mb, self._process.end.megabytes if self._process.end else 0)

    def send_set_up(self, message: SetUp) -> None:
        """Send a set-up message, whose answer :meth:`receive_set_up` receives."""
        self.set_up_message, self.is_set_up = message, False
        self.send(message)

    def receive_set_up(self) -> None:
        """Receive the answer to :meth:`send_set_up`.

        Raises:
            WorkerDied: If the worker has died.
            SearchlabError: If the worker cannot be set up.
        """
        match self.recv(Started, Ready, Broken):
            case Started():  # the first message of a new worker
                self._has_started = True
            case Ready():
                self.is_set_up = self._was_set_up = True
            case Broken(text):
                raise SearchlabError(f"a measuring process cannot load {self.set_up_message}: {text}")

    def fail_unless_set_up(self, death: WorkerDied) -> None:
        """Raise SearchlabError for a ``death`` during set-up, unless the worker has completed an earlier set-up."""
        if self._was_set_up:
            return
        if self._has_started and isinstance(self.set_up_message, SetUpRunner):
            raise SearchlabError(
                f"the process that computes the reference result of {self.set_up_message} {death}; check the "
                "workload's function"
            ) from None
        if self._has_started and isinstance(self.set_up_message, SetUpFunction):
            raise SearchlabError(f"the process that imports {self.set_up_message} {death}; check its module") from None
        raise SearchlabError(f"a measuring process {death} while starting; check your TVM installation") from None


def start_module(module: str, connection: int, stderr: BinaryIO, environment: Environment) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE CONNECTION PARENT`` in its own session. It inherits the descriptor ``connection``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(connection), str(os.getpid())],
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C must reach only the parent
        env={**environment, "PYTHONPATH": search_path()},
    )


def _error_pipe() -> tuple[BinaryIO, BinaryIO]:
    """Return both ends of a pipe for standard error. Output that does not fit is lost, and neither end blocks."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    return open(read_end, "rb", buffering=0), open(write_end, "wb")


def _last_line(printed: bytes) -> str:
    lines = printed.decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


# --- the fork server ----------------------------------------------------------------------------------------------


class ForkedProcess:
    """A process that ``server`` has forked, with the methods of Popen that :class:`Worker` needs."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.end: End | None = None  # set once the process is known to have ended

    @property
    def returncode(self) -> int | None:
        return self.end and self.end.code

    def poll(self) -> int | None:
        self.end = self.end or self._server.describe_exit(self.pid)
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.001)
        return code


class ForkServer:
    """A process that imports TVM and then forks workers; see ``forks.py``. Any thread may use it.

    Attributes:
        start_environment: The environment in which it was started.
    """

    def __init__(self) -> None:
        self.start_environment = os.environ | {"OMP_NUM_THREADS": "1"}  # a process that forks must have only one thread
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._request_number = 0
        # With this type of socket, an interrupt never leaves a message half read.
        self._control, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        self._errors, errors = _error_pipe()
        with child_socket, errors:
            self._process = start_module(
                "searchlab.measure.forks", child_socket.fileno(), errors, self.start_environment
            )

    @property
    def is_usable(self) -> bool:
        """Whether the server is alive and was started by this process rather than by a process that forked it."""
        return self._owner == os.getpid() and self._process.poll() is None

    def fork(self, message: Fork, files: list[int]) -> ForkedProcess:
        """Fork a worker. Raises SearchlabError if this fails."""
        try:
            answer: int | str = self._ask(message, files)
        except OSError:
            self.end()
            why = _last_line(self._errors.read(1 << 20) or b"") or f"exit code {self._process.returncode}"
            raise SearchlabError(f"cannot start a measuring process: {why}; check your TVM installation") from None
        if isinstance(answer, str):
            raise SearchlabError(f"cannot start a measuring process: {answer}; check the number of running processes")
        return ForkedProcess(self, answer)

    def describe_exit(self, pid: int) -> End | None:
        """Return how a fork ended, or None if it is alive."""
        try:
            end: End | None = self._ask(HasEnded(pid))
        except OSError:
            self.end()
            return End(-signal.SIGKILL)
        return end

    def end(self) -> None:
        """End the server and its forks."""
        if self._owner == os.getpid():
            self._control.close()  # makes the server end its forks and then itself
            try:
                self._process.wait(SERVER_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """End the server and release its resources."""
        self.end()
        self._errors.close()

    def _ask(self, message: Fork | HasEnded, files: list[int] | None = None) -> Any:
        """Return the answer to ``message``. Raises OSError if the server has ended or does not answer."""
        with self._lock:
            self._request_number = number = self._request_number + 1
            socket.send_fds(self._control, [pickle.dumps((number, message))], files or [])
            while data := self._control.recv(MAX_MESSAGE_BYTES):
                answered_number, answer = pickle.loads(data)
                if answered_number == number:  # any other answer belongs to an interrupted call
                    return answer
        raise ConnectionResetError


def fork_server() -> ForkServer:
    """Return this process's fork server, starting one if necessary, without waiting for its imports."""
    global _server
    with _server_lock:
        if _server is None or not _server.is_usable:
            if _server is not None:
                _server.close()
            _server = ForkServer()
            atexit.register(_server.close)
        return _server


_server_lock = threading.Lock()
_server: ForkServer | None = None
