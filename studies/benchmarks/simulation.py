"""Thousands of random-search runs over recorded tables, computed with numpy, for the simulations in this folder.

At each trial, a strategy draws ``luck`` configs with replacement and keeps the fastest; with a ``luck`` of 1, this is
random search. Runs with the same seed share their first ``START`` trials, as in searchlab.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from searchlab.arrays import Floats
from searchlab.log.read import read_log

TABLES = Path(__file__).parents[1] / "suite" / "v1" / "tables"
START, TRIALS, TARGET = 16, 100, 0.95


@dataclass(frozen=True)
class Runs:
    """The figures of all runs, each of shape (..., runs)."""

    area: Floats
    hits: Floats  # the number of trials to 95 % of the optimum
    score: Floats  # the negative mean log latency relative to the optimum


def read_tables(directory: Path) -> dict[str, Floats]:
    """Return, for each table, the costs in seconds of all configs that work."""
    costs = {path.name.split(".")[0]: read_log(path).costs for path in sorted(directory.glob("*.parquet"))}
    return {name: values[np.isfinite(values)] for name, values in costs.items()}


def lucky_runs(costs: Floats, lucks: tuple[int, ...], runs: int, random: np.random.Generator) -> list[Runs]:
    """Return ``runs`` runs of a strategy for each of ``lucks``; all strategies' i-th runs share their start."""
    start = costs[random.integers(len(costs), size=(runs, START))]
    runs_by_luck = []
    for luck in lucks:
        later = costs[random.integers(len(costs), size=(runs, TRIALS - START, luck))].min(axis=2)
        latency = np.minimum.accumulate(np.concatenate((start, later), axis=1), axis=1) / costs.min()
        reached = 1 / latency >= TARGET
        hits = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)
        runs_by_luck.append(Runs((1 / latency).mean(axis=1), hits, -np.log(latency).mean(axis=1)))
    return runs_by_luck


def new_workload(tables: list[Floats], random: np.random.Generator) -> Floats:
    """Return the costs of a new workload, derived from one of the ``tables``.

    These are half of the table's costs, raised to a random power between 1/2 and 2.
    """
    costs = tables[random.integers(len(tables))]
    return random.choice(costs, len(costs) // 2, replace=False) ** np.exp2(random.uniform(-1, 1))
