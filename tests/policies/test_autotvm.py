"""AutoTVM's tuners held against recorded runs of the originals: with the same random numbers, the same configs.

``studies/fidelity/README.md`` says where the recorded runs come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import searchlab_policies.autotvm.xgb as xgb
from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import make_features
from searchlab.errors import SearchlabError
from searchlab_costmodels.autotvm import AutoTVM, compute_average_recall
from searchlab_policies.autotvm.annealer import redraw_until_changed
from searchlab_policies.autotvm.index import AutoTVMRandom
from searchlab_policies.xgb import select_diverse
from tests.support.autotvm import read_recording, repeat_run, search_table, table


@pytest.mark.parametrize(
    ("name", "seeds", "trials"),
    [
        ("ga-b8", 5, 200),
        ("ga-b64", 5, 200),
        (
            "ga-p16e4-b8",
            5,
            23,
        ),  # up to the elites: numpy leaves them in an order that is chance, and draws depend on it
        ("xgb-knob-reg-plan64-b64", 1, 128),
        ("xgb-knob-reg-plan8-b8", 1, 24),
        ("grid-b8", 1, 200),
    ],
)
def test_a_tuner_proposes_what_autotvms_does(name: str, seeds: int, trials: int) -> None:
    """Trial by trial, with its random numbers: the same draws, the same trees on the same rows, the same walks."""
    for seed, expected in list(read_recording(name).items())[:seeds]:
        assert repeat_run(name, seed, min(trials, len(expected))) == expected[:trials]


def test_random_is_uniform_over_the_indices() -> None:
    space, _ = table()
    indices = search_table(AutoTVMRandom(space, seed=0), 8, 200)
    assert len(set(indices)) == 200
    assert 1800 < np.mean(indices) < 2600, "of 4,410"


def test_a_plan_ends_with_random_trials() -> None:
    """5 % of 64, rounded down: 61 are planned."""
    space, _ = table()
    model = BoundCostModel(AutoTVM(seed=0), make_features("autotvm-knob", space))
    policy = xgb.AutoTVMXgb(space, seed=0, cost_model=model, steps=5)
    search_table(policy, 64, 64)
    plan_indices = {space.index_of(config) for config in policy._plan[:61]}
    batch = [space.index_of(config) for config in policy.ask(64)]
    assert set(batch[:61]) == plan_indices
    assert not set(batch[61:]) & {space.index_of(config) for config in policy._plan}


def test_the_diversity_filter_does_not_look_at_scores() -> None:
    configs = [toys.Small().config_at(index) for index in (0, 1, 5, 60)]
    picked = select_diverse(configs, np.zeros(4), 2, diversity=1.0)
    assert picked[0] == configs[0], "all are equally new"
    assert picked[1] == max(configs[1:], key=lambda config: sum(config[name] != configs[0][name] for name in config))


@pytest.mark.parametrize("options", [{"diversity_filter_ratio": 0.5}, {"plan_size": 0}, {"temperature": -1.0}])
def test_a_wrong_option_is_refused(options: dict[str, Any]) -> None:
    space, _ = table()
    model = BoundCostModel(AutoTVM(seed=0), make_features("knob", space))
    with pytest.raises(SearchlabError, match=next(iter(options))):
        xgb.AutoTVMXgb(space, seed=0, cost_model=model, **options)


def test_a_walk_changes_one_knob_and_weighs_it_by_its_choices() -> None:
    space, rng = toys.Large(), np.random.default_rng(0)
    config = space.sample(rng)
    knobs = space.knobs(config)
    changed: dict[str, int] = dict.fromkeys(config, 0)
    for _ in range(3000):
        neighbour = redraw_until_changed(space, config, knobs, rng)
        (name,) = [name for name in config if config[name] != neighbour[name]]
        changed[name] += 1
    share = {knob.name: 1 - 1 / len(knob.choices) for knob in knobs}
    for name, count in changed.items():
        assert count / 3000 == pytest.approx(share[name] / sum(share.values()), abs=0.04)


def test_average_recall_by_hand() -> None:
    """Of the predictions in order, how many of the first k are among the k+1 best."""
    measured = np.array([0.9, 0.8, 0.1])
    assert compute_average_recall(np.array([3.0, 2.0, 1.0]), measured, 3) == pytest.approx((0 + 1 / 2 + 2 / 3) / 3)
    assert compute_average_recall(np.array([1.0, 2.0, 3.0]), measured, 3) == pytest.approx((0 + 0 + 2 / 3) / 3)
