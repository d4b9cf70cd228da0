"""Frames of bytes over a stream socket, of which each end bounds the length and the time."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

_HEADER = struct.Struct("<Q")
_PIECE = 1 << 20


class Channel:
    """One end of a connection that carries frames: the length in eight bytes, and then the bytes.

    The other end may run a candidate, which may write anything: :meth:`poll` waits no longer than it is asked to, also
    within a frame, and memory is taken only for bytes that have arrived.

    Args:
        file: The number of the file of a connected stream socket; the channel owns it.
        longest: The most bytes of a frame.
    """

    def __init__(self, file: int, longest: int = 1 << 30) -> None:
        self._socket = socket.socket(fileno=file)
        self._longest = longest
        self._begun = bytearray()
        self._length: int | None = None
        self._ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: bytes, seconds: float | None = None) -> None:
        """Send a frame.

        Raises:
            OSError: If the other end is closed, or (TimeoutError) has not taken all of it within ``seconds``.
        """
        self._socket.settimeout(seconds)
        self._socket.sendall(_HEADER.pack(len(frame)) + frame)

    def poll(self, seconds: float | None = 0.0) -> bool:
        """Wait at most ``seconds`` until :meth:`recv` returns, or raises, at once; tell whether it does."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._complete():
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            waiting = select.poll()  # select() takes no file number over 1023
            waiting.register(self._socket, select.POLLIN)
            if not waiting.poll(left):
                return False
            self._read()
        return True

    def recv(self) -> bytes:
        """Wait for the next frame.

        Raises:
            EOFError: If the other end is closed.
            ValueError: If the frame is longer than ``longest``. What follows it cannot be read any more.
        """
        self.poll(None)
        if self._length is not None and self._length > self._longest:
            raise ValueError(f"a frame of {self._length} bytes, where at most {self._longest} are taken")
        if self._ended:
            raise EOFError
        frame, self._begun, self._length = bytes(self._begun), bytearray(), None
        return frame

    def close(self) -> None:
        self._socket.close()

    def _complete(self) -> bool:
        return self._ended or (
            self._length is not None and (self._length > self._longest or len(self._begun) == self._length)
        )

    def _read(self) -> None:
        """Read what is there of this frame, and nothing of the next: ``select`` would not report that."""
        wanted = _HEADER.size if self._length is None else self._length
        self._socket.settimeout(0)
        try:
            data = self._socket.recv(min(_PIECE, wanted - len(self._begun)))
        except BlockingIOError:
            return
        except OSError:  # reset by the other end
            data = b""
        self._begun += data
        self._ended = not data
        if self._length is None and len(self._begun) == _HEADER.size:
            (self._length,) = _HEADER.unpack(self._begun)
            self._begun = bytearray()


def answered(sources: Sequence[Any], seconds: float) -> list[Any]:
    """Wait at most ``seconds``, and give those of ``sources`` that have an answer.

    Args:
        sources: Channels, which answer with a whole frame or with their end; and others with a ``fileno()``.
        seconds: Not positive to look, and not wait.
    """
    # What a channel has read already is not seen by the operating system.
    read = [source for source in sources if isinstance(source, Channel) and source.poll()]
    there: list[Any] = wait(sources, 0.0 if read else max(0.0, seconds))
    return [s for s in sources if s in read or (s in there and not (isinstance(s, Channel) and not s.poll()))]
