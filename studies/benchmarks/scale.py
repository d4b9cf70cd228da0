"""Measures how long it takes to read and resume long logs, and how much memory long runs need.

    python studies/benchmarks/scale.py log [--records 100000]
    python studies/benchmarks/scale.py memory [--trials 10000] [--json FILE]

``log`` writes a log of synthetic trials in a space of 10^7 configs, reads it, decodes its trials, and resumes the run
for one more batch. The time is compared with what the policy alone takes for the same asks and tells.

``memory`` builds and runs programs for a small GEMM, and reads the resident memory of this process and its workers
several times during the run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

import searchlab
from searchlab.conformance import toys
from searchlab.log.budget import Budget
from searchlab.log.read import read_log
from searchlab.measure.contract import Measurer
from searchlab.measure.settings import TableSettings
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.run.loop import search
from searchlab.run.plan import Run
from searchlab.run.strategy import SpaceChoice, Strategy
from searchlab.space import Config, Space


class MadeUp(Measurer):
    """Returns synthetic costs immediately."""

    repeatable = True

    def measure(self, space: Space, configs: Sequence[Config], best: float = np.inf) -> Iterator[Measurement]:
        return map(toys.simulate_smooth, configs)


def time_log(records: int, policy: str, batch: int) -> None:
    space = toys.Large()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.jsonl")
        choice, strategy = SpaceChoice(space, Plugin("made-up")), Strategy.from_specs(policy)
        run = Run(choice, strategy, 0, batch, Budget(records), TableSettings("none"), path)
        search(run, MadeUp())
        start = time.perf_counter()
        log = read_log(path)
        read = time.perf_counter()
        trials = log.trials
        decoded = time.perf_counter()
        policy_without_run, _ = run.start()
        for first in range(0, records, batch):
            policy_without_run.ask(batch)
            policy_without_run.tell(trials[first : first + batch])
        policy_without_run.ask(batch)
        policy_done = time.perf_counter()
        search(replace(run, budget=Budget(records + batch)), MadeUp())
        resumed = time.perf_counter()
        size = path.stat().st_size / 1e6
    print(f"{records:,} records, {size:.1f} MB, policy {policy}")
    print(f"read in {read - start:.2f} s, its trials decoded in {decoded - read:.2f} s")
    print(f"resumed in {resumed - policy_done:.2f} s; the policy alone takes {policy_done - decoded:.2f} s of that")


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


def watch_memory(trials: int, batch: int) -> list[dict[str, float]]:
    """Return the resident memory of this process and its workers, in MB, read twenty times during the run."""
    rows: list[dict[str, float]] = []
    process = psutil.Process(os.getpid())
    start = time.perf_counter()

    def on_trial(trial: Trial, replayed: bool) -> None:
        if (trial.index + 1) % max(1, trials // 20) == 0:
            workers = sorted((megabytes(child) for child in process.children()), reverse=True)
            row = {"trials": trial.index + 1, "parent": megabytes(process), "seconds": time.perf_counter() - start}
            row |= {f"worker {number}": value for number, value in enumerate(workers, 1)}
            rows.append(row)
            print("  ".join(f"{name} {value:.0f}" for name, value in row.items()), flush=True)

    with tempfile.TemporaryDirectory() as folder:
        searchlab.tune(
            "gemm:60x60x60",
            space="knob-template",
            policy="random",
            trials=trials,
            batch=batch,
            log=Path(folder, "long.jsonl"),
            on_trial=on_trial,
            measure={"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0},
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("log", "memory"))
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--policy", default="random", help="policy of the log; it must not use a cost model (random)")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the memory readings are also written")
    options = parser.parse_args(argv)
    if options.what == "log":
        time_log(options.records, options.policy, options.batch)
        return
    rows = watch_memory(options.trials, options.batch)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    half = len(rows) // 2
    workers = {name for row in rows for name in row if name.startswith("worker")} | {"parent"}
    grown = {name: rows[-1].get(name, 0.0) / rows[half].get(name, 1.0) for name in sorted(workers)}
    print("memory at the end / half-way: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in grown.items()))


if __name__ == "__main__":
    main()
