"""Files that are damaged in 250 ways, too long, or nested too deep: see ``studies/benchmarks/fuzz.py``."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import run_python

SCRIPT = Path(__file__).parents[2] / "studies" / "benchmarks" / "fuzz.py"


def test_every_reader_reads_or_refuses(tmp_path: Path) -> None:
    result = run_python(SCRIPT, "--inputs", 250, "--megabytes", 2, "--seed", 1, "--keep", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
