"""How the best guided-gemm program of a short search compares with numpy's BLAS.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--threads 1 2] [--trials 32] [--json FILE]

By default on three squarish GEMMs and on every distinct GEMM that im2row makes of a convolution of ResNet-50 v1.5 at
batch 1 (output pixels x output channels x products); its fully connected layer is there a product of a matrix and a
vector. A is read in place; what is searched is the micro-tile and whether B is packed. Rows that FILE has already are
kept, but for those of the same workload and threads: a table can be made in several runs.

BLAS chooses its kernels by the CPU: any OPENBLAS_* or MKL_* setting that would make it choose others
(OPENBLAS_CORETYPE, say) is dropped, and the kernels it chose are shown.
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
    """The program of ``config`` and numpy's matmul, on the same memory."""
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
