"""Record what the scripts of studies/tutorials print, for their pages: ``python docs/record.py [NAME ...]``.

Each script runs in full, in an empty directory, which takes between 15 seconds and three minutes. Record on a machine
that is otherwise idle: the pages show the times, and say so if searchlab warned that the machine was busy.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate import DOCS, ROOT, SCRIPTS

from searchlab.machine.host import available_cores, cpu_model


def record(name: str) -> None:
    script = (ROOT / "studies" / "tutorials" / f"{name}.py").read_text("utf-8")
    first, *rest = re.split(r"^# %% ([^\n]*)$", script, flags=re.MULTILINE)
    marked = first + f"# %% {rest[0]}{rest[1]}"
    for title, code in zip(rest[2::2], rest[3::2], strict=True):
        marked += f"print({'# %% ' + title!r}, flush=True){code}"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"{name}.py"
        copy.write_text(marked, "utf-8")
        began = time.perf_counter()
        done = subprocess.run([sys.executable, str(copy)], cwd=folder, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - began
    about = {
        "command": f"python studies/tutorials/{name}.py",
        "date": datetime.date.today().isoformat(),
        "machine": f"{available_cores()} cores of {cpu_model()}",
        "seconds": f"{seconds:.0f}",
        "busy": "yes" if "SearchlabWarning" in done.stderr and "busy" in done.stderr else "no",
    }
    lines = [f"# {key}: {value}" for key, value in about.items()]
    text = "\n".join([*lines, done.stdout.replace(folder, ".")])
    (DOCS / "tutorials" / "recorded" / f"{name}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or SCRIPTS:
        record(name)
