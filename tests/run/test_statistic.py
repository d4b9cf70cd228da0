"""The cost of a trial is the median or the mean of its repeats, as configured in the study."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.analysis import report
from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_header, read_log
from searchlab.log.result import Result, load_log
from searchlab.policy import NeverTwice
from searchlab.records import Measurement
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.space import Config
from tests.support.logs import write_table

MEAN = {"kind": "table", "path": "table.jsonl", "statistic": "mean"}


def skewed(config: Config) -> Measurement:
    """Its mean and its median rank configs differently: a third repeat is an outlier for some."""
    seconds = toys.simulate_smooth(config).seconds[0]
    return Measurement((seconds, seconds, seconds * (1 + 9 * (hash_of(config) % 3))))


def hash_of(config: Config) -> int:
    return sum(map(ord, json.dumps(config.to_json())))


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "table.jsonl", toys.Small(), skewed)


class Watches(NeverTwice):
    """Proposes random configs, and records the costs of all trials that it learns."""

    costs: list[float] = []  # noqa: RUF012

    def propose(self, n: int, rng: np.random.Generator) -> list[Config]:
        self.costs += [trial.cost for trial in self.trials]
        return []


def run(log: str, measure: dict[str, Any], trials: int = 24, **options: Any) -> Result:
    policy = options.pop("policy", "evolutionary")
    return tune(
        toys.WORKLOAD, space=toys.Small(), policy=policy, log=log, trials=trials, batch=4, measure=measure, **options
    )


def test_the_statistic_is_the_cost_everywhere() -> None:
    results = {how: run(f"{how}.jsonl", MEAN | {"statistic": how}) for how in ("median", "mean")}
    for how, statistic in (("median", statistics.median), ("mean", statistics.fmean)):
        log = load_log(f"{how}.jsonl").log
        expected = [statistic(record.seconds) for record in log.records]
        assert log.costs.tolist() == expected == [trial.cost for trial in results[how].trials]
        assert load_log(f"{how}.jsonl").best.seconds == min(expected) == results[how].to_frame()["cost"].min()
    configs = [[trial.config for trial in result.trials] for result in results.values()]
    assert configs[0] != configs[1], "the policy searches by it"


def test_the_header_names_it_unless_it_is_the_median() -> None:
    run("a.jsonl", MEAN | {"statistic": "median"}, 4)
    assert "statistic" not in Path("a.jsonl").read_text()
    run("b.jsonl", MEAN, 4)
    assert read_header("b.jsonl").measure == MEAN
    for log, changed in (("a.jsonl", MEAN), ("b.jsonl", MEAN | {"statistic": "median"})):
        with pytest.raises(SearchlabError, match="belongs to a different run: its measure is"):
            run(log, changed, 8)
    with pytest.raises(SearchlabError, match="statistic cannot be 'mode'; it must be one of 'median', 'mean'"):
        run("c.jsonl", MEAN | {"statistic": "mode"})


def test_a_run_resumes_with_its_statistic() -> None:
    uninterrupted = run("whole.jsonl", MEAN)
    run("steps.jsonl", MEAN, 10)
    assert run("steps.jsonl", MEAN).trials == uninterrupted.trials


def test_a_study_has_one_statistic_that_its_report_uses() -> None:
    spec = {
        "workloads": [str(toys.WORKLOAD)],
        "spaces": ["searchlab.conformance.toys:Small"],
        "policies": ["random", "grid"],
        "trials": 12,
        "target": {"kind": "llvm"},
        "measure": MEAN,
    }
    results = Study.from_dict(spec).run("out")
    (item,) = report("out").workloads
    assert item.best and item.best.seconds == min(min(result.log.costs) for result in results)
    Study.from_dict(spec | {"measure": MEAN | {"statistic": "median"}, "policies": ["evolutionary"]}).run("out")
    with pytest.warns(SearchlabWarning, match=r"in different ways, so .* measure\.statistic is None"):
        report("out", everything=True)


def test_trials_of_an_earlier_run_get_the_statistic_of_this_one() -> None:
    run("earlier.jsonl", MEAN | {"statistic": "median"}, 12)
    earlier = read_log("earlier.jsonl")
    Watches.costs.clear()
    run("warm.jsonl", MEAN, 4, policy=Watches, warm_start=["earlier.jsonl"])
    assert Watches.costs == [statistics.fmean(record.seconds) for record in earlier.records] != earlier.costs.tolist()


def test_the_statistic_is_used_on_this_machine() -> None:
    measure = {"kind": "local", "repeat": 3, "min_repeat_ms": 0, "prune_factor": 0, "sentinel": 0, "finalists": 0}
    for how, statistic in (("mean", statistics.fmean), ("median", statistics.median)):
        log = f"{how}-local.jsonl"
        result = tune(
            "gemm:16x16x16",
            space="knob-template",
            policy="random",
            log=log,
            trials=2,
            batch=2,
            measure=measure | {"statistic": how},
        )
        assert [trial.cost for trial in result.trials] == [statistic(record.seconds) for record in result.log.records]
        assert read_header(log).measure.get("statistic", "median") == how
        assert load_log(log).trials == result.trials
