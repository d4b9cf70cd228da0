"""A run is planned once, and its log is read once."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from searchlab import SearchlabError, Study, load_log
from searchlab.log import format as log_format
from searchlab.run.plan import Strategy
from tests.support import toys
from tests.support.logs import write_table

SEEDS = 4


@pytest.fixture
def study(tmp_path: Path) -> Study:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.flaky)
    return Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)], "spaces": ["tests.support.toys:Small"], "policies": ["random", "xgb"],
            "seeds": SEEDS, "trials": 16, "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )  # fmt: skip


def test_options_are_tried_once_for_all_seeds(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = Strategy.start

    def counted(strategy: Strategy, *given: Any) -> Any:
        started.append(strategy.name)
        return start(strategy, *given)

    monkeypatch.setattr(Strategy, "start", counted)
    runs, left_out = study.plan()
    assert len(runs) == 2 * SEEDS and not left_out
    assert started == ["random", "xgb"]


@pytest.mark.parametrize("trials", [16, 24])
def test_each_log_is_parsed_once(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: int) -> None:
    study.run(tmp_path / "out")
    longer = Study.from_dict({**_spec(study), "trials": trials}, tmp_path)
    parsed: list[int] = []
    scan = log_format.scan

    def counted(data: bytes) -> Any:
        parsed.append(len(data))
        return scan(data)

    monkeypatch.setattr(log_format, "scan", counted)
    results = longer.run(tmp_path / "out")
    assert [len(result.trials) for result in results] == [trials] * 2 * SEEDS
    tables = 2  # the header of the table, and its records
    assert len(parsed) <= 2 * SEEDS + tables + 1


def _spec(study: Study) -> dict[str, Any]:
    spec = study.spec
    return {
        "workloads": spec.workloads, "spaces": spec.spaces, "policies": spec.policies, "seeds": spec.seeds,
        "target": {"kind": "llvm"}, "measure": {"kind": "table", "path": "table.jsonl"},
    }  # fmt: skip


def test_reading_takes_no_write_lock(study: Study, tmp_path: Path) -> None:
    (first, *_) = study.run(tmp_path / "out")
    with open(first.log.path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert load_log(first.log.path).log == first.log
        with pytest.raises(SearchlabError, match="another process is writing"):
            study.run(tmp_path / "out")


def test_a_result_is_what_its_log_holds(study: Study, tmp_path: Path) -> None:
    for result in study.run(tmp_path / "out"):
        assert result.log == load_log(result.log.path).log
