"""``soak.py`` with as few interruptions as possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.benchmarks import BENCHMARKS, script
from tests.support.cli import run_python

OPTIONS = ("--kills", 2, "--policies", "random", "--trials", 24)


@pytest.mark.parametrize("kind", [[], ["--changes"]], ids=["signals", "changes"])
def test_interrupted_runs_lose_nothing(kind: list[str]) -> None:
    result = run_python(BENCHMARKS / "soak.py", *kind, *OPTIONS)
    assert result.returncode == 0 and "0 losses" in result.stdout, result.stdout + result.stderr


def test_interrupted_commands_leave_the_same_files(tmp_path: Path) -> None:
    soak = script("soak")
    commands = {command.name: command for command in soak.commands(tmp_path)}
    for name in ("suite build", "import"):
        before = soak.run_to_end(commands[name], tmp_path / name)
        assert before and soak.run_to_end(commands[name], tmp_path / name) == before
