"""Runs all robustness tests and summarises their findings in one table.

    python studies/benchmarks/robustness.py [--quick] [--seed 0]

The script runs these programs in sequence:

- ``hostile.py``: candidates that misbehave while they are built or while they run;
- ``border.py``: edited code, wrong programs, other machines, and strangers' files;
- ``fuzz.py``: damaged and hostile files for every reader;
- ``soak.py``: runs of every policy, which are interrupted, whose writes fail, or whose code changes;
- ``soak.py --commands``: complete commands, interrupted.

This takes several hours on two cores. With ``--quick``, a tenth of the inputs and interruptions, it takes well under
one hour. The exit status is 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rows import Row

HERE = Path(__file__).parent
FULL = {"inputs": 100_000, "kills": 500, "commands": 200}


def programs(quick: bool, seed: int) -> list[list[str]]:
    """Return the command lines, without the Python interpreter."""
    inputs, kills, commands = (str(number // 10 if quick else number) for number in FULL.values())
    return [
        ["hostile.py"],
        ["border.py"],
        ["fuzz.py", "--inputs", inputs, "--seed", str(seed)],
        ["soak.py", "--kills", kills, "--seed", str(seed)],
        ["soak.py", "--faults", "--kills", kills, "--seed", str(seed)],
        ["soak.py", "--changes", "--kills", kills, "--seed", str(seed)],
        ["soak.py", "--commands", "--kills", commands, "--seed", str(seed)],
    ]


def run(words: list[str], folder: Path) -> list[Row]:
    """Run one program, showing its output, and return its rows."""
    file = folder / "rows.jsonl"
    file.unlink(missing_ok=True)
    code = subprocess.run([sys.executable, HERE / words[0], *words[1:], "--rows", file]).returncode
    rows = [Row(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    if code and not any(row.wrong for row in rows):
        rows.append(Row(" ".join(words), "", 0, [f"it ended with {code}"], 0.0))
    return rows


def summary_table(rows: list[Row]) -> Table:
    """Return a row for each part and one for each problem."""
    table = Table("what", "cases", "tried", "wrong", "minutes")
    for part in dict.fromkeys(row.part for row in rows):
        part_rows = [row for row in rows if row.part == part]
        bad = [row for row in part_rows if row.wrong]
        seconds = sum(row.seconds for row in part_rows)
        attempts = sum(row.attempts for row in part_rows)
        table.add_row(part, str(len(part_rows)), f"{attempts:,}", str(len(bad)), f"{seconds / 60:.1f}")
        for row in bad:
            table.add_row(f"  {row.name}", "", f"{row.attempts:,}", row.wrong[0], f"{row.seconds / 60:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="use a tenth of the inputs and interruptions")
    parser.add_argument("--seed", type=int, default=0, help="seed for the inputs and moments (0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for words in programs(options.quick, options.seed) for row in run(words, Path(folder))]
    Console().print(summary_table(rows))
    sys.exit(any(row.wrong for row in rows))


if __name__ == "__main__":
    main()
