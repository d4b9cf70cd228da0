"""The numbers of a critical difference diagram: average ranks of strategies, and which of them cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .model import Diagram
from .stats.cliques import cliques
from .stats.curves import Floats
from .stats.ranks import ALPHA, average_ranks, friedman_test, holm, pairs, rounded, signed_rank_test


def diagram(strategies: Sequence[str], scores: Floats) -> Diagram:
    """The diagram of ``scores``, shape (workloads, strategies), higher is better.

    Average ranks as in Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006. Pairs
    are compared by the signed-rank test over workloads with Holm's correction, not by Nemenyi's test of mean ranks,
    in which the answer for two strategies depends on the others (Benavoli, Corani and Mangili, "Should we really use
    post-hoc tests based on mean-ranks?", JMLR 17, 2016). Where Friedman's test finds no difference at all, all
    strategies are one clique. It takes six workloads for a pair to differ at all: 2 / 2^5 is more than 0.05.
    """
    scores = rounded(scores)
    average = average_ranks(scores)
    order = sorted(range(len(strategies)), key=lambda i: (average[i], strategies[i]))
    placed = scores[:, order]
    which = pairs(len(order))
    adjusted = holm(np.array([signed_rank_test(placed[:, i], placed[:, j]) for i, j in which]))
    friedman = friedman_test(scores) if len(order) > 2 else None
    none = friedman is not None and friedman > ALPHA
    alike = {pair for pair, p in zip(which, adjusted, strict=True) if none or p > ALPHA}
    return Diagram(
        strategies=[strategies[i] for i in order],
        ranks=[float(average[i]) for i in order],
        workloads=len(scores),
        friedman=friedman,
        cliques=cliques(len(order), alike),
    )
