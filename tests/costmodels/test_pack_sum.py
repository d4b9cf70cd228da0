"""pack-sum: the sum over stores, held against TVM's own model of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, make_cost_model
from searchlab.costmodel.features import KnobFeatures, PerStoreFeatures
from searchlab.costmodel.quality import pairwise_accuracy
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab_costmodels.pack_sum import PackSum
from searchlab_costmodels.xgboost import XGBoost

WIDTH = 3


def programs(n: int, most: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows of one to ``most`` stores of three features; the score is the sum of what each store adds."""
    rng = np.random.default_rng(seed)
    stores = rng.random((n, most, WIDTH))
    adds = (stores[:, :, 0] > 0.5) * 0.2 + 0.1 * stores[:, :, 1]
    lacks = np.arange(most) >= rng.integers(1, most + 1, size=n)[:, None]
    stores[lacks] = np.nan
    return stores.reshape(n, -1), np.where(lacks, 0.0, adds).sum(axis=1) / (0.3 * most)


def train(features: Any, scores: Any, **options: Any) -> PackSum:
    model = PackSum(seed=0, **options)
    model.columns_per_store = WIDTH
    model.fit(features, scores, np.zeros(len(scores), dtype=np.int64))
    return model


def test_predictions_equal_those_of_metaschedule() -> None:
    from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel

    features, scores = programs(120, 4)
    scores[::7] = 0.0
    original = XGBModel(config=XGBConfig(nthread=1, seed=0))
    split = [row[~np.isnan(row)].reshape(-1, WIDTH).astype(np.float32) for row in features]
    original._train(split[:100], scores[:100])
    predicted = train(features[:100], scores[:100]).predict(features[100:])
    np.testing.assert_allclose(predicted, original._predict(split[100:]), atol=1e-5)


def test_the_number_of_stores_may_differ_from_that_in_training() -> None:
    features, scores = programs(300, 2)
    model = train(features, scores)
    two_stores, _ = programs(50, 2, seed=1)
    wide = np.concatenate([two_stores, np.full((50, 2 * WIDTH), np.nan)], axis=1)
    np.testing.assert_array_equal(model.predict(wide), model.predict(two_stores))
    four = np.concatenate([two_stores, two_stores], axis=1)  # every store twice
    np.testing.assert_allclose(model.predict(four), 2 * model.predict(two_stores), rtol=1e-6)
    assert np.corrcoef(model.predict(two_stores), programs(50, 2, seed=1)[1])[0, 1] > 0.9


def test_a_failed_program_has_no_weight_and_a_missing_one_0() -> None:
    features, scores = programs(100, 3)
    failed = programs(100, 3, seed=5)[0]
    with_failures = np.concatenate([features, failed]), np.concatenate([scores, np.zeros(100)])
    # Failures count only in the figure that ends the training, so it is cut to the same number of trees.
    first, second = (train(*data, rounds=20) for data in ((features, scores), with_failures))
    np.testing.assert_allclose(first.predict(features), second.predict(features), atol=1e-6)
    nothing = np.full((2, 3 * WIDTH), np.nan)
    assert first.predict(nothing).tolist() == [0, 0]
    assert train(nothing, np.zeros(2)).predict(features[:1]).tolist() == [0]


def test_it_ranks_programs_by_their_stores() -> None:
    """As in TenSet: the loss depends only on the order of the scores, and the predictions have their scale."""
    features, scores = programs(160, 3)
    new, truth = programs(100, 3, seed=1)
    model = train(features, scores, objective="rank")
    assert pairwise_accuracy(model.predict(new), truth) > 0.85
    assert model.predict(features).mean() == pytest.approx(scores.mean())
    assert model.predict(features).std() == pytest.approx(scores.std())
    squeezed = train(features, scores**3, objective="rank")
    np.testing.assert_array_equal(np.argsort(squeezed.predict(new)), np.argsort(model.predict(new)))


def test_it_ranks_within_a_task_alone() -> None:
    """Scores of the other task may be anywhere, as long as their order stays."""
    features, scores = programs(60, 2)
    groups = np.repeat([0, 1], 30)

    def order(scores: Any) -> Any:
        model = PackSum(seed=0, objective="rank", rounds=50)
        model.columns_per_store = WIDTH
        model.fit(features, scores, groups)
        return np.argsort(model.predict(features))

    np.testing.assert_array_equal(order(scores), order(np.where(groups == 1, 0.01 * scores, scores)))


def test_store_features_need_a_model_that_sums_over_stores() -> None:
    space = toys.Small()
    assert BoundCostModel(PackSum(seed=0), PerStoreFeatures(space)).model.columns_per_store == 164
    assert BoundCostModel(PackSum(seed=0), KnobFeatures(space)).model.columns_per_store == 0
    for model in (XGBoost(seed=0), make_cost_model(Plugin("xgboost"), 0)):
        with pytest.raises(SearchlabError, match="cannot learn from the features 'per-store'.*use the cost model"):
            BoundCostModel(model, PerStoreFeatures(space))


@pytest.mark.parametrize("option", [{"rounds": 0}, {"gamma": -1}, {"max_depth": 0}, {"early_stopping": 0}])
def test_bad_options_are_named(option: dict[str, Any]) -> None:
    with pytest.raises(SearchlabError, match=f"option {next(iter(option))!r}"):
        PackSum(seed=0, **option)
