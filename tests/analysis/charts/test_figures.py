from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis.charts.figures import eventful
from searchlab.analysis.page.render import number_ranges


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80), st.integers(1, 20))
def test_places_where_most_happens(changes: list[int], most: int) -> None:
    places = eventful(np.array(changes, dtype=np.int64), most)
    assert places == sorted(set(places)) and {0, len(changes) - 1} <= set(places) and len(places) <= most + 2
    happens = {place for place, count in enumerate(changes) if count}
    inner = set(places) - {0, len(changes) - 1}
    assert inner <= happens
    if len(happens) <= most:
        assert happens <= set(places)


def test_the_largest_change_of_a_stretch_is_taken() -> None:
    assert eventful(np.array([1, 0, 1, 9, 1, 0, 1, 1, 8, 1, 0]), 2) == [0, 3, 8, 10]


def test_numbers_that_follow_each_other_are_a_range() -> None:
    assert number_ranges([7, 0, 2, 1, 42, 43]) == "0 to 2, 7, 42, 43" and number_ranges([3]) == "3"
