"""Properties of policies beyond the conformance kit, which tests/conformance/test_builtin.py applies."""

from __future__ import annotations

import pytest

from searchlab.conformance import toys
from searchlab.policy import Policy
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab_policies.hybrid_vndx import HybridVndx
from tests.support.policies import IN_PROGRAMS, LEARN_NOTHING, policy_params, space_for, start

pytestmark = pytest.mark.usefixtures("language_model")  # which "llm" asks


def proposals(name: str, where: str, cost: toys.SimulateFunction, trials: int = 48, seed: int = 1) -> list[Config]:
    return [trial.config for trial in toys.run_policy(start(name, where, seed), cost, trials)]


def reverse(config: Config) -> Measurement:
    return toys.successful_measurement(1e-3 / min(toys.simulate_smooth(config).cost, 1.0))


@pytest.mark.parametrize("name", policy_params())
def test_measurements_change_the_proposals(name: str) -> None:
    """Policies that learn nothing are the exception: their proposals must stay the same."""
    same = proposals(name, "large", toys.simulate_smooth) == proposals(name, "large", reverse)
    assert same == (name in LEARN_NOTHING)


@pytest.mark.parametrize("name", [name for name in policy_params() if name.values[0] not in IN_PROGRAMS])
def test_parameters_with_restrictions_are_searched(name: str) -> None:
    def cost(config: Config) -> Measurement:
        return toys.successful_measurement(1e-3 * (1 + sum(config[f"x{i}"] for i in range(5))))  # type: ignore[misc]

    configs = proposals(name, "restricted", cost, trials=32)
    space = space_for(name, "restricted")
    assert len(set(configs)) == 32 and all(config in space for config in configs)


@pytest.mark.parametrize("name", policy_params())
def test_warm_start_with_a_whole_space_leaves_nothing_to_propose(name: str) -> None:
    policy = start(name, "small")
    policy.warm_start(toys.simulate_trials(list(policy.space.enumerate()), toys.simulate_smooth))
    assert list(policy.ask(8)) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["dual-annealing", "annealing", "baco", "tpe", "hybrid-vndx repaired"])
def test_a_coarse_clock_may_read_0(name: str) -> None:
    """Policies that take logarithms of costs go on, and 0 is the best of all."""
    policy: Policy = HybridVndx(toys.Large(), seed=0, repaired=True) if " " in name else start(name, "large")
    assert (
        len(
            toys.run_policy(
                policy,
                lambda config: toys.successful_measurement(max(0.0, toys.simulate_smooth(config).cost - 0.005)),
                40,
                1,
            )
        )
        == 40
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_grid_follows_the_enumeration_whatever_the_seed(seed: int) -> None:
    assert proposals("grid", "dependent", toys.simulate_smooth, 1000, seed) == list(toys.Dependent().enumerate())
