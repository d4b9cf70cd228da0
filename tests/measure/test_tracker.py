"""A tracker that hangs, or answers something else than a tracker, causes one sentence within a time limit."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tvm.rpc import base

from searchlab.errors import SearchlabError
from searchlab.measure import fleet
from searchlab.measure.fleet import Tracker, list_registered_devices

MAGIC = struct.pack("<i", base.RPC_TRACKER_MAGIC)


def encode(answer: Any) -> bytes:
    data = json.dumps(answer).encode()
    return struct.pack("<i", len(data)) + data


@contextmanager
def tracker(*parts: bytes, pause: float = 0.0, ends: bool = False) -> Iterator[str]:
    """Listen, and send ``parts`` to whoever connects, each after a pause; then hang, or close the connection."""
    finished = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for part in parts:
                    finished.wait(pause)
                    try:
                        connection.sendall(part)
                    except OSError:
                        return
                if not ends:
                    finished.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        yield "{}:{}".format(*listening.getsockname())
        finished.set()
        thread.join()


SERVER = {"key": "server:a", "addr": ["10.0.0.1", 9090]}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        MAGIC[:3],
        MAGIC,
        MAGIC + b"\x05\0",
        MAGIC + encode([0, {}])[:-1],
        MAGIC + struct.pack("<i", -1),
        MAGIC + struct.pack("<i", 2**31 - 1),
        MAGIC + struct.pack("<i", 4) + b"\xff\xfe{}",
        MAGIC + struct.pack("<i", 3) + b"xyz",
        MAGIC + encode(None),
        MAGIC + encode([0]),
        MAGIC + encode([0, []]),
        MAGIC + encode({"server_info": []}),
        MAGIC + encode([0, {"server_info": {}}]),
        MAGIC + encode([0, {"server_info": [3]}]),
        MAGIC + encode([0, {"server_info": [{"key": 1, "addr": ["a", 1]}]}]),
        MAGIC + encode([0, {"server_info": [{"key": "a", "addr": "a:1"}]}]),
        MAGIC + encode([0, {"server_info": [{"key": "a", "addr": ["a", 10**9]}]}]),
        MAGIC + encode([0, {"server_info": [SERVER], "queue_info": {"a": 3}}]),
        MAGIC + struct.pack("<i", 200_000) + b"[" * 200_000,
    ],
    ids=lambda answer: f"{len(answer)}-{zlib.crc32(answer)}",
)
@pytest.mark.parametrize("ends", [False, True])
def test_a_strange_tracker_is_one_sentence(monkeypatch: pytest.MonkeyPatch, answer: bytes, ends: bool) -> None:
    monkeypatch.setattr(fleet, "ANSWER_TIMEOUT", 0.2)
    start = time.monotonic()
    with tracker(answer, ends=ends) as address, pytest.raises(SearchlabError, match=address):
        list_registered_devices(address)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("loan", [None, [0], [0, ["h", 10**9, "k"]], [0, ["h", True, "k"]], [0, {"a": 1}]])
def test_a_strange_loan_is_one_sentence(loan: Any) -> None:
    with tracker(MAGIC, encode(loan)) as address, Tracker(address) as connected:
        connected.request_device("a")
        with pytest.raises(SearchlabError, match="does not answer like"):
            connected.receive_device()


def test_a_tracker_is_understood_whatever_it_adds() -> None:
    answer = [0, {"server_info": [{**SERVER, "new": 1}], "queue_info": {"a": {"free": 1, "pending": 0, "new": 2}}}]
    with tracker(MAGIC, encode(answer)) as address:
        assert list_registered_devices(address) == {"a": ["10.0.0.1:9090"]}


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:x", "no such host:1", ":", "127.0.0.1:-1"])
def test_a_wrong_address_is_one_sentence(address: str) -> None:
    with pytest.raises(SearchlabError, match="cannot reach an RPC tracker"):
        Tracker(address)
