"""The parent's side of worker processes: expendable processes, and the fork server.

The code that runs in the fork server is in ``forks.py``, and the code that runs in a measuring worker in ``worker.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar

import msgspec

from ..errors import SearchlabError
from ..plugins import search_path
from .channel import Channel, Deadline
from .isolation import add_memory_limit
from .messages import (
    Answer,
    Broken,
    CheckExit,
    Exit,
    Failed,
    Fork,
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

START_TIMEOUT = 120.0
"""The time limit for importing TVM, and for creating a workload's inputs and reference results."""

SEND_TIMEOUT = 20.0
"""The time limit for an idle worker to read a message."""

WORKER_END_TIMEOUT = 1.0
"""The time limit for a worker that has closed its connection to end by itself."""

SERVER_END_TIMEOUT = 5.0
"""The time limit for the fork server to end its forks."""

MAX_ANSWER_BYTES = 1 << 28
"""The maximum length of an answer from a process that runs candidates, in bytes."""

MAX_MESSAGE_BYTES = 1 << 17
"""The maximum length of a message to the fork server, in bytes."""

_REPLY_DECODER = msgspec.msgpack.Decoder(Reply)


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

    TVM and OpenMP use ``thread_count`` threads. Temporary files are created in ``scratch_folder``, if it is specified.
    """

    max_frame_bytes = 1 << 40  # the maximum length of a message from the process, in bytes

    def __init__(self, thread_count: int, scratch_folder: str = "") -> None:
        parent_socket, child_socket = socket.socketpair()
        self._stderr, stderr = _open_stderr_pipe()
        environment = os.environ | {"TVM_NUM_THREADS": str(thread_count), "OMP_NUM_THREADS": str(thread_count)}
        if scratch_folder:
            environment["TMPDIR"] = scratch_folder
        try:
            with child_socket, stderr:
                self._process = self._start_process(child_socket.fileno(), stderr, environment)
        except BaseException:
            parent_socket.close()
            self._stderr.close()
            raise
        self.channel = Channel(parent_socket.detach(), self.max_frame_bytes)

    @abstractmethod
    def _start_process(self, connection_fd: int, stderr: BinaryIO, environment: Environment) -> Process: ...

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped the worker, or a process that it has started and may be waiting for."""
        import psutil  # which reading settings does not need

        stop_states = psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP
        with contextlib.suppress(psutil.Error):  # one of them has ended
            worker = psutil.Process(self.pid)
            return any(process.status() in stop_states for process in (worker, *worker.children()))
        return False

    def send(self, message: Any) -> None:
        """Pickle and send ``message``. A worker that does not read it is killed; :meth:`recv_bytes` then raises."""
        self._read_stderr()  # discard earlier output
        try:
            self.channel.send(pickle.dumps(message), Deadline(SEND_TIMEOUT, self.is_stopped))
        except TimeoutError:  # for example, because the worker has been stopped
            self.kill()
        except OSError:
            pass

    def recv_bytes(self) -> bytes:
        """Return the next message. Raises WorkerDied."""
        try:
            return self.channel.recv()
        except EOFError:
            raise WorkerDied(self._describe_end()) from None
        except ValueError as error:
            self.kill()
            raise WorkerDied(f"sent an invalid answer: {error}") from None

    def _describe_end(self) -> str:
        """Return how the worker ended. If it has only closed its connection, kill it first."""
        end_time = time.monotonic() + WORKER_END_TIMEOUT
        while self.is_alive and time.monotonic() < end_time:
            time.sleep(0.001)
        if self.is_alive:
            self.kill()
            self._process.wait()
            return "closed its connection without ending; it was killed"
        exit_code = self._process.wait()
        fate = f"died of {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
        last_line = _find_last_line(self._read_stderr())
        return f"{fate}: {last_line}" if last_line else fate

    def _read_stderr(self) -> bytes:
        """Return the text that the worker has written to its standard error since the last call."""
        return self._stderr.read(1 << 20) or b""

    def kill(self) -> None:
        """Kill the worker. Any thread may call this; a thread that waits for a message then raises WorkerDied."""
        if self._process.returncode is None:  # not yet waited for, so its process ID cannot have been reused
            for send_signal in (os.killpg, os.kill):  # a candidate may have moved the worker to another group
                with contextlib.suppress(OSError):
                    send_signal(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the worker and any compiler that it has started, and release its resources."""
        self.kill()
        self._process.wait()
        self.channel.close()
        self._stderr.close()


class MeasuringWorker(Worker):
    """A worker that builds or runs programs after being set up with a space or a workload; see ``worker.py``.

    It is forked by this process's fork server. ``memory_limit_mb`` is the amount of memory that a candidate may use, in
    MB, or 0 for no limit. Raises SearchlabError if the fork server cannot import TVM.
    """

    _process: ForkedProcess
    max_frame_bytes = MAX_ANSWER_BYTES

    def __init__(self, thread_count: int, scratch_folder: str = "", memory_limit_mb: int = 0) -> None:
        self._thread_count = thread_count
        self._memory_limit_mb = memory_limit_mb
        super().__init__(thread_count, scratch_folder)
        self.set_up_message: SetUp | None = None  # the last set-up message sent to it
        self.is_set_up = False  # whether it has completed this set-up
        self._was_set_up = False  # whether it has completed any set-up
        self._has_started = False  # whether it has finished its imports
        self.imported_features: set[str] = set()  # the features whose modules it has imported
        self.is_used = False  # whether it has been sent any candidate
        self.changed_state = ""  # what a candidate has changed; if anything, it runs no more candidates
        self._sent_count = 0

    def send(self, message: Any) -> None:
        self._sent_count += 1
        self.is_used |= isinstance(message, Work)
        super().send(message)

    def recv(self, *answer_types: type[AnswerT]) -> AnswerT:
        """Return the next answer, which must have one of the ``answer_types``.

        Raises:
            WorkerDied: If the worker has ended or sends anything else, in which case it is killed.
            AnswerMismatch: If the answer does not belong to the latest message. The worker is then killed.
        """
        frame = self.recv_bytes()
        try:
            reply = _REPLY_DECODER.decode(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.kill()
            raise WorkerDied(f"sent an invalid answer: {error}") from None
        if reply.number != self._sent_count and not isinstance(reply.answer, Started):
            self.kill()
            raise AnswerMismatch("answered a message that was never sent")
        if not isinstance(reply.answer, answer_types):
            self.kill()
            raise WorkerDied(f"sent an unexpected answer: {type(reply.answer).__name__}")
        self.changed_state = reply.changed_state
        return reply.answer

    @property
    def is_usable(self) -> bool:
        """Whether the worker is alive, has not sent anything more, and has not been changed by a candidate."""
        return not self.changed_state and not self.channel.poll() and self.is_alive

    def _start_process(self, connection_fd: int, stderr: BinaryIO, environment: Environment) -> ForkedProcess:
        server = get_fork_server()
        try:
            working_dir = os.getcwd()
        except FileNotFoundError:  # it has been removed
            working_dir = ""
        changed_names = {name for name, _ in server.start_environment.items() ^ environment.items()}
        environment_changes = {name: environment.get(name) for name in changed_names}
        message = Fork(self._thread_count, self._memory_limit_mb, sys.path, working_dir, environment_changes)
        return server.fork(message, [connection_fd, stderr.fileno()])

    def _describe_end(self) -> str:
        fate = super()._describe_end()  # waits until the process has ended
        peak_mb = self._process.exit.peak_memory_mb if self._process.exit else 0
        return add_memory_limit(fate, self._memory_limit_mb, peak_mb)

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


def start_module(
    module: str, connection_fd: int, stderr: BinaryIO, environment: Environment
) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE CONNECTION PARENT`` in its own session. It inherits the descriptor ``connection_fd``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(connection_fd), str(os.getpid())],
        pass_fds=[connection_fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C must reach only the parent
        env={**environment, "PYTHONPATH": search_path()},
    )


def _open_stderr_pipe() -> tuple[BinaryIO, BinaryIO]:
    """Return both ends of a pipe for standard error. Output that does not fit is lost, and neither end blocks."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    return open(read_end, "rb", buffering=0), open(write_end, "wb")


def _find_last_line(output_bytes: bytes) -> str:
    lines = output_bytes.decode(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


# --- the fork server ----------------------------------------------------------------------------------------------


class ForkedProcess:
    """A process that ``server`` has forked, with the methods of Popen that :class:`Worker` needs."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.exit: Exit | None = None  # set once the process is known to have ended

    @property
    def returncode(self) -> int | None:
        return self.exit.exit_code if self.exit else None

    def poll(self) -> int | None:
        self.exit = self.exit or self._server.check_exit(self.pid)
        return self.returncode

    def wait(self) -> int:
        while (exit_code := self.poll()) is None:
            time.sleep(0.001)
        return exit_code


class ForkServer:
    """A process that imports TVM and then forks workers; see ``forks.py``. Any thread may use it.

    Attributes:
        start_environment: The environment in which it was started.
    """

    def __init__(self) -> None:
        self.start_environment = os.environ | {"OMP_NUM_THREADS": "1"}  # a process that forks must have only one thread
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._request_number = 0
        # With this type of socket, an interrupt never leaves a message half read.
        self._control_socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control_socket.settimeout(START_TIMEOUT)
        self._stderr, stderr = _open_stderr_pipe()
        with child_socket, stderr:
            self._process = start_module(
                "searchlab.measure.forks", child_socket.fileno(), stderr, self.start_environment
            )

    @property
    def is_usable(self) -> bool:
        """Whether the server is alive and was started by this process rather than by a process that forked it."""
        return self._owner_pid == os.getpid() and self._process.poll() is None

    def fork(self, message: Fork, file_descriptors: list[int]) -> ForkedProcess:
        """Fork a worker. Raises SearchlabError if this fails."""
        try:
            pid_or_error: int | str = self._request(message, file_descriptors)
        except OSError:
            self.end()
            reason = _find_last_line(self._stderr.read(1 << 20) or b"") or f"exit code {self._process.returncode}"
            raise SearchlabError(f"cannot start a measuring process: {reason}; check your TVM installation") from None
        if isinstance(pid_or_error, str):
            error = pid_or_error
            raise SearchlabError(f"cannot start a measuring process: {error}; check the number of running processes")
        return ForkedProcess(self, pid_or_error)

    def check_exit(self, pid: int) -> Exit | None:
        """Return how a fork ended, or None if it is alive."""
        try:
            worker_exit: Exit | None = self._request(CheckExit(pid))
        except OSError:
            self.end()
            return Exit(-signal.SIGKILL)
        return worker_exit

    def end(self) -> None:
        """End the server and its forks."""
        if self._owner_pid == os.getpid():
            self._control_socket.close()  # makes the server end its forks and then itself
            try:
                self._process.wait(SERVER_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def close(self) -> None:
        """End the server and release its resources."""
        self.end()
        self._stderr.close()

    def _request(self, message: Fork | CheckExit, file_descriptors: list[int] | None = None) -> Any:
        """Return the answer to ``message``. Raises OSError if the server has ended or does not answer."""
        with self._lock:
            self._request_number = request_number = self._request_number + 1
            socket.send_fds(self._control_socket, [pickle.dumps((request_number, message))], file_descriptors or [])
            while answer_bytes := self._control_socket.recv(MAX_MESSAGE_BYTES):
                answered_number, answer = pickle.loads(answer_bytes)
                if answered_number == request_number:  # any other answer belongs to an interrupted call
                    return answer
        raise ConnectionResetError


def get_fork_server() -> ForkServer:
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
