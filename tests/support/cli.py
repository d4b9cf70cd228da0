"""The command line, in this process or in a new one, and Python in a new process."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from searchlab.cli.app import main

PLUG_INS = ("searchlab_spaces", "searchlab_policies", "searchlab_costmodels")
HEAVY = ("tvm", "xgboost", "lightgbm", "sklearn", "optuna", "pandas", "altair", *PLUG_INS)


def searchlab(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which need not import everything again; return its output and exit code."""
    command = ["searchlab", *map(str, words)]
    streams = io.BytesIO(), io.BytesIO()
    out, text = (io.TextIOWrapper(into, "utf-8", "backslashreplace", write_through=True) for into in streams)
    with _restoring_process_state(cwd), mock.patch.multiple(sys, argv=command, stdout=out, stderr=text):
        try:
            main()
        except SystemExit as exit_error:
            code = exit_error.code if isinstance(exit_error.code, int) else 1
    return subprocess.CompletedProcess(command, code, *(into.getvalue().decode() for into in streams))


@contextlib.contextmanager
def _restoring_process_state(cwd: Path | None) -> Iterator[None]:
    """Change to ``cwd``, and undo a command's changes to this process: imported modules, handlers, filters."""
    folder, handler = Path(cwd or Path.cwd()), signal.getsignal(signal.SIGTERM)
    with contextlib.chdir(folder), mock.patch.object(sys, "path", [*sys.path]), warnings.catch_warnings():
        warnings.resetwarnings()
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, handler)
            if cwd is not None:
                below = f"{folder.resolve()}{os.sep}"
                for name, module in list(sys.modules.items()):
                    if (getattr(module, "__file__", None) or "").startswith(below):
                        del sys.modules[name]


def searchlab_process(*words: object, cwd: Path | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, with ``settings`` in its environment."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    return subprocess.run(
        [sys.executable, "-m", "searchlab", *map(str, words)], capture_output=True, text=True, cwd=cwd, env=env
    )


def run_python(*words: object) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=env)


def imported_packages(*words: object) -> set[str]:
    """Return the top-level packages that a command imports, according to ``python -X importtime``."""
    result = run_python("-X", "importtime", *words)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().split(".")[0] for line in lines}
