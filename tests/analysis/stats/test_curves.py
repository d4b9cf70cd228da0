from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.analysis.stats.curves import (
    Floats,
    area_under_curve,
    band_at,
    band_over_seconds,
    band_over_trials,
    best_so_far,
    gflops,
    quartiles,
    trials_to_target,
)
from searchlab.analysis.stats.targets import seconds_of_hits

INF = math.inf
costs = arrays(np.float64, st.integers(0, 30), elements=st.floats(1e-6, 1e3) | st.just(INF))


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_best_so_far_by_hand() -> None:
    assert best_so_far(array(INF, 4, 5, 2, INF)).tolist() == [INF, 4, 4, 2, 2]
    assert best_so_far(array()).tolist() == []


def test_throughput_of_a_failure_is_zero() -> None:
    assert gflops(array(INF, 4, 2), 8_000_000_000).tolist() == [0, 2, 4]


def test_trials_and_seconds_to_target_by_hand() -> None:
    curve, elapsed = array(0, 2, 2, 9.5, 10), array(1, 3, 6, 10, 15)
    trials = [trials_to_target(curve, target) for target in (9.5, 1, 10.1)]
    assert trials == [4, 2, INF]
    assert seconds_of_hits(array(*trials)[np.newaxis], elapsed[np.newaxis]).tolist() == [[10, 3, INF]]
    assert trials_to_target(array(), 1) == INF
    assert trials_to_target(array(0, 0), 0) == INF, "nothing found reaches no target"


def test_area_by_hand() -> None:
    assert area_under_curve(array(0, 5, 10), 10, 3) == pytest.approx(0.5)
    assert area_under_curve(array(0, 5, 10), 10, 5) == pytest.approx(0.7), "the last value is held"
    assert area_under_curve(array(0, 5, 10), 10, 2) == pytest.approx(0.25), "and what is beyond does not count"
    assert area_under_curve(array(), 10, 5) == area_under_curve(array(0, 0), 0, 2) == 0
    assert area_under_curve(array(1), 1, 0) == 0


def test_quartiles_are_numpys_linear_ones() -> None:
    assert quartiles(array(4, 1, 3, 2)).tolist() == [1.75, 2.5, 3.25]
    assert quartiles(array(7)).tolist() == [7, 7, 7]


def test_band_over_trials_goes_as_far_as_all_seeds() -> None:
    band = band_over_trials([array(1, 2, 9), array(3, 4), array(2, 6, 6, 8)])
    assert band.x.tolist() == [1, 2]
    assert band.median.tolist() == [2, 4]
    assert band.lower.tolist() == [1.5, 3]
    assert band.upper.tolist() == [2.5, 5]
    assert band_over_trials([]).x.size == band_over_trials([array(1), array()]).x.size == 0


def test_band_over_seconds_by_hand() -> None:
    band = band_over_seconds([array(2, 4), array(6, 8, 9)], [array(1, 4), array(2, 3, 99)])
    assert band.x.tolist() == [1, 2, 3, 4]
    assert band.median.tolist() == [1, 4, 5, 6], "0 before the first trial, the last value after the last"
    assert band_over_seconds([], []).x.size == band_over_seconds([array()], [array()]).x.size == 0


@given(costs)
def test_curves_never_fall(values: Floats) -> None:
    curve = gflops(best_so_far(values), 10**9)
    assert (np.diff(curve) >= 0).all() and (curve >= 0).all()
    if values.size:
        assert curve[-1] == pytest.approx(1 / values.min() if np.isfinite(values.min()) else 0)


@given(costs, st.integers(1, 40))
def test_area_lies_between_0_and_1_and_grows_with_the_curve(values: Floats, horizon: int) -> None:
    curve = gflops(best_so_far(values), 10**9)
    best = float(curve.max(initial=0))
    assert 0 <= area_under_curve(curve, best, horizon) <= 1
    assert area_under_curve(curve, best, horizon) <= area_under_curve(curve, best, horizon + 1) + 1e-12


@given(costs, st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_a_higher_target_takes_no_fewer_trials(values: Floats, one: float, other: float) -> None:
    curve = gflops(best_so_far(values), 10**9)
    low, high = sorted((one, other))
    assert trials_to_target(curve, low) <= trials_to_target(curve, high)


@given(st.lists(costs.filter(lambda c: c.size > 0), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_bands_do_not_depend_on_the_order_of_seeds(runs: list[Floats], order: random.Random) -> None:
    curves = [gflops(best_so_far(run), 10**9) for run in runs]
    elapsed = [np.cumsum(1.0 + np.arange(len(run)) % 3) for run in runs]
    pairs = list(zip(curves, elapsed, strict=True))
    order.shuffle(pairs)
    shuffled, then = [curve for curve, _ in pairs], [seconds for _, seconds in pairs]
    for one, other in (
        (band_over_trials(curves), band_over_trials(shuffled)),
        (band_over_seconds(curves, elapsed), band_over_seconds(shuffled, then)),
    ):
        for field in ("x", "lower", "median", "upper"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert (one.lower <= one.median).all() and (one.median <= one.upper).all()
        # Interpolation between seeds may round a constant up or down by a unit in the last place.
        assert (np.diff(one.median) >= -1e-9 * np.abs(one.median[1:])).all()
    assert band_over_seconds(curves, elapsed).median[-1] == band_over_trials(curves).median[-1]


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(-9, 9)), min_size=1, max_size=20))
def test_a_band_over_places_has_the_quartiles_of_each(values: list[tuple[int, float]]) -> None:
    band = band_at(np.array([float(place) for place, _ in values]), np.array([value for _, value in values]))
    assert band.x.tolist() == sorted({place for place, _ in values})
    for place, *edges in zip(band.x, band.lower, band.median, band.upper, strict=True):
        assert edges == quartiles(np.array([value for at, value in values if at == place])).tolist()
