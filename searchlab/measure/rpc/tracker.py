"""A client of TVM's RPC tracker, which lends devices by key, in the order of the requests."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Self

from ...errors import SearchlabError

ANSWER_SECONDS = 5.0
"""Time limit for connecting to a tracker, and for an answer that needs no device."""

Address = tuple[str, int, str]
"""A device that was lent: its host, its port, and the key for one connection."""


class Tracker:
    """A connection to the tracker at ``address``, ``"host:port"``; a context manager.

    Closing it returns devices that were requested and not taken.

    Raises:
        SearchlabError: If there is no tracker at ``address``.
    """

    def __init__(self, address: str) -> None:
        from tvm.rpc import base

        self.address = address
        self._base = base
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        except OSError as error:
            raise SearchlabError(
                f"there is no RPC tracker at {address} ({error.strerror or error}); start one there with `searchlab "
                f"fleet tracker`, or give the address of a running tracker"
            ) from None
        try:
            self._socket.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            (magic,) = struct.unpack("<i", base.recvall(self._socket, 4))
        except TimeoutError:
            self._socket.close()
            raise SearchlabError(
                f"the process at {address} did not answer within {ANSWER_SECONDS:g} s; restart it if it hangs"
            ) from None
        except OSError:
            magic = None
        if magic != base.RPC_TRACKER_MAGIC:
            self._socket.close()
            raise SearchlabError(
                f"the process at {address} is not an RPC tracker of TVM; if it is a server, use its tracker's address"
            )

    def summary(self) -> dict[str, Any]:
        """Return the tracker's list of servers and queues. Not allowed while a request is pending."""
        self._base.sendjson(self._socket, [self._base.TrackerCode.SUMMARY])
        _, summary = self._base.recvjson(self._socket)
        assert isinstance(summary, dict)
        return summary

    def devices(self) -> dict[str, list[str]]:
        """Return the addresses of all registered devices, lent or not, by key."""
        addresses: dict[str, list[str]] = {}
        for server in self.summary()["server_info"]:
            host, port = server["addr"]
            addresses.setdefault(server["key"].removeprefix("server:"), []).append(f"{host}:{port}")
        return {key: sorted(addresses[key]) for key in sorted(addresses)}

    def request(self, key: str) -> None:
        """Request a device, which :meth:`take` returns once this connection is readable."""
        self._base.sendjson(self._socket, [self._base.TrackerCode.REQUEST, key, "", 1])

    def take(self) -> Address:
        """Return a requested device. Raises OSError if the tracker is gone."""
        _, (host, port, key) = self._base.recvjson(self._socket)
        return str(host), int(port), str(key)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def registered(address: str) -> dict[str, list[str]]:
    """Return the devices of the tracker at ``address``, by key. Raises SearchlabError if there is no tracker."""
    with Tracker(address) as tracker:
        return tracker.devices()


def answers(host: str, port: int, seconds: float = 3.0) -> bool:
    """Return whether the server at ``host:port`` greets a client. One that hangs or has a session does not."""
    from tvm.rpc import base

    key = b"client:nobody"  # a key that no server expects
    with contextlib.suppress(OSError, struct.error), socket.create_connection((host, port), seconds) as probe:
        probe.settimeout(seconds)
        probe.sendall(struct.pack("<ii", base.RPC_MAGIC, len(key)) + key)
        (code,) = struct.unpack("<i", base.recvall(probe, 4))
        return bool(code == base.RPC_CODE_MISMATCH)
    return False


def reachable(host: str, port: int) -> bool:
    """Return whether a process accepts connections at ``host:port``, even if it is busy."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 2.0) as probe:
        probe.sendall(struct.pack("<i", 0))  # a server of TVM rejects this silently
        return True
    return False
