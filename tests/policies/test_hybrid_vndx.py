"""HybridVNDX: held against recorded runs of the original, and what its repairs change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab_policies.hybrid_vndx import History, HybridVndx
from searchlab_policies.random import Random
from tests.support.autotvm import read_recording, repeat_run


@pytest.mark.parametrize("name", ["hybrid-vndx-b1", "hybrid-vndx-cold-b1"])
def test_it_proposes_what_the_original_does(name: str) -> None:
    """The cold runs reject many candidates and restart often."""
    seed, expected = next(iter(read_recording(name).items()))
    assert repeat_run(name, seed, 200) == expected


def proposals(unit: float, **options: Any) -> list[Config]:
    def cost(config: Config) -> Measurement:
        return Measurement((unit * toys.simulate_smooth(config).cost,), program="made up")

    return [trial.config for trial in toys.run_policy(HybridVndx(toys.Large(), seed=0, **options), cost, 60, 1)]


def test_repaired_it_does_not_depend_on_the_unit_of_time() -> None:
    assert proposals(1, repaired=True) == proposals(1024, repaired=True)
    assert proposals(1) != proposals(1024)


@pytest.mark.parametrize(("repaired", "elites"), [(False, "slowest"), (True, "fastest")])
def test_the_elites_are_the_slowest_unless_it_is_repaired(repaired: bool, elites: str) -> None:
    policy = HybridVndx(toys.Large(), seed=0, repaired=repaired)
    trials = sorted(toys.run_policy(policy, toys.simulate_smooth, 60, 1), key=lambda trial: trial.cost)
    expected = trials[:5] if elites == "fastest" else trials[-4:]
    # The slowest config may be evaluated, and promoted, again.
    assert {trial.config for trial in expected} & {config for *_, config in policy._elites}
    assert all(config not in {t.config for t in trials[10:-10]} for *_, config in policy._elites)


def test_failures_make_predictions_infinite_unless_repaired() -> None:
    def predicted(repaired: bool) -> float:
        policy = HybridVndx(toys.Small(), seed=0, repaired=repaired)
        configs = list(toys.Small().enumerate())[:4]
        measurements = [
            toys.failed_measurement("crash", "made up") if i < 2 else toys.simulate_smooth(c)
            for i, c in enumerate(configs)
        ]
        policy.warm_start(toys.simulate_trials(configs, dict(zip(configs, measurements, strict=True)).__getitem__))
        return policy._predict_cost(configs[3])

    assert np.isinf(predicted(False)) and np.isfinite(predicted(True))


def test_predictions_average_the_nearest() -> None:
    history, space = History(), toys.Dependent()
    configs = list(space.enumerate())[:40]
    for cost, config in enumerate(configs):
        history.append(config, float(cost))
    for config in configs[::7]:
        differences = [
            sum(neighbour.get(name) != config.get(name) for name in {*neighbour, *config}) for neighbour in configs
        ]
        nearest = sorted(range(40), key=lambda i: differences[i])[:5]
        assert history.find_nearest_costs(config, 5) == [float(i) for i in nearest]


def test_the_first_trial_after_a_warm_start_is_near_the_fastest() -> None:
    space = toys.Large()
    policy = HybridVndx(space, seed=0, repaired=True)
    earlier_trials = toys.run_policy(Random(space, seed=1), toys.simulate_smooth, 32)
    policy.warm_start(earlier_trials)
    assert policy._current is not None
    assert policy._current[0] == min(earlier_trials, key=lambda trial: trial.cost).config


def test_without_improvement_it_restarts_somewhere_else() -> None:
    policy = HybridVndx(toys.Large(), seed=0, repaired=True, restart=4)
    best: list[float] = []
    for config in (policy.ask(1)[0] for _ in range(40)):
        stale = len(best) >= 4 and policy._current is None
        policy.tell(toys.simulate_trials([config], toys.simulate_smooth, len(best)))
        best.append(toys.simulate_smooth(config).cost)
        if stale:
            assert policy._current == (config, pytest.approx(np.log(best[-1] * 1e3)))
            return
    pytest.fail("it never restarted")


def median_best(make: Callable[[int], Any], trials: int = 96) -> float:
    """The median, over six seeds, of the best cost."""
    return float(
        np.median(
            [min(t.cost for t in toys.run_policy(make(seed), toys.simulate_smooth, trials, 1)) for seed in range(6)]
        )
    )


def test_repaired_it_beats_random_search() -> None:
    random = median_best(lambda seed: Random(toys.Large(), seed=seed))
    assert median_best(lambda seed: HybridVndx(toys.Large(), seed=seed, repaired=True)) < random


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"elites": 1}, "option 'elites' is 1"),
        ({"pool": 1}, "option 'pool' is 1"),
        ({"cooling": 1.5}, "option 'cooling' is 1.5"),
    ],
)
def test_bad_options_are_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        HybridVndx(toys.Small(), seed=0, **option)
