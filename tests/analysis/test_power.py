from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from searchlab.analysis.power import (
    Variation,
    compute_t_power,
    estimate_variation,
    find_seed_count,
    find_workload_count,
)


def test_variance_components_equal_those_of_anova() -> None:
    """Balanced: the mean square within, and the mean square between less that, over the seeds."""
    random = np.random.default_rng(0)
    differences = random.normal(0, 0.03, (9, 1)) + random.normal(0, 0.05, (9, 6))
    variance_within = differences.var(axis=1, ddof=1).mean()
    between = 6 * differences.mean(axis=1).var(ddof=1)
    variances = estimate_variation(list(differences))
    assert variances is not None and variances.workloads is not None
    assert variances.seeds**2 == pytest.approx(variance_within) and variances.workloads**2 == pytest.approx(
        (between - variance_within) / 6
    )


def test_variance_components_are_those_that_made_the_numbers() -> None:
    random = np.random.default_rng(1)
    ragged = [random.normal(random.normal(0, 0.03), 0.05, random.integers(1, 6)) for _ in range(3000)]
    variances = estimate_variation(ragged)
    assert variances is not None and variances.seeds == pytest.approx(0.05, rel=0.05)
    assert variances.workloads == pytest.approx(0.03, rel=0.1)


def test_what_the_runs_do_not_show_is_unknown() -> None:
    assert estimate_variation([]) is None and estimate_variation([np.array([1.0]), np.array([2.0])]) is None
    assert estimate_variation([np.array([0.5, 0.5]), np.array([0.7, 0.7])]) is None, (
        "the seeds do not show how they vary"
    )
    one_workload = estimate_variation([np.array([1.0, 2.0])])
    assert one_workload is not None and one_workload.workloads is None
    assert find_workload_count(one_workload, 0.02, 5, power=0.8, alpha=0.05) is None
    level = estimate_variation([np.array([1.0, 2.0]), np.array([2.0, 1.0])])
    assert level == Variation(0.5**0.5, 0.0)


@pytest.mark.parametrize("effect", [0.3, 0.8])
def test_power_is_that_of_the_test(effect: float) -> None:
    draws = np.random.default_rng(2).normal(effect, 1, (4000, 12))
    rejected = (ttest_1samp(draws, 0, axis=1).pvalue <= 0.05).mean()
    assert compute_t_power(effect, 1 / np.sqrt(12), 11, 0.05) == pytest.approx(rejected, abs=0.02)


def test_seeds_needed_are_those_of_the_table_of_cohen() -> None:
    """Cohen's table: an effect of half a standard deviation takes 34 pairs for 80 %, at 5 % on two sides."""
    assert find_seed_count(Variation(2.0, None), 1.0, 1, power=0.8, alpha=0.05) == 34


@settings(max_examples=30)
@given(st.floats(0.01, 0.2), st.floats(0.0, 0.1), st.integers(1, 20), st.floats(0.01, 0.1))
def test_seeds_and_workloads_needed_are_the_least_sufficient(
    seeds: float, workloads: float, count: int, difference: float
) -> None:
    varies = Variation(seeds, workloads)
    number = find_seed_count(varies, difference, count, power=0.8, alpha=0.05)
    assert number is not None
    reached = [
        compute_t_power(difference, seeds / np.sqrt(count * n), count * (n - 1), 0.05) >= 0.8
        for n in (number, number - 1)
        if n > 1
    ]
    assert reached[0] and not any(reached[1:])
    needed_workloads = find_workload_count(varies, difference, count, power=0.8, alpha=0.05)
    assert needed_workloads is not None and needed_workloads >= 11
    finer = find_workload_count(varies, difference / 2, count, power=0.8, alpha=0.05)
    assert finer is not None and finer >= needed_workloads


def test_numbers_too_large_to_run_are_none() -> None:
    assert find_seed_count(Variation(1.0, 1.0), 1e-4, 1, power=0.8, alpha=0.05) is None
    assert find_workload_count(Variation(1.0, 1.0), 1e-4, 9, power=0.8, alpha=0.05) is None
