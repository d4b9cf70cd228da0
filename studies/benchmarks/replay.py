"""Measures trials per second over a table of recorded measurements, in comparison with kernel_tuner's simulation mode.

    pip install -e '.[peers]'
    python studies/benchmarks/replay.py [--table FILE] [--runs 50] [--trials 200] [--rounds 5] [--json FILE]

Both tools search the same table with random search and with a genetic algorithm, ``--runs`` times from different seeds.
A run has ``--trials`` distinct configs, or fewer if it ends early. FILE must be an exhaustive table of a space whose
knobs do not depend on each other; the default is a synthetic table with 5,040 configs of the space ``knob-template``.
kernel_tuner reads the table as its cache file, which contains the choices' indices, and is called once per run, without
output (``quiet``). searchlab runs a study with as many seeds and writes its logs. The tools run in turn, each in its
own process. Imports and a short first run are not timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from searchlab.errors import SearchlabError
from searchlab.log.format import Header, Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import ProductSpace
from searchlab.tables.info import TableInfo

SIDES = ("searchlab", "kernel_tuner")
STRATEGIES = {"random": ("random", "random_sample"), "genetic": ("evolutionary", "genetic_algorithm")}
FIRST = 20  # the number of trials in the untimed first run


def write_synthetic_table(path: Path, workload: str = "gemm:32x32x32") -> None:
    """Write a table whose times depend smoothly on the configs' choices. By default, it has 5,040 configs."""
    from searchlab.space import SPACES
    from searchlab.target import resolve_target
    from searchlab.workload import parse_workload

    plugin, target = Plugin("knob-template"), resolve_target({"kind": "llvm"})
    space = SPACES.make(plugin, parse_workload(workload), target)
    header = Header(
        workload=str(space.workload),
        space=plugin,
        fingerprint=space.fingerprint,
        policy=Plugin("grid"),
        seed=0,
        batch=1,
        target=target.to_json(),
        measure={},
        space_size=space.size(),
    )
    writer = LogWriter(path, header, durable=False)
    for index, config in enumerate(space.enumerate()):
        factors = [factor for value in config.values() if isinstance(value, tuple) for factor in value]
        seconds = 1e-6 * (10 + sum(abs(factor - 8) for factor in factors) + index % 7)
        measured = Measurement((seconds, seconds * 1.01, seconds * 1.02), build_seconds=0.1, run_seconds=0.05)
        writer.append(Record.from_trial(Trial(index, config, measured)))
    writer.close()


# --- one side, in its own process ---------------------------------------------------------------------


def run_searchlab(table: Path, strategy: str, runs: int, trials: int, folder: Path) -> int:
    """Run a study and return the number of trials."""
    from searchlab.run.study import Study

    header = read_log(table).header
    study = Study.from_dict(
        {
            "workloads": [header.workload],
            "spaces": [{"name": header.space.name, "options": header.space.options}],
            "policies": [STRATEGIES[strategy][0]],
            "seeds": runs,
            "trials": trials,
            "measure": {"kind": "table", "path": str(table)},
        }
    )
    with tempfile.TemporaryDirectory(dir=folder) as out:
        return sum(len(result.log.records) for result in study.run(out))


def run_kernel_tuner(table: Path, strategy: str, runs: int, trials: int, folder: Path) -> int:
    import random

    import kernel_tuner
    import numpy as np

    cache = folder / "cache.json"
    params = json.loads(cache.read_text())["tune_params"]
    trials_made = 0
    for seed in range(runs):
        random.seed(seed)
        np.random.seed(seed)
        results, _ = kernel_tuner.tune_kernel(
            "replayed",
            "",
            1,
            [],
            params,
            strategy=STRATEGIES[strategy][1],
            strategy_options={"max_fevals": trials},
            lang="C",
            cache=str(cache),
            simulation_mode=True,
            quiet=True,
        )
        trials_made += len({tuple(result[name] for name in params) for result in results})
    return trials_made


def write_cache(table: Path, cache: Path) -> None:
    """Write the table as kernel_tuner's cache file. Raises SearchlabError if it does not support the space."""
    from searchlab.log.result import load_log

    result = load_log(table)
    space = result.space
    if not (
        TableInfo(result.log).is_exhaustive and isinstance(space, ProductSpace) and space.size() == space.range_length
    ):
        raise SearchlabError(f"{table} must contain all configs of a space whose knobs do not depend on each other")
    names = [knob.name for knob in space.axes]
    entries = {}
    for choice, trial in zip(space.indices([t.config for t in result.trials]).tolist(), result.trials, strict=True):
        m = trial.measurement
        entries[",".join(map(str, choice))] = {
            **dict(zip(names, choice, strict=True)),
            "time": trial.cost * 1e3 if m.failure is None else "RuntimeFailedConfig",
            "times": [second * 1e3 for second in m.seconds],
            "compile_time": m.build_seconds * 1e3,
            "verification_time": 0.0,
            "benchmark_time": m.run_seconds * 1e3,
            "strategy_time": 0.0,
            "framework_time": 0.0,
        }
    content = {
        "device_name": "recorded",
        "kernel_name": "replayed",
        "problem_size": 1,
        "tune_params_keys": names,
        "tune_params": {knob.name: list(range(len(knob.choices))) for knob in space.axes},
        "objective": "time",
        "cache": entries,
    }
    cache.write_text(json.dumps(content))


def work(side: str, table: Path, runs: int, trials: int, folder: Path) -> dict[str, float]:
    """Return one side's trials per second by strategy."""
    run = {"searchlab": run_searchlab, "kernel_tuner": run_kernel_tuner}[side]
    speeds = {}
    for strategy in STRATEGIES:
        run(table, strategy, 1, FIRST, folder)
        start = time.perf_counter()
        count = run(table, strategy, runs, trials, folder)
        speeds[strategy] = count / (time.perf_counter() - start)
    return speeds


# --- both sides in turn -------------------------------------------------------------------------------


def compare(table: Path, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    write_cache(table, folder / "cache.json")
    speeds: dict[tuple[str, str], list[float]] = {(side, strategy): [] for strategy in STRATEGIES for side in SIDES}
    for _ in range(args.rounds):
        for side in SIDES:
            words = [
                "--worker",
                side,
                "--folder",
                folder,
                "--table",
                table,
                "--runs",
                args.runs,
                "--trials",
                args.trials,
            ]
            process = subprocess.run(
                [sys.executable, __file__, *map(str, words)], stdout=subprocess.PIPE, text=True, check=True
            )
            for strategy, speed in json.loads(process.stdout.splitlines()[-1]).items():
                speeds[side, strategy].append(speed)
    return [
        {
            "strategy": strategy,
            **{side: statistics.median(speeds[side, strategy]) for side in SIDES},
            "range": {side: [min(speeds[side, strategy]), max(speeds[side, strategy])] for side in SIDES},
        }
        for strategy in STRATEGIES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, metavar="FILE", help="exhaustive table (default: a synthetic one)")
    parser.add_argument("--runs", type=int, default=50, help="number of runs of each strategy (50)")
    parser.add_argument("--trials", type=int, default=200, help="number of distinct configs per run (200)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of rounds in which the tools are timed in turn (5)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker, args.table, args.runs, args.trials, args.folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = args.table or folder / "table.jsonl"
        if not args.table:
            write_synthetic_table(table)
        rows = compare(table, args, folder)
        print(f"{args.runs} runs of {args.trials} trials on {len(read_log(table).records):,} configs, in trials/s")
    print(f"{'':10}{'searchlab':>12}{'kernel_tuner':>14}{'ratio':>8}")
    for row in rows:
        ratio = row["searchlab"] / row["kernel_tuner"]
        print(f"{row['strategy']:10}{row['searchlab']:12,.0f}{row['kernel_tuner']:14,.0f}{ratio:8.1f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
