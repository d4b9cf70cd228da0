"""The statistics against their reference implementations, of the dependency group ``reference``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from searchlab.arrays import Floats
from searchlab.stats.intervals import (
    mean_of_means_interval,
    probability_of_improvement,
)
from searchlab.stats.random_search import expected_best, find_cutoff, mean_score, score_curve
from searchlab.stats.ranks import holm

WHY = "the dependency group `reference` is not installed"
scores = arrays(np.float64, (7, 3), elements=st.integers(0, 9).map(lambda value: value / 9))


@pytest.fixture(scope="module")
def metrics() -> Any:
    return pytest.importorskip("rliable.metrics", reason=WHY)


@pytest.fixture(scope="module")
def multitest() -> Any:
    return pytest.importorskip("statsmodels.stats.multitest", reason=WHY)


def columns(matrix: Floats) -> list[Floats]:
    """Return the columns of rliable's (runs, tasks) as one of our samples."""
    return list(matrix.T)


@given(scores, arrays(np.float64, (4, 3), elements=st.floats(0, 1)))
def test_probability_of_improvement_is_rliables(metrics: Any, first: Floats, second: Floats) -> None:
    chances = [probability_of_improvement(*pair) for pair in zip(columns(first), columns(second), strict=True)]
    assert np.mean(chances) == pytest.approx(metrics.probability_of_improvement(first, second))


def test_intervals_are_those_rliable_gave() -> None:
    """Recorded: ``rliable.library`` needs arch < 8, which pandas 3 breaks, so it cannot be installed beside searchlab.

    ``pip install rliable==1.2.0 arch==7.2.0 'pandas<3' numpy==2.4.6``, then of the matrix below

        np.random.seed(0)
        library.get_interval_estimates(
            {"a": matrix}, lambda m: np.array([metrics.aggregate_iqm(m), metrics.aggregate_mean(m)]), reps=50000)

    Ours are no percentile intervals, which are too narrow with few runs: they are those of rliable, and a little wider.
    """
    matrix = np.random.default_rng(0).beta(4, 2, (12, 5)).round(3)
    for interval, value, ends in ((mean_of_means_interval(columns(matrix)), 0.63378333, (0.59068292, 0.67711667)),):
        assert interval.value == pytest.approx(value)
        assert (interval.lower, interval.upper) == pytest.approx(ends, abs=0.02)


@settings(max_examples=10)  # statsmodels takes a tenth of a second
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(multitest: Any, p: list[float]) -> None:
    assert holm(np.array(p)).tolist() == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist())


def methodology(path: Path, costs: Floats) -> tuple[Any, Any]:
    """The statistics and the baseline of autotuning_methodology for a space of ``costs``, failures among them."""
    pytest.importorskip("autotuning_methodology", reason=WHY)
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    results = [
        {
            "configuration": {"tile": i},
            "times": {"runtimes": [0.1]},
            "invalidity": "correct" if math.isfinite(cost) else "runtime",
            "correctness": int(math.isfinite(cost)),
            "measurements": [{"name": "time", "value": cost if math.isfinite(cost) else "", "unit": "s"}],
        }
        for i, cost in enumerate(costs.tolist())
    ]
    file = path / "space.json"
    file.write_text(json.dumps({"schema_version": "1.0.0", "metadata": {"timeunit": "seconds"}, "results": results}))
    statistics = SearchspaceStatistics("gemm", "cpu", True, ["runtimes"], ["time"], file)
    return statistics, RandomSearchCalculatedBaseline(statistics)


@pytest.mark.parametrize("failures", [0, 200])
def test_the_baseline_is_near_that_of_the_methodology(tmp_path: Path, failures: int) -> None:
    """Where costs rise evenly by rank, the cost at the expected rank is the expected cost. Theirs is rounded to a rank,
    counted from 0 where ours is from 1, and knows no failures, so ours is asked of the configs that work."""
    costs = np.concatenate((np.arange(1.0, 801.0), np.full(failures, math.inf)))
    statistics, reference = methodology(tmp_path, costs)
    trials = np.arange(1, 60)
    expected = expected_best(costs[:800], 59)
    curve = reference.get_curve_over_fevals(trials)
    assert np.abs(expected - 1 - curve).max() <= 0.5 + 1e-9
    median = float(np.median(costs[:800]))
    assert abs(find_cutoff(median, expected_best(costs[:800], 799), 1.0, 0.95) - statistics.cutoff_point(0.95)[1]) <= 1


def test_the_score_is_that_of_the_methodology(tmp_path: Path) -> None:
    """Given the same random search, the scores of any curve are the same, and so is their mean."""
    generator = np.random.default_rng(0)
    costs = generator.lognormal(0, 1, 500)
    _, reference = methodology(tmp_path, costs)
    trials, best = np.arange(1, 40), float(costs.min())
    baseline = reference.get_curve_over_fevals(trials)
    for run in range(5):
        so_far = np.minimum.accumulate(generator.permutation(costs)[: len(trials)])
        expected = reference.get_standardised_curve(trials, so_far, x_type="fevals")
        assert score_curve(so_far, baseline, best).tolist() == pytest.approx(expected.tolist()), run
        curve = score_curve(so_far, baseline, best)
        assert mean_score(curve, baseline, best) == pytest.approx(expected.mean())
