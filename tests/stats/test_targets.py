from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.curves import (
    expected_running_time,
    hitting_times,
)

INF = math.inf
rising = arrays(np.float64, (3, 12), elements=st.floats(0, 10)).map(
    lambda values: np.maximum.accumulate(values, axis=1)
)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_ert_by_hand() -> None:
    hits, spent = array(10, INF, 30), array(50, 50, 50)
    assert expected_running_time(hits, spent) == (10 + 50 + 30) / 2
    assert expected_running_time(array(INF, INF), array(5, 5)) == INF
    assert expected_running_time(array(3, 5), array(9, 9)) == 4, "the mean where all runs hit"


def test_ert_is_how_long_restarts_take() -> None:
    random = np.random.default_rng(0)
    hits = np.where(random.random(200) < 0.4, random.integers(1, 50, 200), INF)
    restarts = []
    for _ in range(20_000):
        total = 0.0
        while math.isinf(hit := random.choice(hits)):
            total += 50
        restarts.append(total + hit)
    error = np.std(restarts) / math.sqrt(len(restarts))
    assert abs(np.mean(restarts) - expected_running_time(hits, np.full(200, 50.0))) < 4 * error


@given(rising, st.lists(st.floats(0.01, 12), min_size=1, max_size=5))
def test_hitting_times_are_those_of_each_run_and_target(curves: Floats, targets: list[float]) -> None:
    expected = [[1 + sum(value < target for value in curve) for target in targets] for curve in curves.tolist()]
    expected = [[INF if hit > len(curves[0]) else hit for hit in hits] for hits in expected]
    assert hitting_times(curves, np.array(targets)).tolist() == expected
