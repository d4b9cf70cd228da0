"""What every policy keeps to, on every kind of space and whatever it is told."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from searchlab.costmodel import Surrogate
from searchlab.features import KnobFeatures
from searchlab.policy import Policy
from searchlab.records import Measurement, Trial
from searchlab.space import Config, Space
from searchlab_costmodels.xgboost import XGBoost
from searchlab_policies.evolutionary import Evolutionary
from searchlab_policies.grid import Grid
from searchlab_policies.random import Random
from searchlab_policies.tpe import Tpe
from searchlab_policies.xgb import Xgb
from tests import toys

POLICIES: dict[str, type[Policy]] = {
    "random": Random,
    "grid": Grid,
    "evolutionary": Evolutionary,
    "xgb": Xgb,
    "tpe": Tpe,
}
SPACES: dict[str, Callable[[], Space]] = {
    "small": toys.Small,
    "large": toys.Large,
    "dependent": toys.Dependent,
    "one": toys.One,
    "bare": toys.Bare,
}
SIZES = {"small": 120, "dependent": 192, "one": 1, "bare": 1}

every_policy = pytest.mark.parametrize("name", POLICIES)
every_space = pytest.mark.parametrize("where", SPACES)


def make(name: str, space: Space, seed: int = 0, **options: Any) -> Policy:
    if name == "xgb":
        # A short anneal: these tests are of what is proposed, not of how good it is.
        surrogate = Surrogate(XGBoost(seed=seed, rounds=20), KnobFeatures(space))
        options = {"chains": 16, "steps": 10, **options, "cost_model": surrogate}
    return POLICIES[name](space, seed=seed, **options)


def checked_run(policy: Policy, cost: toys.Cost, budget: int, batch: int) -> list[Trial]:
    """``toys.run``, with every batch held against the contract."""
    trials: list[Trial] = []
    known: dict[Config, None] = {}
    while len(trials) < budget:
        asked = policy.ask(batch)
        assert len(asked) <= batch
        for config in asked:
            assert isinstance(config, Config)
            assert config in policy.space
            assert config not in known, "proposed twice"
            known[config] = None
        if not asked:
            break
        told = toys.trials_of(asked, cost, len(trials))
        before = copy.deepcopy(told)
        policy.tell(told)
        assert told == before, "changed what it was told"
        trials += told
    return trials


def configs_of(trials: list[Trial]) -> list[Config]:
    return [trial.config for trial in trials]


@every_policy
@pytest.mark.parametrize("where", SIZES)
def test_all_of_a_space_is_proposed_once_and_then_nothing(name: str, where: str) -> None:
    policy = make(name, SPACES[where]())
    trials = checked_run(policy, toys.flaky, budget=1000, batch=16)
    assert len(trials) == SIZES[where]
    assert list(policy.ask(1)) == list(policy.ask(8)) == []


@every_policy
@pytest.mark.parametrize("cost", [toys.smooth, toys.flaky, toys.all_invalid, toys.all_equal])
def test_whatever_it_costs_the_search_goes_on(name: str, cost: toys.Cost) -> None:
    assert len(checked_run(make(name, toys.Large()), cost, budget=48, batch=8)) == 48
    assert len(checked_run(make(name, toys.Small()), cost, budget=1000, batch=24)) == 120


@every_policy
@pytest.mark.parametrize("batch", [1, 7, 40])
def test_any_batch_size(name: str, batch: int) -> None:
    trials = checked_run(make(name, toys.Dependent()), toys.smooth, budget=40, batch=batch)
    assert 40 <= len(trials) < 40 + batch


@every_policy
def test_several_asks_before_anything_is_told(name: str) -> None:
    policy = make(name, toys.Small())
    asked = [config for _ in range(6) for config in policy.ask(5)]
    assert len(set(asked)) == 30
    policy.tell(toys.trials_of(asked, toys.smooth))
    rest = [config for _ in range(20) for config in policy.ask(5)]
    assert len(set(rest)) == len(rest) == 90
    assert not set(rest) & set(asked)


@every_policy
def test_nothing_asked_nothing_proposed(name: str) -> None:
    policy = make(name, toys.Small())
    assert list(policy.ask(0)) == []
    assert len(policy.ask(3)) == 3


@every_policy
@every_space
def test_same_seed_same_proposals(name: str, where: str) -> None:
    first, second = (configs_of(toys.run(make(name, SPACES[where](), seed=3), toys.flaky, 48)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "grid"])
@pytest.mark.parametrize("where", ["small", "large", "dependent"])
def test_another_seed_other_proposals(name: str, where: str) -> None:
    first, second = (configs_of(toys.run(make(name, SPACES[where](), seed=seed), toys.smooth, 32)) for seed in (1, 2))
    assert first != second


def test_grid_follows_the_enumeration_whatever_the_seed() -> None:
    expected = list(toys.Dependent().enumerate())
    for seed in (0, 1):
        assert configs_of(toys.run(make("grid", toys.Dependent(), seed), toys.smooth, 1000)) == expected


@every_policy
@pytest.mark.parametrize("where", ["small", "large", "dependent"])
def test_its_state_is_what_it_was_told(name: str, where: str) -> None:
    """Not even the asks: one that was only told the trials, all at once, goes on as the one that proposed them."""
    policy = make(name, SPACES[where](), seed=5)
    trials = toys.run(policy, toys.flaky, 40)
    only_told = make(name, SPACES[where](), seed=5)
    only_told.tell(trials)
    for _ in range(2):
        asked = policy.ask(8)
        assert list(asked) == list(only_told.ask(8))
        told = toys.trials_of(asked, toys.flaky, 40)
        policy.tell(told)
        only_told.tell(told)


@every_policy
def test_what_it_is_told_matters(name: str) -> None:
    """Except to random and grid, which must go on as they would have."""

    def reverse(config: Config) -> Measurement:
        return toys.timed(1e-3 / min(toys.smooth(config).cost, 1.0))

    runs = [configs_of(toys.run(make(name, toys.Large(), seed=1), cost, 48)) for cost in (toys.smooth, reverse)]
    assert (runs[0] == runs[1]) == (name in ("random", "grid"))


@every_policy
@every_space
def test_warm_start(name: str, where: str) -> None:
    space = SPACES[where]()
    known = toys.trials_of(space.sample_new(np.random.default_rng(9), 50, ()), toys.flaky)
    policy = make(name, space)
    policy.tell(known)
    trials = checked_run(policy, toys.flaky, budget=40, batch=8)
    assert not set(configs_of(trials)) & set(configs_of(known))
    assert len(trials) == (40 if where == "large" else min(40, SIZES[where] - len(known)))


@every_policy
def test_warm_start_with_a_whole_space_leaves_nothing_to_propose(name: str) -> None:
    policy = make(name, toys.Small())
    policy.tell(toys.trials_of(list(toys.Small().enumerate()), toys.smooth))
    assert list(policy.ask(8)) == []


@every_policy
def test_global_random_state_is_left_alone(name: str) -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), repr(np.random.get_state())
    toys.run(make(name, toys.Large()), toys.flaky, 40)
    assert (random.getstate(), repr(np.random.get_state())) == before


@every_policy
def test_global_random_state_does_not_matter(name: str) -> None:
    runs = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        runs.append(configs_of(toys.run(make(name, toys.Dependent()), toys.flaky, 40)))
    assert runs[0] == runs[1]


def proposals() -> str:
    """What every policy proposes on every space, as text; run in a process of its own by the test below."""
    return json.dumps(
        {
            f"{name} {where}": [config.to_json() for config in configs_of(toys.run(make(name, kind()), toys.flaky, 40))]
            for name in POLICIES
            for where, kind in SPACES.items()
        }
    )


def test_same_proposals_in_every_process() -> None:
    """Whatever strings hash to, and however many threads there are."""
    root = Path(__file__).parents[2]
    processes = []
    for hash_seed, threads in (("1", "1"), ("2", "2")):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "OMP_NUM_THREADS": threads,
            "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
        }
        code = "from tests.policies.test_contract import proposals; print(proposals())"
        processes.append(
            subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE)
        )
    first, second = (process.communicate()[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert json.loads(first) == json.loads(second)
