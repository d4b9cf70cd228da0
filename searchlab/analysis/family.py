"""The tests of a report: all of them are one family, and those of registered contrasts have most of its power.

Strategies are tested by the area under the curve alone: each pair on each workload, and over all workloads for a claim
on these and for one on others like them. Trials and seconds to the target are described.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import msgspec

from .model import Contrast, Family
from .runs import ComparedRuns
from .stats.family import RESERVED, one_family
from .stats.ranks import ALPHA
from .words import listed

Pair = frozenset[str]
Key = tuple[str, str, str, str]
"""A test: the workload, empty for all of them; which of its tests; and the two strategies."""


@dataclass(frozen=True)
class PageTests:
    """How many tests of registered pairs there are, and of others."""

    registered: frozenset[Pair]
    of_registered: int
    of_others: int

    @classmethod
    def of(cls, tested: Iterable[tuple[str, str]], registered: Iterable[Pair]) -> PageTests:
        """tested: the pair of each test."""
        named = frozenset(registered)
        counted = [frozenset(pair) in named for pair in tested]
        return cls(named, sum(counted), len(counted) - sum(counted))

    @property
    def number(self) -> int:
        return self.of_registered + self.of_others

    def level(self, first: str, second: str) -> float:
        """What the correction holds the p-value of a test of this pair against, as long as no test is rejected."""
        if not (self.of_registered and self.of_others):
            return ALPHA / max(1, self.number)
        if frozenset((first, second)) in self.registered:
            return ALPHA * RESERVED / self.of_registered
        return ALPHA * (1 - RESERVED) / self.of_others

    def adjusted(self, p: Mapping[Key, float]) -> dict[Key, float]:
        """The p-values of all tests, corrected together."""
        return one_family(p, [key for key in p if frozenset(key[2:]) in self.registered])

    def family(self, found: int) -> Family:
        """The family in words. found: the number of tests that have a p-value."""
        named = sorted((first, second) for first, second in map(sorted, self.registered))
        return Family(found, named, _says(found, named))


def registered_pairs(comparison: ComparedRuns) -> set[Pair]:
    """The pairs of strategies that the logs of all runs of both name: they were registered before any of these began.

    Where there are several spaces, both are of one space.
    """
    named: dict[str, tuple[str, str, set[Pair]]] = {}
    for item in comparison.values():
        for run in item.runs:
            name = run.log.header.name
            own = {frozenset(pair) for pair in run.log.header.contrasts}
            place, _, known = named.get(run.strategy, (run.strategy.removesuffix(name), name, own))
            named[run.strategy] = place, name, known & own
    found = set()
    for first, second in combinations(named, 2):
        (place, one, ours), (other_place, other, theirs) = named[first], named[second]
        if place == other_place and frozenset((one, other)) in ours & theirs:
            found.add(frozenset((first, second)))
    return found


def with_adjusted(workload: str, contrasts: Iterable[Contrast], adjusted: Mapping[Key, float]) -> list[Contrast]:
    return [msgspec.structs.replace(c, adjusted=adjusted.get((workload, c.test, c.first, c.second))) for c in contrasts]


def p_values(workload: str, contrasts: Iterable[Contrast]) -> dict[Key, float]:
    return {(workload, c.test, c.first, c.second): c.p for c in contrasts if c.p is not None}


def _says(number: int, registered: list[tuple[str, str]]) -> str:
    if not number:
        return "Nothing here is tested; all numbers describe these runs."
    tests = f"{number} test{'s' * (number > 1)}"
    said = (
        f"Strategies are tested by the area under the curve: {tests}, each pair on each workload and over all of them. "
        f"They are one family, so that equal strategies are called different anywhere in this report with a chance of "
        f"{100 * ALPHA:g} % at most (Holm). Trials and seconds to the target are described, not tested. "
    )
    if not registered:
        return said + "No contrast was registered before the runs: all tests are exploratory."
    names = listed([f"{first} and {second}" for first, second in registered])
    return (
        said
        + f"Registered before the runs: {names}, with {100 * RESERVED:g} % of that chance; all else is exploratory."
    )
