"""Measures how well Pruner's static analysis ranks programs: 128 random ones of each of a suite's development tables.

    python studies/papers/drafts.py v1    # about a minute on two idle cores

The table shows the rank correlation of the estimated with the measured times, and the mean throughput, relative to the
fastest of the 128 programs, of the 16 programs that the analysis ranks first and of all.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.stats import spearmanr

from searchlab.costmodel.features import make_features
from searchlab.run.warm_start import WarmStart
from searchlab_policies.pruner import SymbolAnalyzer


def main() -> None:
    rows = []
    for run in WarmStart.from_sources([f"suite:{sys.argv[1]}/dev"], "median").runs:
        features = make_features("per-store", run.space)([trial.config for trial in run.trials])
        costs = np.array([trial.cost for trial in run.trials])
        estimates = SymbolAnalyzer(run.space.target)(features)
        throughput = costs.min() / costs
        drafted = throughput[np.argsort(-estimates, kind="stable")[:16]]
        rows.append((spearmanr(estimates, throughput).statistic, drafted.mean(), throughput.mean()))
        print(f"{run.space.workload} | " + " | ".join(f"{number:.2f}" for number in rows[-1]))
    print("mean | " + " | ".join(f"{number:.2f}" for number in np.mean(rows, axis=0)))


if __name__ == "__main__":
    main()
