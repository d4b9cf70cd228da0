"""Draws how far gp-prior and other baselines are from the optimum of the tables, by trial.

    python studies/papers/curves.py v1/test hub-v1/test --picture studies/reference/papers/own.png

The picture is part of studies/RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from searchlab.analysis.charts.figures import COLOURS
from searchlab.measure.suite import Suite, find_suite
from searchlab.suite.trajectories import baselines

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))
from questions import curves

STRATEGIES = ("gp-prior", "baco", "xgb", "evolutionary-model", "tpe", "random")


def draw(suites: Sequence[Suite], path: Path) -> None:
    """Draw a panel for each suite: how far the best program is below the optimum, as a mean over tables and runs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(suites), figsize=(5 * len(suites), 4), sharey=True, squeeze=False)
    for axis, suite in zip(axes.flat, suites, strict=True):
        found = curves(suite, [one for one in baselines(suite) if one.strategy in STRATEGIES])
        for name, colour in zip(STRATEGIES, COLOURS, strict=False):
            missing = np.mean([100 * (1 - curve).mean(axis=0) for curve in found[name].values()], axis=0)
            axis.plot(np.arange(1, len(missing) + 1), missing, color=colour, label=name, linewidth=1.8)
        axis.set(title=f"{suite.name} ({len(suite.tables)} tables)", xscale="log", yscale="log", xlabel="trials")
        ticks = [tick for tick in (1, 2, 4, 8, 16, 32, 64, 128, 256) if tick <= len(missing)]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_yticks([1, 2, 5, 10, 20, 50], ["1 %", "2 %", "5 %", "10 %", "20 %", "50 %"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes.flat[0].set_ylabel("below the optimum: mean over tables and runs")
    axes.flat[0].legend(loc="lower left", frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="+", help="suite, such as v1/test")
    parser.add_argument("--picture", type=Path, required=True, help="where to write the picture")
    given = parser.parse_args()
    draw([find_suite(name) for name in given.suite], given.picture)


if __name__ == "__main__":
    main()
