"""Acquisition functions of the searches on a cost model, and the ensembles behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.contract import COST_MODELS
from searchlab.costmodel.features import KnobFeatures
from searchlab.errors import SearchlabError
from searchlab.records import Trial
from searchlab.space import Config
from searchlab_costmodels.scikit_learn import RandomForest, Ridge
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.acquisition import KAPPA, Acquisition, AcquisitionName, expected_improvement
from searchlab_policies.evolutionary_model import EvolutionaryModel
from searchlab_policies.xgb import Xgb

SPACE = toys.Large()
UNCERTAIN = [name for name in COST_MODELS.entry_points_by_name() if COST_MODELS.load(name).uncertainty]


def trials(n: int = 40) -> list[Trial]:
    return toys.simulate_trials(SPACE.sample_new(np.random.default_rng(0), n, ()), toys.simulate_smooth)


def sample_configs(n: int = 60) -> list[Config]:
    return SPACE.sample_new(np.random.default_rng(1), n, ())


def fit_model(name: str = "random-forest", **options: Any) -> BoundCostModel:
    model = BoundCostModel(COST_MODELS.load(name)(seed=0, **options), KnobFeatures(SPACE))
    model.fit(trials())
    return model


@pytest.mark.parametrize("name", UNCERTAIN)
def test_an_ensemble_disagrees_where_there_is_no_data(name: str) -> None:
    model = fit_model(name)
    members = model.predict_members(sample_configs())
    assert members.shape[0] > 1
    assert members.shape[1] == 60
    assert (fit_model(name).predict_members(sample_configs()) == members).all()
    deviation = model.predict_members([trial.config for trial in trials()]).std(axis=0)
    assert members.std(axis=0).mean() > 0
    assert deviation.mean() < 1.5 * members.std(axis=0).mean()
    if model.model.uncertainty == "members":
        assert np.allclose(members.mean(axis=0), model.predict(sample_configs()))
    assert model.predict_members([]).shape[1] == 0


def test_retraining_copies_leaves_the_model_unchanged() -> None:
    model = fit_model("xgboost", rounds=10)
    before = model.predict(sample_configs())
    members = model.predict_members(sample_configs())
    assert (model.predict(sample_configs()) == before).all()
    model.fit(trials(48))
    assert (model.predict_members(sample_configs()) != members).any()
    assert BoundCostModel(XGBoost(seed=0), KnobFeatures(SPACE)).predict_members(sample_configs()).tolist() == [
        [0.0] * 60
    ]


@pytest.mark.parametrize("acquisition", ["ei", "ucb", "thompson"])
@pytest.mark.parametrize("cls", [Xgb, EvolutionaryModel])
def test_a_model_without_uncertainty_is_refused(cls: Any, acquisition: AcquisitionName) -> None:
    with pytest.raises(SearchlabError, match="'ridge'.*random-forest") as caught:
        cls(SPACE, seed=0, cost_model=BoundCostModel(Ridge(seed=0), KnobFeatures(SPACE)), acquisition=acquisition)
    assert {"random-forest", "extra-trees", "xgboost", "lightgbm"} <= set(UNCERTAIN)
    assert all(name in str(caught.value) for name in UNCERTAIN)


def test_the_functions_are_what_their_names_say() -> None:
    model = fit_model()
    members = model.predict_members(sample_configs())
    mean, deviation = members.mean(axis=0), members.std(axis=0)

    def values(name: AcquisitionName, seed: int = 0) -> Any:
        acquisition = Acquisition(name, model)
        acquisition.begin_batch(trials(), np.random.default_rng(seed))
        return acquisition(sample_configs())

    assert (values("mean") == model.predict(sample_configs())).all()
    assert np.allclose(values("ucb"), mean + KAPPA * deviation)
    improvement = values("ei")
    expected = expected_improvement(-mean, np.maximum(deviation, 1e-9), -1.0)
    assert np.allclose(improvement / improvement.max(), expected / expected.max())
    assert (improvement >= 0).all()
    draws = [values("thompson", seed) for seed in range(10)]
    assert all(any((draw == member).all() for member in members) for draw in draws)
    assert any((draw != draws[0]).any() for draw in draws), "another member for another batch"


@pytest.mark.parametrize("acquisition", ["ei", "ucb", "thompson"])
@pytest.mark.parametrize("cls", [Xgb, EvolutionaryModel])
def test_searches_maximise_the_acquisition_function(cls: Any, acquisition: AcquisitionName) -> None:
    """It proposes other configs than by the mean, the same for the same seed, and finds faster ones than at random."""

    def run(acquisition: AcquisitionName) -> list[Trial]:
        model = BoundCostModel(RandomForest(seed=0, trees=20), KnobFeatures(SPACE))
        small = {"chains": 16, "steps": 10} if cls is Xgb else {"population": 64}
        return toys.run_policy(
            cls(SPACE, seed=0, cost_model=model, acquisition=acquisition, **small), toys.simulate_smooth, 56
        )

    first = run(acquisition)
    assert first == run(acquisition)
    assert first[:16] == run("mean")[:16]
    assert first != run("mean")
    assert np.median([t.cost for t in first[16:]]) < 0.8 * np.median([t.cost for t in first[:16]])
