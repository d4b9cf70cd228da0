from __future__ import annotations

import numpy as np

from searchlab.analysis.verdict import headline
from searchlab.stats.inference import Difference, paired_difference


def difference(workloads: int, seeds: int) -> Difference:
    random = np.random.default_rng(0)
    second = random.normal(0.5, 0.1, (workloads, seeds))
    return paired_difference(second + random.normal(0.05, 0.01, (workloads, seeds)), second)


def test_the_headline_is_the_widest_claim_that_the_runs_carry() -> None:
    assert headline("a", "b", difference(12, 5)).startswith("On workloads like these")
    assert headline("a", "b", difference(3, 5)).startswith("On these workloads")
    assert headline("a", "b", difference(12, 1)).startswith("On workloads like these")
    assert headline("a", "b", difference(3, 1)).startswith("In these runs")
    assert headline("a", "b", difference(0, 0)) == "The strategies have no seed in common on any workload."


def test_a_claim_in_these_runs_counts_workloads() -> None:
    assert headline("a", "b", difference(1, 1)).endswith("(better on 1 of 1 workload, worse on 0).")
    level = np.full((2, 2), 0.5)
    assert "is +0.000 in mean area" in headline("a", "b", paired_difference(level, level))
