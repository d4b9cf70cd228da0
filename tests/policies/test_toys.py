"""The toys themselves, whose documented properties other tests rely on."""

from __future__ import annotations

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.errors import InvalidConfig
from searchlab.space import Config, Space


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (toys.Small, 120),
        (toys.Large, 12_777_600),
        (toys.Dependent, 192),
        (toys.SingleChoice, 1),
        (toys.NoKnobs, 1),
    ],
)
def test_toy_spaces_have_the_expected_sizes(kind: type[Space], size: int) -> None:
    assert kind(toys.WORKLOAD, toys.TARGET).size() == size


def test_later_knobs_depend_on_earlier_ones() -> None:
    space = toys.Dependent()
    config = Config({"sketch": "tiled", "tile": (4, 1, 4), "vector": 4, "parallel": True})
    assert config in space
    assert Config({**config, "vector": 8}) not in space
    assert Config({**config, "sketch": "plain"}) not in space


def test_toy_costs_fail_as_often_as_intended() -> None:
    configs = toys.Large().sample_new(np.random.default_rng(0), 1000, ())
    assert 0.2 < np.mean([np.isinf(toys.simulate_flaky(config).cost) for config in configs]) < 0.5
    assert len({toys.simulate_flaky(config).failure for config in configs}) > 5
    assert 0 < np.mean([np.isinf(toys.simulate_smooth(config).cost) for config in configs]) < 0.1
    assert {toys.simulate_equal(config).cost for config in configs} == {1e-3}


def test_most_toy_configs_have_schedules() -> None:
    pytest.importorskip("tvm")
    space = toys.Small()
    refused = []
    for config in space.enumerate():
        try:
            assert space.schedule(config).mod is not None
        except InvalidConfig:
            refused.append(config)
    assert 0 < len(refused) < 10
