"""The tables of a suite's baselines in studies/RESULTS.md (studies/suite/results.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.benchmarks import SUITE, script

results = script("results", SUITE)


def test_tables_of_baselines_replace_a_part_of_the_results(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text("before\n<!-- baselines -->\noutdated\n<!-- end of baselines -->\nafter\n")
    monkeypatch.setattr(results, "RESULTS", file)
    monkeypatch.setattr(sys, "argv", ["results.py", "--suite", str(sealed)])
    results.main()
    text = file.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "outdated" not in text
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("| ")]
    assert [len(table) - 2 for table in tables] == [3, 2, 3, 2], "all strategies, pairs, kinds, faster than random"
    for row in tables[1][2:]:
        chances = row.strip("| ").rpartition(" | ")[2].split(", ")
        assert sum(map(float, chances)) == pytest.approx(1, abs=0.02), "better, same, worse"
