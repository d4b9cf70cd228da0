"""Saved cost models: the same predictions after loading, and files that are refused in a sentence."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import COST_MODELS, BoundCostModel, OtherTask, load_model, make_cost_model, save_model
from searchlab.costmodel.features import KnobFeatures, ProgramFeatures
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.records import Measurement
from searchlab.target import Target
from searchlab.workload import gemm
from searchlab_spaces.templates import KnobTemplate

MODELS = {
    **{name: Plugin(name) for name in COST_MODELS.entry_points_by_name()},
    "xgboost-rank": Plugin("xgboost", {"objective": "rank"}),
    "pack-sum-rank": Plugin("pack-sum", {"objective": "rank"}),
    "lightgbm-rank": Plugin("lightgbm", {"objective": "lambdarank"}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def train(name: str, n: int = 60) -> BoundCostModel:
    space = toys.Large()
    bound = BoundCostModel(make_cost_model(MODELS[name], 3), KnobFeatures(space))
    bound.fit(toys.simulate_trials(space.sample_new(np.random.default_rng(0), n, ()), toys.simulate_smooth))
    return bound


@every_model
def test_a_loaded_model_predicts_the_same(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bound = train(name)
    save_model(bound, tmp_path / "a.model")
    space = toys.Large()
    loaded = load_model(tmp_path / "a.model", space)
    configs = space.sample_new(np.random.default_rng(1), 50, ())
    np.testing.assert_array_equal(loaded.predict(configs), bound.predict(configs))
    assert loaded.best == bound.best and loaded.model.plugin == bound.model.plugin
    if bound.model.uncertainty:
        np.testing.assert_array_equal(loaded.predict_members(configs), bound.predict_members(configs))
    save_model(loaded, tmp_path / "b.model")
    assert (tmp_path / "b.model").read_bytes() == (tmp_path / "a.model").read_bytes()
    assert capfd.readouterr() == ("", "")


@every_model
def test_a_model_without_a_success_is_saved_too(name: str, tmp_path: Path) -> None:
    space = toys.Large()
    bound = BoundCostModel(make_cost_model(MODELS[name], 3), KnobFeatures(space))
    configs = space.sample_new(np.random.default_rng(0), 1, ())
    bound.fit(toys.simulate_trials(configs, lambda _: Measurement(failure="crash")))
    save_model(bound, tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model", space)
    np.testing.assert_array_equal(loaded.predict(configs), bound.predict(configs))
    assert loaded.best == np.inf


@pytest.mark.parametrize("fitted", [False, True])
def test_a_model_that_started_from_other_tasks_still_knows_them(fitted: bool, tmp_path: Path) -> None:
    space = toys.Large()
    bound = BoundCostModel(make_cost_model(Plugin("pretrained"), 0), KnobFeatures(space))
    configs = space.sample_new(np.random.default_rng(0), 100, ())
    bound.pretrain([OtherTask(space, configs[:60], np.linspace(0, 1, 60))])
    trials = toys.simulate_trials(configs[60:], toys.simulate_smooth)
    if fitted:
        bound.fit(trials)
    save_model(bound, tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model", space)
    assert loaded.started
    np.testing.assert_array_equal(loaded.predict(configs), bound.predict(configs))


def test_a_model_of_programs_predicts_in_another_space(tmp_path: Path) -> None:
    target = Target({"kind": "llvm", "num-cores": 1})
    small, large = (KnobTemplate(gemm(n, n, n), target) for n in (16, 32))
    configs = small.sample_new(np.random.default_rng(0), 8, ())
    bound = BoundCostModel(make_cost_model(Plugin("ridge"), 0), ProgramFeatures(small))
    bound.fit(toys.simulate_trials(configs, lambda config: Measurement((1e-3 * (1 + configs.index(config)),))))
    save_model(bound, tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model", large)
    assert loaded.predict(large.sample_new(np.random.default_rng(0), 5, ())).shape == (5,)


def test_a_model_of_knobs_is_refused_by_another_space(tmp_path: Path) -> None:
    save_model(train("ridge"), tmp_path / "a.model")
    space = KnobTemplate(gemm(16, 16, 16), Target({"kind": "llvm", "num-cores": 1}))
    with pytest.raises(SearchlabError, match="predicts from knobs of a space of .*; train a model here"):
        load_model(tmp_path / "a.model", space)


def test_trees_are_in_the_formats_of_their_libraries(tmp_path: Path) -> None:
    import lightgbm
    import xgboost

    save_model(train("xgboost"), tmp_path / "x.model")
    save_model(train("lightgbm"), tmp_path / "l.model")
    with zipfile.ZipFile(tmp_path / "x.model") as archive:
        assert xgboost.Booster(model_file=bytearray(archive.read("trained/trees.json"))).num_boosted_rounds() == 100
    with zipfile.ZipFile(tmp_path / "l.model") as archive:
        assert lightgbm.Booster(model_str=archive.read("trained/trees.txt").decode()).num_trees() == 100


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    untrained = BoundCostModel(make_cost_model(Plugin("ridge"), 0), KnobFeatures(toys.Large()))
    with pytest.raises(SearchlabError, match="has not been trained"):
        save_model(untrained, tmp_path / "a.model")
    by_hand = train("ridge")
    by_hand.model.plugin = None
    with pytest.raises(SearchlabError, match="make_cost_model"):
        save_model(by_hand, tmp_path / "a.model")
    assert not list(tmp_path.iterdir())


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Write the archive again after ``change``, in a valid format except for the digest."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def edit_header(**changes: object) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files["model.json"] = json.dumps({**json.loads(files["model.json"]), **changes}).encode()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.update({"rows/scores.npy": b"x"}), "digest does not match"),
        (lambda files: files.pop("model.json"), "is not a saved cost model"),
        (edit_header(searchlab_model="2.0"), "is not a saved cost model.*2.0"),
        (edit_header(cost_model={"name": "evil:Model"}), "evil"),
        (edit_header(features="knobs"), "did you mean 'knob'"),
    ],
)
def test_damaged_files_are_refused(change: Callable[[dict[str, bytes]], None], message: str, tmp_path: Path) -> None:
    save_model(train("xgboost", 10), tmp_path / "a.model")
    rewrite(tmp_path / "a.model", change)
    with pytest.raises(SearchlabError, match=message):
        load_model(tmp_path / "a.model", toys.Large())


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_text("hello")
    with pytest.raises(SearchlabError, match="is not a saved cost model"):
        load_model(tmp_path / "a.model", toys.Large())
    with pytest.raises(SearchlabError, match="no such file|cannot read"):
        load_model(tmp_path / "none", toys.Large())


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    from searchlab.costmodel import storage

    save_model(train("ridge"), tmp_path / "a.model")

    def change(files: dict[str, bytes]) -> None:
        np.save(tmp_path / "pickled.npy", np.array([print], dtype=object), allow_pickle=True)
        files["rows/scores.npy"] = (tmp_path / "pickled.npy").read_bytes()
        contents = {name: data for name, data in files.items() if name != "model.json"}
        edit_header(digest=storage._hash_files(contents))(files)

    rewrite(tmp_path / "a.model", change)
    with pytest.raises(SearchlabError, match="is damaged: .*allow_pickle"):
        load_model(tmp_path / "a.model", toys.Large())
