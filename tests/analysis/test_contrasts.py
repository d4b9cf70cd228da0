from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchlab.analysis.contrasts import ReportTests, Runs, TestKind, compare_pairs, count_seeds_needed
from searchlab.stats.ranks import holm, rank_sum_test, signed_rank_test
from tests.support.analysis.contrasts import contrasts

RANK_SUM, SIGNED_RANK, SAME_RUNS = TestKind.RANK_SUM, TestKind.SIGNED_RANK, TestKind.SAME_RUNS


def runs(*values: float, first: int = 0) -> Runs:
    return dict(enumerate(values, first))


def test_pairs_are_corrected_as_a_family() -> None:
    pairs = contrasts({"a": runs(1, 2, 3, 4), "b": runs(5, 6, 7, 8), "c": runs(1, 2, 3, 99)})
    assert [(c.first, c.second, c.test, c.runs) for c in pairs] == [
        (first, second, RANK_SUM, 4) for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    assert pairs[0].p == rank_sum_test(np.arange(1.0, 5), np.arange(5.0, 9))
    assert [c.adjusted_p for c in pairs] == holm(np.array([c.p for c in pairs])).tolist()
    assert [(c.effect + 1) / 2 for c in pairs] == pytest.approx([1, (3.5 + 2.5 + 1.5 + 1) / 16, 4 / 16])
    assert [c.difference.value for c in pairs] == pytest.approx([4, (99 - 4) / 4, (99 - 8) / 4 - 3 * 4 / 4])


def test_a_registered_pair_may_have_fewer_seeds_than_others() -> None:
    values = {name: runs(*range(100 * i, 100 * i + 7)) for i, name in enumerate("abcdef")}
    tests = ReportTests([(first, second) for first in values for second in values if first < second], [], [("a", "b")])
    assert tests.compute_level("b", "a") == 0.05 and tests.compute_level("a", "c") == 0.05 / 14
    contrasts_of_all = compare_pairs(values, {}, tests.compute_level)
    assert [c.test for c in contrasts_of_all] == [SIGNED_RANK, *[RANK_SUM] * 14]
    adjusted = tests.correct(contrasts_of_all)
    assert contrasts_of_all[0].p is not None and adjusted[0].adjusted_p == contrasts_of_all[0].p


def test_the_strategy_with_the_better_runs_is_ahead() -> None:
    (contrast,) = contrasts({"a": runs(*range(8)), "b": runs(*range(20, 28))})
    assert contrast.is_significant and contrast.is_ahead("a", "b")
    assert not contrast.is_ahead("b", "a") and not contrast.is_ahead("a", "c") and not contrast.is_ahead("c", "a")
    (contrast,) = contrasts({"b": runs(*range(20, 28)), "a": runs(*range(8))})
    assert contrast.is_ahead("a", "b") and not contrast.is_ahead("b", "a")


@pytest.mark.parametrize(
    ("seeds", "strategies", "test"),
    [(6, 2, RANK_SUM), (7, 2, SIGNED_RANK), (9, 4, SIGNED_RANK), (8, 4, RANK_SUM), (12, 8, SIGNED_RANK)],
)
def test_seeds_are_paired_where_there_are_enough_of_them(seeds: int, strategies: int, test: str) -> None:
    values = {str(i): runs(*range(i, i + seeds)) for i in range(strategies)}
    assert {c.test for c in contrasts(values)} == {test}
    first, second = (np.array(list(values[name].values())) for name in "01")
    assert contrasts(values)[0].p == (signed_rank_test if test == SIGNED_RANK else rank_sum_test)(first, second)


def test_only_seeds_in_common_are_paired() -> None:
    (contrast,) = contrasts({"a": runs(*range(9)), "b": runs(*range(9), first=5)})
    assert (contrast.test, contrast.runs) == (RANK_SUM, 9)
    (contrast,) = contrasts({"a": runs(*range(10)), "b": runs(*range(10), first=1)})
    assert (contrast.test, contrast.runs) == (SIGNED_RANK, 9)
    assert (contrast.effect, contrast.difference.value) == (-1, -1), "a has 1 more with each seed"


def test_effect_and_direction_are_those_of_the_pairs() -> None:
    """Once, the direction came from all pairs of runs: here b is said to be better though it loses 29 of 30 seeds."""
    a = [*range(29), 1000.0]
    b = [*(value + 0.5 for value in range(29)), -1000.0]
    (contrast,) = contrasts({"a": runs(*a), "b": runs(*b)})
    assert contrast.test == SIGNED_RANK and contrast.runs == 30
    assert contrast.p is not None and contrast.p < 1e-5 and contrast.effect > 0.8
    assert contrast.is_ahead("a", "b") and not contrast.is_ahead("b", "a")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9) | st.just(99)), min_size=8, max_size=20))
def test_a_significant_pair_has_the_direction_of_its_effect(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    (contrast,) = contrasts({"a": runs(*first), "b": runs(*second)})
    (reversed_contrast,) = contrasts({"b": runs(*second), "a": runs(*first)})
    assert reversed_contrast.effect == pytest.approx(-contrast.effect) and reversed_contrast.p == pytest.approx(
        contrast.p
    )
    assert reversed_contrast.difference.value == pytest.approx(-contrast.difference.value)
    if contrast.is_significant:
        assert contrast.effect != 0 and contrast.is_ahead("a", "b") == (contrast.effect > 0)


def test_sums_in_another_order_tie() -> None:
    """0.1 + 0.2 and 0.3 are one number, and so are their distances; once, they were ranked."""
    exact = [0.1 + 0.1 * i for i in range(9)]
    summed = [sum([0.1] * (i + 1)) for i in range(9)]
    assert exact != summed
    (contrast,) = contrasts({"a": runs(*exact), "b": runs(*summed)})
    assert (contrast.effect, contrast.p, contrast.difference.value) == (0, 1, 0)
    first = np.array([0.3, 0.6, 0.7, 0.1, 0.9, 0.2, 0.5, 0.8])
    pairs = first, first + np.array([0.1, -0.1, 0.1, 0.1, -0.1, 0.1, 0.1, 0.1])
    whole_numbers = np.rint(10 * pairs[0]), np.rint(10 * pairs[1])
    assert signed_rank_test(*pairs) == signed_rank_test(*whole_numbers)


def test_a_strategy_with_a_single_run_is_not_tested() -> None:
    values = {"a": runs(*range(9)), "b": runs(*range(5, 14)), "grid": runs(100)}
    pairs = contrasts(values, untested={(name, "grid"): SAME_RUNS for name in "ab"})
    assert [(c.test, c.p is None) for c in pairs] == [(SIGNED_RANK, False), (SAME_RUNS, True), (SAME_RUNS, True)]
    assert pairs[0].adjusted_p == pairs[0].p and pairs[1].difference.on_these.difference.lower is None
    assert not pairs[1].is_significant and not pairs[1].is_ahead("a", "grid")


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9), st.randoms(use_true_random=False)
)
def test_the_numbers_of_the_seeds_do_not_matter(pairs: list[tuple[int, int]], order: random.Random) -> None:
    def numbers_of(pairs: list[tuple[int, int]]) -> object:
        first, second = zip(*pairs, strict=True)
        (contrast,) = contrasts({"a": runs(*first), "b": runs(*second)})
        return contrast.test, contrast.effect, contrast.p, contrast.difference.value

    assert numbers_of(pairs) == numbers_of(order.sample(pairs, len(pairs)))


@pytest.mark.parametrize("strategies", range(2, 9))
def test_the_number_of_seeds_needed_is_exact(strategies: int) -> None:
    def is_significant(seeds: int) -> bool:
        values = {str(i): runs(*range(100 * i, 100 * i + seeds)) for i in range(strategies)}
        return contrasts(values)[0].is_significant

    needed = count_seeds_needed(0.05 / math.comb(strategies, 2))
    assert is_significant(needed) and not is_significant(needed - 1)
