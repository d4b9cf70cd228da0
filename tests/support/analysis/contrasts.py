"""Contrasts of a small report."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from searchlab.analysis.contrasts import Contrast, ReportTests, Runs, compare_pairs


def contrasts(values: Mapping[str, Runs], untested: Mapping[tuple[str, str], str] = {}) -> list[Contrast]:
    """Return the contrasts of a report on these runs on one workload, where lower is better."""
    pairs = [pair for pair in combinations(values, 2) if pair not in untested]
    tests = ReportTests(pairs, [], [])
    better = {name: {seed: -min(value, 1e6) for seed, value in runs.items()} for name, runs in values.items()}
    comparison = compare_pairs(better, untested, tests.compute_level)
    return tests.correct(comparison)
