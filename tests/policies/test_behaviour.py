"""The behaviour of policies on a landscape that can be learnt, where they beat random search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, CostModel
from searchlab.costmodel.features import Features, KnobFeatures, ProgramFeatures
from searchlab.errors import SearchlabError
from searchlab.policy import Policy
from searchlab.records import Measurement
from searchlab.space import Config, Space
from searchlab_costmodels.random import Random as RandomModel
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.evolutionary import Evolutionary
from searchlab_policies.optuna.tpe import Tpe
from searchlab_policies.random import Random
from searchlab_policies.xgb import Xgb, select_diverse

Make = Callable[[Space, int], Policy]


def xgb(space: Space, seed: int = 0, **options: Any) -> Xgb:
    return Xgb(space, seed=seed, cost_model=BoundCostModel(XGBoost(seed=seed), KnobFeatures(space)), **options)


def tpe(space: Space, seed: int) -> Tpe:
    return Tpe(space, seed=seed)


def evolutionary(space: Space, seed: int) -> Evolutionary:
    return Evolutionary(space, seed=seed)


@cache
def best_of_random(seed: int) -> float:
    return min(trial.cost for trial in toys.run_policy(Random(toys.Large(), seed=seed), toys.simulate_smooth, 96))


@pytest.mark.parametrize(("learner", "seeds"), [(evolutionary, 12), (tpe, 6), (xgb, 3)])
def test_beats_random_search(learner: Make, seeds: int) -> None:
    best = [
        min(t.cost for t in toys.run_policy(learner(toys.Large(), seed), toys.simulate_smooth, 96))
        for seed in range(seeds)
    ]
    by_chance = [best_of_random(seed) for seed in range(seeds)]
    assert np.median(best) < 0.85 * np.median(by_chance)
    assert np.mean(np.array(best) < by_chance) > 0.7


@pytest.mark.parametrize("learner", [evolutionary, tpe, xgb])
def test_learns_which_configs_fail(learner: Make) -> None:
    """Half of the space fails because of one knob: after 16 trials, far fewer proposals fail."""

    def cost(config: Config) -> Measurement:
        return toys.simulate_smooth(config) if config["pack"] else toys.failed_measurement("build_error", "made up")

    runs = [toys.run_policy(learner(toys.Large(), seed), cost, 48) for seed in (1, 2, 3)]
    failed = np.array([[np.isinf(trial.cost) for trial in trials] for trials in runs])
    assert failed[:, :16].mean() > 0.3
    assert failed[:, 16:].mean() < 0.2


@pytest.mark.parametrize("learner", [evolutionary, tpe, xgb])
def test_warm_start_is_learnt_from(learner: Make) -> None:
    """The first batch after 64 random trials is better than they were."""
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=4), toys.simulate_smooth, 64)
    policy = learner(toys.Large(), 0)
    policy.tell(earlier_trials)
    first = toys.simulate_trials(policy.ask(16), toys.simulate_smooth)
    assert np.median([trial.cost for trial in first]) < np.median([trial.cost for trial in earlier_trials])


def test_trials_of_another_log_become_elites() -> None:
    space = toys.Large()
    best = Config(
        {
            "tile_m": (8, 4, 4, 4),
            "tile_n": (4, 4, 2, 16),
            "tile_k": (32, 32),
            "unroll": 16,
            "order": "ikj",
            "pack": True,
        }
    )
    policy = Evolutionary(space, seed=0, population=8)
    policy.tell(toys.simulate_trials([best], toys.simulate_smooth))
    policy.tell(toys.run_policy(Random(space, seed=0), toys.simulate_smooth, 23))
    assert best in [trial.config for trial in policy.select_parents()]


def test_evolution_goes_on_where_every_parent_is_the_same_config() -> None:
    space = toys.Small()
    policy = Evolutionary(space, seed=0, population=2, elites=1)
    config = space.config_at(7)
    policy.tell(toys.simulate_trials([config, config], toys.simulate_smooth))
    assert len(policy.ask(4)) == 4


# --- annealing --------------------------------------------------------------------------------------


class Oracle(CostModel):
    """Knows the toy: the features it is given are the configs' own numbers."""

    def fit(self, features: Any, scores: Any, groups: Any) -> None:
        pass

    def predict(self, features: Any) -> Any:
        return -features[:, 0]


class ByCost(Features):
    def __call__(self, configs: Any) -> Any:
        self.requested = [*getattr(self, "requested", []), *configs]
        return np.array([[np.log(min(toys.simulate_smooth(config).cost, 1.0))] for config in configs])


def make_trained_xgb(**options: Any) -> tuple[Xgb, ByCost]:
    space = toys.Large()
    features = ByCost(space)
    policy = Xgb(space, seed=0, cost_model=BoundCostModel(Oracle(seed=0), features), **options)
    policy.tell(toys.run_policy(Random(space, seed=2), toys.simulate_smooth, 32))
    features.requested = []
    return policy, features


def test_annealing_finds_what_a_true_model_knows() -> None:
    policy, _ = make_trained_xgb()
    best = min(trial.cost for trial in policy.trials)
    costs = [toys.simulate_smooth(config).cost for config in policy.anneal(8, np.random.default_rng(0))[0]]
    assert len(costs) == 8
    assert costs == sorted(costs)
    assert costs[0] < 0.6 * best


def test_annealing_is_bounded_in_what_it_predicts() -> None:
    for bound in (1, 20, 200):
        policy, features = make_trained_xgb(predictions=bound)
        assert len(policy.ask(8)) == 8
        assert 0 < len(set(features.requested)) <= bound
        assert len(features.requested) == len(set(features.requested)), "predicted one twice"


def test_annealing_cools_over_the_steps_that_there_are() -> None:
    policy, features = make_trained_xgb(predictions=252)
    assert (policy.chains, policy.steps) == (28, 8)
    assert policy.effective == {"chains": 28, "steps": 8}
    policy.anneal(8, np.random.default_rng(0))
    assert 28 * 5 < len(features.requested) <= 252, "all steps were taken"
    free, _ = make_trained_xgb()
    assert (free.chains, free.steps, free.effective) == (64, 60, {})


def test_programs_are_built_for_few_configs() -> None:
    space = toys.Large()
    policy = Xgb(space, seed=0, cost_model=BoundCostModel(RandomModel(seed=0), ProgramFeatures(space)))
    assert policy.predictions == 256
    assert policy.chains * 9 <= 256


def test_annealing_ends_early_where_nothing_improves() -> None:
    policy, features = make_trained_xgb(early_stop=3)
    longer, more = make_trained_xgb(early_stop=1000)
    rng = np.random.default_rng
    policy.anneal(1, rng(0))
    longer.anneal(1, rng(0))
    assert len(features.requested) < len(more.requested)


def test_the_batch_is_random_until_something_succeeds() -> None:
    space = toys.Large()
    runs = [
        [trial.config for trial in toys.run_policy(policy, toys.simulate_invalid, 48)]
        for policy in (xgb(space, 0), Random(space, seed=0))
    ]
    assert runs[0] == runs[1]


def test_diversity_trades_score_for_new_knob_values() -> None:
    configs = [Config({"a": 1, "b": 1}), Config({"a": 1, "b": 2}), Config({"a": 2, "b": 3})]
    scores = np.array([1.0, 0.95, 0.9])
    assert select_diverse(configs, scores, 2, diversity=0.0) == configs[:2]
    assert select_diverse(configs, scores, 2, diversity=0.1) == [configs[0], configs[2]]
    assert select_diverse(configs, scores, 9, diversity=0.1) == [configs[0], configs[2], configs[1]]


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        (Evolutionary, {"population": 1}, "option 'population' is 1; it must be a whole number of at least 2"),
        (Evolutionary, {"population": 2.5}, "a whole number"),
        (Evolutionary, {"elites": 17}, "option 'elites' is 17; it must be at most 'population', which is 16"),
        (Evolutionary, {"mutation_prob": 1.5}, "option 'mutation_prob' is 1.5; it must be a number from 0 to 1"),
        (Evolutionary, {"mutation_prob": "often"}, "'often'"),
        (Tpe, {"n_startup": 0}, "option 'n_startup' is 0"),
        (Tpe, {"ei_candidates": True}, "option 'ei_candidates' is True"),
        (xgb, {"chains": 0}, "option 'chains' is 0"),
        (xgb, {"epsilon": -0.1}, "option 'epsilon' is -0.1; it must be a number from 0 to 1"),
        (xgb, {"temperature": float("nan")}, "option 'temperature' is nan; it must be a number of at least 0"),
        (xgb, {"predictions": 0}, "option 'predictions' is 0; it must be a whole number of at least 1"),
    ],
)
def test_bad_options_are_named(kind: Callable[..., Policy], options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        kind(toys.Small(), seed=0, **options)
