from __future__ import annotations

import numpy as np

from searchlab.analysis.verdict import claims, equivalence_claim, headline
from searchlab.stats.inference import Difference, Equivalence, paired_difference


def difference(workloads: int, seeds: int) -> Difference:
    random = np.random.default_rng(0)
    second = random.normal(0.5, 0.1, (workloads, seeds))
    return paired_difference(second + random.normal(0.05, 0.01, (workloads, seeds)), second)


def test_three_sentences_from_narrow_to_wide() -> None:
    here, these, others = claims("xgb", "random", difference(12, 5))
    assert here.startswith("In these runs, xgb minus random is +0.05") and "(better on 12 of 12 workloads, " in here
    assert these.startswith("On these workloads, xgb minus random is +0.05") and "p < 0.001" in these
    assert others.startswith("On workloads like these, if these are a fair sample of them, xgb minus random")


def test_the_headline_is_the_widest_claim_that_the_runs_carry() -> None:
    assert headline("a", "b", difference(12, 5)).startswith("On workloads like these")
    assert headline("a", "b", difference(3, 5)).startswith("On these workloads")
    assert headline("a", "b", difference(12, 1)).startswith("On workloads like these")
    assert headline("a", "b", difference(3, 1)).startswith("In these runs")
    assert headline("a", "b", difference(0, 0)) == "The strategies have no seed in common on any workload."


def test_a_claim_that_cannot_be_made_says_why() -> None:
    here, these, others = claims("a", "b", difference(1, 1))
    assert (
        "better on 1 of 1 workload," in here and "needs 2 seeds in common" in these and "needs 11 workloads" in others
    )
    level = np.full((2, 2), 0.5)
    assert "is +0.000 in mean area" in claims("a", "b", paired_difference(level, level))[0]


def test_equivalence_in_a_sentence() -> None:
    text = equivalence_claim("a", "b", Equivalence(0.85, 0.1, 0.05), 0.01)
    assert "better than b by more than 0.01 is 0.85" in text and "worse by more than that is 0.05" in text
