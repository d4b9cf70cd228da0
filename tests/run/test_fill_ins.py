"""Random configs that complete batches for which a policy proposed too few: marked in logs, and shown in reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import searchlab
from searchlab import SearchlabError
from searchlab.log.read import read_log


class Timid(searchlab.NeverTwice):
    """Proposes one neighbour of the best config, and nothing before there is one."""

    def propose(self, n: int, rng: np.random.Generator) -> list[searchlab.Config]:
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        return [self.mutate_until_new(best.config, rng)] if best else []


def study(trials: int) -> searchlab.Study:
    spec = {"suite": "v1/gemm-64x64x64-trace-1t", "policies": [Timid, "random"], "trials": trials, "batch": 4}
    return searchlab.Study.from_dict(spec | {"seeds": 1})


def test_fill_ins_are_logged_resumed_and_shown(tmp_path: Path) -> None:
    study(6).run(tmp_path / "resumed", progress=False)
    for name in ("resumed", "at once"):
        study(16).run(tmp_path / name, progress=False)
        logs = [read_log(path) for path in (tmp_path / name).rglob("*.jsonl")]
        (log,) = (log for log in logs if log.header.policy.name != "random")
        assert [record.fill_in for record in log.records] == [True] * 4 + [False, True, True, True] * 3, name
    comparison = searchlab.compare(tmp_path / "at once")
    chart = comparison.plot_trials(share="random fill-ins").to_dict()
    shares = {(row["strategy"], row["y"]) for row in chart["datasets"][chart["data"]["name"]]}
    assert ("random", 0) in shares and {share for name, share in shares if name != "random"} == {50, 100}


def test_a_chart_says_nothing_where_logs_say_nothing(tmp_path: Path) -> None:
    spec = {"suite": "v1/gemm-64x64x64-trace-1t", "policies": ["random"], "trials": 8, "seeds": 1}
    searchlab.Study.from_dict(spec).run(tmp_path, progress=False)
    with pytest.raises(SearchlabError, match="cannot be drawn by 'random fill-ins'"):
        searchlab.compare(tmp_path).plot_trials(share="random fill-ins")
