"""How the best guided-gemm program of a short search compares with numpy's BLAS.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--threads 1 2] [--trials 32] [--json FILE]

BLAS chooses its kernels by the CPU: any OPENBLAS_* or MKL_* setting that would make it choose others
(OPENBLAS_CORETYPE, say) is dropped, and the kernels it chose are shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from timing import arguments, build, common_options, compare, in_process, search

from searchlab.space import Config
from searchlab.target import Target, available_cores, resolve_target
from searchlab.workload import Workload, parse_workload

WORKLOADS = ("gemm:512x512x512", "gemm:1024x1024x1024", "gemm:1000x1003x997")
SPACE = "guided-gemm"


def against_blas(workload: Workload, target: Target, config: Config, rounds: int) -> dict[str, Any]:
    """The program of ``config`` and numpy's matmul, on the same memory."""
    from threadpoolctl import threadpool_info

    program, args = build(SPACE, workload, target, config)["main"], arguments(workload)
    a, b = np.from_dlpack(args[0]), np.from_dlpack(args[1])
    result = np.empty(list(workload.shapes.values())[-1], workload.out_dtype)
    found = compare([lambda: program(*args), lambda: np.matmul(a, b, out=result)], rounds)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(args[-1].numpy(), workload.reference(workload.inputs()), rtol=rtol, atol=atol)
    return {
        "ours_gflops": workload.flops / found.pop("ours_seconds") / 1e9,
        "blas_gflops": workload.flops / found.pop("theirs_seconds") / 1e9,
        **found,
        "blas_kernels": next(info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"),
    }


def worker(task: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own does: the search, or else the comparison of the ``config`` that was found."""
    workload = parse_workload(task["workload"])
    target = resolve_target({"kind": "native", "num-cores": task["threads"]})
    if "config" in task:
        return against_blas(workload, target, Config(task["config"]), task["rounds"])
    return search(SPACE, workload, target, task["trials"], task["seed"]).to_json()


def row(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    task = {"workload": name, "threads": threads}
    config = in_process(__file__, {**task, "trials": options.trials, "seed": options.seed})
    return {**task, **config, **in_process(__file__, {**task, "config": config, "rounds": options.rounds})}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common_options(__doc__)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, metavar="WORKLOAD", help="gemm:MxNxK[:float64]")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, available_cores()}), metavar="N")
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
