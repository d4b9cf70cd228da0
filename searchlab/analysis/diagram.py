"""The numbers of a critical difference diagram: average ranks of strategies, and which of them cannot be told apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .model import Diagram
from .stats.cliques import cliques
from .stats.curves import Floats
from .stats.ranks import average_ranks, friedman_test, pairs, rounded


def diagram(strategies: Sequence[str], scores: Floats, apart: Collection[frozenset[str]]) -> Diagram:
    """The diagram of ``scores``, shape (workloads, strategies), higher is better.

    apart: the pairs of strategies that differ on workloads like these, as the one test of the report that asks for this
    says; no other pair can be told apart.

    Average ranks as in Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006. Nothing
    is tested by mean ranks, in which the answer for two strategies depends on the others (Benavoli, Corani and Mangili,
    "Should we really use post-hoc tests based on mean-ranks?", JMLR 17, 2016).
    """
    scores = rounded(scores)
    average = average_ranks(scores)
    order = sorted(range(len(strategies)), key=lambda i: (average[i], strategies[i]))
    alike = {
        (i, j) for i, j in pairs(len(order)) if frozenset((strategies[order[i]], strategies[order[j]])) not in apart
    }
    return Diagram(
        strategies=[strategies[i] for i in order],
        ranks=[float(average[i]) for i in order],
        workloads=len(scores),
        friedman=friedman_test(scores) if len(order) > 2 else None,
        cliques=cliques(len(order), alike),
    )
