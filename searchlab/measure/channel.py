"""Connections to worker processes, which may send anything, and the time limits for their answers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

MAX_STOPPED_SECONDS = 30.0
"""How long a worker may be stopped by a signal before its time limit goes on."""

MAX_SLICE_SECONDS = 1.0
"""The longest wait after which a time limit is checked."""

_HEADER = struct.Struct("<Q")
_PIECE_BYTES = 1 << 20


class Channel:
    """One end of a connection that carries frames. Each frame is preceded by its length in eight bytes.

    The process at the other end may run a candidate that writes arbitrary bytes. Therefore :meth:`poll` does not wait,
    even in the middle of a frame, and memory is allocated only for bytes that have arrived.

    Args:
        file_descriptor: The descriptor of a connected stream socket. The channel takes ownership of it.
        max_frame_bytes: The maximum length of a frame, in bytes.
    """

    def __init__(self, file_descriptor: int, max_frame_bytes: int = 1 << 30) -> None:
        self._socket = socket.socket(fileno=file_descriptor)
        self._max_frame_bytes = max_frame_bytes
        self._received_bytes = bytearray()  # the part of the next frame that has arrived, including its header
        self._is_closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes, deadline: Deadline | None = None) -> None:
        """Send a frame.

        Raises:
            OSError: If the other end is closed.
            TimeoutError: If the other end has not read the entire frame before the ``deadline``.
        """
        unsent_bytes = memoryview(_HEADER.pack(len(frame)) + frame)
        self._socket.settimeout(deadline.slice_seconds if deadline else None)
        while unsent_bytes:
            try:
                unsent_bytes = unsent_bytes[self._socket.send(unsent_bytes) :]
            except TimeoutError:
                assert deadline
                deadline.count_wait(deadline.slice_seconds)
                if deadline.is_over:
                    raise

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Return whether :meth:`recv` would return or raise immediately.

        The rest of the frame may arrive in pieces. Each may take ``timeout`` seconds, or any time if this is None.
        """
        while missing_bytes := self._count_missing_bytes():
            if not wait([self._socket], timeout):
                return False
            self._socket.settimeout(0)
            try:
                received_bytes = self._socket.recv(min(_PIECE_BYTES, missing_bytes))  # never reads into the next frame
            except BlockingIOError:
                continue
            except OSError:  # reset by the other end
                received_bytes = b""
            self._received_bytes += received_bytes
            self._is_closed = not received_bytes
        return True

    def recv(self) -> bytes:
        """Wait for the next frame and return it.

        Raises:
            EOFError: If the other end is closed.
            ValueError: If the frame is longer than ``max_frame_bytes``. No later frame can then be read.
        """
        self.poll(None)
        if self._is_closed:
            raise EOFError
        (length,) = _HEADER.unpack_from(self._received_bytes)
        if length > self._max_frame_bytes:
            raise ValueError(f"a frame of {length} bytes exceeds the limit of {self._max_frame_bytes} bytes")
        frame, self._received_bytes = bytes(memoryview(self._received_bytes)[_HEADER.size :]), bytearray()
        return frame

    def close(self) -> None:
        self._socket.close()

    def _count_missing_bytes(self) -> int:
        """Return the number of missing bytes in the header or frame, or 0 if :meth:`recv` can return or raise."""
        if self._is_closed:
            return 0
        if len(self._received_bytes) < _HEADER.size:
            return _HEADER.size - len(self._received_bytes)
        (length,) = _HEADER.unpack_from(self._received_bytes)
        return 0 if length > self._max_frame_bytes else _HEADER.size + int(length) - len(self._received_bytes)


class Deadline:
    """A time limit for a worker's answer.

    It counts the time that this process spends waiting, in slices. A slice that takes longer than requested means that
    this process, and perhaps the whole machine, was suspended in the meantime, so the excess does not count. Neither
    does the time during which the worker is stopped by a signal, up to ``MAX_STOPPED_SECONDS``: a candidate may also
    stop itself.

    Args:
        seconds: The time limit, in seconds.
        is_stopped: A function that returns whether a signal has stopped the worker.

    Attributes:
        used_seconds: The time that has counted so far, in seconds.
    """

    def __init__(self, seconds: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self.seconds = seconds
        self.slice_seconds = min(MAX_SLICE_SECONDS, seconds / 8)  # a suspension may use up one slice
        self.used_seconds = 0.0
        self._is_stopped = is_stopped
        self._unchecked_seconds = 0.0  # the part of ``used_seconds`` since the worker was last checked
        self._stopped_seconds = 0.0

    @property
    def seconds_to_next_check(self) -> float:
        """The number of seconds after which to check the limit again."""
        return max(0.01, min(self.slice_seconds, self.seconds - self.used_seconds))

    @property
    def is_over(self) -> bool:
        return self.used_seconds > self.seconds - 1e-6

    def count_wait(self, seconds: float) -> None:
        """Count ``seconds`` of waiting."""
        self.used_seconds += seconds
        self._unchecked_seconds += seconds
        if self._unchecked_seconds >= self.slice_seconds or self.is_over:
            if self._stopped_seconds < MAX_STOPPED_SECONDS and self._is_stopped():
                self._stopped_seconds += self._unchecked_seconds
                self.used_seconds -= self._unchecked_seconds
            self._unchecked_seconds = 0.0


def wait_for_answers(sources: Sequence[Any], deadlines: Sequence[Deadline] = ()) -> list[Any]:
    """Wait for answers for a short time, and return the sources that have one. All waits for workers end here.

    Args:
        sources: Channels and other objects with a ``fileno()``. A channel has an answer once a complete frame has
            arrived or the other end is closed.
        deadlines: The time limits that count this wait.
    """
    # The operating system does not report data that a channel has already read.
    has_answer = any(isinstance(source, Channel) and source.poll() for source in sources)
    check_seconds = [MAX_SLICE_SECONDS, *(deadline.seconds_to_next_check for deadline in deadlines)]
    seconds = 0.0 if has_answer else min(check_seconds)
    start = time.monotonic()
    readable_sources: list[Any] = wait(sources, seconds)
    elapsed = min(time.monotonic() - start, seconds)
    for deadline in deadlines:
        deadline.count_wait(elapsed)
    return [
        source for source in sources if (source.poll() if isinstance(source, Channel) else source in readable_sources)
    ]
