"""Record what the scripts of studies/tutorials print, for their pages: ``python docs/record.py [NAME ...] [-- ...]``.

Each script runs in an empty directory, with the options after ``--``, or in full, which takes between 15 seconds and
three minutes, and an hour for resnet18. Nothing is recorded on a busy machine, because the pages show the times.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from generate import DOCS, ROOT, SCRIPTS

from searchlab.machine.host import available_cores, cpu_model, observe_load

FOLDER = ROOT / "studies" / "tutorials"


def record(name: str, options: Sequence[str] = ()) -> None:
    script = (FOLDER / f"{name}.py").read_text("utf-8")
    first, *rest = re.split(r"^# %% ([^\n]*)$", script, flags=re.MULTILINE)
    marked = first + f"# %% {rest[0]}{rest[1]}"
    for title, code in zip(rest[2::2], rest[3::2], strict=True):
        marked += f"print({'# %% ' + title!r}, flush=True){code}"
    if warning := observe_load():
        sys.exit(f"{name} is not recorded: {warning}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"{name}.py"
        copy.write_text(marked, "utf-8")
        began = time.perf_counter()
        paths = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])  # for models.py
        done = subprocess.run(
            [sys.executable, str(copy), *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        seconds = time.perf_counter() - began
    if warnings := re.findall("warning: (.*busy.*)", done.stderr, re.IGNORECASE):
        sys.exit(f"{name} is not recorded: {warnings[0]}")
    about = {
        "command": " ".join(["python", f"studies/tutorials/{name}.py", *options]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{available_cores()} cores of {cpu_model()}",
        "seconds": f"{seconds:.0f}",
    }
    lines = [f"# {key}: {value}" for key, value in about.items()]
    text = "\n".join([*lines, done.stdout.replace(folder, ".")])
    (DOCS / "tutorials" / "recorded" / f"{name}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    names, options = sys.argv[1:], []
    if "--" in names:
        names, options = names[: names.index("--")], names[names.index("--") + 1 :]
    for name in names or SCRIPTS:
        record(name, options)
