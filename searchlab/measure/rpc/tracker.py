"""A client of TVM's RPC tracker, which lends devices by their key, in the order in which they are asked for."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Any, Self

from ...errors import SearchlabError

ANSWER_SECONDS = 5.0
"""How long a tracker may take to connect, and to answer a question that needs no device."""

Address = tuple[str, int, str]
"""A device that was lent: its host, its port, and the key with which it takes one connection."""


class Tracker:
    """A connection to the tracker at ``address``, ``"host:port"``; a context manager.

    Devices that were requested and not taken are given back on closing. Raises SearchlabError where there is no
    tracker.
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
                f"the process at {address} did not answer in {ANSWER_SECONDS:g} s; is it hung?"
            ) from None
        except OSError:
            magic = None
        if magic != base.RPC_TRACKER_MAGIC:
            self._socket.close()
            raise SearchlabError(
                f"the process at {address} is no RPC tracker of TVM; is it a server, whose tracker has another port?"
            )

    def summary(self) -> dict[str, Any]:
        """The tracker's list of its servers and queues. Not while a device is waited for on this connection."""
        self._base.sendjson(self._socket, [self._base.TrackerCode.SUMMARY])
        _, summary = self._base.recvjson(self._socket)
        assert isinstance(summary, dict)
        return summary

    def devices(self) -> dict[str, list[str]]:
        """The address of every device that is registered, lent or not, by key."""
        addresses: dict[str, list[str]] = {}
        for server in self.summary()["server_info"]:
            host, port = server["addr"]
            addresses.setdefault(server["key"].removeprefix("server:"), []).append(f"{host}:{port}")
        return {key: sorted(addresses[key]) for key in sorted(addresses)}

    def request(self, key: str) -> None:
        """Ask for a device, which :meth:`take` gives once this connection is readable."""
        self._base.sendjson(self._socket, [self._base.TrackerCode.REQUEST, key, "", 1])

    def take(self) -> Address:
        """Raises OSError where the tracker is gone."""
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
    """The devices of the tracker at ``address``, by key. Raises SearchlabError where there is none."""
    with Tracker(address) as tracker:
        return tracker.devices()


def answers(host: str, port: int, seconds: float = 3.0) -> bool:
    """Whether the server at ``host:port`` greets whoever connects. One that is hung, or has a session, does not."""
    from tvm.rpc import base

    key = b"client:nobody"  # which no server expects
    with contextlib.suppress(OSError, struct.error), socket.create_connection((host, port), seconds) as probe:
        probe.settimeout(seconds)
        probe.sendall(struct.pack("<ii", base.RPC_MAGIC, len(key)) + key)
        (code,) = struct.unpack("<i", base.recvall(probe, 4))
        return bool(code == base.RPC_CODE_MISMATCH)
    return False


def reachable(host: str, port: int) -> bool:
    """Whether anything takes connections at ``host:port``, though it may be busy."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 2.0) as probe:
        probe.sendall(struct.pack("<i", 0))  # what a server of TVM turns away without a word
        return True
    return False
