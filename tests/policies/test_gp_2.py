"""A Gaussian process that begins with programs that a static analysis selects."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel.features import make_features
from searchlab.workload import parse_workload
from searchlab_policies.gp_2 import Gp2
from searchlab_policies.pruner import SymbolAnalyzer
from searchlab_policies.random import Random
from searchlab_spaces.templates import KnobTemplate
from searchlab_spaces.trace import Trace
from tests.support.policies import CPU


def test_the_analysis_selects_three_of_four_first_trials() -> None:
    space = KnobTemplate(parse_workload("gemm:64x64x64"), CPU)

    def estimates(policy: Gp2 | Random) -> np.ndarray:
        return SymbolAnalyzer(CPU)(make_features("per-store", space)(policy.ask(8)))

    selected, at_random = estimates(Gp2(space, seed=0)), estimates(Random(space, seed=0))
    assert np.median(selected) > np.quantile(at_random, 0.75)
    assert np.isin(np.argsort(selected)[0], [3, 7])


@pytest.mark.parametrize("warm", [False, True])
def test_what_gp_2_has_learnt_is_faster_than_random(warm: bool) -> None:
    policy = Gp2(toys.Large(), seed=0, neighbours=100, entrants=2)
    at_random = toys.run_policy(Random(toys.Large(), seed=9), toys.simulate_smooth, 64)
    if warm:
        policy.transfer([(toys.Large(), at_random)])
    costs = [min(trial.cost, 1.0) for trial in toys.run_policy(policy, toys.simulate_smooth, 40)]
    typical = np.median([min(trial.cost, 1.0) for trial in at_random])
    assert np.median(costs[8:]) < 0.7 * typical
    assert (np.median(costs[:8]) < 0.7 * typical) == warm


def test_later_trials_are_near_the_fastest_trials() -> None:
    policy = Gp2(toys.Large(), seed=0)
    trials = toys.run_policy(policy, toys.simulate_smooth, 40)
    for start in range(8, 40, 8):
        fastest = sorted(trials[:start], key=lambda trial: trial.cost)[:4]
        for trial in trials[start : start + 8]:
            different_knobs = [
                sum(trial.config.get(name) != value for name, value in near.config.items()) for near in fastest
            ]
            assert min(different_knobs) <= 2


def test_with_slow_predictions_there_are_fewer_candidates() -> None:
    space = Trace(parse_workload("gemm:64x64x64"), CPU)
    assert Gp2(space, seed=0, neighbours=1000).effective == {"neighbours": 256}
    assert not Gp2(space, seed=0).effective
    assert not Gp2(toys.Large(), seed=0, neighbours=1000).effective
