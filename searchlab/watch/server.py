"""The server for the page of a study, which is read-only and accepts connections only from this machine."""

from __future__ import annotations

import re
import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
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

LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
"""The hosts that a browser may name, with any port, since a tunnel (``ssh -L``) may have another port at its other end.
Any other name belongs to a foreign page that resolves to this address (DNS rebinding)."""

HEADERS = {
    # The page loads its style sheet, script and data from this server, and nothing from anywhere else.
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

CONNECTIONS = 32
"""The maximum number of open connections. Further connections are closed immediately. A browser opens only a few."""

REQUEST_SECONDS = 20.0
"""The time limit for a whole connection, in seconds, regardless of how slowly the client sends or reads."""


class WatchServer(ThreadingHTTPServer):
    """An HTTP server for a study's page and state.

    Args:
        directory: The directory that contains the study's logs.
        port: The port on which to serve the page, or 0 for any free port.

    Raises:
        SearchlabError: If the directory does not exist, or the port cannot be used.
    """

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.watched = Watched(directory)
        assets = files(__package__) / "assets"
        self.pages: Mapping[str, tuple[bytes, str]] = {
            path: ((assets / name).read_bytes(), kind) for path, (name, kind) in PAGES.items()
        }
        self._since: dict[socket.socket, float] = {}  # when each open connection began
        self._changing = threading.Lock()
        try:
            super().__init__((HERE, port), _Handler)
        except (OSError, OverflowError) as error:
            raise SearchlabError(
                f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}; choose another --port, or "
                f"omit it"
            ) from None
        self.url = f"http://{HERE}:{self.server_port}/"

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without looking up this host's name
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
        """End connections that have taken too long. This is called twice a second."""
        with self._changing:
            late = [request for request, since in self._since.items() if time.monotonic() - since > REQUEST_SECONDS]
        for request in late:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """The handler of a request, each in a separate connection, so that none remains open when the server ends."""

    server_version, sys_version = "searchlab", ""
    timeout = REQUEST_SECONDS
    server: WatchServer

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command != "GET":
            return self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page is read-only: use GET")
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not LOCAL.fullmatch(hosts[0]):
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this page is at {self.server.url}")
        return True

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/state":
            query = parse_qs(asked.query)
            version, since = (_number(query.get(name, [""])[0]) for name in ("version", "since"))
            self._answer(msgspec.json.encode(self.server.watched.state(version, since)), "application/json")
        elif asked.path in self.server.pages:
            self._answer(*self.server.pages[asked.path])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "this page does not exist")

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
        """Print nothing."""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
