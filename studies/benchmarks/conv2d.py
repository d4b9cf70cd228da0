"""Compares the best guided-conv2d program of a short search with oneDNN, called by PyTorch.

    python studies/benchmarks/conv2d.py [WORKLOAD ...] [--threads 2] [--trials 32] [--json FILE]

The default is every distinct convolution of ResNet-50 v1.5, at batch 1 and on all cores. Both sides get NCHW images
and OIHW weights and return NCHW, so any change of layout is part of their time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from timing import arguments, build, common_options, compare, in_process, keep, resnet50, search, summary

from searchlab.errors import SearchlabError
from searchlab.machine.host import available_cores
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Conv2d, parse_workload

SPACE = "guided-conv2d"


def against_onednn(workload: Conv2d, target: Target, config: Config, rounds: int) -> dict[str, Any]:
    """Compares the program of ``config`` with torch.nn.functional.conv2d (and ReLU, if any) on the same memory."""
    import torch

    torch.set_num_threads(target.cores)
    program, args = build(SPACE, workload, target, config)["main"], arguments(workload, target)
    data, weight, *bias = (torch.from_dlpack(argument) for argument in args[:-1])

    def onednn() -> torch.Tensor:
        geometry = (workload.stride, workload.padding, workload.dilation)
        result = torch.nn.functional.conv2d(data, weight, bias[0] if bias else None, *geometry)
        return result.relu_() if workload.relu else result

    with torch.inference_mode():
        compared = compare([lambda: program(*args), onednn], rounds)
        theirs = onednn().numpy()
    rtol, atol = workload.tolerance()
    expected = workload.reference(workload.inputs())
    for result in (args[-1].numpy(), theirs):
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
    return {
        "ours_gflops": workload.flops / compared.pop("ours_seconds") / 1e9,
        "onednn_gflops": workload.flops / compared.pop("theirs_seconds") / 1e9,
        **compared,
    }


def worker(task: dict[str, Any]) -> dict[str, Any]:
    """The work of a separate process: the search; or, if ``task`` has a ``config``, the comparison."""
    workload = parse_workload(task["workload"])
    target = resolve_target({"kind": "native", "num-cores": task["threads"]})
    if "config" in task:
        assert isinstance(workload, Conv2d)
        return against_onednn(workload, target, Config(task["config"]), task["rounds"])
    return search(SPACE, workload, target, task["trials"], task["seed"]).to_json()


def row(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    task = {"workload": name, "threads": threads}
    config = in_process(__file__, {**task, "trials": options.trials, "seed": options.seed})
    compared = in_process(__file__, {**task, "config": config, "rounds": options.rounds})
    return {**task, "config": config, **compared}


def main(argv: Sequence[str] | None = None) -> None:
    parser = common_options(__doc__)
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help="conv2d:... or resnet50/conv... (all of ResNet-50)"
    )
    parser.add_argument("--threads", nargs="+", type=int, default=[available_cores()], metavar="N")
    options = parser.parse_args(argv)
    if options.worker:
        print(json.dumps(worker(json.loads(options.worker))))
        return
    if importlib.util.find_spec("torch") is None:
        sys.exit("this benchmark uses oneDNN from PyTorch: pip install 'searchlab[peers]'")
    try:
        workloads = {name: parse_workload(name) for name in options.workloads or resnet50("conv")}
    except SearchlabError as error:
        sys.exit(str(error))
    print(f"{'workload':24} threads   ours oneDNN GFLOPS  ratio (quartiles)      of least times  config")
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        for name in workloads:
            r = row(name, threads, options)
            rows = keep(options.json, [*rows, r])
            low, high = r["ratio_quartiles"]
            lowering, *tile = r["config"].values()
            print(
                f"{name:24} {threads:7} {r['ours_gflops']:6.0f} {r['onednn_gflops']:6.0f}         {r['ratio']:.3f} "
                f"({low:.3f}..{high:.3f})  {r['ratio_of_least']:14.3f}  {lowering} {'x'.join(map(str, tile))}",
                flush=True,
            )
    for threads in options.threads:
        print(summary([r for r in rows if r["threads"] == threads]))


if __name__ == "__main__":
    main()
