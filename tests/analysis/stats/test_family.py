from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis.stats.family import one_family
from searchlab.analysis.stats.ranks import holm

pages = st.dictionaries(st.integers(0, 50), st.floats(0, 1), min_size=1, max_size=12)


@given(pages)
def test_without_registered_tests_it_is_holms(page: dict[int, float]) -> None:
    assert list(one_family(page).values()) == holm(np.array(list(page.values()))).tolist()
    assert one_family(page, list(page)) == one_family(page), "as it is where all are registered"


@given(pages, st.data())
def test_adjusted_values_never_fall_below_the_p_values(page: dict[int, float], data: st.DataObject) -> None:
    registered = data.draw(st.sets(st.sampled_from(sorted(page))))
    adjusted = one_family(page, registered)
    assert list(adjusted) == list(page)
    assert all(page[key] <= adjusted[key] + 1e-12 <= 1 + 1e-12 for key in page)


def test_registered_tests_have_the_power() -> None:
    page = {"registered": 0.03, **{f"other {i}": 0.2 for i in range(50)}}
    assert one_family(page)["registered"] == 1
    assert one_family(page, ["registered"])["registered"] == pytest.approx(0.03 / 0.8)
    # A test that is rejected leaves its weight: 50 others share all of it, instead of a fifth.
    assert one_family(page | {"other 0": 0.0009}, ["registered"])["other 0"] == pytest.approx(0.045)


def test_a_registered_test_must_be_on_the_page() -> None:
    with pytest.raises(ValueError, match="registered, but not tested: b"):
        one_family({"a": 0.1}, ["b"])


@pytest.mark.parametrize("registered", [0, 3])
def test_a_page_alarms_as_seldom_as_one_test(registered: int) -> None:
    """A small version of studies/benchmarks/alarms.py: 2,000 pages of 20 tests of nothing."""
    random = np.random.default_rng(registered)
    alarms = [
        min(one_family(dict(enumerate(p.tolist())), range(registered)).values()) <= 0.05
        for p in random.random((2000, 20))
    ]
    assert 0.035 <= np.mean(alarms) <= 0.06
