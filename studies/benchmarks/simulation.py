"""Runs of random search over recorded tables by the thousand, for the simulations beside this file: numpy alone.

The strategies are called lucky: at each trial they draw ``luck`` configs, with replacement, and keep the fastest. With
``luck`` 1 that is random search. Runs of one seed share their first ``START`` trials, as those of searchlab do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from searchlab.arrays import Floats
from searchlab.log.format import read_log

TABLES = Path(__file__).parents[1] / "suite" / "v1" / "tables"
START, TRIALS, TARGET = 16, 100, 0.95


@dataclass(frozen=True)
class Runs:
    """Of each run its area, trials to 95 % of the optimum, and mean log latency over the optimum: shape (..., runs)."""

    area: Floats
    hits: Floats
    score: Floats


def read_tables(directory: Path) -> dict[str, Floats]:
    """The costs of every config that works, by table, in seconds."""
    costs = {path.name.split(".")[0]: read_log(path).costs for path in sorted(directory.glob("*.jsonl.gz"))}
    return {name: values[np.isfinite(values)] for name, values in costs.items()}


def lucky_runs(costs: Floats, lucks: tuple[int, ...], runs: int, random: np.random.Generator) -> list[Runs]:
    """``runs`` runs of a strategy for each of ``lucks``; run i of each has the same start."""
    start = costs[random.integers(len(costs), size=(runs, START))]
    made = []
    for luck in lucks:
        drawn = costs[random.integers(len(costs), size=(runs, TRIALS - START, luck))].min(axis=2)
        latency = np.minimum.accumulate(np.concatenate((start, drawn), axis=1), axis=1) / costs.min()
        reached = 1 / latency >= TARGET
        hits = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)
        made.append(Runs((1 / latency).mean(axis=1), hits, -np.log(latency).mean(axis=1)))
    return made


def new_workload(tables: list[Floats], random: np.random.Generator) -> Floats:
    """The costs of a workload like those of ``tables``: of half the configs of one, its differences drawn apart or
    together by an exponent between 1/2 and 2."""
    costs = tables[random.integers(len(tables))]
    return random.choice(costs, len(costs) // 2, replace=False) ** np.exp2(random.uniform(-1, 1))
