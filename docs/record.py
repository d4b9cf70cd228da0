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

from generate import DOCS, ROOT, TUTORIAL_SCRIPTS

from searchlab.machine.host import available_cores, cpu_model, observe_load

TUTORIALS_DIR = ROOT / "studies" / "tutorials"


def record(name: str, options: Sequence[str] = ()) -> None:
    script = (TUTORIALS_DIR / f"{name}.py").read_text("utf-8")
    preamble, *titles_and_code = re.split(r"^# %% ([^\n]*)$", script, flags=re.MULTILINE)
    marked_script = preamble + f"# %% {titles_and_code[0]}{titles_and_code[1]}"
    for title, code in zip(titles_and_code[2::2], titles_and_code[3::2], strict=True):
        marked_script += f"print({'# %% ' + title!r}, flush=True){code}"
    if warning := observe_load():
        sys.exit(f"{name} is not recorded: {warning}")
    with tempfile.TemporaryDirectory() as work_dir:
        script_copy = Path(work_dir) / f"{name}.py"
        script_copy.write_text(marked_script, "utf-8")
        start_time = time.perf_counter()
        paths = os.pathsep.join([str(TUTORIALS_DIR), *filter(None, [os.environ.get("PYTHONPATH")])])  # for models.py
        process = subprocess.run(
            [sys.executable, str(script_copy), *options],
            cwd=work_dir,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        seconds = time.perf_counter() - start_time
    if warnings := re.findall("warning: (.*busy.*)", process.stderr, re.IGNORECASE):
        sys.exit(f"{name} is not recorded: {warnings[0]}")
    details = {
        "command": " ".join(["python", f"studies/tutorials/{name}.py", *options]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{available_cores()} cores of {cpu_model()}",
        "seconds": f"{seconds:.0f}",
    }
    lines = [f"# {key}: {value}" for key, value in details.items()]
    text = "\n".join([*lines, process.stdout.replace(work_dir, ".")])
    (DOCS / "tutorials" / "recorded" / f"{name}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    names, options = sys.argv[1:], []
    if "--" in names:
        names, options = names[: names.index("--")], names[names.index("--") + 1 :]
    for name in names or TUTORIAL_SCRIPTS:
        record(name, options)
