"""What random search is worth in the spaces of some logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from .read import Cell
from .stats.curves import Floats
from .stats.random_search import cutoff, expected_best, score

RANDOM = "random"
"""The policy whose runs say what random search is worth."""


@dataclass(frozen=True)
class RandomSearch:
    """What random search in one space is worth, and what runs there are scored by."""

    baseline: Floats
    """R_t in seconds, up to the cutoff."""
    best: float
    slowest: float
    """Seconds of a run that has found nothing yet."""

    def scores(self, so_far: Floats) -> Floats | None:
        """Of every run; ``so_far``: lowest seconds, shape (runs, trials). None where there is nothing to gain."""
        scores = score(np.minimum(so_far, self.slowest)[:, : len(self.baseline)], self.baseline, self.best)
        return scores if np.isfinite(scores).all() else None


def random_searches(cells: Sequence[Cell], horizon: int) -> dict[str, RandomSearch]:
    """By space, from the runs of random search in it.

    A config that several of them measured counts once, at its median: the configs that random draws without
    replacement have met between them are themselves such a draw. They say nothing of more trials than they are, so
    that scores end there at the latest.
    """
    found: dict[str, RandomSearch] = {}
    for space in {cell.log.header.space_name for cell in cells}:
        here = [cell for cell in cells if cell.log.header.space_name == space]
        met: dict[bytes, list[float]] = {}
        for cell in here:
            if cell.log.header.policy.name == RANDOM:
                for record, cost in zip(cell.log.records, cell.log.costs.tolist(), strict=True):
                    met.setdefault(msgspec.json.encode(record.config, order="sorted"), []).append(cost)
        costs = np.concatenate([cell.log.costs for cell in here])
        working = costs[np.isfinite(costs)]
        sample = np.array([np.median(measured) for measured in met.values()])
        if not np.isfinite(sample).any():
            continue
        best, slowest = float(working.min()), float(working.max())
        baseline = expected_best(sample, min(horizon, len(sample)), slowest)
        found[space] = RandomSearch(baseline[: cutoff(sample, baseline, best)], best, slowest)
    return found
