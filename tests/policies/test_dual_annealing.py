"""Dual annealing: scipy's own calls, one at a time; and other minimisers behind the same adapter."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import basinhopping, differential_evolution

from searchlab.arrays import Floats
from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.policy import private_rng
from searchlab.space import Config
from searchlab_policies.dual_annealing import DualAnnealing, Method, anneal
from searchlab_policies.minimiser import FAILURE_VALUE, Box, Minimise, Minimiser, Objective
from searchlab_policies.random import Random


def value(config: Config) -> float:
    cost = toys.simulate_flaky(config).cost
    return math.log(cost) if math.isfinite(cost) else FAILURE_VALUE


class Enough(Exception):
    pass


@pytest.mark.parametrize("make", [toys.Large, toys.Dependent])
@pytest.mark.parametrize("method", ["COBYLA", "L-BFGS-B"])
def test_it_proposes_the_configs_for_which_scipy_calls(make: Any, method: Method) -> None:
    """Called directly, with the same random numbers, scipy evaluates the same configs in the same order."""
    space = make()
    box, rng = Box(space), private_rng(3, "minimiser", 0, 0)
    called: dict[Config, None] = {}

    def objective(x: Floats) -> float:
        called[box.to_config(x)] = None
        if len(called) == 80:
            raise Enough
        return value(box.to_config(x))

    with pytest.raises(Enough):
        anneal(objective, box=box, start=box.to_point(space.sample(rng)), rng=rng, method=method)
    trials = toys.run_policy(DualAnnealing(space, seed=3, method=method), toys.simulate_flaky, 80, 1)
    assert [trial.config for trial in trials] == list(called)


@given(st.sampled_from([toys.Small, toys.Large, toys.Dependent]), st.integers(0, 2**32))
def test_a_config_is_where_its_point_is(make: Any, seed: int) -> None:
    space = make()
    box, config = Box(space), space.sample(np.random.default_rng(seed))
    point = box.to_point(config)
    assert box.to_config(point) == config
    assert all(0 < x < width for x, (_, width) in zip(point, box.bounds, strict=True))
    assert box.to_config(point + 5) in space and box.to_config(point - 5) in space


def test_all_choices_have_the_same_width() -> None:
    box = Box(toys.Small())  # 5, 4, 3 and 2 choices
    assert box.step == 0.2
    assert box.bounds == [(0, pytest.approx(width)) for width in (1.0, 0.8, 0.6, 0.4)]


def test_a_batch_has_one_config_from_each_of_several_annealings() -> None:
    batch = DualAnnealing(toys.Large(), seed=0).ask(4)
    assert len(set(batch)) == 4
    assert batch[:1] == DualAnnealing(toys.Large(), seed=0).ask(1)


def test_it_starts_from_the_fastest_trial_of_a_warm_start() -> None:
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 24)
    policy = DualAnnealing(toys.Large(), seed=0)
    policy.warm_start(earlier_trials)
    policy.ask(1)
    assert policy._run_sequences[0]._answered_count >= 1, "the first call is for the fastest trial, which is known"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_goes_on_as_the_policy_does(copied: Any) -> None:
    policy = DualAnnealing(toys.Large(), seed=0)
    toys.run_policy(policy, toys.simulate_flaky, 50, 3)
    assert copied(policy).ask(3) == policy.ask(3)


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    policy = DualAnnealing(toys.Large(), seed=0)
    toys.run_policy(policy, toys.simulate_flaky, 20, 4)
    assert len(set(threading.enumerate()) - before) == 4
    del policy
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_beats_random_search() -> None:
    best = [
        min(t.cost for t in toys.run_policy(DualAnnealing(toys.Large(), seed=s), toys.simulate_smooth, 96, 1))
        for s in range(12)
    ]
    chance = [
        min(t.cost for t in toys.run_policy(Random(toys.Large(), seed=s), toys.simulate_smooth, 96)) for s in range(12)
    ]
    assert np.median(best) < np.median(chance)


def test_bad_options_are_named() -> None:
    with pytest.raises(SearchlabError, match="option 'method' cannot be 'COBILA'; did you mean 'COBYLA'"):
        DualAnnealing(toys.Small(), seed=0, method="COBILA")  # type: ignore[arg-type]


# --- the adapter ------------------------------------------------------------------------------------


def hop(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator) -> None:
    basinhopping(objective, start, stepsize=box.step, niter=3, seed=rng, minimizer_kwargs={"method": "Nelder-Mead"})


def evolve(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator) -> None:
    differential_evolution(objective, box.bounds, popsize=4, maxiter=3, seed=rng)


def quit_early(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator) -> None:
    objective(start)


@pytest.mark.parametrize("minimise", [hop, evolve, quit_early])
def test_other_minimisers_run_until_the_space_is_exhausted(minimise: Minimise) -> None:
    """Each ends after some calls, and then runs again."""
    trials = toys.run_policy(Minimiser(toys.Small(), seed=0, minimise=minimise), toys.simulate_flaky, 1000, 2)
    assert len({trial.config for trial in trials}) == len(trials) == 120


def fail(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator) -> None:
    objective(start)
    raise ZeroDivisionError("made up")


def idle(objective: Objective, *, box: Box, start: Floats, rng: np.random.Generator) -> None:
    pass


def test_errors_of_a_minimiser_are_raised_by_ask() -> None:
    policy = Minimiser(toys.Small(), seed=0, minimise=fail)
    policy.tell(toys.simulate_trials(policy.ask(1), toys.simulate_smooth))
    with pytest.raises(ZeroDivisionError, match="made up"):
        policy.ask(1)
    with pytest.raises(SearchlabError, match="ended without calling its function"):
        Minimiser(toys.Small(), seed=0, minimise=idle).ask(1)
