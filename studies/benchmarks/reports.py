"""Measures the time and peak memory that reports need for a given number of logs, without and with a cache.

    python studies/benchmarks/reports.py [--logs 1000 5000 13000] [--trials 200] [--dir DIR] [--json FILE]

The logs are synthetic, based on the tables of suite v1: 36 workloads, 12 strategies, and as many seeds as necessary.
Strategies share their first trials with random search and then favour the table's faster configs; half of them log a
cost model's quality. Three reports are written, each in a new process: without a cache, with the first report's cache,
and after one log in a hundred has changed. Finally, the data frame of all trials is loaded from the cache. Memory is
the combined peak resident memory of the process and its children.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from searchlab.costmodel.quality import ModelQuality
from searchlab.log.format import Header, Log, Record
from searchlab.log.read import read_log
from searchlab.measure.contract import SpaceCosts
from searchlab.plugins import Plugin
from searchlab.run.loop import summarize_random_draws
from searchlab.stats.random_search import RandomDraws

TABLES = Path(__file__).parent.parent / "suite" / "v1" / "tables"
STRATEGIES = 12
BATCH, START = 8, 16


def make_logs(out: Path, logs: int, trials: int) -> int:
    """Write at least ``logs`` logs of synthetic runs over all tables if there are enough, and return their number."""
    paths = sorted(TABLES.glob("*.parquet"))[: math.ceil(logs / STRATEGIES)]
    seeds = math.ceil(logs / len(paths) / STRATEGIES)
    for path in paths:
        table = read_log(path)
        draws = summarize_random_draws(SpaceCosts(table.costs, np.ones(len(table.costs))), trials)
        for strategy in range(STRATEGIES):
            for seed in range(seeds):
                file = out / table.path.name.removesuffix(".parquet") / f"s{strategy:02}" / f"seed{seed}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                lines = [run_header(table, path, strategy, seed, draws), *make_records(table, strategy, seed, trials)]
                file.write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return len(paths) * STRATEGIES * seeds


def run_header(table: Log, path: Path, strategy: int, seed: int, draws: RandomDraws | None) -> Header:
    model = Plugin("xgboost") if strategy % 2 else None
    return msgspec.structs.replace(
        table.header,
        policy=Plugin("random" if strategy == 0 else "evolutionary"),
        cost_model=model,
        seed=seed,
        batch=BATCH,
        label=f"strategy {strategy}" if strategy else "random",
        passes=None,
        host={},
        machine={},
        measure={"kind": "table", "name": f"v1/{path.name.removesuffix('.parquet')}", "digest": "made up"},
        optimum=float(table.costs.min()),
        random_draws=draws,
    )


def make_records(table: Log, strategy: int, seed: int, trials: int) -> Iterator[Record]:
    """Return a run's records. The first trials depend only on the seed, and later ones are faster."""
    start, rng = np.random.default_rng(seed), np.random.default_rng((seed, strategy))
    number = len(table.records)
    first = start.permutation(number)[: trials if strategy == 0 else START]
    ranks = (number * rng.random(4 * trials) ** (1 + strategy)).astype(np.int64)
    indices = np.concatenate((first, np.argsort(table.costs, kind="stable")[ranks]))
    _, first_uses = np.unique(indices, return_index=True)
    selected = indices[np.sort(first_uses)][:trials].tolist()
    for index, table_index in enumerate(selected):
        batch = index // BATCH
        quality = None
        if strategy % 2 and index % BATCH == BATCH - 1:
            quality = ModelQuality(
                trial_count=BATCH,
                k=3,
                pairwise_accuracy=round(rng.random(), 4),
                kendall_tau=round(rng.random(), 4),
                top_k_recall=round(rng.random(), 4),
                peak_score=round(rng.random(), 4),
                rmse=round(rng.random(), 4),
            )
        yield msgspec.structs.replace(
            table.records[table_index],
            index=index,
            batch_number=None,
            measured_at=(),
            propose_seconds=round(1e-4 + 1e-6 * batch, 7),
            train_seconds=round(1e-4 * (strategy % 2), 7),
            recorded_at=1.8e9 + index,
            model_quality=quality,
        )


def time_command(*words: str) -> dict[str, float]:
    """Return the wall and CPU seconds and the peak memory, in MB, of a Python process and its children."""
    start = time.perf_counter()
    before = os.times()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        try:
            parent = psutil.Process(process.pid)
            memory = [part.memory_info().rss for part in (parent, *parent.children(recursive=True))]
            peak = max(peak, sum(memory) / 1e6)
        except psutil.Error:
            pass
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    now = os.times()
    cpu = now.children_user + now.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - start, "cpu": cpu, "MB": peak}


REPORT = "import sys; from searchlab.analysis import report; report(sys.argv[1])"
FRAME = "import sys; import searchlab; searchlab.compare(sys.argv[1]).trials_frame()"


def measure(folder: Path, logs: int, trials: int) -> list[dict[str, Any]]:
    """Return a row for each report on the given number of logs and for the data frame."""
    out = folder / "logs"
    number = make_logs(out, logs, trials)
    rows = []
    for label in ("first report", "second report", "report after changes", "frame of all trials"):
        if label == "report after changes":
            for path in sorted(out.rglob("*.jsonl"))[::100]:
                path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
        words = [FRAME, str(out)] if label == "frame of all trials" else [REPORT, str(out)]
        row = {"logs": number, "what": label, **time_command("-c", *words)}
        rows.append(row)
        print(
            f"{number:,} logs, {label}: {row['seconds']:.1f} s, {row['cpu']:.1f} s of the CPU, {row['MB']:.0f} MB",
            flush=True,
        )
    shutil.rmtree(out)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, nargs="+", default=[1000, 5000, 13000])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--dir", type=Path, help="directory in which to create the logs' directory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the figures are also written")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        rows = [row for logs in options.logs for row in measure(Path(folder), logs, options.trials)]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
