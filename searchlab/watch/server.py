"""The server of the page: this machine alone reaches it, and it only reads."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from ..errors import SearchlabError
from .state import Watched

HERE = "127.0.0.1"

HEADERS = {
    # The page takes its own style, script and figures from this server, and nothing from anywhere else.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

PAGES = {
    "/": ("watch.html", "text/html; charset=utf-8"),
    "/watch.css": ("watch.css", "text/css; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
}
STATE = "/state"


CONNECTIONS = 32
"""How many connections are served at a time; others are closed at once. A browser opens a few."""

REQUEST_SECONDS = 20.0
"""How long a connection may take in all, however slowly it sends or reads."""


class WatchServer(ThreadingHTTPServer):
    """Serves the page of a study, and its state. port: 0 for any that is free.

    Raises SearchlabError if there is no such directory, or if the port cannot be used.
    """

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.watched = Watched(directory)
        assets = files(__package__) / "assets"
        self.pages: Mapping[str, tuple[bytes, str]] = {
            path: ((assets / name).read_bytes(), kind) for path, (name, kind) in PAGES.items()
        }
        self._since: dict[socket.socket, float] = {}
        self._changing = threading.Lock()
        try:
            super().__init__((HERE, port), _Handler)
        except (OSError, OverflowError) as error:
            raise SearchlabError(
                f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}; choose another --port, or "
                f"leave it out"
            ) from None

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without asking for the name of this host
        self.server_name, self.server_port = HERE, self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self._since) < CONNECTIONS

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changing:
                self._since.pop(request, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called twice a second: end the connections that have taken too long, at whichever end."""
        with self._changing:
            late = [request for request, since in self._since.items() if time.monotonic() - since > REQUEST_SECONDS]
        for request in late:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    @cached_property
    def url(self) -> str:
        return f"http://{HERE}:{self.server_port}/"

    @cached_property
    def names(self) -> frozenset[str]:
        """The hosts that a browser may have asked for. Any other is a foreign page that got a name for this address."""
        return frozenset(f"{name}:{self.server_port}" for name in (HERE, "localhost")) | (
            {HERE, "localhost"} if self.server_port == 80 else frozenset()
        )


class _Handler(BaseHTTPRequestHandler):
    """Each request has a connection of its own, so that none is open when the server ends."""

    server_version, sys_version = "searchlab", ""
    timeout = REQUEST_SECONDS
    server: WatchServer

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command != "GET":
            return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page is only read: GET")
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.names:
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this page is at {self.server.url}")
        return True

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == STATE:
            query = parse_qs(asked.query)
            version, since = (_number(query.get(name, [""])[0]) for name in ("version", "since"))
            self._answer(msgspec.json.encode(self.server.watched.state(version, since)), "application/json")
        elif asked.path in self.server.pages:
            self._answer(*self.server.pages[asked.path])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _refuse(self, status: HTTPStatus, text: str) -> bool:
        self._answer(f"{text}\n".encode(), "text/plain; charset=utf-8", status)
        return False

    def _answer(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said of each request."""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
