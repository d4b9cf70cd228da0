"""What ``autotuning_methodology`` gives for runs over a file of Kernel Tuner, live or recorded.

``python -m tests.support.analysis.methodology`` records it anew in ``tests/analysis/data/methodology.json``.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from searchlab.arrays import Ints
from tests.support.exchange import DATA

T4 = DATA / "kernel_tuner" / "gemm_t4.json.gz"
RECORDED = Path(__file__).parents[2] / "analysis" / "data" / "methodology.json"
CASES = {"all work": 0, "some fail": 5}
"""Case -> every how many configs fails, in the file of the case; 0 for none."""
KEYS = ["compilation", "benchmark", "framework", "search_algorithm", "validation"]
RUNS, TRIALS = 7, 120


def content(every: int) -> dict[str, Any]:
    """The T4 file, with some configs that failed."""
    given: dict[str, Any] = json.loads(gzip.decompress(T4.read_bytes()))
    for result in given["results"][1::every] if every else ():  # the package fails if the first does
        result["invalidity"] = "runtime"
        for one in result["measurements"]:
            one["value"] = "RuntimeFailedConfig"
    return given


def draws(configs: int) -> Ints:
    """The configs that each run tries, by their places in the file: shape (RUNS, TRIALS)."""
    return np.array([np.random.default_rng(seed).permutation(configs)[:TRIALS] for seed in range(RUNS)])


def theirs(every: int) -> dict[str, Any]:
    """The numbers of the package."""
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    given = content(every)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t4.json")
        path.write_text(json.dumps(given))
        space = SearchspaceStatistics("gemm", "cpu", True, KEYS, ["time"], path)
    baseline = RandomSearchCalculatedBaseline(space)
    first, last, begin, end = space.cutoff_point_fevals_time_start_end(0.01, 0.95)
    trials, seconds = np.arange(max(first, 1), last + 1), np.linspace(begin, end, 1000)
    costs, spent = space.objective_performances_total, space.objective_times_total
    places = draws(len(costs)).T
    elapsed, best = np.cumsum(spent[places], axis=0), np.fmin.accumulate(costs[places], axis=0)
    counts = np.repeat(np.arange(1.0, TRIALS + 1)[:, np.newaxis], RUNS, axis=1)
    results = SimpleNamespace(
        fevals_results=counts,
        objective_time_results=elapsed.copy(), objective_time_results_per_key=elapsed[np.newaxis],
        objective_performance_best_results=best, objective_performance_results_per_key=best[np.newaxis],
    )  # fmt: skip
    described = SimpleNamespace(
        group_name="runs", group_display_name="runs", device_name="cpu", application_name="gemm", stochastic=True,
        minimization=True, get_results=lambda: results,
    )  # fmt: skip
    strategy = StochasticOptimizationAlgorithm(described)
    ascending = space.objective_performances_total_sorted
    over_trials = strategy.get_curve_over_fevals(trials, ascending, return_split=False)[2]
    np.random.seed(0)
    over_seconds = strategy.get_curve_over_time(seconds, ascending, confidence_level=0.95, return_split=False)[2]
    return {
        "span": [first, last],
        "seconds": [begin, end],
        "baseline": (baseline.get_curve_over_fevals(trials) / 1e3).tolist(),
        "score over trials": float(baseline.get_standardised_curve(trials, over_trials, "fevals").mean()),
        "score over seconds": float(baseline.get_standardised_curve(seconds, over_seconds, "time").mean()),
    }


def main() -> None:
    recorded = {case: theirs(every) for case, every in CASES.items()}
    assert all(math.isfinite(one["score over seconds"]) for one in recorded.values())
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
