"""Measures how fast searchlab is in comparison with other work on the same machine. Only the ratios mean anything.

    python studies/benchmarks/speed.py [--candidates 64] [--runs 50] [--table W] [--logs 2000] [--json FILE]

| row | compared with |
|---|---|
| building and timing candidates, including starting the processes | the same with MetaSchedule |
| runs of ``evolutionary`` over a table, including their logs | the policy's proposals alone |
| opening a table | decoding its log with Python's ``json`` |
| a report, in a new process | decoding its logs with Python's ``json`` |
| ``searchlab --help`` | ``python -c "import typer"`` |

Each ratio is the other side's seconds divided by searchlab's: larger is better. Both sides of a row are timed in turn,
``--rounds`` times, and the fastest time of each counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import replay
import reports
import throughput

from searchlab.log.budget import Budget
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.machine.host import available_cores
from searchlab.measure.settings import TableSettings
from searchlab.plugins import Plugin
from searchlab.run.plan import Run
from searchlab.run.strategy import SpaceChoice, Strategy
from searchlab.space import SPACES
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

Sides = tuple[Callable[[], object], Callable[[], object]]


def candidates(count: int) -> Sides:
    cores = available_cores()
    space = SPACES.make(Plugin("sketch"), parse_workload("gemm:512x512x512"), resolve_target("native"))
    configs = throughput.sample_different(space, count, 0)
    return (
        lambda: throughput.searchlab_side(throughput.EQUAL, space, configs, 16, cores),
        lambda: throughput.metaschedule(space, configs, 16, cores),
    )


def replays(table: Path, runs: int, trials: int, folder: Path) -> Sides:
    result = load_log(table)
    recorded = {trial.config: trial for trial in result.trials}

    def propose() -> None:
        for seed in range(runs):
            strategy = Strategy.from_specs("evolutionary")
            run = Run(
                SpaceChoice(result.space, Plugin("x")), strategy, seed, 8, Budget(trials), TableSettings("x"), table
            )
            policy, _ = run.start()
            for _ in range(trials // 8):
                policy.tell([recorded[config] for config in policy.ask(8)])

    return lambda: replay.run_searchlab(table, "genetic", runs, trials, folder), propose


def decode(paths: Sequence[Path]) -> Callable[[], object]:
    return lambda: [json.loads(line) for path in paths for line in path.open()]


def opening(table: Path) -> Sides:
    space = load_log(table).space
    return lambda: TableSettings(str(table)).make(space.target, {}).all_costs(space), decode([table])


def report(logs: int, trials: int, folder: Path) -> Sides:
    reports.make_logs(folder, logs, trials)
    paths = sorted(folder.rglob("*.jsonl"))

    def write() -> None:
        for path in folder.rglob("log-cache.npz"):
            path.unlink()
        run_python("-c", reports.REPORT, str(folder))

    return write, decode(paths)


def run_python(*words: str) -> None:
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def candidates_of(options: argparse.Namespace, folder: Path) -> tuple[str, Sides]:
    return f"{options.candidates} candidates", candidates(options.candidates)


def replays_of(options: argparse.Namespace, folder: Path) -> tuple[str, Sides]:
    replay.write_synthetic_table(folder / "small.jsonl")
    return f"{options.runs} runs over a table", replays(folder / "small.jsonl", options.runs, options.trials, folder)


def opening_of(options: argparse.Namespace, folder: Path) -> tuple[str, Sides]:
    replay.write_synthetic_table(folder / "large.jsonl", options.table)
    count = len(read_log(folder / "large.jsonl").records)
    return f"opening a table of {count:,} configs", opening(folder / "large.jsonl")


def report_of(options: argparse.Namespace, folder: Path) -> tuple[str, Sides]:
    return f"a report on {options.logs} logs", report(options.logs, options.trials, folder / "logs")


def help_of(options: argparse.Namespace, folder: Path) -> tuple[str, Sides]:
    own_words, other_words = ("-m", "searchlab", "--help"), ("-c", "import typer")
    return "searchlab --help", (lambda: run_python(*own_words), lambda: run_python(*other_words))


ROWS = {
    "candidates": candidates_of,
    "replay": replays_of,
    "table": opening_of,
    "report": report_of,
    "help": help_of,
}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=[*ROWS], metavar="ROW", help=f"{', '.join(ROWS)}")
    parser.add_argument("--candidates", type=int, default=64, help="number of programs to build and time (64)")
    parser.add_argument("--runs", type=int, default=50, help="number of runs over a table of 5,040 configs (50)")
    parser.add_argument("--trials", type=int, default=200, help="number of trials per run and log (200)")
    parser.add_argument("--table", default="gemm:96x64x64", metavar="W", help="workload of the table to open")
    parser.add_argument("--logs", type=int, default=2000, help="number of logs in the report (2000)")
    parser.add_argument("--rounds", type=int, default=3, help="number of times that both sides are timed (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the ratios are also written")
    options = parser.parse_args(argv)
    os.environ["TVM_NUM_THREADS"] = str(available_cores())
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        for row in options.rows:
            name, sides = ROWS[row](options, Path(folder))
            times = [[seconds(side) for side in sides] for _ in range(options.rounds)]
            own_seconds, other_seconds = (min(side) for side in zip(*times, strict=True))
            ratios[name] = other_seconds / own_seconds
            print(f"{name:40} {ratios[name]:8.3g}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(ratios, indent=1) + "\n")


if __name__ == "__main__":
    main()
