"""A Gaussian process that tells tiles apart, and learns from other workloads which configs to try first."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.policy import Policy
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_policies.gaussian_process import Encoding, squared_distances
from searchlab_policies.gp_2 import EqualityOfTiles, Gp2
from searchlab_policies.random import Random
from searchlab_spaces.parameters import Parameters
from tests.support import toys


def test_different_tiles_are_apart_and_order_still_counts() -> None:
    space = Parameters(
        parse_workload("python:m:f"),
        Target({"kind": "llvm", "num-cores": 2}),
        parameters={"tile": [(1, 8), (2, 4), (4, 2), (8, 1)], "n": [1, 2, 4, 8]},
    )
    encoding = EqualityOfTiles(space)
    by_tile = encoding([space.config_at(i) for i in range(4)])
    by_number = encoding([space.config_at(i) for i in range(0, 16, 4)])
    assert np.allclose(
        squared_distances(by_tile, by_tile)[0], 1 + squared_distances(by_number, by_number)[0] - np.eye(4)[0]
    )
    assert encoding.knobs.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]


def test_its_first_trials_are_farther_apart_than_random_ones() -> None:
    def nearest(policy: Policy) -> float:
        rows = encoding(policy.ask(8))
        return float((squared_distances(rows, rows) + 100 * np.eye(8)).min())

    encoding = Encoding(toys.Large())
    assert nearest(Gp2(toys.Large(), seed=0)) > 2 * nearest(Random(toys.Large(), seed=0))


@pytest.mark.parametrize("warm", [False, True])
def test_what_gp_2_has_learnt_is_faster_than_random(warm: bool) -> None:
    policy = Gp2(toys.Large(), seed=0, points=100, neighbours=50)
    at_random = toys.run(Random(toys.Large(), seed=9), toys.smooth, 64)
    if warm:
        policy.transfer([(toys.Large(), at_random)])
    costs = [min(trial.cost, 1.0) for trial in toys.run(policy, toys.smooth, 40)]
    typical = np.median([min(trial.cost, 1.0) for trial in at_random])
    assert np.median(costs[8:]) < 0.7 * typical
    assert (np.median(costs[:8]) < 0.7 * typical) == warm
