"""A run is planned once, and its log is read once."""

from __future__ import annotations

import fcntl
import warnings
from pathlib import Path
from typing import Any

import pytest

from searchlab import SearchlabError, Study, load_log, tune
from searchlab.conformance import toys
from searchlab.errors import SearchlabWarning
from searchlab.log import read as log_read
from searchlab.log.read import read_header
from searchlab.run.strategy import Strategy
from searchlab.space import Space
from tests.support.logs import write_table

SEEDS = 4


@pytest.fixture
def study(tmp_path: Path) -> Study:
    write_table(tmp_path / "table.jsonl", toys.Small(), toys.simulate_flaky)
    return Study.from_dict(
        {
            "workloads": [str(toys.WORKLOAD)],
            "spaces": ["searchlab.conformance.toys:Small"],
            "policies": ["random", "xgb"],
            "seeds": SEEDS,
            "trials": 16,
            "target": {"kind": "llvm"},
            "measure": {"kind": "table", "path": "table.jsonl"},
        },
        tmp_path,
    )


def test_options_are_tried_once_for_all_seeds(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = Strategy.start

    def counted(strategy: Strategy, *args: Any) -> Any:
        started.append(strategy.name)
        return start(strategy, *args)

    monkeypatch.setattr(Strategy, "start", counted)
    runs, left_out = study.plan()
    assert len(runs) == 2 * SEEDS and not left_out
    assert started == ["random", "xgb"]


class NoPolicy:
    """It has the methods of a policy, but not its attributes."""

    def __init__(self, space: Space, *, seed: int) -> None:
        pass


def test_a_class_that_is_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match="NoPolicy' is not a searchlab.Policy; derive it from that"):
        tune("gemm:64x64x64", space=toys.Small(), policy=NoPolicy, log=tmp_path / "log.jsonl")


def test_a_run_within_its_policys_warm_up_is_warned_of_once(study: Study, tmp_path: Path) -> None:
    with pytest.warns(SearchlabWarning, match="'xgb' does not use what it has learned until after 16 trials") as warned:
        study.plan()
    assert [warning.filename for warning in warned] == [__file__]
    assert "the run has only 16 trials, in batches of 8" in str(warned[0].message)
    for changes in ({"trials": 17}, {"policies": [{"name": "xgb", "options": {"n_startup": 8}}]}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Study.from_dict({**_spec(study), **changes}, tmp_path).plan()
    longer = {"trials": 24, "batch": 16, "policies": [{"name": "xgb", "options": {"n_startup": 17}}]}
    with pytest.warns(SearchlabWarning, match="24 trials, in batches of 16"):
        Study.from_dict({**_spec(study), **longer}, tmp_path).plan()


def test_trials_of_a_warm_start_count_as_warm_up(study: Study, tmp_path: Path) -> None:
    study.run(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Study.from_dict({**_spec(study), "warm_start": ["out"]}, tmp_path).plan()


def test_options_that_the_policy_replaces_are_in_the_log(study: Study, tmp_path: Path) -> None:
    options = {"n_startup": 4, "chains": 16, "steps": 20, "predictions": 50}
    small = Study.from_dict({**_spec(study), "policies": [{"name": "xgb", "options": options}], "seeds": 1}, tmp_path)
    small.run(tmp_path / "small")
    study.run(tmp_path / "out")
    (effective,) = [read_header(path).effective_options for path in (tmp_path / "small").rglob("*.jsonl")]
    assert effective == {"chains": 5, "steps": 9}
    assert [read_header(path).effective_options for path in (tmp_path / "out").rglob("*.jsonl")] == [{}] * 2 * SEEDS


@pytest.mark.parametrize("trials", [16, 24])
def test_each_log_is_parsed_once(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: int) -> None:
    study.run(tmp_path / "out")
    longer = Study.from_dict({**_spec(study), "trials": trials}, tmp_path)
    parsed: list[int] = []
    scan_lines = log_read.scan_lines

    def counted(path: Path, data: bytes) -> Any:
        parsed.append(len(data))
        return scan_lines(path, data)

    monkeypatch.setattr(log_read, "scan_lines", counted)
    results = longer.run(tmp_path / "out")
    assert [len(result.trials) for result in results] == [trials] * 2 * SEEDS
    tables = 2  # the header of the table, and its records
    assert len(parsed) <= 2 * SEEDS + tables + 1


def _spec(study: Study) -> dict[str, Any]:
    spec = study.spec
    return {
        "workloads": spec.workloads,
        "spaces": spec.spaces,
        "policies": spec.policies,
        "seeds": spec.seeds,
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "table.jsonl"},
    }


def test_reading_takes_no_write_lock(study: Study, tmp_path: Path) -> None:
    (first, *_) = study.run(tmp_path / "out")
    with open(first.log.path, "rb") as log_file:
        fcntl.flock(log_file, fcntl.LOCK_EX)
        assert load_log(first.log.path).log == first.log
        with pytest.raises(SearchlabError, match="another process is writing"):
            study.run(tmp_path / "out")


def test_a_result_agrees_with_its_log(study: Study, tmp_path: Path) -> None:
    for result in study.run(tmp_path / "out"):
        assert result.log == load_log(result.log.path).log
