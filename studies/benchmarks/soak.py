"""Kills runs at random moments, hundreds of times, and counts the losses.

    python studies/benchmarks/soak.py [--kills 300] [--table FILE] [--policies P ...]

Each run replays a table in a process of its own. When its log has grown by a random number of bytes, the process is
killed by SIGKILL, SIGTERM or SIGINT, and started again, until the run has all its trials. After every kill, the log
must begin with all complete records that it had before. At the end it must equal, except for times, the log of a run
that was never killed. The exit status is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import searchlab
from searchlab.log.format import read_header

TABLE = Path(__file__).parent.parent / "tables" / "gemm-knob-template.jsonl.gz"
CLOCKS = {"propose_seconds", "train_seconds", "predict_seconds", "time", "created"}
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def run(policy: str, table: Path, log: Path, trials: int) -> None:
    """One run, in this process."""
    header = read_header(table)
    searchlab.tune(
        header.workload, space={"name": header.space.name, "options": header.space.options}, policy=policy, log=log,
        trials=trials, measure={"kind": "table", "path": str(table)},
    )  # fmt: skip


def start(policy: str, table: Path, log: Path, trials: int) -> int:
    """One run in a fork of this process, which has all imports already; gives the process number of the fork."""
    if pid := os.fork():
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        run(policy, table, log, trials)
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)


def kill_at(pid: int, log: Path, size: int, how: signal.Signals) -> bool:
    """Send the signal once the log has ``size`` bytes. Gives False if the run ended before."""
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if log.exists() and log.stat().st_size >= size:
            os.kill(pid, how)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.0005)
    return False


def decided(log: Path) -> list[Any]:
    """The log without its times."""
    return [
        json.loads(line, object_hook=lambda fields: {k: v for k, v in fields.items() if k not in CLOCKS})
        for line in log.read_text().splitlines()
    ]


def whole(log: Path) -> bytes:
    data = log.read_bytes() if log.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="how many runs to kill (300)")
    parser.add_argument("--table", type=Path, default=TABLE, metavar="FILE")
    parser.add_argument("--policies", nargs="+", default=["random", "evolutionary", "annealing", "xgb"], metavar="P")
    parser.add_argument("--trials", type=int, default=400, help="the number of trials of each run (400)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the random moments (0)")
    options = parser.parse_args(argv)
    moments = random.Random(options.seed)
    kills: Counter[str] = Counter()
    runs = lost = 0
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for policy in options.policies:  # this also does all imports, before anything forks
            path = Path(folder, f"{policy}.jsonl")
            run(policy, options.table, path, options.trials)
            expected[policy] = decided(path)
        while kills.total() < options.kills:
            policy = options.policies[runs % len(options.policies)]
            log = Path(folder, f"killed{runs}.jsonl")
            step = Path(folder, f"{policy}.jsonl").stat().st_size // 6
            runs += 1
            killed, kept = True, b""
            while killed:
                how = moments.choice(SIGNALS)
                pid = start(policy, options.table, log, options.trials)
                killed = kill_at(pid, log, len(kept) + moments.randrange(step), how)
                kills[how.name] += killed
                now = whole(log)
                lost += not now.startswith(kept)
                kept = now
            same = decided(log) == expected[policy]
            lost += not same
            print(f"\r{kills.total()} kills in {runs} runs, {lost} losses", end="", flush=True)
    print(f"\n{', '.join(f'{name} {count}' for name, count in sorted(kills.items()))}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
