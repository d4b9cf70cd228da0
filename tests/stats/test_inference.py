from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_1samp, ttest_rel

from searchlab.arrays import Floats
from searchlab.stats.inference import MIN_WORKLOADS, Answer, paired_difference

areas = arrays(np.float64, (3, 4), elements=st.floats(0, 1).map(lambda value: round(value, 6)))


def get_bounds(answer: Answer) -> tuple[float, float]:
    lower, upper = answer.difference.lower, answer.difference.upper
    assert lower is not None and upper is not None and answer.p is not None
    return lower, upper


@pytest.fixture
def suite() -> tuple[Floats, Floats]:
    """Twelve workloads with five seeds: the first strategy is 0.05 better, on some workloads more than on others."""
    random = np.random.default_rng(0)
    second = random.normal(0.5, 0.1, (12, 1)) + random.normal(0, 0.05, (12, 5))
    return second + random.normal(0.05, 0.03, (12, 1)) + random.normal(0, 0.02, (12, 5)), second


def test_on_one_workload_it_is_the_paired_t(suite: tuple[Floats, Floats]) -> None:
    first, second = suite
    difference = paired_difference(first[:1], second[:1])
    expected = ttest_rel(first[0], second[0])
    assert difference.on_these.p == pytest.approx(expected.pvalue)
    assert get_bounds(difference.on_these) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert difference.on_others.p is None and difference.pairs == 5


def test_on_other_workloads_it_is_t_over_the_means(suite: tuple[Floats, Floats]) -> None:
    first, second = suite
    difference = paired_difference(first, second)
    expected = ttest_1samp((first - second).mean(axis=1), 0)
    assert difference.on_others.p == pytest.approx(expected.pvalue)
    assert get_bounds(difference.on_others) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert difference.ahead + difference.level + difference.behind == difference.workloads == 12
    narrow, wide = get_bounds(difference.on_these), get_bounds(difference.on_others)
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_too_few_workloads_carry_no_claim_on_others(suite: tuple[Floats, Floats]) -> None:
    first, second = suite
    difference = paired_difference(first[: MIN_WORKLOADS - 1], second[: MIN_WORKLOADS - 1])
    assert difference.on_others.p is None and difference.on_others.difference.lower is None
    assert (
        "needs 11 workloads" in difference.on_others.difference.note
        and "there are 10" in difference.on_others.difference.note
    )
    assert paired_difference(first[:MIN_WORKLOADS], second[:MIN_WORKLOADS]).on_others.p is not None


def test_seeds_pair_where_both_have_them() -> None:
    first = [np.array([1.0, np.nan, 3.0]), np.array([5.0]), np.array([np.nan])]
    second = [np.array([0.0, 9.0, 1.0]), np.array([5.0]), np.array([1.0])]
    difference = paired_difference(first, second)
    assert (difference.value, difference.workloads, difference.pairs) == (0.75, 2, 1)
    assert (difference.ahead, difference.level, difference.behind) == (1, 1, 0)
    assert difference.on_these.p is None and "2 seeds in common" in difference.on_these.difference.note


def test_runs_that_do_not_vary_carry_no_claim() -> None:
    same = np.full((12, 3), 0.3)
    difference = paired_difference(same + 1e-16, same)
    assert difference.value == 0 and difference.level == 12 and difference.on_these.p is None
    assert (
        "do not show" in difference.on_these.difference.note and "do not show" in difference.on_others.difference.note
    )
    nothing = paired_difference(np.empty((0, 3)), np.empty((0, 3)))
    assert (
        nothing.workloads == 0
        and nothing.on_these.p is None
        and "no seed in common" in nothing.on_these.difference.note
    )


@given(areas, areas)
def test_the_answers_turn_over_with_the_strategies(first: Floats, second: Floats) -> None:
    forward, backward = paired_difference(first, second), paired_difference(second, first)
    assert (forward.value, forward.ahead, forward.behind) == (-backward.value, backward.behind, backward.ahead)
    assert forward.on_these.p == backward.on_these.p
    if forward.on_these.p is not None:
        lower, upper = get_bounds(backward.on_these)
        assert get_bounds(forward.on_these) == pytest.approx((-upper, -lower))
        assert (forward.on_these.p < 0.05) == (
            get_bounds(forward.on_these)[0] > 0 or get_bounds(forward.on_these)[1] < 0
        )


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("workloads", [12, 24])
def test_intervals_cover_new_workloads_and_these(workloads: int, seeds: int) -> None:
    """A simulation by hand: differences on workloads are skewed, a third of them 0; 1,000 suites."""
    random = np.random.default_rng([workloads, seeds])
    covered_others = covered_these = 0
    for _ in range(1000):
        true = random.exponential(0.03, workloads) * (random.random(workloads) < 2 / 3)
        second = random.beta(4, 2, (workloads, seeds))
        first = second + true[:, np.newaxis] + random.normal(0, 0.05, (workloads, seeds))
        difference = paired_difference(first, second)
        covered_others += get_bounds(difference.on_others)[0] <= 0.02 <= get_bounds(difference.on_others)[1]
        covered_these += get_bounds(difference.on_these)[0] <= true.mean() <= get_bounds(difference.on_these)[1]
    assert 0.92 <= covered_others / 1000 <= 0.98, "three standard deviations of 95 %"
    assert 0.92 <= covered_these / 1000 <= 0.98


def test_members_of_a_cluster_tell_about_its_other_members() -> None:
    """Between clusters, differences vary far more than within; only the latter counts, and one member tells nothing."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(["a", "b", "c", "d"], [5, 4, 2, 3]).tolist()
    shifts = {"a": 0.1, "b": -0.1, "c": 0.2, "d": 0.0}
    first = [shifts[cluster] + rng.normal(0, 0.01) + rng.normal(0, 0.005, 30) for cluster in clusters]
    second = [np.zeros(30) for _ in clusters]
    difference = paired_difference(first, second, clusters)
    without_clusters = paired_difference(first, second)
    assert (difference.clusters, without_clusters.clusters, without_clusters.on_these) == (4, 0, difference.on_these)
    assert difference.on_others.p is not None and without_clusters.on_others.p is not None
    assert difference.on_others.p < 1e-3 < without_clusters.on_others.p
    means = np.array([values.mean() for values in first])
    parts = [means[np.array(clusters) == name] for name in "abcd"]
    variance = sum(len(part) * part.var(ddof=1) for part in parts) / len(means) ** 2
    interval = difference.on_others.difference
    assert interval.lower is not None and interval.upper is not None
    half = (interval.upper - interval.lower) / 2
    assert 1.96 * np.sqrt(variance) < half < 2.4 * np.sqrt(variance)
    single_member = paired_difference(first, second, [*clusters[:-1], "e"])
    assert single_member.on_others.p is None and "1 ran on only one" in single_member.on_others.difference.note
    assert paired_difference(first, second, [""] * len(clusters)) == without_clusters


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_the_interval_of_other_members_covers(spread: float) -> None:
    """Drawn members of fixed clusters: 95 % intervals hold the mean of the clusters' own means, weighted as drawn."""
    rng = np.random.default_rng(0)
    counts = [5, 5, 3, 2]
    clusters = np.repeat(list("abcd"), counts).tolist()
    covered = 0
    for _ in range(400):
        means = rng.normal(0, 0.1, 4)
        truth = np.repeat(means, counts).mean()
        first = [mean + rng.normal(0, spread) + rng.normal(0, 0.05, 10) for mean in np.repeat(means, counts)]
        interval = paired_difference(first, [np.zeros(10)] * len(first), clusters).on_others.difference
        assert interval.lower is not None and interval.upper is not None
        covered += interval.lower <= truth <= interval.upper
    assert 0.92 <= covered / 400 <= 0.98
