"""Running a tutorial as a user does: a script, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TUTORIALS = Path(__file__).parents[2] / "studies" / "tutorials"


def run_tutorial(name: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``studies/tutorials/NAME.py`` with these arguments, on a machine whose GPUs are hidden."""
    return subprocess.run(
        [sys.executable, str(TUTORIALS / f"{name}.py"), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
    )


def printed(name: str, *arguments: str, cwd: Path | None = None) -> str:
    """Return the output of a tutorial. Raises AssertionError with its error messages if it fails."""
    result = run_tutorial(name, *arguments, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refusal(name: str, *arguments: str) -> str:
    """Return the sentence with which a tutorial refuses to run. Raises AssertionError if it ends differently."""
    result = run_tutorial(name, *arguments)
    assert result.returncode == 1 and not result.stdout, result.stdout
    (sentence,) = result.stderr.splitlines()
    return sentence
