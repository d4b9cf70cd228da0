"""Contrasts of a small report."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from searchlab.analysis.contrasts import PageTests, Pair, Runs, p_values, with_adjusted
from searchlab.analysis.contrasts import contrasts as compare
from searchlab.analysis.model import Contrast


def contrasts(values: Mapping[str, Runs], untested: Mapping[Pair, str] = {}) -> list[Contrast]:
    """Return the contrasts of a report on these runs on one workload, where lower is better."""
    pairs = [pair for pair in combinations(values, 2) if frozenset(pair) not in untested]
    tests = PageTests.from_pairs(pairs, [], [])
    better = {name: {seed: -min(value, 1e6) for seed, value in runs.items()} for name, runs in values.items()}
    comparison = compare(better, untested, tests.level)
    return with_adjusted("w", comparison, tests.adjusted(p_values("w", comparison)))
