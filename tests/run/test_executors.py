"""Cells of a study that run at the same time: with the logs that they would have one by one, and no process left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from searchlab.errors import SearchlabError
from searchlab.run.study import Study
from tests.support import toys
from tests.support.logs import decided, write_table


def replayed(tmp_path: Path, jobs: int) -> dict[str, object]:
    """What a study from a table decided, and its progress."""
    study = Study.from_dict(
        {
            "workloads": ["gemm:64x64x64"], "spaces": [{"name": "tests.support.toys:Small"}],
            "policies": ["random", "grid"], "seeds": 2, "trials": 12,
            "target": {"kind": "llvm"}, "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )  # fmt: skip
    study.run(tmp_path / str(jobs), jobs=jobs)
    logs = sorted((tmp_path / str(jobs)).rglob("*.jsonl"))
    return {str(log.relative_to(tmp_path / str(jobs))): decided(log) for log in logs}


def test_jobs_change_nothing_in_a_replay(tmp_path: Path) -> None:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)
    one, two = replayed(tmp_path, 1), replayed(tmp_path, 2)
    assert len(one) == 4 and one == two


def test_a_failure_or_interrupt_ends_all_jobs(tmp_path: Path) -> None:
    """Of one cell the log is damaged after it was looked at; then Ctrl-C, while the last cells run."""
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    study = Study.from_dict(
        {
            "workloads": ["gemm:64x64x64"], "spaces": [{"name": "tests.support.toys:Small"}], "policies": ["random"],
            "seeds": 4, "trials": 12, "target": {"kind": "llvm"}, "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )  # fmt: skip

    def damage(item: object, number: int, count: int, job: int) -> object:
        if number == 3:
            path = item.log  # type: ignore[attr-defined]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("no log\n")
        return lambda trial, replayed: None

    with pytest.raises(SearchlabError, match=r"seed2\.jsonl"):
        study.run(tmp_path / "damaged", damage, jobs=2)  # type: ignore[arg-type]

    def interrupt(item: object, number: int, count: int, job: int) -> object:
        return lambda trial, replayed: os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        study.run(tmp_path / "interrupted", interrupt, jobs=2)  # type: ignore[arg-type]
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    assert all(len(result.trials) == 12 for result in study.run(tmp_path / "interrupted"))
