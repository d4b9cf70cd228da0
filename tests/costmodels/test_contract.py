"""The contract of every registered cost model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import COST_MODELS, BoundCostModel, CostModel, make_cost_model
from searchlab.costmodel.features import KnobFeatures
from searchlab.costmodel.quality import pairwise_accuracy
from searchlab.plugins import Plugin

MODELS = {
    **{name: Plugin(name) for name in COST_MODELS.entry_points_by_name()},
    "xgboost-rank": Plugin("xgboost", {"objective": "rank"}),
    "pack-sum-rank": Plugin("pack-sum", {"objective": "rank"}),
    "lightgbm-rank": Plugin("lightgbm", {"objective": "lambdarank"}),
}
every_model = pytest.mark.parametrize("name", MODELS)
NAN = np.nan


def make(name: str, seed: int = 0) -> CostModel:
    return make_cost_model(MODELS[name], seed)


def data(n: int, d: int = 6, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features with NaN in them, scores that follow the first two, and two tasks."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, d))
    scores = (features[:, 0] + features[:, 1] * (features[:, 0] > 0.5)) / 2
    features[rng.random((n, d)) < 0.1] = NAN
    return features, scores, tasks(scores, 2)


def tasks(scores: Any, count: int = 1) -> Any:
    return np.sort(np.arange(len(scores)) % count)


ANY_DATA = {
    "many": data(100)[:2],
    "one row": (np.array([[1.0, 2.0]]), np.array([1.0])),
    "two rows": (np.array([[1.0, 2.0], [3.0, NAN]]), np.array([1.0, 0.5])),
    "three rows": (np.array([[1.0, 2.0], [3.0, NAN], [3.0, 1.0]]), np.array([1.0, 0.0, 0.2])),
    "sixteen rows": data(16)[:2],
    "constant rows": (np.ones((10, 3)), np.full(10, 0.5)),
    "constant rows, different labels": (np.ones((10, 3)), np.linspace(0, 1, 10)),
    "constant labels": (data(10)[0], np.ones(10)),
    "all failed": (data(10)[0], np.zeros(10)),
    "one succeeded": (data(10)[0], np.eye(10)[3]),
    "a column of NaN": (np.column_stack([data(20)[0], np.full(20, NAN)]), data(20)[1]),
    "all NaN": (np.full((4, 2), NAN), np.array([0.0, 0.5, 1.0, 0.2])),
    "no columns": (np.empty((3, 0)), np.array([0.0, 0.5, 1.0])),
    "huge and tiny": (data(12)[0] * np.array([1e12, 1e-12, 1, 1, 1e6, 0]), data(12)[1]),
    "more columns than rows": data(5, 300)[:2],
}


@pytest.mark.filterwarnings("error")
@every_model
@pytest.mark.parametrize("kind", ANY_DATA)
@pytest.mark.parametrize("groups", [1, 3])
def test_any_data_gives_finite_scores(name: str, kind: str, groups: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It prints nothing, and any features may be NaN in the rows to predict."""
    features, scores = ANY_DATA[kind]
    inputs = [features.copy(), scores.copy(), tasks(scores, groups)]
    before = copy.deepcopy(inputs)
    model = make(name)
    model.fit(*inputs)
    unseen = np.where(np.arange(features.shape[1]) % 2, NAN, np.where(np.isnan(features), 7.0, features))
    for rows in (features, unseen, np.full_like(features, NAN), features[:1], features[:0]):
        predicted = model.predict(rows)
        assert predicted.shape == (len(rows),) and predicted.dtype == np.float64
        assert np.isfinite(predicted).all()
    for value, original in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(value, original)
    assert capfd.readouterr() == ("", "")


@every_model
def test_same_data_and_seed_same_predictions(name: str) -> None:
    features, scores, groups = data(80)
    models = [make(name, 4) for _ in range(2)]
    models[0].fit(*data(30, seed=1))  # what it was trained on before is forgotten
    for model in models:
        model.fit(features, scores, groups)
    predicted = models[0].predict(features)
    np.testing.assert_array_equal(predicted, models[1].predict(features))
    np.testing.assert_array_equal(predicted, models[0].predict(features))


@every_model
def test_a_prediction_depends_on_its_row_alone(name: str) -> None:
    """Up to the last bits: a product of matrices sums in an order that depends on their shape."""
    features, scores, groups = data(80)
    model = make(name, 4)
    model.fit(features, scores, groups)
    together = model.predict(features)
    np.testing.assert_allclose(together[10:20], model.predict(features[10:20]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(together[::-1], model.predict(features[::-1]), rtol=1e-9, atol=1e-12)


@every_model
def test_it_learns_more_than_guessing(name: str) -> None:
    """A ranker also predicts on the scale of the scores, because annealing accepts by differences in score."""
    if name == "random":
        pytest.skip("random is what the others are held against")
    space = toys.Large()
    trials = toys.simulate_trials(space.sample_new(np.random.default_rng(0), 500, ()), toys.simulate_smooth)
    truth = np.array([1e-3 / trial.cost for trial in trials[200:]])
    accuracy = {}
    for model_name in (name, "random"):
        bound = BoundCostModel(make(model_name), KnobFeatures(space))
        bound.fit(trials[:200])
        predicted = bound.predict([trial.config for trial in trials[200:]])
        accuracy[model_name] = pairwise_accuracy(predicted, truth)
        if model_name == name:
            assert bound.rows is not None
            assert 0.3 < predicted.std() / bound.rows.scores.std() < 3
            assert abs(predicted.mean() - bound.rows.scores.mean()) < 0.15
    assert accuracy["random"] < 0.55 < accuracy[name]
    assert accuracy[name] > (0.57 if name == "ridge" else 0.75)  # the toy has a basin, which no line can follow
