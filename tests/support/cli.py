"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def searchlab(*words: object, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    return subprocess.run(
        [sys.executable, "-m", "searchlab", *map(str, words)], capture_output=True, text=True, cwd=cwd, env=env
    )
