"""The command line, in this process or in one of its own; and Python, in a process of its own."""

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
    """What the command prints and exits with, run in this process: it need not import everything once more."""
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
    """In ``cwd``; what a command leaves in this process is undone: modules that lie there, handlers, filters."""
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
    """The command in a process of its own, with ``settings`` in its environment."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings
    return subprocess.run(
        [sys.executable, "-m", "searchlab", *map(str, words)], capture_output=True, text=True, cwd=cwd, env=env
    )


def run_python(*words: object) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, env=env)


def imported_packages(*words: object) -> set[str]:
    """The top-level packages that a command imports, by ``python -X importtime``."""
    result = run_python("-X", "importtime", *words)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().split(".")[0] for line in lines}
