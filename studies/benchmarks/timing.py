"""What the benchmarks of this folder share: the search, timing two sides in turn, and a process for each row.

The libraries compared read their thread count from the environment when they are loaded, so each row of a table is
made in processes of its own, without any setting that would make them choose other kernels than the CPU's.
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
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from searchlab.log import Plugin
from searchlab.space import Config
from searchlab.target import Target
from searchlab.tuner import make_space
from searchlab.workload import Workload

if TYPE_CHECKING:
    import tvm

SLICE = 0.05  # seconds one side runs for in one round
REST = 0.1  # seconds between sides: longer than the worker threads of either go on spinning
BUSY = 10.0  # percent of the machine's time that others may take of a rest, or else it goes on
PATIENCE = 1.0  # seconds after which it ends even so

THREADS = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
FOREIGN = ("OPENBLAS_", "MKL_", "ONEDNN_", "DNNL_")
"""Prefixes of the settings that are dropped: OPENBLAS_CORETYPE, say."""


def common_options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark here has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32, help="programs the search may build and time (32)")
    parser.add_argument("--rounds", type=int, default=21, help="times both sides are run in turn (21)")
    parser.add_argument("--seed", type=int, default=0, help="of the search (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def build(space: str, workload: Workload, target: Target, config: Config) -> tvm.runtime.Module:
    """The program that ``space`` makes of ``config``, compiled and loaded."""
    import tvm

    schedule = make_space(Plugin(space), workload, target).schedule(config)
    return tvm.compile(schedule.mod, target=target.tvm).jit()


def arguments(workload: Workload) -> list[tvm.runtime.Tensor]:
    """The workload's operands, and a result to write to."""
    import tvm

    result = np.zeros(list(workload.shapes.values())[-1], workload.out_dtype)
    return [tvm.runtime.tensor(array) for array in [*workload.inputs().values(), result]]


def search(space: str, workload: Workload, target: Target, trials: int, seed: int) -> Config:
    """The fastest of the first ``trials`` that the xgb policy makes in ``space``."""
    import tvm

    import searchlab

    with tempfile.TemporaryDirectory() as folder:
        result = searchlab.tune(
            workload, space=space, policy="xgb", trials=trials, seed=seed, target=target,
            measure={"kind": "local", "repeat": 5, "min_repeat_ms": 20}, log=Path(folder, "log.jsonl"),
        )  # fmt: skip
    front = [trial.config for trial in sorted(result.trials, key=lambda trial: trial.cost)[:8]]
    args = arguments(workload)
    timers = [
        build(space, workload, target, config).time_evaluator("main", tvm.cpu(), repeat=5, min_repeat_ms=20)
        for config in front
    ]
    # The clock drifts by more than what tells these apart: they are timed again, in turn.
    again = np.median([[np.median(timer(*args).results) for timer in timers] for _ in range(15)], axis=0)
    return front[int(np.argmin(again))]


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Median and least time of one call, after a rest and a warm-up that wakes the worker threads."""
    rested = time.perf_counter() + PATIENCE
    while psutil.cpu_percent(REST) > BUSY and time.perf_counter() < rested:
        pass
    warm = time.perf_counter() + SLICE / 2
    while time.perf_counter() < warm:
        run()
    times: list[float] = []
    while sum(times) < SLICE:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), min(times)


def compare(sides: Sequence[Callable[[], object]], rounds: int) -> dict[str, Any]:
    """Ours and theirs in turn, ``rounds`` times, the first side changing: seconds, and the ratio within each round.

    The ratio of the least times is given too: on a machine that does other work it is the one that still means
    something, as a parallel loop waits for whichever of its threads was held up.
    """
    measured = []
    for i in range(rounds):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        both = {side: seconds(sides[side]) for side in order}
        measured.append((both[0], both[1]))
    (ours, ours_least), (theirs, theirs_least) = np.array(measured).transpose(1, 2, 0)
    low, ratio, high = np.percentile(theirs / ours, [25, 50, 75])
    return {
        "ours_seconds": float(np.median(ours)),
        "theirs_seconds": float(np.median(theirs)),
        "ratio": float(ratio),
        "ratio_quartiles": [float(low), float(high)],
        "ratio_of_least": float(theirs_least.min() / ours_least.min()),
    }


def in_process(script: str, task: dict[str, Any]) -> dict[str, Any]:
    """What ``script --worker task`` prints last, as JSON, in a new process with ``task["threads"]`` threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    run = subprocess.run(
        [sys.executable, script, "--worker", json.dumps(task)],
        env={**kept, **dict.fromkeys(THREADS, str(task["threads"]))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found
