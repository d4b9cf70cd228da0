"""Contrasts of a small report."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from searchlab.analysis.contrasts import Runs
from searchlab.analysis.contrasts import contrasts as compare
from searchlab.analysis.family import PageTests, p_values, with_adjusted
from searchlab.analysis.model import Contrast
from searchlab.analysis.stats.ranks import pairs


def contrasts(values: Mapping[str, Runs], single: Collection[str] = ()) -> list[Contrast]:
    """The contrasts of a report on nothing but these runs, on one workload by area."""
    names = [name for name in values if name not in single]
    tests = PageTests.of([(names[i], names[j]) for i, j in pairs(len(names))], [])
    found = compare("m", values, single, tests.level)
    return with_adjusted("w", found, tests.adjusted(p_values("w", found)))
