from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.curves import find_hitting_times

INF = math.inf
rising = arrays(np.float64, (3, 12), elements=st.floats(0, 10)).map(
    lambda values: np.maximum.accumulate(values, axis=1)
)


@given(rising, st.lists(st.floats(0.01, 12), min_size=1, max_size=5))
def test_hitting_times_are_those_of_each_run_and_target(curves: Floats, targets: list[float]) -> None:
    expected = [[1 + sum(value < target for value in curve) for target in targets] for curve in curves.tolist()]
    expected = [[INF if hit > len(curves[0]) else hit for hit in hits] for hits in expected]
    assert np.transpose([find_hitting_times(curves, target) for target in targets]).tolist() == expected
