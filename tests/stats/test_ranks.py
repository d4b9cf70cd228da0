from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import mannwhitneyu, rankdata, wilcoxon

from searchlab.arrays import Floats
from searchlab.stats.ranks import average_ranks, holm, rank_sum_test, round_to_largest, signed_rank_test

INF = math.inf
few = st.integers(1, 4) | st.just(INF)
values = arrays(np.float64, st.integers(1, 5), elements=few)


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


@given(values, values)
def test_rank_sum_is_the_part_of_all_splits(first: Floats, second: Floats) -> None:
    ranks = rankdata(np.concatenate((first, second)))
    middle = len(first) * ranks.mean()
    sums = np.array([sum(split) for split in combinations(ranks, len(first))])
    expected = np.mean(np.abs(sums - middle) >= abs(ranks[: len(first)].sum() - middle) - 1e-9)
    assert rank_sum_test(first, second) == pytest.approx(expected)


@given(st.lists(st.tuples(few, few), min_size=1, max_size=7))
def test_signed_rank_is_the_part_of_all_signs(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs, dtype=np.float64).T
    differences = np.array([value - other_value for value, other_value in pairs if value != other_value])
    ranks = rankdata(np.abs(differences)) if len(differences) else np.empty(0)
    middle = ranks.sum() / 2
    sums = np.array([np.dot(signs, ranks) for signs in product((0, 1), repeat=len(ranks))])
    expected = np.mean(np.abs(sums - middle) >= abs(ranks[differences > 0].sum() - middle) - 1e-9)
    assert signed_rank_test(first, second) == pytest.approx(expected)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12))
def test_without_ties_they_are_scipys_exact_ones(seed: int, m: int, n: int) -> None:
    random = np.random.default_rng(seed)
    first, second = random.normal(size=m), random.normal(size=n)
    assert rank_sum_test(first, second) == pytest.approx(mannwhitneyu(first, second, method="exact").pvalue)
    paired = random.normal(size=m)
    assert signed_rank_test(first, paired) == pytest.approx(wilcoxon(first, paired, method="exact").pvalue)


def test_without_a_difference_p_is_one() -> None:
    assert rank_sum_test(array(1, INF), array(1, INF)) == signed_rank_test(array(1, INF), array(1, INF)) == 1
    assert rank_sum_test(array(1), array()) == 1
    assert rank_sum_test(np.ones(80), np.ones(80)) == signed_rank_test(np.ones(300), np.ones(300)) == 1


def test_censored_runs_count() -> None:
    assert rank_sum_test(array(1, 2, 3, 4), array(INF, INF, INF, INF)) == pytest.approx(2 / 70)
    assert signed_rank_test(array(1, 2, 3, 4), array(INF, INF, INF, INF)) == pytest.approx(2 / 16)


@pytest.mark.parametrize("seeds", [(45, 55), (45, 56), (100, 101)])
def test_beyond_the_exact_sizes_nothing_jumps(seeds: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    first, second = (random.poisson(4, n).astype(float) for n in seeds)
    second[second > 8] = INF
    approximate = mannwhitneyu(rankdata(np.r_[first, second])[: seeds[0]], rankdata(np.r_[first, second])[seeds[0] :])
    assert rank_sum_test(first, second) == pytest.approx(approximate.pvalue, rel=0.02)


def test_many_pairs_are_approximated_well() -> None:
    random = np.random.default_rng(4)
    first, second = random.normal(0, 1, 210), random.normal(0.15, 1, 210)
    assert signed_rank_test(first, second) == pytest.approx(wilcoxon(first, second, method="exact").pvalue, rel=0.02)


def test_holm_by_hand() -> None:
    assert holm(array(0.04, 0.01, 0.02, 0.9)).tolist() == pytest.approx([0.08, 0.04, 0.06, 0.9])
    assert holm(array(0.6, 0.7)).tolist() == [1, 1] and holm(array()).tolist() == []


def test_ranks_by_hand() -> None:
    scores = np.array([[3, 2, 1], [3, 3, 1], [9, 5, 2], [4, 6, 1]])
    assert average_ranks(scores).tolist() == pytest.approx([(1 + 1.5 + 1 + 2) / 4, (2 + 1.5 + 2 + 1) / 4, 3])


@pytest.mark.parametrize("largest", [5e-324, 1e-300, 1.0, 1e308])
def test_values_of_any_size_are_rounded(largest: float) -> None:
    rounded_values = round_to_largest(array(largest, largest * (1 + 1e-15), 0.0, INF))
    assert rounded_values[0] == rounded_values[1] == pytest.approx(largest, rel=1e-11, abs=1e-300) and rounded_values[
        2:
    ].tolist() == [0.0, INF]
