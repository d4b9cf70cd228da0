"""Tests whether it helps strategies to time each program that looks like the best once more (``confirm``).

    python studies/confirm.py                    # about 15 minutes on one core
    python studies/confirm.py --suite hub-v1/dev --policies xgb,tpe --seeds 10

Strategies search a suite's tables under noise, which resamples the recorded readings, with and without confirmation.
What counts is the true speed, which the table contains, of the config with the lowest measured cost: at the end, and on
average over the trials. The command prints a Markdown table of the differences, with their intervals for other tables.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from searchlab.arrays import Floats
from searchlab.measure.suite import SuiteTable, find_suite
from searchlab.measure.table import TableMeasurer
from searchlab.run.strategy import SpaceChoice
from searchlab.run.tune import tune
from searchlab.stats.inference import MIN_WORKLOADS, paired_difference


def search(table: SuiteTable, policy: str, seed: int, trials: int, confirm: bool, folder: Path) -> Floats:
    """Return the true speed at the end and on average, relative to the optimum, and the share of time for confirming.

    Before the first success, the speed is 0.
    """
    settings = msgspec.structs.replace(table.settings(noise=True), confirm=confirm)
    space = SpaceChoice.from_table(table).space
    log = folder / f"{table.entry.name}-{policy}-{seed}-{confirm}.jsonl"
    run = tune(space.workload, space=space, policy=policy, log=log, trials=trials, seed=seed, measure=settings)
    recorded = TableMeasurer(table.settings())
    all_costs = recorded.all_costs(space)
    assert all_costs is not None
    true = list(recorded.measure(space, [trial.config for trial in run.trials]))
    measured = np.array([trial.cost for trial in run.trials])
    fastest = [int(np.argmin(measured[: count + 1])) for count in range(len(measured))]
    speed = np.array([all_costs.optimum / true[index].cost for index in fastest])  # 0 if it failed
    seconds = sum(trial.measurement.run_seconds for trial in run.trials)
    without = sum(measurement.run_seconds for measurement in true)
    return np.array([speed[-1], speed.mean(), seconds / without - 1 if without else 0.0])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", default="v1/dev", help="the suite, or its split or one of its tables")
    parser.add_argument("--policies", default="random,evolutionary,tpe,xgb,gp-prior", help="registered policies")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each policy on each table")
    parser.add_argument("--trials", type=int, default=128, help="trials of a run")
    options = parser.parse_args(arguments)
    tables = find_suite(options.suite).tables
    print("| strategy | confirmed less plain, at the end | on average over the trials | additional time for running |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for policy in options.policies.split(","):
            results = np.array(
                [
                    [
                        [search(t, policy, seed, options.trials, way, Path(folder)) for seed in range(options.seeds)]
                        for t in tables
                    ]
                    for way in (False, True)
                ]
            )  # (way, table, seed, number)
            cells = [policy]
            for number in (0, 1):
                difference = paired_difference(*results[::-1, :, :, number])
                interval = (difference.on_these if len(tables) < MIN_WORKLOADS else difference.on_others).difference
                ends = "" if interval.lower is None else f" [{interval.lower:+.4f}, {interval.upper:+.4f}]"
                cells.append(f"{interval.value:+.4f}{ends}")
            cells.append(f"{100 * results[1, :, :, 2].mean():.1f} %")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
