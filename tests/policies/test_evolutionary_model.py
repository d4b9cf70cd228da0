"""Evolution on a cost model: it learns, does what a true model says, and predicts no more than it may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import KnobFeatures, ProgramFeatures
from searchlab.errors import SearchlabError
from searchlab.records import Measurement
from searchlab.space import Config, Space
from searchlab_costmodels.random import Random as RandomModel
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.evolutionary_model import EvolutionaryModel
from searchlab_policies.random import Random
from tests.support.oracle import ByCost, Oracle


def evolution(space: Space, seed: int = 0, **options: Any) -> EvolutionaryModel:
    bound = BoundCostModel(XGBoost(seed=seed), KnobFeatures(space))
    return EvolutionaryModel(space, seed=seed, cost_model=bound, **options)


def best_of(policy: Any) -> float:
    return min(trial.cost for trial in toys.run_policy(policy, toys.simulate_smooth, 96))


def test_beats_random_search() -> None:
    best = np.array([best_of(evolution(toys.Large(), seed, population=128)) for seed in range(4)])
    by_chance = np.array([best_of(Random(toys.Large(), seed=seed)) for seed in range(4)])
    assert np.median(best) < 0.85 * np.median(by_chance)
    assert np.mean(best < by_chance) > 0.7


@pytest.mark.parametrize("failures", ["score", "model"])
def test_learns_which_configs_fail(failures: str) -> None:
    """Half of the space fails because of one knob: after 16 trials, far fewer proposals fail."""

    def cost(config: Config) -> Measurement:
        return toys.simulate_smooth(config) if config["pack"] else toys.failed_measurement("build_error", "made up")

    runs = [
        toys.run_policy(evolution(toys.Large(), seed, population=128, failures=failures), cost, 48)
        for seed in (1, 2, 3)
    ]
    failed = np.array([[np.isinf(trial.cost) for trial in trials] for trials in runs])
    assert failed[:, :16].mean() > 0.3
    assert failed[:, 16:].mean() < 0.2


def test_warm_start_is_learnt_from() -> None:
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=4), toys.simulate_smooth, 64)
    policy = evolution(toys.Large())
    policy.tell(earlier_trials)
    first = toys.simulate_trials(policy.ask(16), toys.simulate_smooth)
    assert np.median([trial.cost for trial in first]) < np.median([trial.cost for trial in earlier_trials])


def test_the_batch_is_random_until_something_succeeds() -> None:
    runs = [
        [trial.config for trial in toys.run_policy(policy, toys.simulate_invalid, 32)]
        for policy in (evolution(toys.Large()), Random(toys.Large(), seed=0))
    ]
    assert runs[0] == runs[1]


# --- the evolution itself, on a model that knows the truth --------------------------------------------


def make_trained_policy(**options: Any) -> tuple[EvolutionaryModel, ByCost]:
    """Return a policy that was told 32 random trials, and the features that its model requests."""
    space = toys.Large()
    features = ByCost(space)
    policy = EvolutionaryModel(space, seed=0, cost_model=BoundCostModel(Oracle(seed=0), features), **options)
    policy.tell(toys.run_policy(Random(space, seed=2), toys.simulate_smooth, 32))
    features.requested = []
    return policy, features


def test_generations_find_what_a_true_model_knows() -> None:
    best_costs = {}
    for generations in (0, 12):
        policy, _ = make_trained_policy(generations=generations)
        configs = policy.search(8, np.random.default_rng(0))
        costs = [toys.simulate_smooth(config).cost for config in configs]
        assert len(set(configs)) == 8 and not set(configs) & set(policy.seen)
        assert costs == sorted(costs), "best first"
        best_costs[generations] = costs[0]
    assert best_costs[12] < 0.7 * best_costs[0]


def test_a_share_of_the_first_generation_is_measured() -> None:
    policy, features = make_trained_policy(population=20, measured_ratio=0.25, generations=0)
    policy.search(1, np.random.default_rng(0))
    best = sorted(policy.trials, key=lambda trial: trial.cost)
    assert features.requested[:5] == [trial.config for trial in best[:5]]
    assert not {trial.config for trial in best} & set(features.requested[5:])


def test_nothing_is_bred_without_mutation_and_crossover() -> None:
    policy, features = make_trained_policy(population=40, mutation_prob=0, crossover_prob=0)
    policy.search(1, np.random.default_rng(0))
    assert len(features.requested) == 40


def test_a_mutation_moves_one_factor_or_redraws_one_knob() -> None:
    policy, features = make_trained_policy(population=60, mutation_prob=1, generations=1)
    policy.search(1, np.random.default_rng(0))
    first, bred = features.requested[:60], features.requested[60:]
    tiles = 0
    for child in bred:
        parent = max(first, key=lambda config: sum(config[name] == child[name] for name in config))
        (name,) = [name for name in child if child[name] != parent[name]]
        if name.startswith("tile"):
            tiles += 1
            assert np.count_nonzero(np.array(child[name]) != np.array(parent[name])) == 2
    assert tiles > 0.8 * len(bred), "of the weight, a tenth is for knobs that are no tiles"


def test_crossover_alone_adds_no_value_to_the_first_generation() -> None:
    policy, features = make_trained_policy(population=40, mutation_prob=0, crossover_prob=1)
    policy.search(1, np.random.default_rng(0))
    first, bred = features.requested[:40], features.requested[40:]
    assert bred
    values = {item for config in first for item in config.items()}
    assert all(item in values for config in bred for item in config.items())


def test_evolution_is_bounded_in_what_it_predicts() -> None:
    for bound in (1, 30, 500):
        policy, features = make_trained_policy(predictions=bound)
        assert len(policy.ask(8)) == 8
        assert 0 < len(set(features.requested)) <= bound
        assert len(features.requested) == len(set(features.requested)), "predicted one twice"


def test_what_the_bound_leaves_of_the_options_is_declared() -> None:
    assert make_trained_policy()[0].effective == {}
    assert make_trained_policy(predictions=500)[0].effective == {"population": 100}
    assert make_trained_policy(predictions=3)[0].effective == {"population": 1, "generations": 2}


def test_programs_are_built_for_few_configs() -> None:
    space = toys.Large()
    policy = EvolutionaryModel(space, seed=0, cost_model=BoundCostModel(RandomModel(seed=0), ProgramFeatures(space)))
    assert policy.predictions == 256
    assert policy.population * (policy.generations + 1) <= 256


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"population": 0}, "option 'population' is 0; it must be a whole number of at least 1"),
        ({"generations": -1}, "option 'generations' is -1"),
        ({"measured_ratio": 1.5}, "option 'measured_ratio' is 1.5; it must be a number from 0 to 1"),
        ({"mutation_prob": "often"}, "'often'"),
        ({"crossover_prob": -0.1}, "option 'crossover_prob' is -0.1"),
        ({"epsilon": 2}, "option 'epsilon' is 2"),
        ({"n_startup": 0}, "option 'n_startup' is 0"),
        ({"predictions": 0}, "option 'predictions' is 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        evolution(toys.Small(), **options)
