"""Does each policy beat random search at half the budget?

    python studies/benchmarks/half_budget.py RESULTS [--trials 100] [--json FILE]

RESULTS is the directory that ``searchlab run studies/policies.toml`` wrote, or any directory of logs that has runs of
``random`` from the same seeds. For each workload and space: the median GFLOPS after half of the trials; the ratio to
random search (geometric mean over the seeds, paired, with a 95 % interval); the probability that a run of the
policy is better than a run of random search; Wilcoxon's signed-rank test over the seeds, with Holm's correction within
the table; and the share of the runs that reach, at half the budget, the median of random search at the end.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.analysis.read import read_runs
from searchlab.analysis.runs import LoggedRun
from searchlab.analysis.stats.aggregates import improvement
from searchlab.analysis.stats.intervals import mean_interval
from searchlab.analysis.stats.ranks import holm, signed_rank_test

BASELINE = "random"


def best_after(run: LoggedRun, trials: int) -> float:
    """GFLOPS of its best after so many trials; a run that ended by itself before keeps its best."""
    return float(run.curve[min(trials, len(run.curve)) - 1])


def compare(policy: Sequence[LoggedRun], baseline: Sequence[LoggedRun], half: int) -> dict[str, Any]:
    """Figures of one policy against random search, both from the same seeds, after ``half`` trials."""
    ours = np.array([best_after(run, half) for run in policy])
    theirs = np.array([best_after(run, half) for run in baseline])
    logs = np.log(ours / theirs)
    interval = mean_interval(logs)
    return {
        "gflops": float(np.median(ours)),
        "ratio": float(np.exp(interval.value)),
        "ratio_interval": [None if end is None else float(np.exp(end)) for end in (interval.lower, interval.upper)],
        "improvement": improvement([ours], [theirs]),
        "p": signed_rank_test(ours, theirs),
        "reaches_final_random": float(np.mean(ours >= np.median([run.curve[-1] for run in baseline]))),
    }


def tables(directory: Path, trials: int | None) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """(workload, space) -> a row for each policy, best first."""
    by_place: dict[tuple[str, str], dict[str, list[LoggedRun]]] = defaultdict(lambda: defaultdict(list))
    for workload, item in read_runs(directory).items():
        for run in item.runs:
            by_place[workload, run.space][run.log.header.name].append(run)
    tables_of = {}
    for place, policies in by_place.items():
        if BASELINE not in policies:
            raise SystemExit(f"{directory} holds no run of {BASELINE!r} on {place[0]} in {place[1]}")
        by_seed = {name: {run.seed: run for run in own} for name, own in policies.items()}
        half = trials or min(len(run.curve) for own in policies.values() for run in own if not run.log.ended) // 2
        rows = []
        for name, runs in by_seed.items():
            seeds = sorted(runs.keys() & by_seed[BASELINE].keys())
            row = compare([runs[seed] for seed in seeds], [by_seed[BASELINE][seed] for seed in seeds], half)
            rows.append({"policy": name, "seeds": len(seeds), "trials": half, **row})
        others = [row for row in rows if row["policy"] != BASELINE]
        for row, p in zip(others, holm(np.array([row["p"] for row in others])), strict=True):
            row["p"] = float(p)
        tables_of[place] = sorted(rows, key=lambda row: -row["ratio"])
    return tables_of


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("--trials", type=int, help="half of the budget (half of the trials in the logs)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    options = parser.parse_args(argv)
    by_place = tables(options.results, options.trials)
    for (workload, space), rows in by_place.items():
        print(f"\n{workload} in {space}, {rows[0]['seeds']} seeds, after {rows[0]['trials']} trials\n")
        print(
            "| policy | GFLOPS | over random | better than random | p | where random ends |\n|---|---|---|---|---|---|"
        )
        for row in rows:
            low, high = row["ratio_interval"]
            chance, there = f"{row['improvement']:.0%}", f"{row['reaches_final_random']:.0%}"
            ratio = f"{row['ratio']:.3f}" + ("" if low is None else f" ({low:.3f} to {high:.3f})")
            p = "" if row["policy"] == BASELINE else f"{row['p']:.1g}"
            print(f"| {row['policy']} | {row['gflops']:.0f} | {ratio} | {chance} | {p} | {there} |")
    if options.json:
        rows = [{"workload": w, "space": s, **row} for (w, s), own in by_place.items() for row in own]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
