"""The server of the page listens on the loopback interface, answers only GET, and serves only its own pages."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from searchlab.errors import SearchlabError
from searchlab.watch import server as server_module
from searchlab.watch.server import CONNECTIONS, WatchServer
from tests.support.cli import searchlab
from tests.support.logs import written


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchServer]:
    written(tmp_path / "a.jsonl", 3)
    with WatchServer(tmp_path) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: WatchServer, path: str, method: str = "GET", host: str | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host or f"127.0.0.1:{server.server_port}", **headers}.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer.status, said, answer.headers


def test_the_page_its_parts_and_the_state(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    status, page, headers = ask(server, "/")
    assert status == 200 and "<!doctype html>" in page
    assert not re.findall(r"https?://|<script>|<style>", page), "nothing from elsewhere, and nothing inline"
    assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["Cache-Control"] == "no-store"
    parts = re.findall(r'(?:src|href)="([^":]+)"', page)  # relative, so that a proxy may serve it under a prefix
    assert len(parts) == 2 and not any(part.startswith("/") for part in parts)
    for part in parts:
        assert ask(server, f"/{part}")[0] == 200
    assert not re.search(r"fetch\(.?/", ask(server, "/watch.js")[1])
    state = json.loads(ask(server, "/state")[1])
    assert state["runs"] == 1 and state["rows"][0]["trials"] == 3
    again = json.loads(ask(server, f"/state?version={state['version']}&since={state['look']}")[1])
    assert again["rows"] == [] and again["counts"] == state["counts"]
    assert len(json.loads(ask(server, "/state?version=x&since=-1&since=9&version=%00")[1])["rows"]) == 1


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_only_get_is_answered(server: WatchServer, method: str) -> None:
    status, _, headers = ask(server, "/state", method)
    assert status == 405 and headers["Allow"] == "GET"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "[::1].evil",
        " ",
        "evil@127.0.0.1",
        "127.0.0.1:x",
        "127.0.0.1:",
        "localhost:1,evil.example",
    ],
)
def test_a_foreign_name_for_this_address_is_refused(server: WatchServer, host: str) -> None:
    """DNS rebinding: evil.example resolves to 127.0.0.1, and its page sends requests with its own name as host."""
    assert ask(server, "/state", host=host.format(port=server.server_port))[0] == 421
    assert ask(server, "/", host=f"LOCALHOST:{server.server_port}")[0] == 200


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "LocalHost", "127.0.0.1"])
def test_the_other_end_of_a_tunnel_may_have_any_port(server: WatchServer, host: str) -> None:
    assert ask(server, "/state", host=host)[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/a.jsonl", "/../a.jsonl", "/%2e%2e/a.jsonl", "//etc/passwd", "/watch.html", "/assets/watch.js", "/state/", "*"],
)
def test_no_file_is_reached(server: WatchServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_a_port_that_is_taken_is_refused_in_a_sentence(server: WatchServer, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=f"port {server.server_port} cannot be used: .*; choose another --port"):
        WatchServer(tmp_path, server.server_port)


def test_the_command_says_where_and_ends_with_a_sentence(tmp_path: Path) -> None:
    refused = searchlab("watch", tmp_path / "none")
    assert refused.returncode == 2 and "does not exist" in refused.stderr
    written(tmp_path / "a.jsonl", 3)
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "searchlab", "watch", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdout
        lines = [process.stdout.readline(), process.stdout.readline()]
        url = re.search(r"http://127\.0\.0\.1:(\d+)/", lines[1])
        assert lines[0] == "The study is not running: 1 log.\n" and url
        connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=20)
        connection.request("GET", "/state")  # an open connection does not delay the end
        assert connection.getresponse().read()
        process.send_signal(number)
        said, _ = process.communicate(timeout=20)
        assert process.returncode == 0 and "the page is closed" in said
        connection.close()


def test_slow_and_many_connections_are_ended(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps sending single bytes must not occupy a thread for ever, and others are served meanwhile."""
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.6)
    slow = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
    until = time.monotonic() + 20
    with slow, contextlib.suppress(OSError):
        while time.monotonic() < until:
            slow.sendall(b"G")
            time.sleep(0.05)
            assert len(server._since) <= 1
            if not server._since:
                break
    assert time.monotonic() < until
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 60.0)
    with contextlib.ExitStack() as many:
        for _ in range(CONNECTIONS + 8):
            many.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=20))
        while len(server._since) < CONNECTIONS:
            time.sleep(0.01)
        time.sleep(0.1)
        assert len(server._since) == CONNECTIONS
    while server._since:
        time.sleep(0.01)
    assert ask(server, "/")[0] == 200
