"""TVM's graphs in files may be damaged in any way; TVM itself does not check them."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import searchlab
from searchlab.errors import SearchlabError
from searchlab.survival import find_crash
from searchlab.workload import Tir, from_primfunc, parse_workload
from tests.support.apply.logs import invoke

BORDER = Path(__file__).parents[1] / "border" / "data" / "computation"


def cyclic(graph: dict[str, Any]) -> None:
    node = next(node for node in graph["nodes"] if node["type"] == "ffi.Array" and node["data"])
    node["data"][0] = graph["nodes"].index(node)


def self_referring(graph: dict[str, Any]) -> None:
    graph["nodes"][graph["root_index"]]["data"]["body"] = graph["root_index"]


def a_schedule(graph: dict[str, Any]) -> None:
    graph["nodes"][graph["root_index"]] = {"type": "s_tir.Schedule"}


def without_fields(graph: dict[str, Any]) -> None:
    node = next(node for node in graph["nodes"] if node["type"] == "s_tir.SBlockRealize")
    node["data"] = {}


def without_nodes(graph: dict[str, Any]) -> None:
    del graph["nodes"][len(graph["nodes"]) // 2 :]


def other_references(graph: dict[str, Any]) -> None:
    for node in graph["nodes"]:
        if isinstance(node.get("data"), dict):
            node["data"] = {
                name: (value * 7 + 3) % len(graph["nodes"]) if type(value) is int else value
                for name, value in node["data"].items()
            }


DAMAGES = (cyclic, self_referring, a_schedule, without_fields, without_nodes, other_references)


@pytest.fixture(scope="module")
def workload() -> Tir:
    return from_primfunc(searchlab.gemm(8, 8, 8).prim_func(), "matmul")


def damage_graph(workload: Tir, damage: Callable[[dict[str, Any]], None]) -> str:
    graph = json.loads(zlib.decompress(base64.b64decode(workload.program)))
    damage(graph)
    return json.dumps(graph)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_graph_is_one_sentence(
    workload: Tir, tmp_path: Path, damage: Callable[[dict[str, Any]], None]
) -> None:
    text = damage_graph(workload, damage)
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SearchlabError, match="a.json"):
        parse_workload(f"tir:{tmp_path / 'a.json'}")
    content = json.loads(workload.content())
    content[0] = base64.b64encode(zlib.compress(text.encode())).decode()
    with pytest.raises(SearchlabError, match="is damaged"):
        Tir.from_log(workload.spelling, json.dumps(content)).prim_func()


def test_a_graph_is_tried_only_once(workload: Tir, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Tir.from_log(workload.spelling, workload.content())
    calls = []
    monkeypatch.setattr("searchlab.workload.tir_json.find_crash", lambda call: calls.append(call) or "")
    for _ in range(2):
        logged.prim_func()
        workload.prim_func()
    assert len(calls) == 1


def test_a_call_that_never_returns_is_ended() -> None:
    def forever() -> None:
        while True:
            pass

    assert find_crash(forever, timeout_seconds=1) == "it takes more than 1 s"


def test_a_library_that_ends_the_process_is_named() -> None:
    assert find_crash(lambda: os._exit(3)) == "it ends the process with exit code 3"


@pytest.mark.parametrize(
    "name", ["cycle", "digest", "dup", "flops400", "longw", "rand0", "root_s_tir.Schedule", "selfref"]
)
def test_each_damaged_log_is_one_sentence(tmp_path: Path, name: str) -> None:
    log = BORDER / f"{name}.jsonl"
    for words in (("best", log, "--show", "tir"), ("export", log, "--out", tmp_path / "a.o")):
        assert invoke(*words)[0] == 2
