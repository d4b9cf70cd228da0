from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from searchlab.analysis import report
from searchlab.analysis.read import read_runs
from searchlab.log.format import Finalist, FinalistTimes
from tests.support.analysis.logs import WORKLOAD, write


def append_finalists(path: Path, gflops: dict[int, float]) -> None:
    """End the log at ``path`` with its finalists, by trial from 0, at these speeds in each of 11 rounds."""
    finalists = tuple(Finalist(index, (1e-3 / speed,) * 11) for index, speed in gflops.items())
    with path.open("ab") as file:
        file.write(msgspec.json.encode(FinalistTimes(trial_count=3, finalists=finalists)) + b"\n")


def test_the_best_program_of_each_run_and_strategy(tmp_path: Path) -> None:
    """The winner where the fastest were measured again, at what it then gave; else the fastest trial."""
    write(tmp_path, "a", 0, [1, "crash", 3])
    append_finalists(write(tmp_path, "a", 1, [2, 4, 3.9]), {1: 3.5, 2: 3.7})
    append_finalists(write(tmp_path, "a", 2, [5, 4.9, 2]), {0: 3.6, 1: 3.6})
    write(tmp_path, "b", 0, [9, 1])
    write(tmp_path, "c", 0, ["crash"])
    runs = read_runs(tmp_path)[WORKLOAD]
    programs = [run.best_program for run in runs.runs if run.best_program]
    rows = [(p.strategy, p.seed, p.trial, round(p.gflops, 6), round(p.gflops_as_trial, 6), p.tied) for p in programs]
    assert rows == [
        ("a", 0, 2, 3.0, 3.0, None),
        ("a", 1, 2, 3.7, 3.9, []),
        ("a", 2, 0, 3.6, 5.0, [1]),
        ("b", 0, 0, 9.0, 9.0, None),
    ]
    best = runs.best_programs
    assert [(p.strategy, p.seed, p.config) for p in best] == [
        ("b", 0, {"tile": [0, 1], "of": "b 0"}),
        ("a", 1, {"tile": [2, 1], "of": "a 1"}),
    ]
    assert all(p.seconds * p.gflops * 1e3 == pytest.approx(1) for p in programs)
    report(tmp_path)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "as a trial it had 3.9 GFLOPS" in page and page.count("measured again at the end") == 1
