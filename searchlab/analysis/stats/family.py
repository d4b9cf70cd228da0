"""One family of tests per page: registered contrasts are tested first and open the tests behind them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ...arrays import Floats
from .ranks import holm

RESERVED = 0.8
"""Share of a page's chance of a false alarm that goes to the contrasts registered before the runs."""

EPSILON = 1e-6
"""Share of a test's weight that leaves its gate: it matters only once every test of that gate is rejected."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Gate(Generic[Key]):
    """A registered contrast: ``first`` is tested first, and the tests behind it only once it is rejected.

    Attributes:
        first: The test over all workloads; None if there is none, and then the tests behind it are tested first.
        behind: Groups of tests that open together; each group gets an equal share of the weight.
    """

    first: Key | None
    behind: Sequence[Sequence[Key]] = ()

    @property
    def keys(self) -> list[Key]:
        return [*([] if self.first is None else [self.first]), *(key for group in self.behind for key in group)]

    def shares(self) -> dict[Key, float]:
        """The share of the gate's weight that each test behind it gets when the gate opens."""
        groups = [group for group in self.behind if group]
        return {key: 1 / len(groups) / len(group) for group in groups for key in group}


def one_family(p: Mapping[Key, float], gates: Sequence[Gate[Key]] = ()) -> dict[Key, float]:
    """Adjust the p-values of all tests of a page, so that it calls any two equal strategies different in at most 5 %.

    Without gates this is Holm's procedure. Otherwise, the gates share ``RESERVED`` of the error rate and are tested by
    a graphical procedure (see :func:`graphical`): a rejected first test passes half of its weight to the other gates
    and half to the tests behind it (all of it if there is no other gate). All other tests are exploratory: they share
    the rest by Holm's procedure, and get the whole error rate once every gated test is rejected.

    Args:
        p: The p-value of every test that a reader may take for a claim.
        gates: The registered contrasts. A test may belong to one gate only.

    Raises:
        ValueError: If a gate names a test that is not in ``p``, or if two gates share a test.
    """
    gated = [key for gate in gates for key in gate.keys]
    if missing := [key for key in gated if key not in p]:
        raise ValueError(f"registered, but not tested: {', '.join(map(str, missing))}")
    if len(set(gated)) < len(gated):
        raise ValueError("a test belongs to two gates; name each registered contrast once")
    others = [key for key in p if key not in set(gated)]
    if not gated:
        return dict(zip(others, holm(np.array([p[key] for key in others])).tolist(), strict=True))
    share = RESERVED if others else 1.0
    first = np.minimum(graphical([p[key] for key in gated], *_graph(gates, gated)) / share, 1.0)
    adjusted = dict(zip(gated, first.tolist(), strict=True))
    if others:
        alone = holm(np.array([p[key] for key in others]))
        after = np.minimum(np.minimum(alone / (1 - RESERVED), 1.0), np.maximum(alone, first.max()))
        adjusted |= zip(others, after.tolist(), strict=True)
    return {key: adjusted[key] for key in p}


def _graph(gates: Sequence[Gate[Key]], keys: Sequence[Key]) -> tuple[Floats, Floats]:
    """The initial weights and the transitions of :func:`one_family`, shapes (tests,) and (tests, tests)."""
    place = {key: i for i, key in enumerate(keys)}
    opens = [{gate.first: 1.0} if gate.first is not None else gate.shares() for gate in gates]
    weights, transitions = np.zeros(len(keys)), np.zeros((len(keys), len(keys)))
    for number, gate in enumerate(gates):
        rest = [other for i, other in enumerate(opens) if i != number and other]
        for key, share in opens[number].items():
            weights[place[key]] = share / sum(map(bool, opens))
        behind = gate.shares()
        if gate.first is not None:
            _pass(transitions[place[gate.first]], place, behind, rest, 0.5 if behind and rest else float(not behind))
        for key in behind:
            siblings = {other: 1 / (len(behind) - 1) for other in behind if other != key}
            _pass(transitions[place[key]], place, siblings, rest, EPSILON if siblings and rest else float(not siblings))
    return weights, transitions


def _pass(
    row: Floats, place: Mapping[Key, int], own: Mapping[Key, float], gates: Sequence[Mapping[Key, float]], away: float
) -> None:
    """Write one row of the transitions: ``away`` goes to the other gates in equal parts, the rest to ``own``."""
    for key, share in own.items():
        row[place[key]] = (1 - away) * share
    for gate in gates:
        for key, share in gate.items():
            row[place[key]] = away * share / len(gates)


def graphical(p: ArrayLike, weights: ArrayLike, transitions: ArrayLike) -> Floats:
    """Adjusted p-values of the sequentially rejective graphical procedure.

    Algorithm 2 of Bretz, Maurer, Brannath and Posch, "A graphical approach to sequentially rejective multiple test
    procedures", Statistics in Medicine 28(4), 2009. It controls the family-wise error rate in the strong sense,
    however the tests depend on each other.

    Args:
        p: p-values, shape (n,).
        weights: The share of the error rate that each test begins with, shape (n,), with a sum of at most 1.
        transitions: The share of its weight that each test (row) passes to each other one (column) when it is rejected,
            shape (n, n), with a zero diagonal and row sums of at most 1.

    Returns:
        The adjusted p-values, shape (n,).

    Example:
        Three tests in a fixed order: the second counts only if the first is rejected.

        >>> graphical([0.01, 0.04, 0.03], [1, 0, 0], [[0, 1, 0], [0, 0, 1], [0, 0, 0]]).tolist()
        [0.01, 0.04, 0.04]
    """
    values, weight, graph = (np.array(each, dtype=np.float64) for each in (p, weights, transitions))
    adjusted, reached = np.ones(len(values)), 0.0
    left = np.ones(len(values), dtype=bool)
    while left.any():
        ratio = np.divide(values, weight, out=np.full(len(values), np.inf), where=left & (weight > 0))
        j = int(ratio.argmin())
        if not ratio[j] < 1:
            break
        adjusted[j] = reached = max(reached, float(ratio[j]))
        left[j] = False
        weight += weight[j] * graph[j]
        back = 1 - graph[:, j] * graph[j]  # what does not come straight back
        through = graph + np.outer(graph[:, j], graph[j])
        graph = np.divide(through, back[:, None], out=np.zeros_like(graph), where=back[:, None] > 0)
        np.fill_diagonal(graph, 0.0)
        graph[j], graph[:, j], weight[j] = 0.0, 0.0, 0.0
    return adjusted
