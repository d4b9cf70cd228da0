"""Saved cost models: what a file holds, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.costmodel import OtherTask, Surrogate, load, make_cost_model, save
from searchlab.costmodel.features import KnobFeatures, ProgramFeatures
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_costmodels.xgboost import XGBoost
from searchlab_spaces.templates import KnobTemplate
from tests.support import toys


def trained() -> Surrogate:
    space = toys.Small()
    surrogate = Surrogate(make_cost_model(Plugin("xgboost", {"rounds": 5}), 1), KnobFeatures(space))
    surrogate.fit(toys.trials_of(list(space.enumerate())[::3], toys.smooth))
    return surrogate


def test_program_features_are_of_use_in_another_space(native: Target, tmp_path: Path) -> None:
    small, other = (KnobTemplate(parse_workload(f"gemm:{n}x32x32"), native) for n in (32, 64))
    surrogate = Surrogate(make_cost_model(Plugin("ridge"), 1), ProgramFeatures(small))
    configs = [small.config_at(i) for i in (0, 5, 77, 100)]
    surrogate.pretrain([OtherTask(other, [other.config_at(i) for i in (1, 2, 3)], np.array([1, 0.5, 0]))])
    surrogate.fit(toys.trials_of(configs, toys.smooth))
    save(surrogate, tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.npz"]
    here = load(tmp_path / "model.npz", small)
    np.testing.assert_array_equal(here.predict(configs), surrogate.predict(configs))
    assert here.rows is not None and here.rows.groups.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert np.isfinite(load(tmp_path / "model.npz", other).predict([other.config_at(3)])).all()


def test_knob_features_are_refused_in_another_space(tmp_path: Path) -> None:
    save(trained(), tmp_path / "model")
    with pytest.raises(SearchlabError, match="trained on the knobs of Small of gemm:64x64x64 .* not of Dependent"):
        load(tmp_path / "model", toys.Dependent())


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    space = toys.Small()
    with pytest.raises(SearchlabError, match="not trained yet"):
        save(Surrogate(make_cost_model(Plugin("xgboost"), 1), KnobFeatures(space)), tmp_path / "model")
    by_hand = Surrogate(XGBoost(seed=0), KnobFeatures(space))
    by_hand.fit(toys.trials_of(list(space.enumerate()), toys.smooth))
    with pytest.raises(SearchlabError, match="must be made by make_cost_model"):
        save(by_hand, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    with pytest.raises(SearchlabError, match="cannot write the cost model .*: No such file"):
        save(trained(), tmp_path / "nowhere" / "model")


def rewritten(path: Path, **changes: Any) -> None:
    """A saved model with arrays exchanged; ``None`` leaves one out."""
    with np.load(path) as file:
        arrays = dict(file) | changes
    with open(path, "wb") as out:
        np.savez(out, **{name: value for name, value in arrays.items() if value is not None})


def header(**changes: Any) -> Any:
    buffer = io.BytesIO()
    np.savez(buffer)
    known = {
        "searchlab_model": 1, "model": {"name": "xgboost"}, "seed": 0, "features": "program", "columns": [],
        "fingerprint": "", "space": "",
    }  # fmt: skip
    return np.frombuffer(json.dumps(known | changes).encode(), dtype=np.uint8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"header": None}, "is no cost model that searchlab saved"),
        ({"header": np.frombuffer(b"{}", dtype=np.uint8)}, "is no cost model .*missing required field"),
        ({"header": header(searchlab_model=2)}, "is no cost model"),
        (
            {"header": header(model={"name": "subprocess:Popen", "options": {"args": ["false"]}})},
            "no installed package",
        ),
        ({"header": header(model={"name": "xgbost"})}, "unknown cost model 'xgbost'"),
        ({"header": header(model={"name": "xgboost", "options": {"trees": 1}})}, "has no option 'trees'"),
        ({"header": header(features="magic")}, "unknown features 'magic'"),
        ({"header": header(features="knob", columns=[["tile", 0]])}, "is damaged: its features are of shape"),
        ({"features": np.zeros((3, 2))}, "is damaged: its features are of shape \\(3, 2\\)"),
        ({"features": np.zeros(40)}, "is damaged: its features"),
        ({"scores": np.zeros((0,))}, "is damaged: its"),
        ({"groups": np.zeros(40)}, "is damaged: its groups are of shape \\(40,\\) and type float64"),
        ({"scores": np.array([print] * 40, dtype=object)}, "is no cost model .*[Pp]ickle"),
    ],
)
def test_a_damaged_file_is_one_sentence_and_nothing_in_it_runs(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "model"
    save(trained(), path)
    rewritten(path, **changes)
    with pytest.raises(SearchlabError, match=said):
        load(path, toys.Small())


@pytest.mark.parametrize("content", [b"", b"dear diary", b"\x80\x04N.", b"PK\x03\x04torn"])
def test_a_foreign_or_torn_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(SearchlabError, match="is no cost model that searchlab saved"):
        load(tmp_path / "model", toys.Small())
    with pytest.raises(SearchlabError, match="cannot read the cost model .*No such file"):
        load(tmp_path / "absent", toys.Small())


def test_a_torn_archive_is_one_sentence(tmp_path: Path) -> None:
    save(trained(), tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    for keep in (10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "model").write_bytes(whole[:keep])
        with pytest.raises(SearchlabError):
            load(tmp_path / "model", toys.Small())
    for place in range(0, len(whole), 40):  # where it goes unnoticed, it was of no consequence
        (tmp_path / "model").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = load(tmp_path / "model", toys.Small())
        except SearchlabError:
            continue
        configs = [toys.Small().config_at(i) for i in range(20)]
        np.testing.assert_array_equal(found.predict(configs), trained().predict(configs))
