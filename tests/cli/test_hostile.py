"""Whatever path a command is given, a failure is one sentence and an exit code that is not 0."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from searchlab.cli.app import load_commands
from tests.support.benchmarks import script
from tests.support.cli import searchlab

READERS = script("border").READERS

PATHS = {
    "too long": 300 * "x",
    "link to itself": "loop",
    "line break": "a\n\x1b[31m\udcff",
    "pipe": "pipe",
    "binary": "binary",
    "empty": "",
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of all commands in a group."""
    if not (inner := getattr(command, "commands", {})):
        return [words]
    return [leaf for name, item in inner.items() for leaf in leaves(item, (*words, name))]


def test_the_sweep_includes_every_command_that_reads_files() -> None:
    groups = ("fleet", "machine")
    in_groups = [words for group in groups for words in leaves(load_commands().commands[group], (group,))]
    reads_nothing = {("list",), ("new",), ("schema",), ("suite", "list"), *in_groups}
    swept = {words for line in READERS for words in (tuple(line.split()[:1]), tuple(line.split()[:2]))}
    assert {words for words in leaves(load_commands()) if words not in reads_nothing} <= swept


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_path_that_cannot_be_read_is_one_sentence(tmp_path: Path, path: str) -> None:
    for line in READERS:
        ending = line.partition("{}")[2].split(" ")[0].partition(":")[0]
        if not (tmp_path / f"loop{ending}").is_symlink():
            (tmp_path / f"loop{ending}").symlink_to(f"loop{ending}")
            (tmp_path / f"binary{ending}").write_bytes(bytes(range(256)))
            os.mkfifo(tmp_path / f"pipe{ending}")
    files = sorted(tmp_path.iterdir())
    for line in READERS:
        if path == "" and line.startswith("watch"):
            continue  # it watches the current directory
        result = searchlab(*(word.replace("{}", path) for word in line.split()), cwd=tmp_path)
        errors = [
            text for text in result.stderr.splitlines() if not (text.startswith("warning: ") or text.endswith(" ..."))
        ]
        assert result.returncode in (1, 2), line
        assert len(errors) == (0 if line.startswith("log check") and not errors else 1), (line, result.stderr)
        assert sorted(set(tmp_path.iterdir()) - {tmp_path / "out"}) == files, line


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_none(tmp_path: Path, closed: str) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = f"{shlex.quote(sys.executable)} -m searchlab list workloads {closed}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert result.returncode == 0 and not result.stderr, result.stderr
