"""What golden tests share: the manifest, and holding what is said today against it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from .today import DATA, host

MANIFEST: dict[str, Any] = json.loads((DATA / "manifest.json").read_text())
RUNS: dict[str, Any] = json.loads((DATA / "runs.json").read_text())


def hold(found: Any, expected: Any, where: str = "") -> None:
    """Assert that both are the same plain data: numbers but for rounding, and nothing missing or added."""
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping) and found.keys() == expected.keys(), where
        for name in expected:
            hold(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list | tuple):
        assert isinstance(found, list | tuple) and len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            hold(one, other, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-15), where
    else:
        assert found == expected, where


def hold_check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Hold what ``log check`` finds. In which lines is golden; in which words is not."""
    for name in ("exit_code", "trials"):
        assert found.get(name) == expected.get(name)
    lines = [[problem["line"] for problem in one.get("problems", [])] for one in (found, expected)]
    assert lines[0] == lines[1]


def read_lines(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)


def copied_here(path: Path, to: Path) -> Path:
    """A copy of a log as this machine would have made it: a run does not go on where it measured on another CPU."""
    first, *rest = read_lines(path)
    header = json.loads(first)
    if header["host"]:
        header["host"] = host()
    data = b"".join([json.dumps(header, separators=(",", ":")).encode() + b"\n", *rest])
    copy = to / path.name
    copy.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return copy


def configs(path: Path) -> list[dict[str, Any]]:
    """The configs in a log, as they are written."""
    lines = (json.loads(line) for line in read_lines(path)[1:])
    return [line["config"] for line in lines if "config" in line]


def skip_with_other_libraries() -> None:
    """Skip where what a policy asks for may differ because a library does: called where it did."""
    made_with = {name: number for name, number in MANIFEST["versions"].items() if name != "searchlab"}
    here = {name: version(name) for name in made_with}
    if here != made_with:
        pytest.skip(f"golden logs were made with {made_with}; here is {here}")
