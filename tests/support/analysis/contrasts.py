"""Contrasts of a small report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

from searchlab.analysis.contrasts import PageTests, Runs, p_values, with_adjusted
from searchlab.analysis.contrasts import contrasts as compare
from searchlab.analysis.model import Contrast


def contrasts(values: Mapping[str, Runs], single: Collection[str] = ()) -> list[Contrast]:
    """The contrasts of a report on nothing but these runs, on one workload by area."""
    tests = PageTests.from_pairs(combinations([name for name in values if name not in single], 2), [], [])
    comparison = compare("m", values, single, tests.level)
    return with_adjusted("w", comparison, tests.adjusted(p_values("w", comparison)))
