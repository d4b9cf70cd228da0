from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SUITE = Path(__file__).parents[2] / "studies" / "suite"

bayesian_signed_rank = runpy.run_path(str(SUITE / "bayes.py"))["bayesian_signed_rank"]


def test_probabilities_equal_those_of_baycomp() -> None:
    """Recorded with baycomp 1.0.3, numpy 1.26.4, from the arrays below:
    ``SignedRankTest.probs(one, other, rope, nsamples=200000, random_state=0)``, whose order is one, same, other.

    It is not installed for the tests: it brings a package that is called ``tests``, too."""
    first = np.random.default_rng(0).beta(4, 2, 14).round(3)
    second = (first + np.random.default_rng(1).normal(0.006, 0.02, 14)).round(3)
    for rope, expected in (
        (0.0, (0.010165, 0.0, 0.989835)),
        (0.01, (0.000015, 0.41952, 0.580465)),
        (0.02, (0.0, 0.99998, 0.00002)),
    ):
        assert bayesian_signed_rank(first - second, rope) == pytest.approx(expected, abs=0.015)


@settings(max_examples=20)
@given(st.lists(st.integers(-9, 9).map(lambda value: value / 100 + 0.001), min_size=1, max_size=20))
def test_probabilities_sum_to_one_in_any_order(differences: list[float]) -> None:
    equivalence = bayesian_signed_rank(np.array(differences), draws=2000)
    assert sum(equivalence) == pytest.approx(1) and min(equivalence) >= 0
    negated = bayesian_signed_rank(-np.array(differences), draws=2000)
    assert negated == pytest.approx(equivalence[::-1], abs=0.002)
    shuffled = bayesian_signed_rank(np.array(differences[::-1]), draws=2000)
    assert shuffled == pytest.approx(equivalence, abs=0.08), "only the draws of the weights change places"


def test_clear_differences_have_a_probability_near_one() -> None:
    assert bayesian_signed_rank(np.full(12, 0.05)).better == pytest.approx(1, abs=0.01)
    assert bayesian_signed_rank(np.full(12, 0.001)).same == pytest.approx(1, abs=0.01)
    assert bayesian_signed_rank(np.full(12, 0.05), rope=0.1).same == pytest.approx(1, abs=0.01)
