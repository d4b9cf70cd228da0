"""How the best guided-gemm program of a short search compares with numpy's BLAS.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--threads 1 2] [--trials 32] [--json FILE]

Both libraries read their thread count from the environment when they are loaded, so each row of the table is
made in processes of its own. BLAS chooses its kernels by the CPU: any OPENBLAS_* or MKL_* setting that would make
it choose others (OPENBLAS_CORETYPE, say) is dropped, and the kernels it chose are shown.
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

from searchlab.space import Config
from searchlab.target import Target, available_cores, resolve_target
from searchlab.workload import Workload, parse_workload

if TYPE_CHECKING:
    import tvm

WORKLOADS = ("gemm:512x512x512", "gemm:1024x1024x1024", "gemm:1000x1003x997")
SLICE = 0.05  # seconds one side runs for in one round
REST = 0.1  # seconds between sides: longer than the worker threads of either go on spinning


def build(workload: Workload, target: Target, config: Config) -> tvm.runtime.Module:
    """The guided-gemm program of ``config``, compiled and loaded."""
    import tvm

    from searchlab_spaces.guided_gemm import GuidedGemm

    return tvm.compile(GuidedGemm(workload, target).schedule(config).mod, target=target.tvm).jit()


def arguments(workload: Workload) -> list[tvm.runtime.Tensor]:
    """The workload's operands, and a result to write to."""
    import tvm

    result = np.zeros(list(workload.shapes.values())[-1], workload.out_dtype)
    return [tvm.runtime.tensor(array) for array in [*workload.inputs().values(), result]]


def search(workload: Workload, target: Target, trials: int, seed: int) -> Config:
    """The fastest of the first ``trials`` that the xgb policy makes in the guided-gemm space."""
    import tvm

    import searchlab

    with tempfile.TemporaryDirectory() as folder:
        result = searchlab.tune(
            workload, space="guided-gemm", policy="xgb", trials=trials, seed=seed, target=target,
            measure={"kind": "local", "repeat": 5, "min_repeat_ms": 20}, log=Path(folder, "log.jsonl"),
        )  # fmt: skip
    front = [trial.config for trial in sorted(result.trials, key=lambda trial: trial.cost)[:8]]
    args = arguments(workload)
    timers = [
        build(workload, target, config).time_evaluator("main", tvm.cpu(), repeat=5, min_repeat_ms=20)
        for config in front
    ]
    # The clock drifts by more than what tells these apart: they are timed again, in turn.
    again = np.median([[np.median(timer(*args).results) for timer in timers] for _ in range(5)], axis=0)
    return front[int(np.argmin(again))]


def median_seconds(run: Callable[[], object]) -> float:
    """Median time of one call, after a rest and a warm-up that wakes the worker threads."""
    time.sleep(REST)
    warm = time.perf_counter() + SLICE / 2
    while time.perf_counter() < warm:
        run()
    times: list[float] = []
    while sum(times) < SLICE:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare(workload: Workload, target: Target, config: Config, rounds: int) -> dict[str, Any]:
    """Both sides in turn, ``rounds`` times, the first side changing; the ratio is taken within each round."""
    from threadpoolctl import threadpool_info

    program, args = build(workload, target, config)["main"], arguments(workload)
    a, b = np.from_dlpack(args[0]), np.from_dlpack(args[1])  # the same memory for both
    result = np.empty(list(workload.shapes.values())[-1], workload.out_dtype)
    sides: list[Callable[[], object]] = [lambda: program(*args), lambda: np.matmul(a, b, out=result)]
    pairs = []
    for i in range(rounds):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        measured = {side: median_seconds(sides[side]) for side in order}
        pairs.append((measured[0], measured[1]))
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(args[-1].numpy(), workload.reference(workload.inputs()), rtol=rtol, atol=atol)
    ours, blas = np.array(pairs).T
    low, ratio, high = np.percentile(blas / ours, [25, 50, 75])
    return {
        "ours_gflops": workload.flops / float(np.median(ours)) / 1e9,
        "blas_gflops": workload.flops / float(np.median(blas)) / 1e9,
        "ratio": float(ratio),
        "ratio_quartiles": [float(low), float(high)],
        "blas_kernels": next(info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"),
    }


def worker(task: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own does: the search, or else the comparison of the ``config`` that was found."""
    workload = parse_workload(task["workload"])
    target = resolve_target({"kind": "native", "num-cores": task["threads"]})
    if "config" in task:
        return compare(workload, target, Config(task["config"]), task["rounds"])
    return search(workload, target, task["trials"], task["seed"]).to_json()


def in_process(task: dict[str, Any]) -> dict[str, Any]:
    """``worker(task)`` in a new process, with that many threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "MKL_"))}
    names = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    run = subprocess.run(
        [sys.executable, __file__, "--worker", json.dumps(task)],
        env={**kept, **dict.fromkeys(names, str(task["threads"]))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def row(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    task = {"workload": name, "threads": threads}
    config = in_process({**task, "trials": options.trials, "seed": options.seed})
    return {**task, **config, **in_process({**task, "config": config, "rounds": options.rounds})}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, metavar="WORKLOAD", help="gemm:MxNxK[:float64]")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, available_cores()}), metavar="N")
    parser.add_argument("--trials", type=int, default=32, help="programs the search may build and time (32)")
    parser.add_argument("--rounds", type=int, default=21, help="times both sides are run in turn (21)")
    parser.add_argument("--seed", type=int, default=0, help="of the search (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        print(json.dumps(worker(json.loads(options.worker))))
        return
    print(f"{'workload':24} threads  mr  nr   ours   BLAS GFLOPS  ratio (quartiles)     BLAS kernels")
    rows = []
    for threads in options.threads:
        for name in options.workloads:
            r = row(name, threads, options)
            rows.append(r)
            low, high = r["ratio_quartiles"]
            print(
                f"{name:24} {threads:7} {r['mr']:3} {r['nr']:3} {r['ours_gflops']:6.0f} {r['blas_gflops']:6.0f}"
                f"         {r['ratio']:.3f} ({low:.3f}..{high:.3f})  {r['blas_kernels']}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
