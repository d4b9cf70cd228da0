"""Simulates, over recorded tables, how often a report's intervals contain the true value.

    python studies/benchmarks/coverage.py [--repetitions 1000] [--seeds 3 5 10 30] [--tables DIR] [--json FILE]

The runs come from ``simulation.py``: random search, and a strategy that draws two configs per trial and keeps the
better one. On each table, the population consists of 20,000 runs of each strategy. An experiment draws ``--seeds`` of
them, and the true value is the population's. For new workloads, the population consists of 4,000 workloads derived from
the tables, on which the strategies are lucky to different degrees. An experiment draws 12 or 24 of them, and the true
value is the mean over all workloads. The last rows show the hierarchical percentile bootstrap for comparison.

A dash means that no interval can be computed. The simulation takes about two minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from simulation import TABLES, Runs, lucky_runs, new_workload, read_tables

from searchlab.arrays import Floats
from searchlab.stats.inference import paired_difference
from searchlab.stats.intervals import (
    Interval,
    mean_interval,
    median_interval,
)

POOL, POPULATION, OF_EACH = 20_000, 4_000, 32

Experiment = Callable[[int], tuple[Interval, float]]
"""Returns an interval and the true value, given the number of seeds."""


class OnTables:
    """Experiments on the recorded tables themselves."""

    def __init__(self, tables: list[Floats], random: np.random.Generator) -> None:
        self.random = random
        self.pools = [lucky_runs(costs, (1, 2), POOL, random) for costs in tables]
        self.truths: dict[tuple[object, ...], float] = {}

    def _some(self, workloads: int) -> list[int]:
        """Return one of twenty selections of workloads, whose true values are computed only once."""
        rng = np.random.default_rng([workloads, int(self.random.integers(20))])
        return sorted(rng.choice(len(self.pools), min(workloads, len(self.pools)), replace=False).tolist())

    def _truth(self, *key: object, of: Callable[[], float]) -> float:
        if key not in self.truths:
            self.truths[key] = of()
        return self.truths[key]

    def mean(self, measure: str) -> Experiment:
        def experiment(seeds: int) -> tuple[Interval, float]:
            values = getattr(self.pools[self.random.integers(len(self.pools))][0], measure)
            return mean_interval(self._draw(values, seeds)), float(values.mean())

        return experiment

    def hits(self, seeds: int) -> tuple[Interval, float]:
        """Use only tables on which most runs reach the target; on all others, the median is infinite."""
        reaching = [i for i, (_, better) in enumerate(self.pools) if np.isfinite(better.hits).mean() > 0.6]
        i = int(self.random.choice(reaching))
        values = self.pools[i][1].hits
        return median_interval(self._draw(values, seeds)), self._truth("hits", i, of=lambda: float(np.median(values)))

    def difference(self, workloads: int) -> Experiment:
        def experiment(seeds: int) -> tuple[Interval, float]:
            table_indices = self._some(workloads)
            seed_indices = self.random.integers(POOL, size=(len(table_indices), seeds))
            better, worse = (
                [self.pools[i][side].area[indices] for i, indices in zip(table_indices, seed_indices, strict=True)]
                for side in (1, 0)
            )
            truth = float(np.mean([self.pools[i][1].area.mean() - self.pools[i][0].area.mean() for i in table_indices]))
            return paired_difference(better, worse).on_these.difference, truth

        return experiment

    def _draw(self, values: Floats, seeds: int) -> Floats:
        return values[self.random.integers(len(values), size=seeds)]


class OnOthers:
    """Experiments on workloads drawn from a population."""

    def __init__(self, tables: list[Floats], random: np.random.Generator) -> None:
        self.random = random
        self.first_areas, self.second_areas = np.empty((2, POPULATION, OF_EACH))
        for number in range(POPULATION):
            first, second = self._two(new_workload(tables, random))
            self.first_areas[number], self.second_areas[number] = first.area, second.area
        self.truth = float((self.first_areas - self.second_areas).mean())

    def _two(self, costs: Floats) -> list[Runs]:
        luck = int(self.random.integers(1, 4))
        return lucky_runs(costs, (luck, 1) if self.random.random() < 0.75 else (1, luck), OF_EACH, self.random)

    def _draw(self, workloads: int, seeds: int) -> tuple[Floats, Floats]:
        indices = (
            self.random.integers(POPULATION, size=(workloads, 1)),
            self.random.integers(OF_EACH, size=(workloads, seeds)),
        )
        return self.first_areas[indices], self.second_areas[indices]

    def difference(self, workloads: int) -> Experiment:
        def experiment(seeds: int) -> tuple[Interval, float]:
            return paired_difference(*self._draw(workloads, seeds)).on_others.difference, self.truth

        return experiment

    def bootstrap(self, workloads: int, replicates: int = 500) -> Experiment:
        """Resample workloads, then each workload's seeds; the interval's ends are percentiles of the means."""

        def experiment(seeds: int) -> tuple[Interval, float]:
            first_areas, second_areas = self._draw(workloads, seeds)
            resampled = self.random.integers(workloads, size=(replicates, workloads, 1))
            means = (first_areas - second_areas)[
                resampled, self.random.integers(seeds, size=(replicates, workloads, seeds))
            ].mean((1, 2))
            lower, upper = np.quantile(means, (0.025, 0.975)).tolist()
            return Interval(float(np.mean(first_areas - second_areas)), lower, upper), self.truth

        return experiment


def experiments(tables: list[Floats], random: np.random.Generator) -> dict[str, Experiment]:
    on_tables, on_others = OnTables(tables, random), OnOthers(tables, random)
    return {
        "mean area, 1 workload": on_tables.mean("area"),
        "mean log score, 1 workload": on_tables.mean("score"),
        "median trials to the target": on_tables.hits,
        "mean difference, these 1 workload": on_tables.difference(1),
        "mean difference, these 3 workloads": on_tables.difference(3),
        "mean difference, these 12 workloads": on_tables.difference(12),
        "mean difference, others like 12": on_others.difference(12),
        "mean difference, others like 24": on_others.difference(24),
        "the same by bootstrap, like 12": on_others.bootstrap(12),
        "the same by bootstrap, like 24": on_others.bootstrap(24),
    }


def coverage(experiment: Experiment, seeds: int, repetitions: int) -> float | None:
    """Return the share of experiments whose interval contains the true value, or None if none has an interval."""
    hits = []
    for _ in range(repetitions):
        interval, truth = experiment(seeds)
        if interval.lower is None or interval.upper is None:
            return None
        hits.append(interval.lower - 1e-12 <= truth <= interval.upper + 1e-12)
    return float(np.mean(hits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000, help="number of experiments per figure (1000)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[3, 5, 10, 30], help="numbers of runs per strategy and workload"
    )
    parser.add_argument(
        "--tables", type=Path, default=TABLES, metavar="DIR", help="directory of complete tables (default: the suite's)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    tables = list(read_tables(args.tables).values())
    print(f"Share of {args.repetitions} 95 % intervals that contain the true value, {len(tables)} tables, in %")
    print(f"{'':44}" + "".join(f"{f'{n} seeds':>10}" for n in args.seeds))
    rows = {}
    for name, experiment in experiments(tables, random).items():
        rows[name] = [coverage(experiment, seeds, args.repetitions) for seeds in args.seeds]
        print(f"{name:44}" + "".join(f"{'-' if c is None else f'{100 * c:.1f}':>10}" for c in rows[name]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"seeds": args.seeds, "coverage": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
