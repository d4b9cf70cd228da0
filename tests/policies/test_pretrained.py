"""A search that begins where other workloads were fast, and whose own trials take over."""

from __future__ import annotations

from typing import Any

import numpy as np

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel, OtherTask, compute_scores
from searchlab.costmodel.features import KnobFeatures
from searchlab.records import Measurement, Trial
from searchlab.space import Config
from searchlab_costmodels.pretrained import Pretrained as Model
from searchlab_policies.pretrained import Pretrained
from searchlab_policies.random import Random


def policy(tasks: list[list[Trial]], seed: int = 0) -> Pretrained:
    space = toys.Large()
    model = BoundCostModel(Model(seed=seed), KnobFeatures(space))
    if tasks:
        model.pretrain([OtherTask(toys.Large(), [task.config for task in of], compute_scores(of)) for of in tasks])
    return Pretrained(space, seed=seed, cost_model=model, chains=16, steps=10, epsilon=0.0)


def reverse(config: Config) -> Measurement:
    return toys.successful_measurement(1e-3 / min(toys.simulate_smooth(config).cost, 1.0))


def run_earlier(cost: Any = toys.simulate_smooth) -> list[Trial]:
    return toys.simulate_trials(
        [trial.config for trial in toys.run_policy(Random(toys.Large(), seed=9), toys.simulate_smooth, 128)], cost
    )


def costs(configs: Any) -> float:
    return float(np.median([min(toys.simulate_smooth(config).cost, 1.0) for config in configs]))


def test_the_first_batch_comes_from_other_workloads() -> None:
    at_random = costs(policy([]).ask(16))
    assert costs(policy([run_earlier()]).ask(16)) < 0.8 * at_random
    assert costs(policy([run_earlier(reverse)]).ask(16)) > at_random


def test_its_own_trials_take_over_from_misleading_ones() -> None:
    misled = policy([run_earlier(reverse)])
    trials = toys.run_policy(misled, toys.simulate_smooth, 96)
    first, last = ([trial.config for trial in part] for part in (trials[:16], trials[-16:]))
    assert costs(last) < 0.7 * costs(first)


def test_without_other_workloads_the_first_trials_are_random() -> None:
    """Partial knowledge is fine, too: a task with a single trial, or one in which all failed."""
    assert policy([]).n_startup == 16
    for tasks in (
        [],
        [run_earlier()[:1]],
        [toys.simulate_trials(toys.Large().probe(8), lambda config: toys.failed_measurement("crash", ""))],
    ):
        trials = toys.run_policy(policy(tasks), toys.simulate_smooth, 64)
        assert costs([trial.config for trial in trials[-16:]]) < costs([trial.config for trial in trials[:16]])
