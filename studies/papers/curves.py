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
import vl_convert

from searchlab.analysis.charts.vegalite import COLOURS
from searchlab.measure.suite import Suite, find_suite
from searchlab.suite.trajectories import read_baselines

sys.path.insert(0, str(Path(__file__).parents[1] / "suite"))
from questions import curves

STRATEGIES = ("gp-prior", "baco", "xgb", "evolutionary-model", "tpe", "random")


def draw(suites: Sequence[Suite], path: Path) -> None:
    """Draw a panel for each suite: how far the best program is below the optimum, as a mean over tables and runs."""
    rows = []
    for suite in suites:
        by_strategy = curves(
            suite, [strategy_runs for strategy_runs in read_baselines(suite) if strategy_runs.strategy in STRATEGIES]
        )
        for name in STRATEGIES:
            missing = np.mean([100 * (1 - curve).mean(axis=0) for curve in by_strategy[name].values()], axis=0)
            title = f"{suite.name} ({len(suite.tables)} tables)"
            points = enumerate(missing.round(3).tolist(), 1)
            rows += [{"suite": title, "strategy": name, "trials": trials, "missing": value} for trials, value in points]
    colours = {"domain": STRATEGIES, "range": COLOURS[: len(STRATEGIES)]}
    spec = {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.8},
        "encoding": {
            "column": {"field": "suite", "sort": None, "title": None},
            "x": {
                "field": "trials",
                "type": "quantitative",
                "scale": {"type": "log", "nice": False},
                "axis": {"gridOpacity": 0.4, "tickCount": 6},
            },
            "y": {
                "field": "missing",
                "type": "quantitative",
                "title": "below the optimum, %: mean over tables and runs",
                "scale": {"type": "log", "nice": False},
                "axis": {"gridOpacity": 0.4, "tickCount": 6},
            },
            "color": {"field": "strategy", "scale": colours, "title": None},
        },
    }
    path.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="+", help="suite, such as v1/test")
    parser.add_argument("--picture", type=Path, required=True, help="where to write the picture")
    options = parser.parse_args()
    draw([find_suite(name) for name in options.suite], options.picture)


if __name__ == "__main__":
    main()
