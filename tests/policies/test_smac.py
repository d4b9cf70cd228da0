"""SMAC3's own parts, one ask at a time: the same proposals from the same trials, in every process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.policy import Policy
from searchlab_policies.optuna.parameters import Parameters
from searchlab_policies.random import Random
from searchlab_policies.smac import Smac, log_scale, make_config_space, make_configuration


def smac(space: Any = None, seed: int = 0, **options: Any) -> Smac:
    pytest.importorskip("smac", reason="SMAC3 is not installed")
    return Smac(space or toys.Large(), seed=seed, **{"n_startup": 16, "challengers": 100, "searches": 2, **options})


def test_beats_random_search() -> None:
    def best(policy: Policy) -> float:
        return min(trial.cost for trial in toys.run_policy(policy, toys.simulate_smooth, 56))

    bests = [best(smac(seed=seed)) for seed in range(3)]
    assert np.median(bests) < 0.9 * np.median([best(Random(toys.Large(), seed=seed)) for seed in range(12)])


def test_the_order_of_hashes_changes_nothing() -> None:
    pytest.importorskip("smac", reason="SMAC3 is not installed")
    code = (
        "from searchlab.conformance import toys\n"
        "from searchlab_policies.smac import Smac\n"
        "policy = Smac(toys.Large(), seed=3, n_startup=8, challengers=50, searches=4, epsilon=0.0)\n"
        "print([list(trial.config.items()) for trial in toys.run_policy(policy, toys.simulate_smooth, 24)])\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    trials = toys.run_policy(
        smac(seed=3, n_startup=8, challengers=50, searches=4, epsilon=0.0), toys.simulate_smooth, 24
    )
    assert output == f"{[list(trial.config.items()) for trial in trials]}\n"


def test_costs_are_scaled_as_in_smac() -> None:
    pytest.importorskip("smac", reason="SMAC3 is not installed")
    from smac import RunHistory, Scenario
    from smac.runhistory.encoder import RunHistoryLogScaledEncoder

    costs = np.random.default_rng(0).uniform(1e-5, 1e-2, 40)
    parameters = Parameters(toys.Large())
    space = make_config_space(parameters.probed_parameters, seed=0)
    history = RunHistory()
    encoder = RunHistoryLogScaledEncoder(Scenario(space, n_trials=100))
    encoder.runhistory = history
    for trial, cost in zip(toys.run_policy(Random(toys.Large(), seed=0), toys.simulate_smooth, 40), costs, strict=True):
        history.add(make_configuration(space, parameters.encode(trial.config)[0]), cost)
    _, values = encoder.transform()
    np.testing.assert_allclose(log_scale(costs), values[:, 0], rtol=1e-9)


def test_parameters_that_a_config_lacks_are_modelled_too() -> None:
    parameters = Parameters(toys.Dependent())
    assert parameters.shared_parameters.keys() < parameters.probed_parameters.keys()
    trials = toys.run_policy(smac(toys.Dependent()), toys.simulate_smooth, 40)
    assert len({trial.config for trial in trials}) == len(trials)


def test_every_proposal_may_be_random() -> None:
    """With epsilon = 1, what is told does not matter, except that known configs are not proposed again."""
    earlier_trials = toys.run_policy(Random(toys.Large(), seed=1), toys.simulate_smooth, 20)
    policies = [smac(epsilon=1.0), smac(epsilon=1.0)]
    policies[0].tell(earlier_trials)
    policies[1].tell(toys.simulate_trials([trial.config for trial in earlier_trials], toys.simulate_flaky))
    assert policies[0].ask(8) == policies[1].ask(8)
    policies = [smac(epsilon=0.0), smac(epsilon=0.0)]
    policies[0].tell(earlier_trials)
    policies[1].tell(toys.simulate_trials([trial.config for trial in earlier_trials], toys.simulate_flaky))
    assert policies[0].ask(8) != policies[1].ask(8)


@pytest.mark.filterwarnings("error")
def test_smac_prints_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.INFO):
        toys.run_policy(smac(toys.Small()), toys.simulate_flaky, 32)
    assert not caplog.records and capfd.readouterr() == ("", "")


def test_a_missing_dependency_is_named() -> None:
    code = (
        "import sys; sys.modules['smac'] = None\n"
        "from searchlab.errors import SearchlabError\n"
        "from searchlab_policies.smac import Smac\n"
        "from searchlab.conformance import toys\n"
        "try: Smac(toys.Small(), seed=0)\n"
        "except SearchlabError as error: print(error)\n"
    )
    output = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout
    assert "the policy 'smac' requires the extra 'smac'" in output and "pip install '.[smac]'" in output
