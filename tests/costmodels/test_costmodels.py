"""The purpose and the options of each cost model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, CostModel, OtherTask, TrainingData, compute_scores, make_cost_model
from searchlab.costmodel.features import Features, KnobFeatures
from searchlab.costmodel.quality import pairwise_accuracy
from searchlab.errors import SearchlabError
from searchlab.plugins import Plugin
from searchlab.records import Trial
from searchlab.space import Config
from searchlab_costmodels.lightgbm import LightGBM
from searchlab_costmodels.random import Random
from searchlab_costmodels.scikit_learn import ExtraTrees, Forest, GaussianProcess, RandomForest
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.xgb import Xgb


def test_xgboost_ranks_configs_that_it_never_saw() -> None:
    space = toys.Large()
    configs = space.sample_new(np.random.default_rng(0), 600, ())
    trials = toys.simulate_trials(configs, toys.simulate_smooth)
    bound = BoundCostModel(XGBoost(seed=0), KnobFeatures(space))
    bound.fit(trials[:300])
    predicted = bound.predict(configs[300:])
    highest = np.argsort(-predicted)[:30]
    costs = np.array([trial.cost for trial in trials[300:]])
    assert np.median(costs[highest]) < np.quantile(costs, 0.2)


RANKERS: dict[str, CostModel] = {
    "xgboost": XGBoost(seed=0, objective="rank"),
    "lightgbm": LightGBM(seed=0, objective="lambdarank"),
}


@pytest.mark.parametrize("name", RANKERS)
def test_a_ranker_compares_within_a_task_alone(name: str) -> None:
    """One task is ten times as fast as its own best allows the other to look; the order within each is the same."""
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.random(200), np.repeat([0.0, 1.0], 100)])
    scores = np.where(features[:, 1] == 0, 1.0, 0.5) * features[:, 0]
    scores[100:] += 0.5 * (features[100:, 0] < 2)  # the whole second task above the middle
    model, together = RANKERS[name], type(RANKERS[name])(seed=0, objective=_objective(name))
    model.fit(features, scores, np.repeat([0, 1], 100))
    together.fit(features, scores, np.zeros(200, dtype=np.int64))
    point = np.column_stack([np.full(50, 0.5), np.repeat([0.0, 1.0], 25)])
    separate, joined = (np.ptp(m.predict(point)) for m in (model, together))
    assert separate < 0.05 < joined
    assert pairwise_accuracy(model.predict(features[:100]), scores[:100]) > 0.9


def _objective(name: str) -> Any:
    return {"xgboost": "rank", "lightgbm": "lambdarank"}[name]


@pytest.mark.parametrize("name", RANKERS)
def test_annealing_works_on_a_ranker(name: str) -> None:
    space = toys.Large()
    policy = Xgb(space, seed=0, cost_model=BoundCostModel(RANKERS[name], KnobFeatures(space)), n_startup=32)
    trials = toys.run_policy(policy, toys.simulate_smooth, 96)
    assert min(trial.cost for trial in trials[32:]) < 0.8 * min(trial.cost for trial in trials[:32])


def test_more_than_ten_thousand_trials_of_a_task_can_be_ranked() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((10_050, 1))
    model = LightGBM(seed=0, objective="lambdarank", rounds=2)
    model.fit(features, features[:, 0], np.zeros(10_050, dtype=np.int64))
    assert pairwise_accuracy(model.predict(features[:100]), features[:100, 0]) > 0.9


def test_a_gaussian_process_keeps_the_fastest_and_the_latest() -> None:
    scores = np.array([0.1, 0.9, 0.2, 1.0, 0.3, 0.4, 0.0])
    assert GaussianProcess(seed=0, max_rows=4).select_training_rows(scores).tolist() == [1, 3, 5, 6]
    assert GaussianProcess(seed=0, max_rows=5).select_training_rows(scores).tolist() == [1, 3, 4, 5, 6]
    assert GaussianProcess(seed=0, max_rows=7).select_training_rows(scores).tolist() == list(range(7))
    assert GaussianProcess(seed=0).select_training_rows(scores).tolist() == list(range(7))


@pytest.mark.parametrize("forest", [RandomForest, ExtraTrees])
def test_a_forest_predicts_exactly_what_scikit_learn_does(forest: type[Forest]) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-8, 8, 7)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows[:, 2], rows[:120, 4] = 1.5, np.nan
    model = forest(seed=3)
    model.fit(rows[:120], rng.random(120), np.zeros(120, np.int64))
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    prepared = make_pipeline(imputer, StandardScaler()).fit(rows[:120])
    assert np.array_equal(model.predict(rows), model._fitted_regressor.predict(prepared.transform(rows)))


def test_random_depends_on_the_row_and_the_seed() -> None:
    features = np.array([[1.0, np.nan], [1.0, -np.nan], [0.0, 1.0], [-0.0, 1.0], [2.0, 1.0]])
    first, second = Random(seed=0).predict(features), Random(seed=1).predict(features)
    assert first[0] == first[1] != first[2] == first[3] != first[4]
    assert (first != second).all()
    spread = Random(seed=0).predict(np.arange(2000.0).reshape(-1, 1))
    assert 0 <= spread.min() < 0.01
    assert 0.99 < spread.max() < 1
    assert abs(spread.mean() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        ("xgboost", {"rounds": 0}, "option 'rounds' is 0; it must be a whole number of at least 1"),
        ("xgboost", {"rounds": 2.5}, "option 'rounds' is 2.5"),
        ("xgboost", {"max_depth": 17}, "option 'max_depth' is 17; it must be a whole number from 1 to 16"),
        ("xgboost", {"learning_rate": 0}, "option 'learning_rate' is 0"),
        ("xgboost", {"learning_rate": "fast"}, "option 'learning_rate' is 'fast'"),
        ("xgboost", {"min_child_weight": -1}, "option 'min_child_weight' is -1"),
        ("xgboost", {"objective": "ranking"}, "option 'objective' cannot be 'ranking'; did you mean 'rank'"),
        ("lightgbm", {"objective": "rank"}, "option 'objective' cannot be 'rank'; known: lambdarank, regression"),
        ("lightgbm", {"num_leaves": 1}, "option 'num_leaves' is 1"),
        ("lightgbm", {"grades": 1}, "option 'grades' is 1"),
        ("lightgbm", {"rank": True}, "cost model 'lightgbm' has no option 'rank'"),
        ("random", {"rounds": 3}, "cost model 'random' has no option 'rounds'"),
        ("random-forest", {"trees": 0}, "option 'trees' is 0"),
        ("extra-trees", {"max_features": 2}, "option 'max_features' is 2; it must be a number from"),
        ("gp", {"max_rows": 1}, "option 'max_rows' is 1"),
        ("ridge", {"alpha": -1}, "option 'alpha' is -1"),
        ("mlp", {"layers": 0}, "option 'layers' is 0"),
        ("mlp", {"n_jobs": 4}, "cost model 'mlp' has no option 'n_jobs'"),
        ("searchlab.conformance.toys:Small", {}, "'searchlab.conformance.toys:Small' is not a searchlab.CostModel"),
        ("subprocess:Popen", {"args": ["false"]}, "'subprocess:Popen' is not a searchlab.CostModel"),
    ],
)
def test_bad_options_are_named(model: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        make_cost_model(Plugin(model, options), 0)


# --- the bound ----------------------------------------------------------------------------------


class Numbers(Features):
    """Six columns, whatever the space."""

    def __call__(self, configs: Any) -> Any:
        return np.full((len(configs), 6), 3.0)


class Recorder(CostModel):
    """Records its training data."""

    def fit(self, features: Any, scores: Any, groups: Any) -> None:
        self.rows = TrainingData(features, scores, groups)

    def predict(self, features: Any) -> Any:
        return np.zeros(len(features))


def test_scores_are_relative_to_the_best_or_to_a_given_cost() -> None:
    measured = [
        toys.successful_measurement(2e-3),
        toys.failed_measurement("crash", ""),
        toys.successful_measurement(1e-3),
    ]
    configs = [toys.Small().config_at(i) for i in range(3)]
    trials = [
        Trial(i, config, measurement) for i, (config, measurement) in enumerate(zip(configs, measured, strict=True))
    ]
    assert compute_scores(trials).tolist() == [0.5, 0, 1]
    assert compute_scores(trials, 0.5e-3).tolist() == [0.25, 0, 0.5]
    assert compute_scores(trials[1:2]).tolist() == compute_scores(trials[1:2], 1e-3).tolist() == [0]
    instant = [replace(trials[0], measurement=toys.successful_measurement(0.0)), *trials]
    assert compute_scores(instant).round(9).tolist() == compute_scores(instant, 0.0).round(9).tolist() == [1, 0, 0, 0]


def test_other_tasks_stay_under_every_fit_in_groups_of_their_own() -> None:
    space = toys.Small()
    model = Recorder(seed=0)
    bound = BoundCostModel(model, Numbers(space))
    bound.fit([])
    assert not bound.fitted
    other_space = toys.Dependent()
    configs = list(other_space.enumerate())
    other_tasks = [
        OtherTask(other_space, configs[:3], np.array([1, 0.5, 0])),
        OtherTask(other_space, configs[:2], np.array([0, 1.0])),
    ]
    bound.pretrain(other_tasks)
    assert bound.fitted and model.rows.groups.tolist() == [0, 0, 0, 1, 1]
    for count in (4, 7):
        trials = toys.simulate_trials(space.sample_new(np.random.default_rng(0), count, ()), toys.simulate_smooth)
        bound.fit(trials)
        assert model.rows.groups.tolist() == [0, 0, 0, 1, 1] + [2] * count
        assert model.rows.scores.tolist() == [1, 0.5, 0, 0, 1, *compute_scores(trials)]
        assert model.rows.features.shape == (5 + count, 6)
        assert bound.best == min(trial.cost for trial in trials)


def test_knobs_of_other_tasks_have_columns_beside_its_own() -> None:
    small, dependent = toys.Small(), toys.Dependent()
    model = Recorder(seed=0)
    bound = BoundCostModel(model, KnobFeatures(small))
    (other_config,) = [config for config in dependent.enumerate() if config["sketch"] == "plain" and config["parallel"]]
    bound.pretrain([OtherTask(dependent, [other_config], np.array([1.0]))])
    assert bound.features.columns == [("sketch", "plain"), ("parallel", 0)]
    own_config = Config({"tile": (8, 2), "unroll": 64, "order": "ijk", "pack": True})
    bound.fit(toys.simulate_trials([own_config], toys.simulate_smooth))
    nan = np.nan
    expected = [[nan, nan, nan, nan, nan, 1, 1], [3, 1, 64, 1, 1, nan, nan]]
    np.testing.assert_array_equal(model.rows.features, expected)


class Long(Numbers):
    """As wide as the number of configs; what a row lacks is 0."""

    absent = 0.0

    def __call__(self, configs: Any) -> Any:
        return np.full((len(configs), len(configs)), 3.0)


def test_rows_of_any_length_are_laid_out_as_in_training() -> None:
    class Sum(Recorder):
        def predict(self, features: Any) -> Any:
            assert features.shape[1] == self.rows.features.shape[1]
            return features.sum(axis=1)

    space = toys.Small()
    configs = list(space.enumerate())
    bound = BoundCostModel(Sum(seed=0), Long(space))
    bound.pretrain([OtherTask(space, configs[:5], np.ones(5))])
    bound.fit(toys.simulate_trials(configs[:3], toys.simulate_smooth))
    assert bound.rows is not None
    assert bound.rows.features.sum(axis=1).tolist() == [15] * 5 + [9] * 3
    assert bound.predict(configs[:2]).tolist() == [6, 6]
    assert bound.predict(configs[:8]).tolist() == [15] * 8


def test_time_is_taken_of_training_and_predicting() -> None:
    space = toys.Small()
    bound = BoundCostModel(XGBoost(seed=0), KnobFeatures(space))
    configs = list(space.enumerate())
    bound.predict(configs)
    assert bound.predict_seconds == bound.train_seconds == 0
    bound.fit(toys.simulate_trials(configs, toys.simulate_smooth))
    bound.predict(configs)
    once = bound.predict_seconds
    bound.predict(configs)
    assert bound.train_seconds > 0 and bound.predict_seconds > once > 0
    assert bound.feature_seconds > 0
