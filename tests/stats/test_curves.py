from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.curves import (
    area_over_seconds,
    area_under_curve,
    band_over_seconds,
    band_over_trials,
    compute_band,
    compute_gflops,
    convert_hits_to_seconds,
    find_hitting_times,
    quartiles,
)

INF = math.inf
cost = st.floats(1e-6, 1e3) | st.just(INF)
costs = arrays(np.float64, st.integers(0, 30), elements=cost)
filled = arrays(np.float64, st.integers(1, 30), elements=cost)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_throughput_of_a_failure_is_zero() -> None:
    assert compute_gflops(array(INF, 4, 2), 8_000_000_000).tolist() == [0, 2, 4]


def test_trials_and_seconds_to_target_by_hand() -> None:
    curve, elapsed = array(0, 2, 2, 9.5, 10), array(1, 3, 6, 10, 15)
    for target, trial, seconds in ((9.5, 4, 10), (1, 2, 3), (10.1, INF, INF)):
        hits = find_hitting_times(curve[np.newaxis], target)
        assert hits.tolist() == [trial] and convert_hits_to_seconds(hits, elapsed[np.newaxis]).tolist() == [seconds]
    assert find_hitting_times(np.zeros((1, 2)), INF).tolist() == [INF]


def test_area_by_hand() -> None:
    assert area_under_curve(array(0, 5, 10), 10) == pytest.approx(0.5)
    assert area_under_curve(array(5, 20), 10) == pytest.approx(0.75), "more than the best known counts as that"
    assert area_under_curve(array(0, 0), 0) == 0


def test_area_over_seconds_by_hand() -> None:
    curves, elapsed = np.array([[5.0, 10], [5, 20]]), np.array([[1.0, 3], [3, 6]])
    # 1 s of nothing, 2 s of a half and 1 s of the best; 3 s of nothing and 1 s of a half
    assert area_over_seconds(curves, elapsed, 4, 10).tolist() == [0.5, 0.125]
    assert area_over_seconds(curves, elapsed, 8, 10).tolist() == [6 / 8, 3.5 / 8], "the best is kept"
    assert area_over_seconds(curves, elapsed, 4, 0).tolist() == [0, 0]


def test_quartiles_are_numpys_linear_ones() -> None:
    assert quartiles(array(4, 1, 3, 2)).tolist() == [1.75, 2.5, 3.25]
    assert quartiles(array(7)).tolist() == [7, 7, 7]


def test_bands_by_hand() -> None:
    curves = np.array([[1.0, 2], [3, 4], [2, 6]])
    band = band_over_trials(curves)
    assert band.x.tolist() == [1, 2] and band.median.tolist() == [2, 4]
    assert (band.lower.tolist(), band.upper.tolist()) == ([1.5, 3], [2.5, 5])
    band = band_over_seconds(np.array([[2.0, 4], [6, 8]]), np.array([[1.0, 4], [2, 3]]))
    assert band.x.tolist() == [1, 2, 3, 4]
    assert band.median.tolist() == [1, 4, 5, 6], "0 before the first trial, the last value after the last"


@given(costs)
def test_curves_never_fall(values: Floats) -> None:
    curve = compute_gflops(np.minimum.accumulate(values), 10**9)
    assert (np.diff(curve) >= 0).all() and (curve >= 0).all()
    if values.size:
        assert curve[-1] == pytest.approx(1 / values.min() if np.isfinite(values.min()) else 0)


@given(filled)
def test_area_lies_between_0_and_1(values: Floats) -> None:
    curve = compute_gflops(np.minimum.accumulate(values), 10**9)
    assert 0 <= area_under_curve(curve, float(curve.max())) <= 1


@given(filled, st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_a_higher_target_takes_no_fewer_trials(values: Floats, target: float, second_target: float) -> None:
    curves = compute_gflops(np.minimum.accumulate(values), 10**9)[np.newaxis]
    low, high = (find_hitting_times(curves, value)[0] for value in sorted((target, second_target)))
    assert low <= high


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 30)).flatmap(lambda shape: arrays(np.float64, shape, elements=cost)),
    st.randoms(use_true_random=False),
)
def test_bands_do_not_depend_on_the_order_of_seeds(runs: Floats, order: random.Random) -> None:
    curves = compute_gflops(np.minimum.accumulate(runs, axis=1), 10**9)
    elapsed = np.array([np.cumsum(1.0 + (np.arange(len(run)) + seed) % 3) for seed, run in enumerate(runs)])
    pairs = list(zip(curves, elapsed, strict=True))
    order.shuffle(pairs)
    shuffled, shuffled_seconds = np.array([curve for curve, _ in pairs]), np.array([seconds for _, seconds in pairs])
    for band, shuffled_band in (
        (band_over_trials(curves), band_over_trials(shuffled)),
        (band_over_seconds(curves, elapsed), band_over_seconds(shuffled, shuffled_seconds)),
    ):
        for field in ("x", "lower", "median", "upper"):
            np.testing.assert_array_equal(getattr(band, field), getattr(shuffled_band, field))
        assert (band.lower <= band.median).all() and (band.median <= band.upper).all()
        # Interpolation between seeds may round a constant up or down by a unit in the last place.
        assert (np.diff(band.median) >= -1e-9 * np.abs(band.median[1:])).all()
    assert band_over_seconds(curves, elapsed).median[-1] == band_over_trials(curves).median[-1]


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(-9, 9)), min_size=1, max_size=20))
def test_a_band_over_places_has_the_quartiles_of_each(values: list[tuple[int, float]]) -> None:
    band = compute_band(np.array([float(position) for position, _ in values]), np.array([value for _, value in values]))
    assert band.x.tolist() == sorted({position for position, _ in values})
    for position, *edges in zip(band.x, band.lower, band.median, band.upper, strict=True):
        assert edges == quartiles(np.array([value for x, value in values if x == position])).tolist()
