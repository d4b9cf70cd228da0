"""The scores that ``autotuning_methodology`` assigns to runs over Kernel Tuner's files.

``python -m tests.support.analysis.methodology`` records those in ``tests/analysis/data/methodology.json``. With
``--hub DIR``, a directory of the benchmark hub's files, it instead compares the package's scores with searchlab's
over the tables of hub-v1.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from searchlab.analysis.methodology import methodology_scores
from searchlab.arrays import Ints
from searchlab.errors import SearchlabError
from searchlab.log.format import Log
from searchlab.measure.suite import find_suite
from searchlab.space import Config
from searchlab.suite.trajectories import RecordedTable, baselines
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
        for measurement in result["measurements"]:
            measurement["value"] = "RuntimeFailedConfig"
    return given


def draws(configs: int) -> Ints:
    """The configs that each run tries, by their places in the file: shape (RUNS, TRIALS)."""
    return np.array([np.random.default_rng(seed).permutation(configs)[:TRIALS] for seed in range(RUNS)])


def theirs(file: dict[str, Any], places: Ints, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """Return the package's numbers for runs over a file in the T4 format.

    Args:
        file: The content of the file.
        places: The positions in the file of the configs that each run tries: shape (runs, trials).
        keys: The parts of each config's time.
    """
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t4.json")
        path.write_text(json.dumps(file))
        space = SearchspaceStatistics("gemm", "cpu", True, list(keys), ["time"], path)
    baseline = RandomSearchCalculatedBaseline(space)
    first, last, begin, end = space.cutoff_point_fevals_time_start_end(0.01, 0.95)
    trials, seconds = np.arange(max(first, 1), last + 1), np.linspace(begin, end, 1000)
    costs, spent = space.objective_performances_total, space.objective_times_total
    places = places.T
    elapsed, best = np.cumsum(spent[places], axis=0), np.fmin.accumulate(costs[places], axis=0)
    counts = np.repeat(np.arange(1.0, len(places) + 1)[:, np.newaxis], places.shape[1], axis=1)
    results = SimpleNamespace(
        fevals_results=counts,
        objective_time_results=elapsed.copy(),
        objective_time_results_per_key=elapsed[np.newaxis],
        objective_performance_best_results=best,
        objective_performance_results_per_key=best[np.newaxis],
    )
    described = SimpleNamespace(
        group_name="runs",
        group_display_name="runs",
        device_name="cpu",
        application_name="gemm",
        stochastic=True,
        minimization=True,
        get_results=lambda: results,
    )
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


def compare_hub(hub: Path) -> None:
    """Print the scores of random draws, and of baselines whose runs are long enough, for each T4 file of hub-v1."""
    suite = find_suite("hub-v1")
    for table in suite.tables:
        if "T4" not in table.entry.file:
            continue
        file = json.loads(gzip.decompress((hub / table.entry.file).read_bytes()))
        recorded = RecordedTable(table)
        rows = {Config(result["configuration"]): row for row, result in enumerate(file["results"])}
        order = [rows[Config(record.config)] for record in recorded.log.records]
        permutations = [np.random.default_rng(seed).permutation(len(order)) for seed in range(RUNS)]
        cases = {"random draws": np.array(permutations)}
        for baseline in baselines(suite):
            runs = [run.configs for run in baseline.runs_on(table).runs]
            cases[baseline.strategy] = np.array([run[: min(map(len, runs))] for run in runs])
        for name, places in cases.items():
            logs = [
                Log(Path(name), recorded.log.header, tuple(recorded.log.records[place] for place in run))
                for run in places
            ]
            try:
                own_scores = methodology_scores(recorded.log, logs)
            except SearchlabError:
                print(f"{table.entry.name}, {name}: not scored; the runs are too short")
                continue
            expected = theirs(file, np.array(order)[places], list(file["results"][0]["times"]))
            off = np.subtract(own_scores, (expected["score over trials"], expected["score over seconds"]))
            trials, seconds = own_scores
            print(f"{table.entry.name}, {name}: {trials:.6f}, {seconds:.6f}; differences {off[0]:.1e}, {off[1]:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hub", type=Path)
    hub = parser.parse_args().hub
    if hub:
        compare_hub(hub)
        return
    recorded = {}
    for case, every in CASES.items():
        file = content(every)
        recorded[case] = theirs(file, draws(len(file["results"])))
    assert all(math.isfinite(value["score over seconds"]) for value in recorded.values())
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
