"""A fleet: a client of TVM's RPC tracker, which lends devices by key, and the processes of a tracker and of a server.

The tracker answers requests in their order. The server, unlike TVM's, survives the candidates that it runs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from ..errors import SearchlabError

SERVER_PORTS = range(9090, 9190)
LOADER = "searchlab.load"
"""The function of a `searchlab fleet` server that loads object files; takes the memory limit in MB and the files."""

AGAIN_SECONDS = 0.2  # pause of a server after it has lost the process of a session, or its tracker
END_SECONDS = 0.2  # for a session to end by itself after its client has gone
GREETING_SECONDS = 2.0  # for a client that connects to a server to greet it
ANSWER_SECONDS = 5.0  # for connecting to a tracker, and for an answer that needs no device

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


class Listening(socket.socket):
    """A listening socket whose connections do not wait for a silent client."""

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        connection.settimeout(GREETING_SECONDS)  # after a TimeoutError, which is an OSError, a server listens again
        return connection, address


def listen(host: str, ports: range) -> socket.socket:
    """Listen at ``host`` on the first of ``ports`` that is free; 0 is any. Raises SearchlabError if none is free."""
    refused: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((host, port))
        except OSError as error:
            refused = error
    wanted = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"
    raise SearchlabError(f"cannot listen at {host}, port {wanted}: {refused and refused.strerror}; choose another")


def address_of(listening: socket.socket) -> str:
    return "{}:{}".format(*listening.getsockname())


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``. Raises SearchlabError if there is no such host."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except OSError as error:
        raise SearchlabError(f"there is no host {host!r}: {error.strerror}; give a name or an address") from None


Say = Callable[[str], None]
"""Called with the address at which a process listens, just before it starts to answer."""


def run_tracker(host: str, port: int, say: Say) -> None:
    """Run TVM's tracker until the process ends."""
    from tvm.rpc import base, tracker

    tracker.logger.setLevel(logging.WARNING)
    with listen(host, range(port, port + 1)) as listening:
        say(address_of(listening))
        tracker._tracker_server(listening, base.random_key("tracker"))


def run_server(host: str, ports: range, tracker: tuple[str, int], key: str, say: Say) -> None:
    """Run TVM's RPC server, registered as ``key``, until the process ends.

    It differs from a plain server in four ways:

    - It continues after a program has crashed the process of its session.
    - That process outlives neither the server nor its client, and cannot kill the server if the kernel confines its
      signals.
    - It continues whatever is sent to its port.
    - It loads object files by itself, so no compiler is needed.
    """
    import tvm_ffi
    from tvm.rpc import server

    from .code import load_objects
    from .isolation import confine_signals, die_with, limit_memory

    def load(memory_limit_mb: int, *objects: Any) -> Any:
        limit_memory(memory_limit_mb)  # of this session, which runs only this program
        return load_objects([bytes(data) for data in objects])

    tvm_ffi.register_global_func(LOADER, load, override=True)
    server.logger.setLevel(logging.ERROR)
    serve_session = server._serve_loop

    def serve_while_wanted(connection: socket.socket, *rest: object) -> None:
        connection.settimeout(None)
        confine_signals()  # the program of this session cannot kill the server
        threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
        serve_session(connection, *rest)

    server._serve_loop = serve_while_wanted
    # A server that listens at one address is reached there, any other at the address that the tracker sees.
    address = None if host == "0.0.0.0" else host
    home = os.getcwd()
    os.register_at_fork(after_in_child=lambda: die_with(os.getppid()))
    with listen(host, ports) as bound, Listening(fileno=bound.detach()) as listening:
        say(address_of(listening))
        while True:
            try:
                server._listen_loop(listening, listening.getsockname()[1], key, tracker, "", address)
            except Exception as error:  # a crashed session, or an invalid greeting, at which a plain server ends
                print(f"continuing after: {error}", file=sys.stderr, flush=True)
            os.chdir(home)  # the session has removed its folder
            time.sleep(AGAIN_SECONDS)


def _end_with(connection: int) -> None:
    """End this process when the other end of ``connection`` is closed, even if it hangs."""
    hung_up = select.poll()
    hung_up.register(connection, select.POLLRDHUP)
    hung_up.poll()
    time.sleep(END_SECONDS)
    os._exit(0)
