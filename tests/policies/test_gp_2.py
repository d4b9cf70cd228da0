"""A Gaussian process that begins with programs that a static analysis selects, with a length scale for each factor."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel.features import make_features
from searchlab.space import Config
from searchlab.workload import parse_workload
from searchlab_policies.gaussian_process import Encoding
from searchlab_policies.gp_2 import Gp2
from searchlab_policies.gp_prior import GpPrior
from searchlab_policies.pruner import SymbolAnalyzer
from searchlab_policies.random import Random
from searchlab_spaces.parameters import Parameters
from searchlab_spaces.templates import KnobTemplate
from tests.support.policies import CPU


def test_each_factor_of_a_tile_has_a_length_scale() -> None:
    configs = Random(toys.Small(), seed=0).ask(8)
    by_knob, by_factor = Encoding(toys.Small()), Encoding(toys.Small(), by_factor=True)
    assert by_knob.length_scale_indices.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert by_factor.length_scale_indices.tolist() == [0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4]
    assert np.array_equal(by_knob(configs), by_factor(configs))


def test_the_analysis_selects_three_of_four_first_trials() -> None:
    space = KnobTemplate(parse_workload("gemm:64x64x64"), CPU)

    def estimates(policy: Gp2 | Random) -> np.ndarray:
        return SymbolAnalyzer(CPU)(make_features("per-store", space)(policy.ask(8)))

    selected, at_random = estimates(Gp2(space, seed=0)), estimates(Random(space, seed=0))
    assert np.median(selected) > np.quantile(at_random, 0.75)
    assert np.isin(np.argsort(selected)[0], [3, 7])


@pytest.mark.parametrize("warm", [False, True])
def test_what_gp_2_has_learnt_is_faster_than_random(warm: bool) -> None:
    policy = Gp2(toys.Large(), seed=0, points=100, neighbours=50, entrants=2)
    at_random = toys.run_policy(Random(toys.Large(), seed=9), toys.simulate_smooth, 64)
    if warm:
        policy.transfer([(toys.Large(), at_random)])
    costs = [min(trial.cost, 1.0) for trial in toys.run_policy(policy, toys.simulate_smooth, 40)]
    typical = np.median([min(trial.cost, 1.0) for trial in at_random])
    assert np.median(costs[8:]) < 0.7 * typical
    assert (np.median(costs[:8]) < 0.7 * typical) == warm


def test_without_tiles_and_programs_gp_2_is_gp_prior() -> None:
    def trials(policy: type[GpPrior]) -> list[Config]:
        space = Parameters(parse_workload("python:m:f"), CPU, parameters={"x": list(range(1, 65)), "y": [1, 2, 4, 8]})
        return [
            trial.config
            for trial in toys.run_policy(policy(space, seed=0, points=50, neighbours=20), toys.simulate_smooth, 24)
        ]

    assert trials(Gp2) == trials(GpPrior)
