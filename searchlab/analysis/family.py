"""The tests of a report form one family; each registered contrast is a gate in front of its own tests.

Strategies are tested by the area under the curve alone: each pair on each workload, and over all workloads for a claim
on these and for one on others like them. Trials and seconds to the target are described.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from .model import Contrast, Family
from .runs import ComparedRuns
from .stats.family import RESERVED, Gate, one_family
from .stats.ranks import ALPHA
from .words import listed

Pair = frozenset[str]
Key = tuple[str, str, str, str]
"""A test: the workload (empty for all of them), the name of the test, and the two strategies."""


@dataclass(frozen=True)
class PageTests:
    """The tests of a report, before any p-value is known."""

    registered: Sequence[tuple[str, str]]  # in the order of the study
    alone: Mapping[Pair, int]  # tests on single workloads
    overall: Mapping[Pair, int]  # tests over all workloads: 0, 1 or 2

    @classmethod
    def of(
        cls, alone: Iterable[tuple[str, str]], overall: Iterable[tuple[str, str]], registered: Iterable[tuple[str, str]]
    ) -> PageTests:
        """Count the tests of each pair.

        Args:
            alone: The pair of each test on a single workload.
            overall: The pair of each test over all workloads.
            registered: The registered contrasts, in order.
        """
        counted = Counter(map(frozenset, alone)), Counter(map(frozenset, overall))
        return cls([pair for pair in registered if any(frozenset(pair) in own for own in counted)], *counted)

    @property
    def number(self) -> int:
        return sum(self.alone.values()) + sum(self.overall.values())

    def level(self, first: str, second: str) -> float:
        """The level of a test of this pair on one workload, as long as no other test on single workloads is rejected.

        For a registered contrast this is the level once its test over all workloads is rejected.
        """
        pair, gates = frozenset((first, second)), [frozenset(pair) for pair in self.registered]
        if not gates:
            return ALPHA / max(1, self.number)
        gated = sum(self.alone.get(gate, 0) + self.overall.get(gate, 0) for gate in gates)
        if pair not in gates:
            return ALPHA * (1 - RESERVED) / max(1, self.number - gated)
        share = RESERVED if self.number > gated else 1.0
        over = self.overall.get(pair, 0)
        passed = 0.5 if over and len(gates) > 1 else 1.0
        return ALPHA * share * passed / len(gates) / max(1, over) / max(1, self.alone.get(pair, 0))

    def adjusted(self, p: Mapping[Key, float]) -> dict[Key, float]:
        """The p-values of all tests, corrected together."""
        gates = []
        for pair in self.registered:
            own = [key for key in p if set(key[2:]) == set(pair)]
            overall = [key for key in own if not key[0]]  # on these workloads, then on workloads like these
            groups = [[key] for key in overall[1:]] + [[key for key in own if key[0]]]
            if own:
                gates.append(Gate(overall[0] if overall else None, groups))
        return one_family(p, gates)

    def family(self, found: int) -> Family:
        """The family in words; ``found`` tests have a p-value."""
        return Family(found, list(self.registered), _says(found, self.registered))


def registered_pairs(comparison: ComparedRuns) -> list[tuple[str, str]]:
    """The contrasts that the logs of all runs of both strategies name, in the order in which a study names them.

    They were registered before any of these runs began. If there are several spaces, both strategies share one.
    """
    named: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for item in comparison.values():
        for run in item.runs:
            place = run.strategy.removesuffix(run.log.header.name)
            own = [(place + first, place + second) for first, second in run.log.header.contrasts]
            _, known = named.get(run.strategy, (place, own))
            named[run.strategy] = place, [pair for pair in known if pair in own]
    found: dict[Pair, tuple[str, str]] = {}
    for _, contrasts in named.values():
        for first, second in contrasts:
            if all(name in named and (first, second) in named[name][1] for name in (first, second)):
                found.setdefault(frozenset((first, second)), (first, second))
    return list(found.values())


def with_adjusted(workload: str, contrasts: Iterable[Contrast], adjusted: Mapping[Key, float]) -> list[Contrast]:
    return [msgspec.structs.replace(c, adjusted=adjusted.get((workload, c.test, c.first, c.second))) for c in contrasts]


def p_values(workload: str, contrasts: Iterable[Contrast]) -> dict[Key, float]:
    return {(workload, c.test, c.first, c.second): c.p for c in contrasts if c.p is not None}


def _says(number: int, registered: Sequence[tuple[str, str]]) -> str:
    if not number:
        return "Nothing here is tested; all numbers describe these runs."
    tests = f"{number} test{'s' * (number > 1)}"
    said = (
        f"Strategies are tested by the area under the curve: {tests}, for each pair on each workload and over all of "
        f"them. Together they form one family: the chance that this report calls any two equal strategies different is "
        f"at most {100 * ALPHA:g} %. Trials and seconds to the target are described, not tested. "
    )
    if not registered:
        return said + "No contrast was registered before the runs, so all tests are exploratory (Holm's correction)."
    names = listed([f"{first} against {second}" for first, second in registered], None)
    return said + (
        f"Registered before the runs: {names}. {'They share' if len(registered) > 1 else 'It has'} "
        f"{100 * RESERVED:g} % of that chance. Each is first one test over all workloads; single workloads are tested "
        f"only behind it. All other tests are exploratory."
    )
