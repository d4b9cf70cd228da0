from __future__ import annotations

import numpy as np

from searchlab.analysis.contrasts import Contrast, TestKind
from searchlab.analysis.verdict import write_answer
from searchlab.stats.inference import paired_difference

PAIRED_T = TestKind.PAIRED_T


def contrast(workloads: int, seeds: int) -> Contrast:
    random = np.random.default_rng(0)
    second = random.normal(0.5, 0.1, (workloads, seeds))
    difference = paired_difference(second + random.normal(0.05, 0.01, (workloads, seeds)), second)
    return Contrast(first="a", second="b", test=PAIRED_T, runs=0, difference=difference, effect=difference.value)


def test_an_answer_is_about_what_the_runs_support() -> None:
    many, few, single, none = (write_answer(contrast(*size), "area") for size in ((12, 5), (3, 5), (3, 1), (0, 0)))
    assert "on these 12 workloads" in many and many.endswith("on workloads like these.")
    assert few.startswith("a is better than b: area +0.0") and few.endswith("on these 3 workloads.")
    assert single.startswith("a is not tested against b: area +0.0") and "needs 2 seeds in common" in single
    assert none == "a is not tested against b. The strategies have no seed in common on any workload."
