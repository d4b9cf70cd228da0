"""Coordinate descent: where it goes, what it takes for faster, and what it does at a local optimum."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.errors import SearchlabError
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Knob, ProductSpace
from searchlab_policies.droplet import Droplet, faster
from searchlab_policies.random import Random
from tests.support import toys
from tests.support.spaces.products import ORDERS, Ordered


class Valley(toys.Small):
    """Three knobs of sixteen numbers each."""

    def __init__(self) -> None:
        ProductSpace.__init__(self, toys.WORKLOAD, toys.TARGET, [Knob(name, tuple(range(16))) for name in "abc"])


PLANTED = {"a": 11, "b": 4, "c": 14}


def planted(config: Config) -> Measurement:
    """Faster with every step towards the optimum, along whichever knob."""
    return toys.timed(1e-3 * (1 + sum(abs(int(value) - PLANTED[name]) for name, value in config.items())))  # type: ignore[call-overload]


@pytest.mark.parametrize("batch", [1, 8, 20])
@pytest.mark.parametrize("start", ["first", "random"])
def test_it_descends_to_a_planted_optimum(batch: int, start: str) -> None:
    """In far fewer trials than the 4,096 that there are."""
    policy = Droplet(Valley(), seed=0, start=start)
    trials = toys.run(policy, planted, 150, batch)
    assert Config(PLANTED) in [trial.config for trial in trials]


def test_it_begins_at_the_first_choices_and_looks_a_step_around() -> None:
    policy = Droplet(Valley(), seed=0)
    asked = [tuple(config.values()) for config in policy.ask(6)]
    assert asked[:4] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert asked[4:] == [(2, 0, 0), (0, 2, 0)], "then farther"


def test_it_goes_on_along_the_line_of_the_last_move() -> None:
    policy = Droplet(Valley(), seed=0)
    at = [Config({"a": 5, "b": 5, "c": 5}), Config({"a": 7, "b": 5, "c": 5})]
    policy.tell([Trial(0, at[0], toys.timed(2.0)), Trial(1, at[1], toys.timed(1.0))])
    assert policy.ask(1) == [Config({"a": 9, "b": 5, "c": 5})]


def test_a_local_optimum_is_left_for_a_random_config() -> None:
    space = Valley()
    policy = Droplet(space, seed=0)
    policy.tell(toys.trials_of([Config(PLANTED)], planted))
    around = [Config({**PLANTED, name: PLANTED[name] + by}) for name in "abc" for by in (-1, 1)]
    policy.tell(toys.trials_of(around[:-1], planted))
    assert policy.centre is not None and policy.centre.config == Config(PLANTED)
    policy.tell(toys.trials_of(around[-1:], planted))
    assert policy.centre is None
    start = policy.ask(1)[0]
    assert sum(abs(int(start[name]) - PLANTED[name]) for name in "abc") > 2  # type: ignore[call-overload]
    policy.tell(toys.trials_of([start], planted))
    assert policy.centre is not None and policy.centre.config == start


def test_a_start_that_fails_is_replaced() -> None:
    policy = Droplet(toys.Large(), seed=0)
    first = policy.ask(1)
    policy.tell(toys.trials_of(first, toys.all_invalid))
    second = policy.ask(1)
    policy.tell(toys.trials_of(second, toys.all_equal))
    assert policy.centre is not None and [policy.centre.config] == second


def trial(*seconds: float) -> Trial:
    return Trial(0, Config(), Measurement(seconds=seconds, program="made up"))


def test_it_moves_where_the_difference_is_not_by_chance() -> None:
    slow = trial(1.0, 1.1, 0.9, 1.05)
    assert not faster(trial(0.99, 1.09, 0.89, 1.04), slow, 0.05), "faster, but within the noise"
    assert faster(trial(0.99, 1.09, 0.89, 1.04), slow, 1.0)
    assert faster(trial(0.7, 0.72, 0.69, 0.71), slow, 0.05)
    assert not faster(slow, trial(0.7, 0.72, 0.69, 0.71), 0.05)
    assert faster(trial(0.99), slow, 0.05), "a single repeat has no spread to test"
    assert faster(trial(0.5, 0.5), trial(1.0, 1.0), 0.0), "nor have repeats that are all alike"
    failed = Trial(0, Config(), toys.failed("crash", "made up"))
    assert faster(slow, failed, 0.05) and not faster(failed, slow, 0.05) and not faster(failed, failed, 1.0)


def test_words_have_no_order_and_knobs_may_depend() -> None:
    space = toys.Dependent()
    policy = Droplet(space, seed=0)
    config = Config({"sketch": "plain", "parallel": True})
    policy.tell(toys.trials_of([config], toys.smooth))
    around = policy.ask(3)
    assert [step["sketch"] for step in around] == ["tiled", "packed", "plain"]
    assert all(step in space for step in around)
    assert [step["parallel"] for step in around] == [True, True, False]


def test_beats_random_search() -> None:
    best = [min(t.cost for t in toys.run(Droplet(toys.Large(), seed=s), toys.smooth, 192)) for s in range(12)]
    chance = [min(t.cost for t in toys.run(Random(toys.Large(), seed=s), toys.smooth, 192)) for s in range(12)]
    assert np.median(best) < 0.9 * np.median(chance)


def test_trials_of_another_space_are_passed_over() -> None:
    policy = Droplet(toys.Large(), seed=0)
    policy.tell(toys.run(Random(toys.Small(), seed=1), toys.flaky, 16))
    assert policy.centre is None
    assert len(toys.run(policy, toys.flaky, 24)) == 24


def test_bad_options_are_named() -> None:
    with pytest.raises(SearchlabError, match="option 'start' cannot be 'fist'; did you mean 'first'"):
        Droplet(toys.Small(), seed=0, start="fist")
    with pytest.raises(SearchlabError, match="option 'pvalue' is 2"):
        Droplet(toys.Small(), seed=0, pvalue=2)


def test_an_order_of_loops_has_no_order() -> None:
    """All other orders are a step away, and no step leads along them."""
    policy = Droplet(Ordered(), seed=0)
    start = Config({"tile": (1, 1, 8), "order": (0, 1, 2)})
    orders = [config["order"] for config in policy._steps(start, 1) if config["tile"] == start["tile"]]
    assert sorted(map(str, orders)) == sorted(map(str, ORDERS[1:]))
    assert all(config["order"] == (0, 1, 2) for config in policy._steps(start, 2))


def test_no_private_stream_is_that_of_an_ask() -> None:
    """Restart 0 drew from ``[seed, 1, 0]``, which is the stream of an ask after one trial, ``[seed, 1]``."""
    space = Valley()
    starts = [Droplet(space, seed=seed, start="random")._start for seed in range(20)]
    asks = [space.sample(np.random.default_rng([seed, 1])) for seed in range(20)]
    assert sum(start == ask for start, ask in zip(starts, asks, strict=True)) <= 1, "there are 4,096 configs"
