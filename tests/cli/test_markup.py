"""Names from outside are printed literally, even if they look like markup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from searchlab.conformance import toys
from tests.support.cli import searchlab
from tests.support.logs import write_table

NAMES = ("[/b]", "[bold]x", "[link=a]:smile:[/link]", "$_{", "</script><b>")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory whose name looks like markup, with a table."""
    directory = tmp_path / "a[" / "bold]"
    directory.mkdir(parents=True)
    write_table(directory / "table.jsonl", toys.Small(), toys.simulate_flaky, counted=True)
    return directory


def test_labels_of_a_study_are_no_markup(folder: Path) -> None:
    policies = ", ".join(f"{{ name = 'random', label = {json.dumps(name)} }}" for name in NAMES)
    (folder / "study.toml").write_text(
        f"workloads = ['gemm:64x64x64']\nspaces = [{{ name = 'searchlab.conformance.toys:Small', label = '[/i]' }}]\n"
        f"policies = [{policies}]\nseeds = 1\ntrials = 8\ntarget = {{ kind = 'llvm' }}\n"
        f"measure = {{ kind = 'table', path = 'table.jsonl' }}\n"
    )
    ran = searchlab("run", folder / "study.toml", "--out", folder / "[/b]")
    assert ran.returncode == 0, ran.stderr
    for name in NAMES:
        assert name in ran.stdout
    assert "Traceback" not in ran.stderr
    described = searchlab("table", "info", folder / "[/b]")
    assert described.returncode == 0, described.stderr
    assert "[/b]" in described.stdout


def test_names_of_a_command_are_no_markup(folder: Path) -> None:
    log = folder / "[/b].jsonl"
    words = ["gemm:64x64x64", "--target", '{"kind": "llvm"}', "--measure"]
    words.append(json.dumps({"kind": "table", "path": str(folder / "table.jsonl")}))
    ran = searchlab(
        "tune",
        *words,
        "--space",
        "searchlab.conformance.toys:Small",
        "--policy",
        "random",
        "--trials",
        "6",
        "--log",
        log,
    )
    assert ran.returncode == 0, ran.stderr
    assert searchlab("best", log).returncode == 0
    refused = searchlab(
        "tune", *words, "--space", "searchlab.conformance.toys:Small", "--policy", NAMES[0], "--log", log
    )
    assert refused.returncode == 2 and f"error: unknown policy {NAMES[0]!r}" in refused.stderr
    usage = searchlab("tune", "gemm:8x8x8", "--[/b]", "--trials", "[/b]")
    assert usage.returncode == 2 and "Traceback" not in usage.stderr
