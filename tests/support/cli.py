"""The command line, and Python, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUG_INS = ("searchlab_spaces", "searchlab_policies", "searchlab_costmodels")
HEAVY = ("tvm", "xgboost", "lightgbm", "sklearn", "optuna", "pandas", *PLUG_INS)


def searchlab(*words: object, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    return subprocess.run(
        [sys.executable, "-m", "searchlab", *map(str, words)], capture_output=True, text=True, cwd=cwd, env=env
    )


def python(*words: object) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=env)


def imported(*words: object) -> set[str]:
    """The top-level packages that a command imports, by ``python -X importtime``."""
    done = python("-X", "importtime", *words)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().split(".")[0] for line in lines}
