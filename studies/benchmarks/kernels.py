"""Compares the best guided-gemm program of a short search with numpy's BLAS.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--threads 1 2] [--trials 32] [--json FILE]

The default is three nearly square GEMMs, and every distinct GEMM that im2row makes of a convolution of ResNet-50 v1.5
at batch 1 (output pixels x output channels x products). The fully connected layer is left out: at batch 1 it is a
product of a matrix and a vector. A is read in place; the search chooses the micro-tile and whether B is packed. FILE
keeps its other rows, so a table can be made in several runs; rows of the same workload and threads are replaced.

BLAS chooses its kernels by the CPU: any OPENBLAS_* or MKL_* setting that changes the choice (for example
OPENBLAS_CORETYPE) is dropped, and the chosen kernels are shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from timing import arguments, build, common_options, compare, in_process, keep, resnet50, search, summary

from searchlab.machine.host import available_cores
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Workload, parse_workload

WORKLOADS = ("gemm:512x512x512", "gemm:1024x1024x1024", "gemm:1000x1003x997")
SPACE = {"name": "guided-gemm", "options": {"pack_a": False, "pack_b": "knob"}}


def against_blas(workload: Workload, target: Target, config: Config, rounds: int) -> dict[str, Any]:
    """Compares the program of ``config`` with numpy's matmul, on the same memory."""
    from threadpoolctl import threadpool_info

    program, args = build(SPACE, workload, target, config)["main"], arguments(workload, target)
    a, b = np.from_dlpack(args[0]), np.from_dlpack(args[1])
    result = np.empty(list(workload.shapes.values())[-1], workload.out_dtype)
    compared = compare([lambda: program(*args), lambda: np.matmul(a, b, out=result)], rounds)
    rtol, atol = workload.tolerance()
    np.testing.assert_allclose(args[-1].numpy(), workload.reference(workload.inputs()), rtol=rtol, atol=atol)
    return {
        "ours_gflops": workload.flops / compared.pop("ours_seconds") / 1e9,
        "blas_gflops": workload.flops / compared.pop("theirs_seconds") / 1e9,
        **compared,
        "blas_kernels": next(info.get("architecture") for info in threadpool_info() if info["user_api"] == "blas"),
    }


def worker(task: dict[str, Any]) -> dict[str, Any]:
    """The work of a separate process: the search; or, if ``task`` has a ``config``, the comparison."""
    workload = parse_workload(task["workload"])
    target = resolve_target({"kind": "native", "num-cores": task["threads"]})
    if "config" in task:
        return against_blas(workload, target, Config(task["config"]), task["rounds"])
    return search(SPACE, workload, target, task["trials"], task["seed"]).to_json()


def row(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    task = {"workload": name, "threads": threads}
    config = in_process(__file__, {**task, "trials": options.trials, "seed": options.seed})
    compared = in_process(__file__, {**task, "config": config, "rounds": options.rounds})
    return {**task, "gemm": str(parse_workload(name)), **config, **compared}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common_options(__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="gemm:MxNxK[:float64] or resnet50/gemm...")
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, available_cores()}), metavar="N")
    options = parser.parse_args(argv)
    if options.worker:
        print(json.dumps(worker(json.loads(options.worker))))
        return
    print(f"{'workload':20} {'gemm':22} threads  mr  nr packed   ours   BLAS GFLOPS  ratio (quartiles)     kernels")
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        for name in options.workloads or [*WORKLOADS, *resnet50("gemm")]:
            r = row(name, threads, options)
            rows = keep(options.json, [*rows, r])
            low, high = r["ratio_quartiles"]
            packed = "B" if r["pack_b"] else "-"
            print(
                f"{name:20} {r['gemm']:22} {threads:7} {r['mr']:3} {r['nr']:3} {packed:6} {r['ours_gflops']:6.0f} "
                f"{r['blas_gflops']:6.0f}         {r['ratio']:.3f} ({low:.3f}..{high:.3f})  {r['blas_kernels']}",
                flush=True,
            )
    for threads in options.threads:
        for of in ("gemm:", "resnet50/"):
            if some := [r for r in rows if r["threads"] == threads and r["workload"].startswith(of)]:
                print(summary(some))


if __name__ == "__main__":
    main()
