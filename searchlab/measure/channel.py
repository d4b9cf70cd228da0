"""Connections to worker processes, which may send anything, and the time limits for their answers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

STOPPED_SECONDS = 30.0
"""How long a worker may be stopped by a signal before its time limit goes on."""

SLICE_SECONDS = 1.0
"""The longest wait after which a time limit is checked."""

_HEADER = struct.Struct("<Q")
_PIECE = 1 << 20


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

    Args:
        seconds: The time limit, in seconds.
        is_stopped: A function that returns whether a signal has stopped the worker.

    Attributes:
        used_seconds: The time that has counted so far, in seconds.
    """

    def __init__(self, seconds: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self.seconds = seconds
        self.slice = min(SLICE_SECONDS, seconds / 8)  # a suspension may use up one slice
        self.used_seconds = 0.0
        self._is_stopped = is_stopped
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
            if self._stopped_seconds < STOPPED_SECONDS and self._is_stopped():
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
