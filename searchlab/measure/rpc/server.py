"""The processes of a fleet: TVM's RPC tracker, and TVM's RPC server, which here survives the candidates it runs."""

from __future__ import annotations

import ipaddress
import logging
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import SearchlabError

SERVER_PORTS = range(9090, 9190)
AGAIN_SECONDS = 0.2
"""How long a server pauses after it has lost the process of a session, or its tracker."""
END_SECONDS = 0.2
"""How long a session may take to end by itself after its client has gone."""
GREETING_SECONDS = 2.0
"""How long a client that connects to a server may take to greet it."""


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

    from ..code import load_objects
    from ..isolation import confine_signals, die_with, limit_memory
    from .session import LOADER

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
