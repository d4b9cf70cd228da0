"""A run by searchlab.tune: invalid arguments, resuming, and what a script may pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.measure.local import LocalMeasurer
from searchlab.policy import Policy
from searchlab.records import Trial
from searchlab.run.tune import tune
from searchlab.space import Config, Space
from searchlab.target import Target
from searchlab.workload import gemm
from searchlab_spaces.guided.gemm import GuidedGemm
from tests.support.logs import write_table


class Rogue(Policy):
    """Breaks the contract as specified by ``how``."""

    def __init__(self, space: Space, *, seed: int, how: str = "repeats") -> None:
        super().__init__(space, seed=seed)
        self.how = how

    def ask(self, n: int) -> list[Config]:
        configs = [self.space.sample(np.random.default_rng(0)) for _ in range(n)]
        if self.how == "too many":
            return list(self.space.enumerate())[: n + 1]
        return [Config({"tile": 3})] if self.how == "stranger" else configs

    def tell(self, trials: object) -> None:
        pass


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("repeats", "asked for new configs and repeated"),
        ("too many", "asked for 8 configs and returned 9"),
        ("stranger", "asked for configs of its space and returned {'tile': 3}"),
    ],
)
def test_a_policy_that_breaks_its_contract_is_found_out(how: str, message: str, tmp_path: Path) -> None:
    policy = {"name": "tests.run.test_tune:Rogue", "options": {"how": how}}
    table = {"kind": "table", "path": str(write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_flaky))}
    with pytest.raises(SearchlabError, match=message):
        tune(toys.WORKLOAD, space=toys.Small(), policy=policy, log=tmp_path / "a.jsonl", measure=table)


def test_a_run_without_a_success_lists_its_failures(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_invalid)
    result = tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy="random",
        log=tmp_path / "a.jsonl",
        trials=5,
        measure={"kind": "table", "path": str(table)},
    )
    with pytest.raises(SearchlabError, match="has no successful trial: invalid 5"):
        print(result.best)


def test_tuning_the_log_of_another_workload_is_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_smooth)
    before = table.read_bytes()
    with pytest.raises(SearchlabError, match="belongs to a different run"):
        tune("gemm:8x8x8", space="knob-template", policy="random", log=table)
    with pytest.raises(SearchlabError, match="the space is for gemm:64x64x64; create one for gemm:8x8x8"):
        tune("gemm:8x8x8", space=toys.Small(), policy="random", log=tmp_path / "a.jsonl")
    assert table.read_bytes() == before


@pytest.mark.parametrize(
    ("workload", "space"),
    [("conv2d:1x4x4x4x4x1x1", "guided-conv2d"), ("gemm:8x8x8", "guided-gemm"), ("softmax:4x4", "sketch")],
)
def test_the_default_space_has_programs(workload: str, space: str) -> None:
    result = tune(workload, policy="random", trials=1, measure={"finalists": 0}, progress=False)
    assert result.log.header.space.name == space and len(result.trials) == 1


def test_a_space_object_is_searched_for_its_own_target_only(tmp_path: Path, native: Target) -> None:
    space = GuidedGemm(gemm(64, 64, 64), native)
    table = {"kind": "table", "path": str(write_table(tmp_path / "t.jsonl", space, toys.simulate_smooth))}
    options: dict[str, Any] = {"policy": "random", "log": tmp_path / "a.jsonl", "trials": 1, "measure": table}
    with pytest.raises(SearchlabError, match='the space is for the target .*, not for .*"arch": "sm_90"'):
        tune(space.workload, space=space, target={"kind": "cuda", "arch": "sm_90"}, **options)
    assert not options["log"].exists()
    assert len(tune(space.workload, space=space, target=native, **options).trials) == 1


def test_a_space_given_as_made_is_the_same_again_from_the_log(tmp_path: Path, native: Target) -> None:
    """Two variants have the same knobs, so a config fits both, and only the options differ."""
    packed, micro_kernel = (
        GuidedGemm(gemm(64, 64, 64), native, variant=variant) for variant in ("packed", "micro-kernel")
    )
    table = {"kind": "table", "path": str(write_table(tmp_path / "t.jsonl", packed, toys.simulate_smooth))}
    options: dict[str, Any] = {"policy": "random", "log": tmp_path / "a.jsonl", "trials": 5, "measure": table}
    result = tune(packed.workload, space=packed, **options)
    assert str(load_log(options["log"]).best.schedule().trace) == str(result.best.schedule().trace)
    with pytest.raises(SearchlabError, match="belongs to a different run"):
        tune(micro_kernel.workload, space=micro_kernel, **options)


SCRIPT = """
import searchlab

class Climb(searchlab.NeverTwice):
    def propose(self, n, rng):
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        return [self.space.mutate(best.config, rng) for _ in range(n)] if best else []

def schedule(sch):
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=16))
    sch.reorder(i, j0, k, j1)
    sch.vectorize(j1)

space = {"name": "trace", "options": {"function": schedule}}
result = searchlab.tune("gemm:16x16x16", space=space, policy=Climb, trials=4, batch=2, log="a.jsonl")
print(result.log.header.space.options, result.log.header.policy.name, len(result.trials), result.best.gflops > 0)
"""


def test_a_script_may_bring_its_own_policy_and_trace_function(tmp_path: Path) -> None:
    """A script without a main guard runs twice: workers must not execute it, and the log must be resumed."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    for _ in range(2):
        result = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True)
        assert result.stdout == "{'function': '__main__:schedule'} __main__:Climb 4 True\n", result.stderr


def test_an_option_that_cannot_be_logged_is_refused(tmp_path: Path) -> None:
    space = {"name": "trace", "options": {"function": object()}}
    with pytest.raises(SearchlabError, match="must be a function that accepts a schedule"):
        tune("gemm:16x16x16", space=space, policy="random", log=tmp_path / "a.jsonl")
    policy = {"name": "tests.run.test_tune:Rogue", "options": {"how": object()}}
    with pytest.raises(SearchlabError, match="option 'how' is <object.*; it must be a string"):
        tune("gemm:16x16x16", space="trace", policy=policy, log=tmp_path / "a.jsonl")


def test_the_number_of_build_workers_changes_no_config(measurer: LocalMeasurer, tmp_path: Path) -> None:
    """Real measurements, replayed as a table with other numbers of workers, by a new and an old run."""
    configs: list[list[dict[str, Any]]] = []
    first = tmp_path / "first.jsonl"
    common: dict[str, Any] = {"space": "knob-template", "policy": "grid", "trials": 12, "batch": 4}
    tune("gemm:4x4x4", log=first, measure={"kind": "local", "workers": 1, "min_repeat_ms": 0}, **common)
    for workers in (2, 3):
        log = tmp_path / f"{workers}.jsonl"
        log.write_bytes(b"".join(first.read_bytes().splitlines(keepends=True)[:7]))
        tune("gemm:4x4x4", log=log, measure={"kind": "local", "workers": workers, "min_repeat_ms": 0}, **common)
        configs.append([record.config for record in read_log(log).records])
    assert configs[0] == configs[1] == [record.config for record in read_log(first).records]


def test_on_trial_is_given_trials(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.jsonl", toys.SingleChoice(), toys.simulate_smooth)
    trials: list[Trial] = []
    tune(
        toys.WORKLOAD,
        space=toys.SingleChoice(),
        policy="random",
        log=tmp_path / "a.jsonl",
        on_trial=lambda trial, replayed: trials.append(trial),
        measure={"kind": "table", "path": str(table)},
    )
    assert trials == read_log(tmp_path / "a.jsonl").trials and len(trials) == 1


def test_a_call_that_is_refused_blocks_no_other(tmp_path: Path) -> None:
    """No log is left if the table does not contain a config that the policy asks for."""
    table = write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_smooth)
    table.write_bytes(b"".join(table.read_bytes().splitlines(keepends=True)[:2]))
    common: dict[str, Any] = {"space": toys.Small(), "policy": "random", "log": tmp_path / "a.jsonl", "trials": 3}
    with pytest.raises(SearchlabError, match="contain no measurement of"):
        tune(toys.WORKLOAD, measure={"kind": "table", "path": str(table)}, **common)
    assert not (tmp_path / "a.jsonl").exists()
    nearest = {"kind": "table", "path": str(table), "missing": "nearest"}
    with pytest.warns(SearchlabWarning, match="nearest"):
        assert len(tune(toys.WORKLOAD, measure=nearest, **common).trials) == 3


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"trials": "32"}, "option 'trials' is '32'; it must be a whole number"),
        ({"batch": 2.5}, "option 'batch' is 2.5"),
        ({"seed": None}, "option 'seed' is None"),
        (
            {"policy": "json:JSONDecoder"},
            "policy 'json.decoder:JSONDecoder' is not a searchlab.Policy; derive it from that",
        ),
        ({"policy": "builtins:dict"}, "policy 'builtins:dict' is not a searchlab.Policy"),
        ({"cost_model": "xgboost"}, "policy 'random' does not use a cost model; omit cost_model = 'xgboost'"),
        ({"features": "program"}, "policy 'random' does not use a cost model; omit features = 'program'"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(kwargs: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match=message):
        tune(toys.WORKLOAD, space=toys.Small(), log=tmp_path / "a.jsonl", **{"policy": "random", **kwargs})
    assert not list(tmp_path.iterdir())
