"""Warm starts: what a policy learns, what cost models are trained on, and what is rejected."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.analysis.read import read_runs
from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, OtherTask, compute_scores, make_cost_model
from searchlab.costmodel.features import (
    CurveFeatures,
    Features,
    ItervarFeatures,
    KnobFeatures,
    PerStoreFeatures,
    ProgramFeatures,
)
from searchlab.costmodel.quality import pairwise_accuracy
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.plugins import Plugin
from searchlab.run.strategy import SpaceChoice, Strategy
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.run.warm_start import WarmStart
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.templates import KnobTemplate
from tests.support.logs import read_deterministic_part, write_table

pytestmark = pytest.mark.usefixtures("trusting")

SMALL, DEPENDENT = "searchlab.conformance.toys:Small", "searchlab.conformance.toys:Dependent"
TARGET = {"kind": "llvm"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_table(tmp_path / "table" / "small.jsonl", toys.Small(), toys.simulate_flaky)
    return write_table(tmp_path / "table" / "dependent.jsonl", toys.Dependent(), toys.simulate_flaky).parent


def run(table: Path, log: Path, space: str = SMALL, policy: Any = "random", trials: int = 24, **options: Any) -> Path:
    tune(
        toys.WORKLOAD,
        space=space,
        policy=policy,
        log=log,
        trials=trials,
        target=TARGET,
        batch=options.pop("batch", 8),
        measure={"kind": "table", "path": str(table)},
        **options,
    )
    return log


def configs(log: Path) -> set[Any]:
    return {trial.config for trial in read_log(log).trials}


@pytest.mark.parametrize("policy", ["random", "evolutionary", "xgb"])
def test_a_policy_learns_trials_in_its_space_before_it_proposes(policy: str, table: Path, tmp_path: Path) -> None:
    earlier = [run(table, tmp_path / f"earlier{seed}.jsonl", trials=40, seed=seed) for seed in (1, 2)]
    cold = run(table, tmp_path / "cold.jsonl", policy=policy)
    warm = run(table, tmp_path / "warm.jsonl", policy=policy, warm_start=earlier)
    assert not configs(warm) & (configs(earlier[0]) | configs(earlier[1]))
    assert configs(cold) != configs(warm)
    assert len(read_log(warm).header.warm_start) == 2
    of_result = run(table, tmp_path / "result.jsonl", policy=policy, warm_start=[load_log(path) for path in earlier])
    assert configs(of_result) == configs(warm)


def test_a_search_continues_around_the_best_of_an_earlier_one(table: Path, tmp_path: Path) -> None:
    """A cost model that was trained on forty trials guides even the first batch."""
    earlier = run(table, tmp_path / "earlier.jsonl", trials=60)
    warm = read_log(run(table, tmp_path / "warm.jsonl", policy="xgb", warm_start=[earlier], trials=8))
    cold = read_log(run(table, tmp_path / "cold.jsonl", policy="xgb", trials=8))
    assert warm.records[7].model_quality is not None and cold.records[7].model_quality is None
    assert np.median(warm.costs) < np.median(cold.costs)


def test_another_space_trains_a_model_of_programs(table: Path, tmp_path: Path) -> None:
    earlier = run(table, tmp_path / "earlier.jsonl", space=DEPENDENT)
    options: dict[str, Any] = {"policy": "xgb", "features": "program", "trials": 8}
    warm = read_log(run(table, tmp_path / "warm.jsonl", **options, warm_start=[earlier]))
    assert warm.records[7].model_quality is not None  # it was trained before anything of this space was measured


@pytest.mark.parametrize(
    ("features", "model"),
    [
        (ProgramFeatures, "lightgbm"),
        (PerStoreFeatures, "pack-sum"),
        (ItervarFeatures, "lightgbm"),
        (CurveFeatures, "lightgbm"),
        (KnobFeatures, "lightgbm"),
    ],
)
def test_a_model_of_another_workload_helps_from_the_start(features: type[Features], model: str, native: Target) -> None:
    """Real programs with a synthetic cost that depends on a feature of the program and of the knobs."""
    spaces = {n: KnobTemplate(parse_workload(f"gemm:{n}x32x32"), native) for n in (32, 64)}
    samples = {n: space.sample_new(np.random.default_rng(0), 48, ()) for n, space in spaces.items()}

    def cost(config: Any) -> Any:
        j, i = math.log2(config["tile_j"][-1]), math.log2(config["tile_i"][-1])
        return toys.successful_measurement(1e-3 * (1 + abs(j - 3) + 0.1 * i))

    tasks = {n: toys.simulate_trials(samples[n], cost) for n in spaces}
    bound = BoundCostModel(make_cost_model(Plugin(model), 0), features(spaces[64]))
    bound.pretrain([OtherTask(spaces[32], samples[32], compute_scores(tasks[32]))])
    assert pairwise_accuracy(bound.predict(samples[64]), compute_scores(tasks[64])) > 0.7


@pytest.mark.parametrize(("policy", "features"), [("xgb", "knob"), ("random", None)], ids=str)
def test_knobs_of_another_space_are_refused(policy: str, features: str | None, table: Path, tmp_path: Path) -> None:
    earlier = run(table, tmp_path / "earlier.jsonl", space=DEPENDENT)
    with pytest.raises(
        SearchlabError,
        match=r"earlier.jsonl cannot be used as a warm start.*Cost models with program features .* can learn from any",
    ):
        run(table, tmp_path / "warm.jsonl", policy=policy, features=features, warm_start=[earlier])
    assert not (tmp_path / "warm.jsonl").exists()


def test_knobs_carry_over_between_shapes_of_one_space(native: Target, tmp_path: Path) -> None:
    def run_tune(shape: str, log: str, **options: Any) -> Path:
        space = KnobTemplate(parse_workload(shape), native)
        table = write_table(tmp_path / f"table-{log}", space, toys.simulate_flaky)
        tune(
            shape,
            space="knob-template",
            log=tmp_path / log,
            trials=8,
            measure={"kind": "table", "path": str(table)},
            **options,
        )
        return tmp_path / log

    earlier = run_tune("gemm:16x8x8", "earlier.jsonl", policy="random")
    warm = read_log(run_tune("gemm:8x8x8", "warm.jsonl", policy="xgb", warm_start=[earlier]))
    assert len(warm.header.warm_start) == 1 and warm.records[7].model_quality is not None
    cold = read_log(run_tune("gemm:8x8x8", "cold.jsonl", policy="xgb"))
    assert cold.records[7].model_quality is None
    warm_start = WarmStart.from_sources([earlier], "median")
    runs = list(warm_start.runs)
    random, copula = Strategy.from_specs("random"), Strategy.from_specs("copula")
    knob, itervar = (Strategy.from_specs("xgb", features=features) for features in ("knob", "itervar"))
    conv2d = SpaceChoice.from_spec("knob-template", parse_workload("conv2d:1x7x7x16x16x1x1"), native)
    assert warm_start.select(conv2d, knob).other_spaces == []
    assert warm_start.select(conv2d, itervar).other_spaces == runs
    assert warm_start.select(conv2d, copula).other_spaces == []
    sketch = SpaceChoice.from_spec("sketch", parse_workload("gemm:8x8x8"), native)
    assert warm_start.select(sketch, knob).other_spaces == []
    near = SpaceChoice.from_spec("knob-template", parse_workload("gemm:8x8x8"), native)
    assert warm_start.select(near, copula).other_spaces == runs
    assert warm_start.select(near, random).other_spaces == []


def test_the_warm_start_belongs_to_the_identity_of_a_run(table: Path, tmp_path: Path) -> None:
    earlier = [run(table, tmp_path / f"earlier{seed}.jsonl", seed=seed) for seed in (1, 2)]
    warm = run(table, tmp_path / "warm.jsonl", warm_start=[earlier[0]])
    for sources in ([], [earlier[1]], earlier, earlier[::-1]):
        with pytest.raises(SearchlabError, match="belongs to a different run: its warm_start is"):
            run(table, warm, warm_start=sources, trials=30)
    moved = tmp_path / "elsewhere" / "moved.jsonl"  # its path is not what it is
    moved.parent.mkdir()
    shutil.copy(earlier[0], moved)
    run(table, warm, warm_start=[moved.parent], trials=30)
    assert len(read_log(warm).records) == 30


@pytest.mark.parametrize("policy", ["evolutionary", "xgb"])
def test_a_warm_run_resumes(policy: str, table: Path, tmp_path: Path) -> None:
    earlier = [
        run(table, tmp_path / "own.jsonl", trials=20, seed=4),
        *([run(table, tmp_path / "other.jsonl", space=DEPENDENT)] if policy == "xgb" else []),
    ]
    options: dict[str, Any] = {"policy": policy, "warm_start": earlier, "batch": 5}
    options |= {"features": "program"} if policy == "xgb" else {}
    uninterrupted = run(table, tmp_path / "whole.jsonl", **options)
    for trials in (1, 7, 10, 24):
        run(table, tmp_path / "steps.jsonl", **(options | {"trials": trials}))
    assert read_deterministic_part(tmp_path / "steps.jsonl") == read_deterministic_part(uninterrupted)
    data = uninterrupted.read_bytes()
    for size in (len(data) // 3, len(data) - 5):
        (tmp_path / "cut.jsonl").write_bytes(data[:size])
        run(table, tmp_path / "cut.jsonl", **options)
        assert read_deterministic_part(tmp_path / "cut.jsonl") == read_deterministic_part(uninterrupted)


def test_bad_logs_to_start_from_are_named(table: Path, tmp_path: Path) -> None:
    earlier = run(table, tmp_path / "earlier.jsonl")
    shutil.copy(earlier, tmp_path / "copy.jsonl")
    (tmp_path / "diary.jsonl").write_text("dear diary")
    (tmp_path / "header.jsonl").write_bytes(earlier.read_bytes().splitlines(keepends=True)[0])
    (tmp_path / "empty").mkdir()
    log = tmp_path / "warm.jsonl"
    for sources, message in (
        ([tmp_path / "absent.jsonl"], "cannot read the log .*absent"),
        ([tmp_path / "diary.jsonl"], "not a searchlab log"),
        ([tmp_path / "header.jsonl"], "contains no measured trials to start from"),
        ([tmp_path / "empty"], "no logs .* found in .*empty to start from"),
        ([earlier, tmp_path / "copy.jsonl"], "copy.jsonl is specified twice, or is a copy"),
    ):
        with pytest.raises(SearchlabError, match=message):
            run(table, log, warm_start=sources)
        assert not log.exists()
    with pytest.raises(SearchlabError, match="is a warm start and cannot also be the log"):
        run(table, earlier, warm_start=[earlier])


# --- in a study -------------------------------------------------------------------------------------


def spec(**changes: Any) -> dict[str, Any]:
    return {
        "workloads": ["gemm:64x64x64"],
        "spaces": [{"name": SMALL, "label": "small"}],
        "policies": ["random", "xgb"],
        "trials": 16,
        "target": TARGET,
        "measure": {"kind": "table", "path": "table"},
        "warm_start": ["earlier"],
    } | changes


def test_every_run_is_warm_started_from_the_logs_it_can_use(table: Path, tmp_path: Path) -> None:
    small_log = run(table, tmp_path / "earlier" / "own.jsonl")
    run(table, tmp_path / "earlier" / "other.jsonl", space=DEPENDENT)
    spaces = [{"name": SMALL, "label": "small"}, {"name": DEPENDENT, "label": "dependent"}]
    models = [{"name": "lightgbm", "features": "program"}, {"name": "ridge"}]
    study = Study.from_dict(spec(spaces=spaces, cost_models=models, trials=8), tmp_path)
    warm_starts = {
        result.log.path.relative_to(tmp_path / "out").parts[1:3]: result.log.header.warm_start
        for result in study.run(tmp_path / "out")
    }
    for space in ("small", "dependent"):
        assert len(warm_starts[space, "random"]) == len(warm_starts[space, "xgb+ridge"]) == 1
        assert len(warm_starts[space, "xgb+lightgbm"]) == 2
    assert (
        warm_starts["small", "random"] == warm_starts["small", "xgb+lightgbm"][:1] != warm_starts["dependent", "random"]
    )
    read_runs(tmp_path / "out")
    small_log.write_bytes(small_log.read_bytes()[:-1])  # another log by now
    with pytest.raises(SearchlabError, match="started from a log that .*earlier does not contain"):
        Study.from_dict(spec(spaces=spaces, cost_models=models, trials=8), tmp_path).run(tmp_path / "out")


def test_a_log_that_no_run_of_a_study_can_use_is_refused(table: Path, tmp_path: Path) -> None:
    run(table, tmp_path / "earlier" / "other.jsonl", space=DEPENDENT)
    with pytest.raises(SearchlabError, match="other.jsonl cannot be used as a warm start"):
        Study.from_dict(spec(warm_start=["earlier/other.jsonl"]), tmp_path).run(tmp_path / "out")
    with pytest.warns(SearchlabWarning, match="no run can learn from any of the 1 logs in .*earlier"):
        Study.from_dict(spec(), tmp_path).run(tmp_path / "out")


def test_warm_and_cold_runs_are_not_reported_as_one(table: Path, tmp_path: Path) -> None:
    earlier = run(table, tmp_path / "earlier.jsonl", seed=9)
    run(table, tmp_path / "out" / "a.jsonl", seed=0)
    run(table, tmp_path / "out" / "b.jsonl", seed=1, warm_start=[earlier])
    with pytest.raises(SearchlabError, match="their warm_start differs"):
        read_runs(tmp_path / "out")


# --- how good the model is, in the log --------------------------------------------------------------


def test_a_batch_records_how_well_the_model_predicted_it(table: Path, tmp_path: Path) -> None:
    log = read_log(run(table, tmp_path / "a.jsonl", policy="xgb", trials=44))
    text = [record.model_quality for record in log.records]
    assert [i for i, model in enumerate(text) if model] == [23, 31, 39]  # 16 at random, the last batch is not whole
    for model in filter(None, text):
        assert (model.trial_count, model.k) == (8, 2)
        assert model.train_seconds > 0 and model.predict_seconds > 0
        assert model.rmse is not None and model.top_k_recall is not None
    assert not any(record.model_quality for record in read_log(run(table, tmp_path / "b.jsonl", trials=44)).records)
    guess = read_log(run(table, tmp_path / "c.jsonl", policy="xgb", cost_model="random", trials=120))
    accuracy = [model.pairwise_accuracy for record in guess.records if (model := record.model_quality)]
    assert 0.3 < np.mean([value for value in accuracy if value is not None]) < 0.7


def test_logs_without_model_quality_are_read_and_continued(table: Path, tmp_path: Path) -> None:
    """A log of an earlier version."""
    log = run(table, tmp_path / "a.jsonl", policy="xgb", trials=40)
    uninterrupted = run(table, tmp_path / "b.jsonl", policy="xgb", trials=48)
    old = [
        line.partition(b',"model":')[0] + b"}\n" if b',"model":' in line else line
        for line in log.read_bytes().replace(b'"warm_start":[],', b"").splitlines(keepends=True)
    ]
    log.write_bytes(b"".join(old))
    assert not any(record.model_quality for record in read_log(log).records)
    run(table, log, policy="xgb", trials=48)
    assert log.read_bytes().startswith(b"".join(old))
    assert (
        read_deterministic_part(log)[-1] == read_deterministic_part(uninterrupted)[-1]
        and read_log(log).records[-1].model_quality
    )


@pytest.mark.parametrize("policy", ["random", "xgb", "droplet"])
def test_the_first_trial_is_the_default_config_on_request(policy: str, table: Path, tmp_path: Path) -> None:
    log = read_log(run(table, tmp_path / "log.jsonl", policy=policy, warm_start="default"))
    first, *later_configs = [trial.config for trial in log.trials]
    assert first == toys.Small().default_config() and first not in later_configs
    assert log.header.warm_start == ("default",)
    assert [record.batch_number for record in log.records[:3]] == [0, 1, 1]


def test_policies_learn_from_the_default_config(table: Path, tmp_path: Path) -> None:
    """A local search continues around it, and it may be combined with an earlier log."""
    warm = read_log(run(table, tmp_path / "warm.jsonl", policy="greedy-ils", warm_start="default", trials=4))
    default, *neighbours = [trial.config for trial in warm.trials]
    assert [sum(config[name] != value for name, value in default.items()) for config in neighbours] == [1, 1, 1]
    earlier = run(table, tmp_path / "earlier.jsonl", trials=40)
    combined = read_log(run(table, tmp_path / "both.jsonl", policy="xgb", warm_start=["default", earlier], trials=9))
    assert len(combined.header.warm_start) == 2 and combined.records[8].model_quality is not None
    assert not {trial.config for trial in combined.trials[1:]} & configs(earlier)


def test_a_run_from_the_default_config_resumes(table: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": "evolutionary", "warm_start": "default"}
    complete = read_log(run(table, tmp_path / "complete.jsonl", **options))
    for trials in (1, 5, 24):
        path = run(table, tmp_path / "log.jsonl", **options, trials=trials)
    assert [trial.config for trial in read_log(path).trials] == [trial.config for trial in complete.trials]
    with pytest.raises(SearchlabError, match=r"its warm_start is \[\"default\"\], not \[\]"):
        run(table, path, policy="evolutionary")


def test_a_study_starts_from_the_default_config(table: Path, tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": [toys.WORKLOAD],
            "spaces": [SMALL, DEPENDENT],
            "policies": ["random", {"name": "random", "label": "default first", "warm_start": ["default"]}],
            "target": TARGET,
            "measure": {"kind": "table", "path": str(table)},
            "trials": 8,
        },
        tmp_path,
    )
    study.run(tmp_path / "out")
    logs = [read_log(path) for path in (tmp_path / "out").rglob("seed0.jsonl")]
    first = {(log.header.space_name, log.header.name): log.trials[0].config for log in logs}
    for name, space in {"Small": toys.Small(), "Dependent": toys.Dependent()}.items():
        assert first[name, "default first"] == space.default_config() != first[name, "random"]
