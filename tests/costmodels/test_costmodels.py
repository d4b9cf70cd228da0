"""What every cost model keeps to, and what each is for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.costmodel import CostModel, Surrogate
from searchlab.errors import SearchlabError
from searchlab.features import KnobFeatures
from searchlab_costmodels.random import Random
from searchlab_costmodels.xgboost import XGBoost
from tests import toys

MODELS: dict[str, type[CostModel]] = {"xgboost": XGBoost, "random": Random}
every_model = pytest.mark.parametrize("name", MODELS)


def data(n: int, d: int = 6, seed: int = 0) -> tuple[Any, Any]:
    """Features with NaN in them, and scores that follow the first two."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, d))
    scores = (features[:, 0] + features[:, 1] * (features[:, 0] > 0.5)) / 2
    features[rng.random((n, d)) < 0.1] = np.nan
    return features, scores


@every_model
@pytest.mark.parametrize(
    ("features", "scores"),
    [
        data(100),
        (np.array([[1.0, 2.0]]), np.array([1.0])),
        (np.ones((10, 3)), np.full(10, 0.5)),
        (data(10)[0], np.zeros(10)),
        (np.full((4, 2), np.nan), np.array([0.0, 0.5, 1.0, 0.2])),
        (np.empty((3, 0)), np.array([0.0, 0.5, 1.0])),
    ],
    ids=["many", "one row", "constant rows", "constant labels", "all NaN", "no columns"],
)
def test_any_data_gives_finite_scores(name: str, features: Any, scores: Any) -> None:
    model = MODELS[name](seed=0)
    before = features.copy(), scores.copy()
    model.fit(features, scores)
    predicted = model.predict(features)
    assert predicted.shape == (len(features),)
    assert predicted.dtype == np.float64
    assert np.isfinite(predicted).all()
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(scores, before[1])
    assert model.predict(features[:0]).shape == (0,)


@every_model
def test_same_data_and_seed_same_predictions(name: str) -> None:
    features, scores = data(80)
    models = [MODELS[name](seed=4) for _ in range(2)]
    models[0].fit(*data(30, seed=1))  # what it was trained on before is forgotten
    for model in models:
        model.fit(features, scores)
    np.testing.assert_array_equal(models[0].predict(features), models[1].predict(features))


@every_model
def test_a_prediction_depends_on_its_row_alone(name: str) -> None:
    features, scores = data(80)
    model = MODELS[name](seed=4)
    model.fit(features, scores)
    together = model.predict(features)
    np.testing.assert_array_equal(together[10:20], model.predict(features[10:20]))
    np.testing.assert_array_equal(together[::-1], model.predict(features[::-1]))


def predictions() -> str:
    features, scores = data(400)
    found = []
    for name in MODELS:
        model = MODELS[name](seed=2)
        model.fit(features, scores)
        found.append(model.predict(features).tobytes().hex())
    return " ".join(found)


def test_same_predictions_in_every_process_on_any_number_of_threads() -> None:
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", "from tests.costmodels.test_costmodels import predictions; print(predictions())"],
            env={
                **os.environ,
                "PYTHONHASHSEED": threads,
                "OMP_NUM_THREADS": threads,
                "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
            },
            text=True,
            stdout=subprocess.PIPE,
        )
        for threads in ("1", "2")
    ]
    outputs = [process.communicate()[0].strip() for process in processes]
    assert outputs == [predictions(), predictions()]


def test_xgboost_learns() -> None:
    features, scores = data(300)
    model = XGBoost(seed=0)
    model.fit(features[:200], scores[:200])
    assert np.corrcoef(model.predict(features[200:]), scores[200:])[0, 1] > 0.8


def test_xgboost_ranks_configs_that_it_never_saw() -> None:
    space = toys.Large()
    configs = space.sample_new(np.random.default_rng(0), 600, ())
    trials = toys.trials_of(configs, toys.smooth)
    surrogate = Surrogate(XGBoost(seed=0), KnobFeatures(space))
    surrogate.fit(trials[:300])
    predicted = surrogate.predict(configs[300:])
    chosen = np.argsort(-predicted)[:30]
    costs = np.array([trial.cost for trial in trials[300:]])
    assert np.median(costs[chosen]) < np.quantile(costs, 0.2)


def test_random_depends_on_the_row_and_the_seed() -> None:
    features = np.array([[1.0, np.nan], [1.0, -np.nan], [0.0, 1.0], [-0.0, 1.0], [2.0, 1.0]])
    one, other = Random(seed=0).predict(features), Random(seed=1).predict(features)
    assert one[0] == one[1] != one[2] == one[3] != one[4]
    assert (one != other).all()
    spread = Random(seed=0).predict(np.arange(2000.0).reshape(-1, 1))
    assert 0 <= spread.min() < 0.01
    assert 0.99 < spread.max() < 1
    assert abs(spread.mean() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rounds": 0}, "option 'rounds' is 0; it must be a whole number of at least 1"),
        ({"rounds": 2.5}, "option 'rounds' is 2.5"),
        ({"max_depth": 17}, "option 'max_depth' is 17; it must be a whole number from 1 to 16"),
        ({"learning_rate": 0}, "option 'learning_rate' is 0"),
        ({"learning_rate": "fast"}, "option 'learning_rate' is 'fast'"),
        ({"min_child_weight": -1}, "option 'min_child_weight' is -1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        XGBoost(seed=0, **options)
