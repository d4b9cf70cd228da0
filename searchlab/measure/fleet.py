"""Fleets: a client for TVM's RPC tracker, which lends devices by key, and functions that run a tracker or a server.

The tracker answers requests in the order in which they arrive. Unlike TVM's server, the server here survives crashes of
the candidates that it runs.
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
from typing import Annotated, Any, TypeVar

import msgspec

from ..console import escape_to_one_line
from ..errors import SearchlabError, first_line

SERVER_PORTS = range(9090, 9190)

LOADER_FUNCTION = "searchlab.load"
"""The server function that loads object files. Its arguments are the memory limit in MB, followed by the files."""

RETRY_SECONDS = 0.2
"""How long a server pauses after losing a session's process or its tracker."""

SESSION_END_SECONDS = 0.2
"""How long a session may take to end by itself after its client has disconnected."""

GREETING_TIMEOUT = 2.0
"""How long a client may take to greet a server after connecting."""

PROBE_TIMEOUT = 3.0
"""How long a server may take to answer a probe."""

ANSWER_TIMEOUT = 5.0
"""The time limit for connecting to a tracker, and for an answer that needs no device."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

Address = tuple[str, Port, str]
"""A device on loan: its host, its port, and the key for one connection."""

TrackerAnswer = TypeVar("TrackerAnswer")


class Server(msgspec.Struct):
    """A registered server. Servers that are on loan are listed as well."""

    key: str
    addr: tuple[str | None, Port]


class Queue(msgspec.Struct):
    """The numbers of free devices and of waiting requests for a key."""

    free: int = 0
    pending: int = 0


class TrackerSummary(msgspec.Struct):
    """A tracker's list of servers, and of the queue for each key."""

    server_info: list[Server]
    queue_info: dict[str, Queue] = {}


class Tracker(contextlib.AbstractContextManager["Tracker"]):
    """A connection to the tracker at ``address``, in the form ``"host:port"``. It can be used as a context manager.

    Closing the connection returns devices that were requested but not taken.

    Raises:
        SearchlabError: If no tracker answers at ``address``.
    """

    def __init__(self, address: str) -> None:
        from tvm.rpc import base

        self.address = address
        self._rpc = base
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host, int(port)), ANSWER_TIMEOUT)
        except (OSError, ValueError, OverflowError) as error:
            raise SearchlabError(
                f"cannot reach an RPC tracker at {address} ({getattr(error, 'strerror', None) or error}); start one "
                f"there with `searchlab fleet tracker`, or pass the address of a running tracker"
            ) from None
        magic_bytes = struct.pack("<i", base.RPC_TRACKER_MAGIC)
        try:
            self._socket.sendall(magic_bytes)
            is_tracker = base.recvall(self._socket, len(magic_bytes)) == magic_bytes
        except OSError:
            is_tracker = False
        if not is_tracker:
            self._socket.close()
            raise SearchlabError(
                f"the process at {address} is not a TVM RPC tracker, or hangs; if it is a server, use its tracker's "
                f"address"
            )

    def read_summary(self) -> TrackerSummary:
        """Return the tracker's list of servers and queues. Do not call this while a request is pending.

        Raises:
            SearchlabError: If the tracker does not answer in time, or not like a tracker.
        """
        try:
            self._rpc.sendjson(self._socket, [self._rpc.TrackerCode.SUMMARY])
            return self._receive(tuple[Any, TrackerSummary])[1]
        except OSError as error:
            raise SearchlabError(f"the tracker at {self.address} has closed the connection ({error})") from None

    def list_devices(self) -> dict[str, list[str]]:
        """Return the addresses of all registered devices by key, including devices on loan."""
        addresses: dict[str, list[str]] = {}
        for server in self.read_summary().server_info:
            host, port = server.addr
            key = escape_to_one_line(server.key.removeprefix("server:"))
            addresses.setdefault(key, []).append(escape_to_one_line(f"{host}:{port}"))
        return {key: sorted(addresses[key]) for key in sorted(addresses)}

    def request_device(self, key: str) -> None:
        """Request a device; :meth:`receive_device` returns it once this connection is readable; may raise OSError."""
        self._rpc.sendjson(self._socket, [self._rpc.TrackerCode.REQUEST, key, "", 1])

    def receive_device(self) -> Address:
        """Return a requested device.

        Raises:
            OSError: If the tracker is gone.
            SearchlabError: If the tracker does not answer in time, or not like a tracker.
        """
        return self._receive(tuple[Any, Address])[1]

    def _receive(self, answer_type: type[TrackerAnswer]) -> TrackerAnswer:
        """Return the next answer. Raises OSError if the tracker is gone."""
        try:
            return msgspec.convert(self._rpc.recvjson(self._socket), answer_type)
        except TimeoutError:
            problem = f"there is no complete answer after {ANSWER_TIMEOUT:g} s"
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            problem = first_line(error)
        raise SearchlabError(
            f"the process at {self.address} does not answer like a TVM RPC tracker: {problem}; restart it, or pass the "
            f"address of a tracker"
        )

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def list_registered_devices(address: str) -> dict[str, list[str]]:
    """Return the registered devices by key. Raises SearchlabError if no tracker answers at ``address``."""
    with Tracker(address) as tracker:
        return tracker.list_devices()


def greets_clients(host: str, port: int) -> bool:
    """Check whether the server at ``host:port`` greets clients. A server that hangs or is in a session does not."""
    from tvm.rpc import base

    key = b"client:nobody"  # a key that no server expects
    with contextlib.suppress(OSError, struct.error), socket.create_connection((host, port), PROBE_TIMEOUT) as probe:
        probe.sendall(struct.pack("<ii", base.RPC_MAGIC, len(key)) + key)
        (answer_code,) = struct.unpack("<i", base.recvall(probe, 4))
        return bool(answer_code == base.RPC_CODE_MISMATCH)
    return False


def is_reachable(host: str, port: int) -> bool:
    """Check whether a process, even a busy one, accepts connections at ``host:port``."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), PROBE_TIMEOUT) as probe:
        probe.sendall(struct.pack("<i", 0))  # a TVM server rejects this silently
        return True
    return False


class ListeningSocket(socket.socket):
    """A listening socket whose connections time out if the client stays silent."""

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        connection.settimeout(GREETING_TIMEOUT)  # a TVM server listens again after an OSError such as TimeoutError
        return connection, address


def listen(host: str, ports: range) -> socket.socket:
    """Listen on the first free port in ``ports``, in which 0 means any port. Raises SearchlabError if none is free."""
    last_error: OSError | None = None
    for port in ports:
        try:
            return socket.create_server((host, port))
        except OSError as error:
            last_error = error
    port_range = f"{ports[0]}" if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"
    raise SearchlabError(
        f"cannot listen on {host}, port {port_range}: {last_error and last_error.strerror}; choose another port"
    )


def address_of(listening_socket: socket.socket) -> str:
    return "{}:{}".format(*listening_socket.getsockname())


def is_loopback(host: str) -> bool:
    """Check whether only this machine can reach ``host``. Raises SearchlabError if the host cannot be found."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except OSError as error:
        raise SearchlabError(f"cannot find the host {host!r}: {error.strerror}; pass a host name or address") from None


OnListening = Callable[[str], None]
"""A function that is called with a process's listening address, just before the process starts to answer."""


def run_tracker(host: str, port: int, on_listening: OnListening) -> None:
    """Run TVM's tracker until the process ends."""
    from tvm.rpc import base, tracker

    tracker.logger.setLevel(logging.WARNING)
    with listen(host, range(port, port + 1)) as listening_socket:
        on_listening(address_of(listening_socket))
        tracker._tracker_server(listening_socket, base.random_key("tracker"))


def run_server(host: str, ports: range, tracker_address: tuple[str, int], key: str, on_listening: OnListening) -> None:
    """Run TVM's RPC server, registered as ``key``, until the process ends.

    It differs from a plain server in four ways:

    - It keeps running after a program has crashed the process of its session.
    - A session's process outlives neither the server nor the client. If the kernel can confine signals, the process
      cannot kill the server either.
    - It keeps running regardless of what is sent to its port.
    - It loads object files itself, so no compiler is needed.
    """
    import tvm_ffi
    from tvm.rpc import server

    from .code import load_objects
    from .isolation import confine_signals, die_with_parent, limit_memory

    def load_program(memory_limit_mb: int, *object_files: Any) -> Any:
        limit_memory(memory_limit_mb)  # for this session, which runs only this program
        return load_objects([bytes(data) for data in object_files])

    tvm_ffi.register_global_func(LOADER_FUNCTION, load_program, override=True)
    server.logger.setLevel(logging.ERROR)
    serve_session = server._serve_loop

    def serve_until_disconnected(connection: socket.socket, *rest: object) -> None:
        connection.settimeout(None)
        confine_signals()  # so that the session's program cannot kill the server
        threading.Thread(target=_exit_after_disconnect, args=(connection.fileno(),), daemon=True).start()
        serve_session(connection, *rest)

    server._serve_loop = serve_until_disconnected
    # Clients use the address on which the server listens or, if it listens on all, the one that the tracker sees.
    advertised_host = None if host == "0.0.0.0" else host
    initial_dir = os.getcwd()
    os.register_at_fork(after_in_child=lambda: die_with_parent(os.getppid()))
    with listen(host, ports) as bound_socket, ListeningSocket(fileno=bound_socket.detach()) as listening_socket:
        on_listening(address_of(listening_socket))
        listening_port = listening_socket.getsockname()[1]
        while True:
            try:
                server._listen_loop(listening_socket, listening_port, key, tracker_address, "", advertised_host)
            except Exception as error:  # a crashed session, or an invalid greeting, which would end a plain server
                print(f"continuing after: {error}", file=sys.stderr, flush=True)
            os.chdir(initial_dir)  # the session has removed its folder
            time.sleep(RETRY_SECONDS)


def _exit_after_disconnect(connection_fd: int) -> None:
    """End this process, even if it hangs, when the other end of ``connection`` is closed."""
    disconnect_poll = select.poll()
    disconnect_poll.register(connection_fd, select.POLLRDHUP)
    disconnect_poll.poll()
    time.sleep(SESSION_END_SECONDS)
    os._exit(0)
