"""The chain: which policy proposes, when the next one takes over, and what it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.policy import NeverTwice
from searchlab.space import Config
from searchlab_policies.chain import Chain
from searchlab_policies.droplet import Droplet
from searchlab_policies.random import Random

HERE = "tests.policies.test_chain"


class Twelve(NeverTwice, stops=True):
    """Proposes the first twelve configs in order."""

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        for config, _ in zip(self.space.enumerate(), range(12), strict=False):
            yield config


def chain(*arms: Any, **options: Any) -> Chain:
    return Chain(toys.Large(), seed=0, arms=list(arms), **options)


def lengths(policy: Chain, cost: toys.SimulateFunction, budget: int, batch: int = 8) -> list[int]:
    """The number of trials that each arm proposed."""
    counts = [0] * len(policy.arms)
    count = 0
    while count < budget and (configs := policy.ask(min(batch, budget - count))):
        counts[policy.current_index] += len(configs)
        policy.tell(toys.simulate_trials(configs, cost, count))
        count += len(configs)
    return counts


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_an_arm_has_its_trials_whatever_the_batch(batch: int) -> None:
    assert lengths(chain("random", "evolutionary", trials=12), toys.simulate_flaky, 40, batch) == [12, 28]
    policy = chain("random", "evolutionary", "annealing", trials=[3, 14])
    assert lengths(policy, toys.simulate_flaky, 40, batch) == [3, 14, 23]


def test_it_begins_as_its_first_arm_does() -> None:
    policy = chain("random", "droplet")
    assert isinstance(policy.arms[0], Random)
    arm = Random(toys.Large(), seed=policy.arms[0].seed)
    assert [t.config for t in toys.run_policy(policy, toys.simulate_flaky, 32)] == [
        t.config for t in toys.run_policy(arm, toys.simulate_flaky, 32)
    ]


def test_the_droplet_begins_at_the_best_of_the_trials_before_it() -> None:
    policy = chain("random", "droplet")
    earlier_trials = toys.run_policy(policy, toys.simulate_flaky, 32)
    droplet = Droplet(toys.Large(), seed=0)
    droplet.warm_start(earlier_trials)
    assert droplet._best_config == min(earlier_trials, key=lambda trial: trial.cost).config
    for _ in range(5):
        expected = droplet.ask(8)
        assert policy.ask(8) == expected
        trials = toys.simulate_trials(expected, toys.simulate_flaky)
        droplet.tell(trials), policy.tell(trials)  # type: ignore[func-returns-value]


def test_an_arm_that_stagnates_gives_way() -> None:
    """Every trial costs the same: the first is a new best, and the others are not."""
    assert lengths(chain("random", "evolutionary", trials=1000, patience=6), toys.simulate_equal, 20, 1) == [7, 13]
    assert lengths(chain("random", "evolutionary", trials=4, patience=6), toys.simulate_equal, 20, 1) == [4, 16]


def test_an_arm_that_ends_gives_way() -> None:
    assert lengths(chain(f"{HERE}:Twelve", "random", trials=1000), toys.simulate_flaky, 30) == [12, 18]


def test_the_run_ends_with_the_last_arm() -> None:
    policy = Chain(toys.Small(), seed=0, trials=8)
    trials = toys.run_policy(policy, toys.simulate_smooth, 1000, 4)
    assert 8 < len(trials) <= 120
    assert policy.ask(4) == []


def test_trials_of_other_runs_do_not_count() -> None:
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 24)
    policy = chain("random", "droplet", trials=12)
    policy.warm_start(earlier_trials)
    assert lengths(policy, toys.simulate_flaky, 16)[0] == 12
    assert not {trial.config for trial in earlier_trials} & {trial.config for trial in policy.trials[24:]}


def test_beats_random_search() -> None:
    arms = ["random", "greedy-ils"]
    policies = [Chain(toys.Large(), seed=s, arms=arms, trials=24) for s in range(8)]
    best = [min(t.cost for t in toys.run_policy(policy, toys.simulate_smooth, 96, 1)) for policy in policies]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 96)) for s in range(8)
    ]
    assert np.median(best) < 0.85 * np.median(chance)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"arms": []}, r"option 'arms' is \[\]; it must be a list of at least one policy"),
        ({"arms": ["randon"]}, "unknown policy 'randon'; did you mean 'random'"),
        ({"trials": 0}, "option 'trials' is 0"),
        (
            {"trials": [8, 8]},
            r"option 'trials' is \[8, 8\]; a list must contain one number for each of 'arms' except the last",
        ),
        ({"trials": [0]}, "option 'trials'"),
        ({"patience": 0}, "option 'patience' is 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(SearchlabError, match=text):
        Chain(toys.Small(), seed=0, **options)
