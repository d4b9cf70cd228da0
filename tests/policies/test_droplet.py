"""AutoTVM's droplet search: held against recorded runs of the original, and where it goes and stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Knob, ProductSpace
from searchlab_policies.droplet import Droplet
from searchlab_policies.random import Random
from tests.support.autotvm import read_recording, repeat_run


class Valley(toys.Small):
    """Three knobs of sixteen numbers each."""

    def __init__(self) -> None:
        ProductSpace.__init__(self, toys.WORKLOAD, toys.TARGET, [Knob(name, tuple(range(16))) for name in "abc"])


PLANTED = {"a": 11, "b": 4, "c": 14}


def planted(config: Config) -> Measurement:
    """Faster with every step towards the optimum, along whichever knob."""
    steps = sum(abs(int(value) - PLANTED[name]) for name, value in config.items())  # type: ignore[call-overload]
    return Measurement(seconds=(1e-3 * (1 + steps),), program="made up")


@pytest.mark.parametrize("batch", [8, 64])
def test_it_proposes_what_autotvms_does(batch: int) -> None:
    """From its default start and from thirty others, every one of 200 trials: it draws nothing at random."""
    for name in (f"droplet-b{batch}", f"droplet-starts-b{batch}"):
        for seed, expected in read_recording(name).items():
            assert repeat_run(name, seed, 200) == expected


@pytest.mark.parametrize("start", ["first", "random", [3, 3, 3]])
def test_it_descends_to_a_planted_optimum_and_stops(start: Any) -> None:
    """In far fewer trials than the 4,096 that there are. With small batches AutoTVM's may stop some steps before."""
    policy = Droplet(Valley(), seed=0, start=start)
    trials = toys.run_policy(policy, planted, 4096, 64)
    assert Config(PLANTED) in [trial.config for trial in trials]
    assert len(trials) < 2048
    assert policy.ask(8) == []


def test_it_moves_from_the_first_choices_along_knob_subsets() -> None:
    policy = Droplet(Valley(), seed=0)
    (first,) = policy.ask(8)
    assert tuple(first.values()) == (0, 0, 0)
    policy.tell(toys.simulate_trials([first], planted))
    proposals = [tuple(config.values()) for config in policy.ask(8)]
    assert proposals[:7] == [(1, 1, 1), (1, 1, 0), (1, 0, 1), (1, 0, 0), (0, 1, 1), (0, 1, 0), (0, 0, 1)]
    assert proposals[7:] == [(2, 2, 2)], "then farther"


def test_a_step_up_wraps_around_and_a_step_down_does_not() -> None:
    policy = Droplet(Valley(), seed=0, start=[15, 0, 7])
    policy.tell(toys.simulate_trials(policy.ask(8), planted))
    proposals = {tuple(config.values()) for config in policy.ask(16)}
    assert {(0, 1, 8), (14, 0, 6), (0, 0, 7)} <= proposals


def repeats(config: Config, *seconds: float) -> Trial:
    return Trial(0, config, Measurement(seconds=seconds, program="made up"))


def test_it_moves_where_the_difference_is_not_by_chance() -> None:
    def moves(trial: Trial, pvalue: float = 0.05) -> bool:
        policy = Droplet(Valley(), seed=0, pvalue=pvalue)
        policy.tell([repeats(policy.ask(8)[0], 1.0, 1.1, 0.9, 1.05)])
        policy.ask(8)
        policy.tell([trial])
        return policy._best_config == trial.config

    neighbour = Config({"a": 1, "b": 1, "c": 1})
    assert not moves(repeats(neighbour, 0.99, 1.09, 0.89, 1.04)), "faster, but within the noise"
    assert moves(repeats(neighbour, 0.99, 1.09, 0.89, 1.04), pvalue=1.0)
    assert moves(repeats(neighbour, 0.7, 0.72, 0.69, 0.71))
    assert not moves(repeats(neighbour, 1.7, 1.72, 1.69, 1.71)), "slower"
    assert moves(repeats(neighbour, 0.99)), "a single repeat has no spread to test"
    assert not moves(Trial(0, neighbour, toys.failed_measurement("crash", "made up")))


def test_a_start_that_fails_is_left() -> None:
    policy = Droplet(toys.Large(), seed=0)
    policy.tell(toys.simulate_trials(policy.ask(8), toys.simulate_invalid))
    assert policy.ask(8)


def test_knobs_may_depend_on_each_other() -> None:
    space = toys.Dependent()
    trials = toys.run_policy(Droplet(space, seed=0), toys.simulate_smooth, 40)
    assert len(trials) > 3 and all(trial.config in space for trial in trials)


def test_with_trials_of_another_log_it_begins_at_the_fastest() -> None:
    space = Valley()
    policy = Droplet(space, seed=0)
    earlier_trials = toys.simulate_trials([space.config_at(index) for index in (5, 2000, 4000)], planted)
    policy.warm_start(earlier_trials)
    best = min(earlier_trials, key=lambda trial: trial.cost).config
    step = policy.ask(1)[0]
    assert {abs(int(step[name]) - int(best[name])) for name in "abc"} <= {0, 1, 15}  # type: ignore[call-overload]


def test_trials_of_another_space_are_passed_over() -> None:
    policy = Droplet(toys.Large(), seed=0)
    policy.warm_start(toys.run_policy(Random(toys.Small(), seed=1), toys.simulate_flaky, 16))
    assert len(toys.run_policy(policy, toys.simulate_smooth, 24)) == 24


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"start": "fist"}, "option 'start' cannot be 'fist'; did you mean 'first'"),
        ({"start": [0]}, "must include a position for knob"),
        ({"start": [0, 0, 99, 0]}, "option 'start' is 99"),
        ({"start": [0] * 9}, "it must have 4 positions, one for each knob"),
        ({"pvalue": 2}, "option 'pvalue' is 2"),
    ],
)
def test_bad_options_are_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchlabError, match=message):
        Droplet(toys.Small(), seed=0, **option)


def test_no_private_stream_is_that_of_an_ask() -> None:
    space = Valley()
    starts = [Droplet(space, seed=seed, start="random")._next_configs[0] for seed in range(20)]
    asks = [space.sample(np.random.default_rng([seed, 1])) for seed in range(20)]
    assert sum(start == ask for start, ask in zip(starts, asks, strict=True)) <= 1, "there are 4,096 configs"
