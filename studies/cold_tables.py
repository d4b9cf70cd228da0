"""Tests whether strategies rank in the same order on tables that are measured with cold caches as with warm ones.

    python studies/cold_tables.py                              # all six tables, on an idle machine
    python studies/cold_tables.py --tables gemm-31x256x128-knob-1t --seeds 3

Each table is a complete space of a development table of v1, measured with warm and with cold caches. For each of them,
the command prints Kendall's tau between the two times of its programs, and how much slower the program with the lowest
warm time is than the fastest one, if both are cold. Then, strategies search all tables, and the second Markdown table
shows their mean areas under the curve with warm and with cold times.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

import searchlab
from searchlab.arrays import Floats
from searchlab.measure.suite import find_suite
from searchlab.run.strategy import SpaceChoice

TABLES = (
    *("gemm-31x256x128-knob-1t", "gemm-81x81x243-knob-2t", "gemm-35x70x105-trace-1t"),
    *("conv2d-1x56x56x8x3x7x7-s2-p3-knob-1t", "conv2d-1x20x20x16x16x1x1-s2-guided-1t"),
    "conv2d-1x7x7x8x3x5x5-p2-trace-1t",
)
POLICIES = ("random", "evolutionary", "annealing", "one-plus-one", "lfbo", "tpe", "xgb", "gp-prior")
CACHES = ("warm", "cold")


def measure(name: str, cache: str, folder: Path) -> Path:
    """Measure all configs of a table of v1, and return the file."""
    [table] = find_suite(f"v1/{name}").tables
    space = SpaceChoice.from_table(table).space
    path = folder / f"{name}-{cache}.parquet"
    settings = {"kind": "local", "min_repeat_ms": 1, "prune_factor": 0, "cache": cache}
    searchlab.build_table(space.workload, space, path, target=space.target, measure=settings, passes=0)
    return path


def costs(path: Path) -> Floats:
    """Return the costs of a table in the order of its configs; infinite for failures."""
    trials = searchlab.load_log(path).trials
    return np.array([trial.cost for trial in sorted(trials, key=lambda trial: str(trial.config))])


def areas(paths: Sequence[Path], seeds: int, jobs: int, folder: Path) -> pd.Series:
    """Return each strategy's mean area over tables, of which it searches each with each seed."""
    tables = []
    for path in paths:
        table = searchlab.load_log(path)
        header = table.log.header
        study = searchlab.Study.from_dict(
            {
                "workloads": [header.workload],
                "spaces": [{"name": header.space.name, "options": header.space.options}],
                "target": table.space.target.spec,
                "policies": list(POLICIES),
                "seeds": seeds,
                "trials": 128,
                "measure": {"kind": "table", "path": str(path)},
            }
        )
        runs = study.run(folder / path.stem, jobs=jobs)
        tables.append(searchlab.compare(runs).runs_frame().groupby("strategy", observed=True)["area"].mean())
    return pd.concat(tables, axis=1).mean(axis=1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES, help="tables of v1 (six of its development tables)")
    parser.add_argument("--seeds", type=int, default=10, help="number of runs of each strategy on each table (10)")
    parser.add_argument("--jobs", type=int, default=2, help="number of concurrent runs (2)")
    parser.add_argument("--out", type=Path, default=Path("results/cold-tables"), help="directory for the tables")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    paths = {cache: [measure(name, cache, options.out) for name in options.tables] for cache in CACHES}
    print("| table | configs | Kendall's tau | slower by |")
    print("|---|---|---|---|")
    for name, *pair in zip(options.tables, *paths.values(), strict=True):
        warm, cold = map(costs, pair)
        tau = kendalltau(warm, cold).statistic
        print(f"| {name} | {len(warm):,} | {tau:.3f} | {100 * (cold[warm.argmin()] / cold.min() - 1):.1f} % |")
    with tempfile.TemporaryDirectory() as folder:
        frame = pd.DataFrame(
            {cache: areas(paths[cache], options.seeds, options.jobs, Path(folder)) for cache in CACHES}
        )
    frame = frame.sort_values("warm", ascending=False)
    print("\n| strategy | area, warm | area, cold |")
    print("|---|---|---|")
    for strategy, row in frame.iterrows():
        print(f"| `{strategy}` | {row['warm']:.3f} | {row['cold']:.3f} |")
    print(f"\nKendall's tau between the two orders: {kendalltau(frame['warm'], frame['cold']).statistic:.2f}")


if __name__ == "__main__":
    main()
