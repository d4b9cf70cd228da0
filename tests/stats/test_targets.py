from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.curves import (
    COARSEST,
    FINEST,
    anytime,
    area_under_curve,
    ecdf,
    ecdf_area,
    expected_running_time,
    hitting_times,
    penalised_average,
    precision_targets,
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


def test_par10_by_hand() -> None:
    assert penalised_average(array(10, INF), 50) == (10 + 500) / 2


@given(rising, st.lists(st.floats(0.01, 12), min_size=1, max_size=5))
def test_hitting_times_are_those_of_each_run_and_target(curves: Floats, targets: list[float]) -> None:
    expected = [[1 + sum(value < target for value in curve) for target in targets] for curve in curves.tolist()]
    expected = [[INF if hit > len(curves[0]) else hit for hit in hits] for hits in expected]
    assert hitting_times(curves, np.array(targets)).tolist() == expected


def test_targets_are_even_in_log_precision() -> None:
    targets = precision_targets(100.0, 3)
    assert targets.tolist() == pytest.approx([100 / (1 + COARSEST), 100 / (1 + math.sqrt(0.1)), 100 / (1 + FINEST)])


def test_ecdf_by_hand() -> None:
    hits = np.array([[1, 3, INF], [2, INF, INF]])
    assert ecdf(hits, array(0, 1, 2, 3, 99)).tolist() == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 3 / 6])
    assert ecdf_area(hits, 4) == pytest.approx((4 + 2 + 3) / 24)
    assert ecdf_area(np.ones((2, 2)), 7) == 1 and ecdf_area(np.empty((0, 3)), 7) == 0


@given(rising, st.integers(1, 12))
def test_the_area_is_the_mean_of_the_ecdf(curves: Floats, horizon: int) -> None:
    hits = hitting_times(curves, np.linspace(0.5, 10, 9))
    at = np.arange(1, horizon + 1, dtype=np.float64)
    assert ecdf_area(hits, horizon) == pytest.approx(ecdf(hits, at).mean())


@given(rising.filter(lambda curves: bool(curves.max() > 1e-3)))
def test_ecdf_area_of_many_targets_is_the_area_under_the_curve(curves: Floats) -> None:
    """Equal steps of throughput give the linear area, equal steps of log-precision the logarithmic one."""
    best, many = float(curves.max()), 4000
    even = best * (np.arange(many) + 0.5) / many
    linear = np.mean([area_under_curve(curve, best) for curve in curves])
    assert ecdf_area(hitting_times(curves, even), 12) == pytest.approx(linear, abs=2 / many)
    with np.errstate(divide="ignore", over="ignore"):
        logarithmic = anytime(1 / curves, 1 / best).mean()
    area = ecdf_area(hitting_times(curves, precision_targets(best, many)), 12)
    assert area == pytest.approx(logarithmic, abs=2 / many)


def test_anytime_by_hand() -> None:
    middle = 1 + math.sqrt(FINEST * COARSEST)
    assert anytime(array(INF, 1 + COARSEST, middle, 1), 1.0) == pytest.approx((0 + 0 + 0.5 + 1) / 4)
    assert anytime(np.ones((2, 3)), 1.0).tolist() == [1, 1]
