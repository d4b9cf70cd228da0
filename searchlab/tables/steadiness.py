"""Whether the times of a table depend on when they were read: then the drift of the machine looks like its knobs."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from ..log.format import TABLE, Log, Passes
from .passes import DRIFTED

READINGS = 64
"""The least number of readings in a time block of a table that was timed in passes."""
BLOCKS = 16
"""The number of time blocks of a table that was timed once."""
LEAST = 10
"""The least number of programs in each of these; a smaller table is not tested."""
SIGNIFICANT = 1e-3


def unsteady(log: Log) -> str:
    """What is wrong with the times of the table ``log``; empty if nothing is, or if it is no table.

    Timed in passes: in some time block the programs took other times than the same programs in other passes, by more
    than 10 % in the median; or the sentinel did. Timed once, in random order: the costs of some time blocks differ
    from those of others (Kruskal and Wallis, JASA 47, 1952), with p < 0.001.
    """
    if log.header.passes is not None:
        return _of_passes(log, log.header.passes)
    return _of_order(log) if log.header.label == TABLE else ""


def _of_passes(log: Log, passes: Passes) -> str:
    level = float(np.median([seconds for _, seconds in passes.sentinel] or [1.0]))
    for at, seconds in passes.sentinel:
        if abs(seconds / level - 1) > DRIFTED:
            return f"the program that is timed in every block took {seconds / level:.2f} times as long at {at:g} s"
    # Those that were timed in turn have readings of one time only.
    timed = [record for record in log.records if not record.reused and len(set(record.at)) > 1]
    pairs = sorted(
        (at, math.log(seconds / record.measurement.cost))
        for record in timed
        for at, seconds in zip(record.at, record.seconds, strict=True)
    )
    starts = [0]
    for i, (at, _) in enumerate(pairs):
        if i - starts[-1] >= READINGS and at != pairs[i - 1][0]:
            starts.append(i)
    for first, end in zip(starts, [*starts[1:], len(pairs)], strict=True):
        ratio = math.exp(float(np.median([value for _, value in pairs[first:end]] or [0.0])))
        if abs(ratio - 1) > DRIFTED:
            return (
                f"what was timed from {pairs[first][0]:g} to {pairs[end - 1][0]:g} s took {ratio:.2f} times as long as "
                f"the same programs in other passes"
            )
    return ""


def _of_order(log: Log) -> str:
    costs = log.costs
    finite = np.isfinite(costs)
    if finite.sum() < BLOCKS * LEAST:
        return ""
    blocks = [block[np.isfinite(block)] for block in np.array_split(costs, BLOCKS)]
    p = float(stats.kruskal(*blocks).pvalue)
    if not p < SIGNIFICANT:
        return ""
    whole = float(np.median(costs[finite]))
    worst = max(range(BLOCKS), key=lambda i: abs(math.log(float(np.median(blocks[i])) / whole)))
    return (
        f"times depend on the order of measuring (Kruskal-Wallis over {BLOCKS} time blocks, p = {p:.1g}): the median "
        f"of block {worst + 1} is {float(np.median(blocks[worst])) / whole:.2f} times that of the table"
    )
