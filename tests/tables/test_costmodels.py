"""Comparing cost models on recorded trials."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.format import Header, Record
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.space import Space
from searchlab.tables.costmodels import compute_mean_quality, evaluate
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.templates import KnobTemplate
from tests.support.cli import searchlab

pytestmark = pytest.mark.usefixtures("trusting")

MODELS = [Plugin("xgboost"), Plugin("xgboost", {"objective": "rank"}), Plugin("random")]


def write(
    path: Path,
    space: Space,
    name: str,
    trials: int = 80,
    cost: toys.SimulateFunction = toys.simulate_smooth,
    seed: int = 0,
) -> Path:
    header = Header(
        workload=str(space.workload),
        space=Plugin(name),
        fingerprint=space.fingerprint,
        policy=Plugin("random"),
        seed=0,
        batch=8,
        target=space.target.to_json(),
        measure={},
    )
    writer = LogWriter(path, header)
    for trial in toys.simulate_trials(space.sample_new(np.random.default_rng(seed), trials, ()), cost):
        writer.append(Record.from_trial(trial))
    writer.close()
    return path


@pytest.fixture(scope="module")
def toy_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write(folder / "large.jsonl", toys.Large(), "searchlab.conformance.toys:Large", 150)
    write(folder / "dependent.jsonl", toys.Dependent(), "searchlab.conformance.toys:Dependent", 150)
    return folder


@pytest.fixture(scope="module")
def gemm_logs(tmp_path_factory: pytest.TempPathFactory, native: Target) -> Path:
    """Real programs of three workloads, one with two logs, at a made-up cost that their programs show."""
    folder = tmp_path_factory.mktemp("gemms")

    def cost(config: Any) -> Any:
        j, i = math.log2(config["tile_j"][-1]), math.log2(config["tile_i"][-1])
        return toys.successful_measurement(1e-3 * (1 + abs(j - 3) + 0.1 * i))

    for number, shape in enumerate(("32x32x32", "64x32x32", "32x64x32", "32x64x32")):
        space = KnobTemplate(parse_workload(f"gemm:{shape}"), native)
        write(folder / f"{number}.jsonl", space, "knob-template", 30, cost, seed=number)
    return folder


def test_within_a_task_a_model_beats_guessing(toy_logs: Path) -> None:
    qualities = evaluate([toy_logs], MODELS, k=3)
    assert [quality.log.name for quality in qualities] == ["dependent.jsonl", "large.jsonl"] * 3
    assert {quality.quality.trial_count for quality in qualities} == {45} and {
        quality.quality.k for quality in qualities
    } == {3}
    means = compute_mean_quality(qualities)
    assert list(means) == ["xgboost", "xgboost,objective=rank", "random"]
    accuracy = {name: row["pairwise_accuracy"] for name, row in means.items()}
    assert accuracy["xgboost"] > 0.75 < accuracy["xgboost,objective=rank"]
    assert 0.35 < accuracy["random"] < 0.65


def test_the_seed_decides_what_is_held_out_and_nothing_else_does(toy_logs: Path) -> None:
    def metrics(**options: Any) -> list[Any]:
        qualities = evaluate([toy_logs / "large.jsonl"], MODELS[:1], **options)
        return [
            (quality.quality.trial_count, quality.quality.rmse, quality.quality.kendall_tau) for quality in qualities
        ]

    assert metrics(seed=1) == metrics(seed=1) != metrics(seed=2)
    assert metrics(train_fraction=0.5)[0][0] == 75


def test_by_task_each_workload_is_left_out_with_all_of_its_logs(gemm_logs: Path) -> None:
    qualities = evaluate([gemm_logs], [Plugin("lightgbm"), Plugin("random")], features="program", split="by-task")
    assert len(qualities) == 2 * 4 and {quality.quality.trial_count for quality in qualities} == {30}
    means = compute_mean_quality(qualities)
    assert means["lightgbm"]["pairwise_accuracy"] > 0.7 > 0.6 > means["random"]["pairwise_accuracy"]
    within_task = evaluate([gemm_logs / "0.jsonl"], [Plugin("lightgbm")], features="program")
    assert within_task[0].quality.trial_count == 9


@pytest.mark.parametrize(("features", "model"), [("per-store", "pack-sum"), ("itervar", "lightgbm")])
def test_by_task_with_features_whose_rows_differ_in_length(features: str, model: str, gemm_logs: Path) -> None:
    qualities = evaluate([gemm_logs], [Plugin(model)], features=features, split="by-task")
    accuracy = compute_mean_quality(qualities)[model]["pairwise_accuracy"]
    assert len(qualities) == 4 and accuracy is not None and accuracy > 0.65


@pytest.mark.parametrize(
    ("logs", "options", "message"),
    [
        (["absent.jsonl"], {}, "cannot read the log"),
        (["large.jsonl"], {"features": "per-store"}, "'xgboost' cannot learn from the features 'per-store'.*pack-sum"),
        (["empty"], {}, "no logs"),
        (["few.jsonl"], {}, "few.jsonl has 7 successful trials, but at least 8 are needed"),
        (["large.jsonl"], {"models": [Plugin("xgbost")]}, "unknown cost model 'xgbost'; did you mean 'xgboost'"),
        (["large.jsonl"], {"models": [Plugin("gp", {"rows": 1})]}, "cost model 'gp' has no option 'rows'; did you"),
        (["large.jsonl"], {"models": [Plugin("gp", {"max_rows": "x"})]}, "option 'max_rows' is 'x'"),
        (["large.jsonl"], {"features": "knobs"}, "option 'features' cannot be 'knobs'; did you mean 'knob'"),
        (["large.jsonl"], {"split": "by-workload"}, "option 'split' cannot be 'by-workload'"),
        (["large.jsonl"], {"split": "by-task"}, "by-task split trains on other workloads, but knob features"),
        (["large.jsonl"], {"split": "by-task", "features": "program"}, "every log is for gemm:64x64x64"),
        (["large.jsonl"], {"train_fraction": 1.0}, "option 'train_fraction' is 1.0"),
        (["large.jsonl"], {"k": 0}, "option 'k' is 0"),
        (["large.jsonl"], {"seed": -1}, "option 'seed' is -1"),
    ],
)
def test_bad_input_is_named_in_the_error(
    logs: list[str], options: dict[str, Any], message: str, toy_logs: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    if logs == ["few.jsonl"]:
        write(tmp_path / "few.jsonl", toys.Large(), "searchlab.conformance.toys:Large", 7, toys.simulate_equal)
    where = toy_logs if logs == ["large.jsonl"] else tmp_path
    with pytest.raises(SearchlabError, match=message):
        evaluate([where / name for name in logs], **({"models": MODELS} | options))


def test_the_command_prints_a_table_or_json(toy_logs: Path) -> None:
    words = ["costmodel", "eval", toy_logs, "--model", "ridge", "--model", "xgboost,objective=rank,rounds=20"]
    result = searchlab(*words, "--trust")
    assert result.returncode == 0, result.stderr
    assert "within-task, knob features" in result.stdout
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows if len(row) == 8] == ["ridge", "xgboost,objective=rank,rounds=20"]
    data = json.loads(searchlab(*words, "--trust", "--json").stdout)
    assert data["means"]["ridge"]["pairwise_accuracy"] > 0.5
    assert {row["log"] for row in data["logs"]} == {str(path) for path in toy_logs.glob("*.jsonl")}
    assert data["logs"][-1]["model"] == {"name": "xgboost", "options": {"objective": "rank", "rounds": 20}}
    refused = searchlab("costmodel", "eval", toy_logs, "--model", "xgboost,rank=1")
    assert refused.returncode == 2 and "has no option 'rank'" in refused.stderr
    assert searchlab("costmodel", "eval", toy_logs).returncode == 2
    assert "eval" in searchlab("costmodel", "--help").stdout
