"""Studies: their runs, the keys of study files, resuming, and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.analysis import report
from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.errors import SearchlabError, SearchlabWarning
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.measure.settings import TableSettings
from searchlab.plugins import Plugin
from searchlab.policy import OwnModel
from searchlab.run import progress
from searchlab.run.plan import Run
from searchlab.run.study import Study
from searchlab.run.tune import tune
from searchlab.space import Space
from searchlab_costmodels.scikit_learn import Ridge
from searchlab_policies.random import Random
from tests.support.logs import read_deterministic_part, write_table

BASE: dict[str, Any] = {
    "workloads": ["gemm:64x64x64"],
    "spaces": [
        {"name": "searchlab.conformance.toys:Small", "label": "small"},
        {"name": "searchlab.conformance.toys:Dependent", "label": "dependent"},
    ],
    "policies": ["random", "grid", "evolutionary", "xgb", "tpe"],
    "seeds": 2,
    "trials": 20,
    "batch": 4,
    "target": {"kind": "llvm"},
}


@pytest.fixture
def base(tmp_path: Path) -> dict[str, Any]:
    for kind in (toys.Small, toys.Dependent):
        write_table(tmp_path / "tables" / f"{kind.__name__}.jsonl", kind(), toys.simulate_flaky)
    return {**BASE, "measure": {"kind": "table", "path": "tables"}}


def logs(out: Path) -> dict[str, Any]:
    return {str(path.relative_to(out)): read_deterministic_part(path) for path in sorted(out.rglob("*.jsonl"))}


def test_a_study_executes_only_missing_combinations(base: dict[str, Any], tmp_path: Path) -> None:
    study = Study.from_dict(base, tmp_path)
    results = study.run(tmp_path / "out")
    assert len(results) == 2 * 5 * 2 and all(len(result.trials) == 20 for result in results)
    assert len(logs(tmp_path / "out")) == 20
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.jsonl")}
    for path in list(before)[::3]:
        path.unlink()
    started = []
    study.run(tmp_path / "out", lambda run, *at: started.append(at))
    assert started == [(number, 20, 0) for number in range(1, 21)]
    for number, (path, data) in enumerate(before.items()):
        assert path.read_bytes() == data if number % 3 else path.exists()


def test_one_space_with_two_labels_is_reported_as_two(base: dict[str, Any], tmp_path: Path) -> None:
    write_table(tmp_path / "t.jsonl", toys.Small(), toys.simulate_smooth)
    spaces = [{"name": "searchlab.conformance.toys:Small", "label": label} for label in ("one", "two")]
    Study.from_dict({**base, "spaces": spaces, "policies": ["random"]}, tmp_path).run(tmp_path / "out")
    rows = report(tmp_path / "out").workloads[0].strategies
    assert {row.strategy for row in rows} == {"one / random", "two / random"}


def test_a_policy_may_search_only_some_spaces(base: dict[str, Any], tmp_path: Path) -> None:
    policies = [{"name": "random", "spaces": ["small"]}, {"name": "grid", "spaces": ["dependent"]}, "tpe"]
    claim = {"text": "x", "source": "x", "strategy": "small / random", "against": "dependent / grid"}
    data = {**base, "policies": policies, "seeds": 1}
    Study.from_dict({**data, "claims": [claim]}, tmp_path).run(tmp_path / "out")
    rows = report(tmp_path / "out").workloads[0].strategies
    assert {row.strategy for row in rows} == {"small / random", "dependent / grid", "small / tpe", "dependent / tpe"}
    with pytest.raises(SearchlabError, match="refer to the strategy 'dependent / random', which is not in the study"):
        Study.from_dict({**data, "claims": [{**claim, "strategy": "dependent / random"}]}, tmp_path).plan()
    with pytest.raises(SearchlabError, match="the space 'smal', which is not among the study's spaces; did you mean"):
        Study.from_dict({**data, "policies": [{"name": "random", "spaces": ["smal"]}]}, tmp_path)


def test_one_seed_one_result(base: dict[str, Any], tmp_path: Path) -> None:
    for out in ("a", "b"):
        Study.from_dict(base, tmp_path).run(tmp_path / out)
    assert logs(tmp_path / "a") == logs(tmp_path / "b")
    by_seed = [logs(tmp_path / "a")[f"gemm_64x64x64/small/random/seed{seed}.jsonl"][1:] for seed in (0, 1)]
    assert [trial["config"] for trial in by_seed[0]] != [trial["config"] for trial in by_seed[1]]


def test_a_study_can_be_extended_by_trials_and_seeds(base: dict[str, Any], tmp_path: Path) -> None:
    Study.from_dict({**base, "trials": 10, "seeds": 1}, tmp_path).run(tmp_path / "steps")
    Study.from_dict(base, tmp_path).run(tmp_path / "steps")
    Study.from_dict(base, tmp_path).run(tmp_path / "whole")
    assert logs(tmp_path / "steps") == logs(tmp_path / "whole")


def test_the_log_of_a_changed_study_is_refused(base: dict[str, Any], tmp_path: Path) -> None:
    Study.from_dict(base, tmp_path).run(tmp_path / "out")
    changed = {**base, "policies": [{"name": "evolutionary", "options": {"population": 6}}]}
    with pytest.raises(SearchlabError, match="its policy is .*, not .*population.*; give that policy a new label, "):
        Study.from_dict(changed, tmp_path).run(tmp_path / "out")


def test_cost_models_are_crossed_with_the_policies_that_take_one(base: dict[str, Any], tmp_path: Path) -> None:
    models = ["xgboost", {"name": "random", "label": "guess"}]
    cells, _ = Study.from_dict({**base, "cost_models": models, "policies": ["random", "xgb"]}, tmp_path).plan()
    assert {cell.strategy.label for cell in cells} == {"random", "xgb+xgboost", "xgb+guess"}


class Owner(Random, own_model=OwnModel(Plugin("ridge", {"alpha": 2.0}), "program")):
    """A policy with a cost model that belongs to it."""

    def __init__(self, space: Space, *, seed: int, cost_model: BoundCostModel) -> None:
        super().__init__(space, seed=seed)


OWNER = "tests.run.test_study:Owner"


def plan_first_runs(base: dict[str, Any], tmp_path: Path, policies: list[Any], **changes: Any) -> dict[str, Run]:
    """Return the first run of each strategy, by label."""
    runs, _ = Study.from_dict({**base, "policies": policies, **changes}, tmp_path).plan()
    return {run.strategy.label: run for run in reversed(runs)}


def model(run: Run) -> tuple[Plugin | None, str]:
    return run.strategy.cost_model, run.strategy.features


def test_an_entry_has_settings_over_those_of_the_study(base: dict[str, Any], tmp_path: Path) -> None:
    entries = [
        "grid",
        {"name": "random", "label": "one", "batch": 1, "trials": 30},
        {"name": "xgb", "label": "bare"},
        {"name": "xgb", "label": "features", "features": "program"},
        {"name": "xgb", "label": "model", "cost_model": "ridge"},
        {
            "name": "xgb",
            "label": "both",
            "cost_model": {"name": "ridge", "options": {"alpha": 3.0}},
            "features": "knob",
        },
    ]
    models = [{"name": "lightgbm", "features": "program"}, "xgboost"]
    runs = plan_first_runs(base, tmp_path, entries, cost_models=models)
    assert (runs["grid"].batch, runs["grid"].trial_count) == (4, 20)
    assert (runs["one"].batch, runs["one"].trial_count) == (1, 30)
    assert {label: model(run) for label, run in runs.items() if label not in ("grid", "one")} == {
        "bare+lightgbm": (Plugin("lightgbm"), "program"),
        "bare+xgboost": (Plugin("xgboost"), "knob"),
        "features+lightgbm": (Plugin("lightgbm"), "program"),
        "features+xgboost": (Plugin("xgboost"), "program"),
        "model": (Plugin("ridge"), "knob"),
        "both": (Plugin("ridge", {"alpha": 3.0}), "knob"),
    }


def test_an_entry_may_replace_the_cost_model_of_its_policy(base: dict[str, Any], tmp_path: Path) -> None:
    entries = [
        OWNER,
        {"name": OWNER, "label": "features", "features": "knob"},
        {"name": OWNER, "label": "model", "cost_model": "xgboost"},
    ]
    runs = plan_first_runs(base, tmp_path, entries, cost_models=["xgboost", "lightgbm"])
    own_model = Plugin("ridge", {"alpha": 2.0})
    assert [model(runs[label]) for label in ("Owner", "features", "model")] == [
        (own_model, "program"),
        (own_model, "knob"),
        (Plugin("xgboost"), "program"),
    ]
    header = runs["features"].header
    assert (header.cost_model, header.features) == (own_model, "knob")
    table = {"kind": "table", "path": str(tmp_path / "tables")}
    options: dict[str, Any] = {"space": toys.Small(), "policy": Owner, "trials": 4, "measure": table}
    result = tune(toys.WORKLOAD, **options, log=tmp_path / "own.jsonl")
    assert (result.log.header.cost_model, result.log.header.features) == (own_model, "program")
    result = tune(toys.WORKLOAD, **options, log=tmp_path / "given.jsonl", cost_model="xgboost", features="knob")
    assert (result.log.header.cost_model, result.log.header.features) == (Plugin("xgboost"), "knob")


def test_an_entry_starts_from_logs_of_its_own(base: dict[str, Any], tmp_path: Path) -> None:
    planned_runs = Study.from_dict({**base, "spaces": base["spaces"][:1], "policies": ["random"], "seeds": 2}, tmp_path)
    first, second = (result.log.path for result in planned_runs.run(tmp_path / "earlier"))
    entries = [
        "grid",
        {"name": "random", "label": "cold", "warm_start": []},
        {"name": "random", "label": "other", "warm_start": [str(second)]},
    ]
    study = {**base, "spaces": base["spaces"][:1]}
    runs = plan_first_runs(study, tmp_path, entries, warm_start=[str(first)])
    digests = {label: run.warm_start.digests for label, run in runs.items()}
    assert len(digests["grid"]) == len(digests["other"]) == 1 and digests["cold"] == ()
    assert digests["grid"] != digests["other"]


def test_registered_contrasts_are_in_the_logs_of_runs_that_begin(base: dict[str, Any], tmp_path: Path) -> None:
    """A contrast that is added after the runs is not registered."""
    small = {**base, "policies": ["random", "grid"], "spaces": base["spaces"][:1], "trials": 4}
    registered = {**small, "contrasts": [["grid", "random"]]}
    Study.from_dict(registered, tmp_path).run(tmp_path / "before")
    Study.from_dict(small, tmp_path).run(tmp_path / "after")
    Study.from_dict(registered, tmp_path).run(tmp_path / "after")
    for directory, pairs in (("before", (("grid", "random"),)), ("after", ())):
        headers = [read_log(path).header for path in (tmp_path / directory).rglob("*.jsonl")]
        assert len(headers) == 4 and {header.contrasts for header in headers} == {pairs}


@pytest.mark.parametrize(
    ("pair", "message"),
    [(["gird", "random"], "the strategy 'gird'.*did you mean 'grid'"), (["grid", "grid"], "two different strategies")],
)
def test_a_contrast_names_two_strategies_of_the_study(
    base: dict[str, Any], tmp_path: Path, pair: list[str], message: str
) -> None:
    with pytest.raises(SearchlabError, match=message):
        Study.from_dict({**base, "contrasts": [pair]}, tmp_path).plan()


def test_another_batch_is_another_run(base: dict[str, Any], tmp_path: Path) -> None:
    entry = {"name": "random", "batch": 2}
    Study.from_dict({**base, "policies": [entry]}, tmp_path).run(tmp_path / "out")
    with pytest.raises(
        SearchlabError, match=r"its batch is 2, not 5; give that policy a new label, choose another dir"
    ):
        Study.from_dict({**base, "policies": [entry | {"batch": 5}]}, tmp_path).run(tmp_path / "out")
    extended = Study.from_dict({**base, "policies": [entry | {"trials": 24}]}, tmp_path).run(tmp_path / "out")
    assert {len(result.trials) for result in extended} == {24}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"policies": [{"name": "random", "cost_model": "ridge"}]},
            "policy 'random' does not use a cost model; omit cost_model = 'ridge'",
        ),
        (
            {"policies": [{"name": "random", "features": "knob"}]},
            "policy 'random' does not use a cost model; omit features = 'knob'",
        ),
        ({"policies": ["random"], "cost_models": ["xgbost"]}, "'xgbost'; did you mean 'xgboost'\\? Each cost model"),
        (
            {"features": "program"},
            "unknown key 'features' .*it belongs in an entry of 'policies' or an entry of 'cost_",
        ),
        ({"repeat": 5}, "unknown key 'repeat' .*it belongs in 'measure'"),
        ({"target": "gpu"}, "unknown target CPU 'gpu'; did you mean 'cuda'"),
        (
            {"policies": [{"name": "random", "batch": 0}]},
            "policies.0..batch cannot be 0; it must be a whole number",
        ),
        (
            {"policies": [{"name": "xgb", "features": "knobs"}]},
            "policies.0..features cannot be 'knobs'; it must be one of",
        ),
        ({"policies": [{"name": "xgb", "cost_model": {"nam": "x"}}]}, "unknown key 'nam' in policies.0..cost_model"),
        ({"policies": ["random", {"name": "random", "batch": 2}]}, "two policy entries are called 'random'"),
        ({"polices": ["x"]}, "unknown key 'polices' .*did you mean 'policies'"),
        ({"trials": "many"}, "trials cannot be 'many'"),
        ({"trials": "64"}, "trials cannot be '64'; write the number without quotes: 64"),
        ({"seeds": "3"}, "seeds cannot be '3'; write the number without quotes: 3"),
        ({"workloads": "gemm:8x8x8"}, "workloads cannot be 'gemm:8x8x8'; write a list: .\"gemm:8x8x8\"."),
        ({"measure": {"path": "a.jsonl"}}, "the key 'kind' is missing in measure; it must be one of"),
        ({"measure": {"repaet": 2}}, "unknown key 'repaet' in measure .*did you mean 'repeat'"),
        ({"trials": 0}, "trials cannot be 0; it must be a whole number from 1 to 1000000000, or a string, or null"),
        ({"seeds": [1, 1]}, "seeds must be .*, not \\[1, 1\\]"),
        ({"workloads": []}, "workloads must not be empty; add one from searchlab list workloads"),
        ({"workloads": ["gemm:1x1"]}, "needs 3 whole numbers"),
        ({"workloads": ["gemm:8x8x8", "gemm:8x8x8:float32"]}, "two workload entries are called 'gemm:8x8x8'"),
        (
            {"measure": {"kind": "lcal"}},
            "measure.kind cannot be 'lcal'; it must be one of 'local', 'function', 'rpc', 'table'",
        ),
        ({"measure": {"kind": "local", "repeats": 3}}, "unknown key 'repeats' in measure .*did you mean 'repeat'"),
        ({"measure": {"kind": "local", "repeat": 0}}, "measure.repeat cannot be 0"),
        ({"measure": {"kind": "table"}}, "the key 'path' is missing in measure"),
        (
            {"cost_models": [{"name": "xgboost", "features": "knobb"}]},
            "features cannot be 'knobb'; it must be one of 'knob',",
        ),
        ({"cost_models": ["xgbost"], "policies": ["xgb"]}, "unknown cost model 'xgbost'; did you mean 'xgboost'"),
        ({"spaces": [{"nam": "x"}]}, "unknown key 'nam' in spaces\\[0\\]"),
        ({"spaces": ["knob-templat"]}, "unknown space 'knob-templat'; did you mean 'knob-template'"),
        ({"spaces": ["nowhere:Space"]}, "'nowhere:Space' cannot be loaded"),
        ({"spaces": [{"name": "knob-template", "options": {"tile": 1}}]}, "has no option 'tile'"),
        ({"policies": ["xbg"]}, "unknown policy 'xbg'; did you mean 'xgb'"),
        ({"policies": ["random", "random"]}, "two policy entries are called 'random'"),
        ({"policies": [{"name": "xgb", "options": {"chain": 3}}]}, "has no option 'chain'; did you mean 'chains'"),
        ({"policies": [{"name": "evolutionary", "options": {"population": "big"}}]}, "population.* 'big'"),
        ({"target": "znver44"}, "unknown target CPU 'znver44'"),
        ({"workloads": ["conv2d:1x8x8x4x4x3x3"], "spaces": ["guided-gemm"]}, "no space in the study supports"),
    ],
)
def test_errors_in_a_study_are_reported_before_anything_runs(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SearchlabError, match=message):
        Study.from_dict({**BASE, **change}, tmp_path).run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_has_only_one_suite() -> None:
    with pytest.raises(SearchlabError, match="suite cannot be .*; specify only one, such as .v1/dev."):
        Study.from_dict({"suite": ["v1/dev", "v1/test"], "policies": ["random"]})


def test_a_study_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("workloads = [")
    for path, message in (
        (tmp_path / "bad.toml", "is not valid TOML"),
        (tmp_path / "absent.toml", "cannot read the study"),
    ):
        with pytest.raises(SearchlabError, match=message):
            Study.load(path)


def test_spaces_that_do_not_fit_a_workload_are_named(tmp_path: Path) -> None:
    spec = {**BASE, "workloads": ["gemm:8x8x8", "conv2d:1x8x8x4x4x3x3"], "spaces": ["knob-template", "guided-gemm"]}
    cells, left_out = Study.from_dict(spec, tmp_path).plan()
    assert len(cells) == 3 * 5 * 2
    assert len(left_out) == 1 and left_out[0].startswith("conv2d:1x8x8x4x4x3x3 is not searched in guided-gemm: ")


def test_programs_measured_by_another_policy_are_reused(tmp_path: Path) -> None:
    """Two policies measure on this machine, and start from the same configs."""
    spec = {
        **BASE,
        "workloads": ["gemm:16x16x16"],
        "spaces": ["knob-template"],
        "policies": ["random", "xgb"],
        "target": "native",
        "trials": 6,
        "seeds": 1,
        "measure": {"kind": "local", "repeat": 2, "min_repeat_ms": 0, "prune_factor": 0, "finalists": 0},
    }
    study = Study.from_dict(spec)
    results = study.run(tmp_path / "out")
    programs = [{record.program: record for record in result.log.records} for result in results]
    shared = set(programs[0]) & set(programs[1])
    assert shared  # both begin with the random configs of the seed
    for program in shared:
        assert not programs[0][program].reused and programs[1][program].reused
        assert programs[1][program].seconds == programs[0][program].seconds
        assert programs[1][program].build_seconds == programs[0][program].build_seconds > 0
    best = results[0].best
    reloaded = load_log(results[0].log.path).best
    assert reloaded == best and reloaded.gflops == pytest.approx(2 * 16**3 / best.seconds / 1e9)
    assert str(reloaded.schedule().mod) == str(best.schedule().mod)
    frame = results[0].to_frame()
    assert len(frame) == 6 and frame["cost"].min() == best.seconds
    assert "config.tile_i" in frame and (np.diff(frame["best_gflops"]) >= 0).all()


@pytest.mark.parametrize("jobs", [1, 2])
def test_on_run_may_return_nothing(base: dict[str, Any], tmp_path: Path, jobs: int) -> None:
    calls: list[Any] = []
    study = Study.from_dict({**base, "policies": ["random"]}, tmp_path)
    study.run(tmp_path / "out", lambda *args: calls.append(args[1:]), jobs)
    assert [number for number, *_ in calls] == [1, 2, 3, 4]


def test_a_log_with_more_trials_than_requested_is_reported(base: dict[str, Any], tmp_path: Path) -> None:
    Study.from_dict({**base, "policies": ["random"]}, tmp_path).run(tmp_path / "out")
    fewer = Study.from_dict({**base, "policies": ["random"], "trials": 10}, tmp_path)
    with pytest.warns(SearchlabWarning, match="contains 20 trials, more than the 10 requested .and so do 3 other"):
        fewer.run(tmp_path / "out")


class Backwards(Random):
    """A policy that is defined in a script, with an option."""

    def __init__(self, space: Space, *, seed: int, far: int = 1) -> None:
        super().__init__(space, seed=seed)


class Flat(Ridge):
    """A cost model that is defined in a script."""


def test_a_study_takes_classes_and_objects(base: dict[str, Any], tmp_path: Path) -> None:
    class Local(Random):
        """A class that cannot be found by a name."""

    settings = TableSettings(path="tables")
    with_objects = {
        **base,
        "workloads": [toys.WORKLOAD],
        "measure": settings,
        "target": toys.TARGET,
        "cost_models": [Flat],
        "policies": [Local, {"name": Backwards, "options": {"far": 2}, "label": "far"}, "xgb"],
        "spaces": [{"name": toys.Dependent, "label": "dependent"}, {"name": toys.Small(), "label": "small"}],
    }
    results = Study.from_dict(with_objects, tmp_path).run(tmp_path / "out")
    assert len(results) == 2 * 3 * 2
    frame = results.to_frame()
    assert len(frame) == 12 * 20 and list(frame["strategy"].unique()) == ["Local", "far", "xgb"]
    with_names = {
        **base,
        "policies": [{"name": "tests.run.test_study:Backwards", "options": {"far": 2}, "label": "far"}, "xgb"],
        "cost_models": ["tests.run.test_study:Flat"],
        "spaces": base["spaces"],
    }
    before = logs(tmp_path / "out")
    assert len(Study.from_dict(with_names, tmp_path).run(tmp_path / "out")) == 8
    assert logs(tmp_path / "out") == before, "the same runs by name"


def test_a_space_that_is_given_brings_its_workload(base: dict[str, Any], tmp_path: Path) -> None:
    settings = {key: value for key, value in base.items() if key not in ("workloads", "target")}
    runs, _ = Study.from_dict({**settings, "spaces": [toys.Small()], "policies": ["random"]}, tmp_path).plan()
    assert {run.workload_name for run in runs} == {str(toys.WORKLOAD)} and runs[0].space.target == toys.TARGET
    two_workloads = {
        **base,
        "workloads": [str(toys.WORKLOAD), "gemm:8x8x8"],
        "spaces": [toys.Small()],
        "policies": ["random"],
    }
    _, left_out = Study.from_dict(two_workloads, tmp_path).plan()
    assert "gemm:8x8x8 is not searched in " in left_out[0] and "this space is for gemm:64x64x64" in left_out[0]
    with pytest.raises(SearchlabError, match="two spaces for gemm:64x64x64 are called"):
        Study.from_dict({**base, "spaces": [toys.Small(), toys.Small()]}, tmp_path)

    class Hidden(toys.Small):
        pass

    with pytest.raises(SearchlabError, match="define its class at the top level of a module"):
        Study.from_dict({**base, "spaces": [Hidden]}, tmp_path)


def test_the_frame_of_a_study_identifies_each_run(base: dict[str, Any], tmp_path: Path) -> None:
    results = Study.from_dict({**base, "policies": ["random", "xgb"]}, tmp_path).run(tmp_path / "out")
    frame = results.to_frame()
    assert list(frame.columns[:8]) == [
        "workload",
        "space",
        "strategy",
        "policy",
        "cost_model",
        "features",
        "batch",
        "seed",
    ]
    counts = frame.groupby(["workload", "space", "strategy", "seed"]).size()
    assert len(counts) == 8 and set(counts) == {20}
    assert set(frame.loc[frame["policy"] == "xgb", "cost_model"]) == {"xgboost"}
    assert frame.loc[frame["policy"] == "random", "cost_model"].isna().all()
    works = frame[frame["failure"].isna()]
    assert (works["repeats"].map(len) > 0).all() and len(works) < len(frame)


def test_progress_is_shown_unless_it_is_hidden(
    base: dict[str, Any], tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    study = Study.from_dict({**base, "policies": ["random"]}, tmp_path)
    study.run(tmp_path / "a", progress=False)
    assert capfd.readouterr() == ("", "")
    study.run(tmp_path / "b")  # no terminal here
    assert "the study: 80 of 80 done" in capfd.readouterr().err


def test_text_that_is_not_unicode_is_refused(base: dict[str, Any]) -> None:
    with pytest.raises(SearchlabError, match="UTF-8 cannot encode"):
        Study.from_dict({**base, "policies": [{"name": "random", "label": "\ud800"}]})
