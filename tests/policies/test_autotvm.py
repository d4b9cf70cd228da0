"""AutoTVM's tuners held against recorded runs of the originals: with the same random numbers, the same configs.

``studies/fidelity/README.md`` says where the recorded runs come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import searchlab_costmodels.autotvm as cost_model
import searchlab_policies.autotvm.genetic as genetic
import searchlab_policies.autotvm.xgb as xgb
from searchlab.costmodel import Surrogate
from searchlab.costmodel.features import make_features
from searchlab.errors import SearchlabError
from searchlab_costmodels.autotvm import AutoTVM, average_recall
from searchlab_policies.autotvm.annealer import walked
from searchlab_policies.autotvm.index import AutoTVMGrid, AutoTVMRandom
from tests.support import autotvm, toys
from tests.support.autotvm import recorded, searched, table


def genetic_as_recorded(seed: int, patch: pytest.MonkeyPatch, **options: Any) -> genetic.AutoTVMGenetic:
    space, _ = table()
    policy = genetic.AutoTVMGenetic(space, seed=seed, **options)
    autotvm.seeded(seed, patch, genetic)
    # AutoTVM's first generation: a set of indices, in the order in which Python walks a set of them.
    policy._genes = [space.config_at(int(index)) for index in set(np.array(autotvm.sample_ints(policy.population)))]
    return policy


@pytest.mark.parametrize(("name", "batch"), [("ga-b8", 8), ("ga-b64", 64)])
def test_the_genetic_algorithm_proposes_what_autotvms_does(name: str, batch: int, monkeypatch: Any) -> None:
    for seed, expected in list(recorded(name).items())[:5]:
        policy = genetic_as_recorded(seed, monkeypatch)
        assert searched(policy, batch, len(expected)) == expected


def test_elites_breed_as_autotvms_do(monkeypatch: Any) -> None:
    """The order in which numpy leaves the elites is chance, and the draws depend on it: so only up to there."""
    for seed, expected in list(recorded("ga-p16e4-b8").items())[:10]:
        policy = genetic_as_recorded(seed, monkeypatch, population=16, elites=4)
        assert searched(policy, 8, 23) == expected[:23]


def xgb_as_recorded(seed: int, loss: str, plan_size: int, patch: pytest.MonkeyPatch) -> xgb.AutoTVMXgb:
    space, _ = table()
    patch.setattr(type(space), "sample_new", autotvm.as_autotvm_draws())
    patch.setattr(cost_model, "shuffled", lambda seed, n: np.random.permutation(n))
    model = Surrogate(AutoTVM(seed=seed, loss=loss, plan_size=plan_size), make_features("autotvm-knob", space))
    autotvm.seeded(seed, patch, xgb)
    return xgb.AutoTVMXgb(space, seed=seed, cost_model=model, plan_size=plan_size)


@pytest.mark.parametrize(("name", "plan_size", "trials"), [
    ("xgb-knob-reg-plan64-b64", 64, 128), ("xgb-knob-reg-plan8-b8", 8, 24),
])  # fmt: skip
def test_the_xgb_tuner_proposes_what_autotvms_does(name: str, plan_size: int, trials: int, monkeypatch: Any) -> None:
    """Trial by trial: the same trees on the same rows, and the same walks."""
    expected = recorded(name)[0]
    policy = xgb_as_recorded(0, "reg", plan_size, monkeypatch)
    assert searched(policy, plan_size, trials) == expected[:trials]


def test_grid_and_random_are_autotvms() -> None:
    space, _ = table()
    assert searched(AutoTVMGrid(space, seed=0), 8, 200) == recorded("grid-b8")[0]
    found = searched(AutoTVMRandom(space, seed=0), 8, 200)
    assert len(set(found)) == 200
    assert 1800 < np.mean(found) < 2600, "uniform over the 4,410 indices"


def test_a_plan_ends_with_random_trials() -> None:
    """5 % of 64, rounded down: 61 are planned."""
    space, _ = table()
    model = Surrogate(AutoTVM(seed=0), make_features("autotvm-knob", space))
    policy = xgb.AutoTVMXgb(space, seed=0, cost_model=model, steps=5)
    searched(policy, 64, 64)
    planned = {space.index_of(config) for config in policy._plan[:61]}
    batch = [space.index_of(config) for config in policy.ask(64)]
    assert set(batch[:61]) == planned
    assert not set(batch[61:]) & {space.index_of(config) for config in policy._plan}


def test_the_diversity_filter_does_not_look_at_scores() -> None:
    configs = [toys.Small().config_at(index) for index in (0, 1, 5, 60)]
    picked = xgb.diverse(configs, 2)
    assert picked[0] == configs[0], "all are equally new"
    assert picked[1] == max(configs[1:], key=lambda config: sum(config[name] != configs[0][name] for name in config))


@pytest.mark.parametrize("options", [{"diversity_filter_ratio": 0.5}, {"plan_size": 0}, {"temperature": -1.0}])
def test_a_wrong_option_is_refused(options: dict[str, Any]) -> None:
    space, _ = table()
    model = Surrogate(AutoTVM(seed=0), make_features("knob", space))
    with pytest.raises(SearchlabError, match=next(iter(options))):
        xgb.AutoTVMXgb(space, seed=0, cost_model=model, **options)


def test_a_walk_changes_one_knob_and_weighs_it_by_its_choices() -> None:
    space, rng = toys.Large(), np.random.default_rng(0)
    config = space.sample(rng)
    changed: dict[str, int] = dict.fromkeys(config, 0)
    for _ in range(3000):
        other = walked(space, config, rng)
        (name,) = [name for name in config if config[name] != other[name]]
        changed[name] += 1
    share = {knob.name: 1 - 1 / len(knob.choices) for knob in space.knobs(config)}
    for name, count in changed.items():
        assert count / 3000 == pytest.approx(share[name] / sum(share.values()), abs=0.04)


def test_average_recall_by_hand() -> None:
    """Of the predictions in order, how many of the first k are among the k+1 best."""
    measured = np.array([0.9, 0.8, 0.1])
    assert average_recall(np.array([3.0, 2.0, 1.0]), measured, 3) == pytest.approx((0 + 1 / 2 + 2 / 3) / 3)
    assert average_recall(np.array([1.0, 2.0, 3.0]), measured, 3) == pytest.approx((0 + 0 + 2 / 3) / 3)
