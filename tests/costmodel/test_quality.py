"""The figures of a cost model, by hand, by definition, and against the reference's own arithmetic."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.costmodel.quality import (
    kendall_tau,
    measure_quality,
    pairwise_accuracy,
    peak_score,
    rmse,
    top_k_recall,
)


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def test_metrics_equal_values_computed_by_hand() -> None:
    predicted, measured = array(4, 3, 2, 1), array(0.5, 1, 0, 0.8)
    assert pairwise_accuracy(predicted, measured) == pytest.approx(3 / 6)
    assert kendall_tau(predicted, measured) == pytest.approx(0)
    assert top_k_recall(predicted, measured, 1) == 0
    assert top_k_recall(predicted, measured, 2) == 0.5
    assert top_k_recall(predicted, measured, 4) == 1
    assert [peak_score(predicted, measured, k) for k in (1, 2, 3)] == pytest.approx([0.5, 0.75, 2.5 / 3])
    assert rmse(array(1, 0), array(0.5, 1)) == pytest.approx(np.sqrt(0.625))


def test_tied_predictions_are_half_right() -> None:
    """A pair measured to be equal says nothing, one predicted to be equal is half right."""
    assert pairwise_accuracy(array(0, 0, 0), array(1, 2, 3)) == 0.5
    assert pairwise_accuracy(array(1, 2, 3), array(1, 1, 2)) == 1
    assert pairwise_accuracy(array(3, 2, 2), array(1, 1, 2)) == 0.25
    assert kendall_tau(array(1, 2, 3), array(1, 1, 2)) == pytest.approx(2 / np.sqrt(6))


def test_metrics_without_pairs_are_undefined() -> None:
    single, pair = array(0.5), array(0.5, 0.5)
    assert np.isnan([pairwise_accuracy(single, single), pairwise_accuracy(pair, pair), kendall_tau(pair, pair)]).all()
    assert np.isnan([top_k_recall(pair, pair, 3), top_k_recall(pair, pair, 0), peak_score(pair, array(0, 0), 1)]).all()
    assert np.isnan(rmse(array(), array()))
    quality = measure_quality(single, single, 1, train_seconds=1.0, predict_seconds=2.0)
    assert (quality.pairwise_accuracy, quality.kendall_tau) == (None, None)
    assert (quality.top_k_recall, quality.peak_score, quality.rmse) == (1, 1, 0)
    assert (quality.trial_count, quality.k, quality.train_seconds, quality.predict_seconds) == (1, 1, 1.0, 2.0)


numbers = st.lists(st.integers(0, 6), min_size=2, max_size=12)


@settings(max_examples=100)
@given(st.data())
def test_metrics_follow_their_definitions(data: st.DataObject) -> None:
    measured = np.array(data.draw(numbers), dtype=np.float64)
    predicted = np.array(data.draw(st.permutations(range(len(measured)))), dtype=np.float64)
    pairs = [(i, j) for i, j in combinations(range(len(measured)), 2) if measured[i] != measured[j]]
    right = [(predicted[i] > predicted[j]) == (measured[i] > measured[j]) for i, j in pairs]
    if pairs:
        assert pairwise_accuracy(predicted, measured) == pytest.approx(np.mean(right))
        assert pairwise_accuracy(-predicted, measured) == pytest.approx(1 - np.mean(right))
    k = data.draw(st.integers(1, len(measured)))
    order = sorted(range(len(measured)), key=lambda i: -predicted[i])
    if measured.max() > 0:
        best = [max(measured[i] for i in order[: n + 1]) for n in range(k)]
        assert peak_score(predicted, measured, k) == pytest.approx(np.mean(best) / measured.max())
        assert peak_score(measured, measured, k) == 1
    assert top_k_recall(measured, measured, k) == 1


def test_without_ties_kendall_tau_gives_pairwise_accuracy() -> None:
    rng = np.random.default_rng(0)
    predicted, measured = rng.random((2, 40))
    orders = [(m.reshape(-1, 1) - m) > 0 for m in (predicted, measured)]  # as defined in metric.py of TenSet
    reference = np.triu(orders[0] == orders[1], k=1).sum() / (40 * 39 / 2)
    assert pairwise_accuracy(predicted, measured) == pytest.approx(reference)
    assert kendall_tau(predicted, measured) == pytest.approx(2 * reference - 1)
