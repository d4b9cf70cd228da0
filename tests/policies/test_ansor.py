"""Ansor's evolution: its numbers, its steps, and what it finds with a model that knows the truth."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import KnobFeatures, PerStoreFeatures
from searchlab.errors import SearchlabError
from searchlab.policy import OwnModel
from searchlab.target import Target
from searchlab.workload import gemm
from searchlab_costmodels.pack_sum import PackSum
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.ansor import MUTATION_WEIGHTS, Ansor
from searchlab_policies.random import Random
from searchlab_spaces.sketch import Sketch
from tests.support.oracle import ByCost, Oracle


def ansor(seed: int = 0, **options: Any) -> Ansor:
    space = toys.Large()
    bound = BoundCostModel(XGBoost(seed=seed, rounds=50), KnobFeatures(space))
    return Ansor(space, seed=seed, cost_model=bound, **options)


def make_trained_policy(**options: Any) -> tuple[Ansor, ByCost]:
    """Return a policy that was told 32 random trials, and the features that its model requests."""
    space = toys.Large()
    features = ByCost(space)
    bound = BoundCostModel(Oracle(seed=0), features)
    policy = Ansor(space, seed=0, cost_model=bound, **{"population": 128, "n_startup": 32} | options)
    policy.tell(toys.run_policy(Random(space, seed=2), toys.simulate_smooth, 32))
    features.requested = []
    return policy, features


def test_its_numbers_are_tvms() -> None:
    """``SketchPolicy.DEFAULT_PARAMS``, ``XGBModel.__init__`` and ``sketch_policy.cc`` of TVM 0.17."""
    defaults = {name: p.default for name, p in inspect.signature(Ansor).parameters.items()}
    assert defaults["population"] == 2048 and defaults["generations"] == 4
    assert defaults["mutation_prob"] == 0.85 and defaults["measured_ratio"] == 0.2 and defaults["epsilon"] == 0.05
    assert defaults["n_startup"] == 101, "more than 100 programs are measured before the model is asked"
    roles = ("tile", "unroll", "location", "parallel")
    assert [MUTATION_WEIGHTS["llvm"][role] for role in roles] == [0.90, 0.04, 0.05, 0.01]
    assert [MUTATION_WEIGHTS["cuda"].get(role) for role in roles] == [0.90, 0.10, None, None]
    assert Ansor.traits.own_model == OwnModel("pack-sum", "per-store")


def test_the_model_is_asked_only_after_its_warm_up() -> None:
    policy, features = make_trained_policy(n_startup=33)
    assert len(policy.ask(8)) == 8 and features.requested == []
    policy, features = make_trained_policy(n_startup=32)
    assert len(policy.ask(8)) == 8 and len(features.requested) > 128


def test_a_batch_has_a_twentieth_from_the_first_generation() -> None:
    policy, features = make_trained_policy()
    batch = policy.ask(64)
    costs = [toys.simulate_smooth(config).cost for config in batch]
    assert len(set(batch)) == 64 and not set(batch) & {trial.config for trial in policy.trials}
    assert costs[:61] == sorted(costs[:61]), "best first"
    assert set(batch[61:]) <= set(features.requested[: 128 + 25]), "3 of 64, 0.05 of it rounded down"
    assert max(costs[61:]) > costs[60]
    unmet = [
        cost for cost in (toys.simulate_smooth(config).cost for config in set(features.requested) - set(policy.seen))
    ]
    assert sum(cost < costs[60] for cost in unmet) == 0, "no config met is better than those taken"


def test_the_best_measured_are_in_the_first_generation_besides() -> None:
    policy, features = make_trained_policy(generations=0, measured_ratio=0.1)
    policy.ask(8)
    best = sorted(policy.trials, key=lambda trial: trial.cost)
    assert len(features.requested) == 128 + 12
    assert features.requested[128:] == [trial.config for trial in best[:12]]


def test_generations_find_what_a_true_model_knows() -> None:
    costs = {}
    for generations in (0, 12):
        policy, features = make_trained_policy(generations=generations)
        costs[generations] = toys.simulate_smooth(policy.ask(8)[0]).cost
        assert len(features.requested) == len(set(features.requested)), "predicted one twice"
    assert costs[12] < 0.8 * costs[0]


@pytest.mark.parametrize("bound", [1, 7, 30, 500])
def test_evolution_is_bounded_in_what_it_predicts(bound: int) -> None:
    policy, features = make_trained_policy(population=2048, predictions=bound)
    assert len(policy.ask(8)) == 8
    assert 0 < len(features.requested) <= bound
    assert policy.effective["population"] == policy.population == max(1, int(bound / 5.2))


def test_children_are_copies_or_have_one_knob_changed() -> None:
    policy, _ = make_trained_policy()
    rng = np.random.default_rng(0)
    parents = [policy.space.sample(rng) for _ in range(200)]
    scores = np.zeros(200)
    scores[:2] = 1.0, 3.0
    children = policy._breed(parents, scores, rng)
    near = [min(range(2), key=lambda i: sum(child[k] != parents[i][k] for k in child)) for child in children]
    changed = [sum(c[k] != parents[i][k] for k in c) for c, i in zip(children, near, strict=True)]
    assert set(changed) == {0, 1}
    assert abs(np.mean(changed) - 0.85) < 0.12 and abs(np.mean(near) - 0.75) < 0.12


def test_beats_random_search() -> None:
    def best_of(policy: Any) -> float:
        return min(trial.cost for trial in toys.run_policy(policy, toys.simulate_smooth, 96, batch=16))

    best = [best_of(ansor(seed, population=128, n_startup=32)) for seed in range(4)]
    by_chance = [best_of(Random(toys.Large(), seed=seed)) for seed in range(4)]
    assert np.median(best) < 0.85 * np.median(by_chance)


def test_it_goes_round_with_its_own_cost_model_on_sketches(native: Target) -> None:
    space = Sketch(gemm(32, 32, 32), native)
    bound = BoundCostModel(PackSum(seed=0, rounds=20), PerStoreFeatures(space))
    policy = Ansor(space, seed=0, cost_model=bound, population=16, generations=1, n_startup=8)
    trials = toys.run_policy(policy, toys.simulate_smooth, 16)
    assert len({trial.config for trial in trials}) == 16 and bound.fitted


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"population": 0}, "option 'population' is 0; it must be a whole number of at least 1"),
        ({"generations": -1}, "option 'generations' is -1"),
        ({"measured_ratio": 1.5}, "option 'measured_ratio' is 1.5; it must be a number from 0 to 1"),
        ({"mutation_prob": "often"}, "'often'"),
        ({"epsilon": 2}, "option 'epsilon' is 2"),
        ({"predictions": 0}, "option 'predictions' is 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        ansor(**options)
