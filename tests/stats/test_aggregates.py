from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.intervals import probability_of_improvement

INF = math.inf
samples = arrays(np.float64, st.integers(1, 8), elements=st.floats(0, 1))


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_improvement_by_hand() -> None:
    assert probability_of_improvement(array(1, 2, 3), array(2)) == 0.5
    assert (
        probability_of_improvement(array(3, 4), array(1, 2)) == 1
        and probability_of_improvement(array(0), array(1)) == 0
    )
    assert probability_of_improvement(array(INF, 1), array(INF)) == 0.25


@given(samples, samples)
def test_the_chances_of_two_strategies_add_up(first: Floats, second: Floats) -> None:
    assert probability_of_improvement(first, second) + probability_of_improvement(second, first) == pytest.approx(1)
    assert probability_of_improvement(first, first) == pytest.approx(0.5)
