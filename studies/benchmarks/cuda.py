"""Compares the best CUDA program of each family of spaces for a convolution with cuDNN, on one GPU.

    python studies/benchmarks/cuda.py [WORKLOAD ...] [--trials 64] [--json FILE]

The default is the convolution of AutoTVM's tutorial. PyTorch calls cuDNN: float32 without TF32, NCHW, its fastest
algorithm (``cudnn.benchmark``). All are timed by CUDA events, in turn. This needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from timing import arguments, build, common_options, search

from searchlab.errors import SearchlabError
from searchlab.machine.cuda import gpu_arch, gpu_name
from searchlab.measure.code import device_of
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import Conv2d, parse_workload

if TYPE_CHECKING:
    import torch

WORKLOADS = ("conv2d:1x7x7x512x512x3x3:p1",)
FAMILIES = ("knob-template", "sketch", "trace")
CUDNN = "cuDNN"

SLICE_MS = 20  # the least time that one side runs in a round

Side = Callable[[], float]
"""Milliseconds of one run, over one round."""


def tvm_side(space: str, workload: Conv2d, target: Target, config: Config) -> Side:
    """The program of ``config``; its result is first checked against numpy."""
    module, args = build(space, workload, target, config), arguments(workload, target)
    module["main"](*args)
    rtol, atol = workload.tolerance()
    check(space, workload, args[-1].numpy(), rtol, atol)
    timer = module.time_evaluator("main", device_of(target.kind), number=1, repeat=1, min_repeat_ms=SLICE_MS)
    return lambda: float(timer(*args).results[0]) * 1e3


def cudnn_side(workload: Conv2d) -> Side:
    """torch.nn.functional.conv2d (and ReLU, if any), on arrays of the same layout."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    data, weight, *bias = (torch.from_numpy(array).cuda() for array in workload.inputs().values())

    def run() -> torch.Tensor:
        geometry = (workload.stride, workload.padding, workload.dilation)
        result = torch.nn.functional.conv2d(data, weight, bias[0] if bias else None, *geometry)
        return result.relu_() if workload.relu else result

    def timed(number: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.inference_mode():
            start.record()
            for _ in range(number):
                run()
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / number

    with torch.inference_mode():
        first = run().cpu().numpy()  # cuDNN chooses its algorithm here
    # It may be Winograd's, whose rounding errors are larger (Lavin and Gray, CVPR 2016).
    check(CUDNN, workload, first, rtol=0, atol=1e-3 * float(np.abs(first).max()))
    number = 1
    while (taken := timed(number) * number) < SLICE_MS:
        number = max(2 * number, int(number * SLICE_MS / max(taken, 1e-3)) + 1)
    return lambda: timed(number)


def check(name: str, workload: Conv2d, result: np.ndarray[Any, Any], rtol: float, atol: float) -> None:
    """Raise AssertionError if ``result`` differs from numpy's."""
    expected = workload.reference(workload.inputs())
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol, err_msg=name)


def in_turn(sides: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    """The milliseconds of each side in each round; the first side of a round is the last of the next."""
    names = list(sides)
    times: dict[str, list[float]] = {name: [] for name in names}
    for side in sides.values():
        side()  # this brings up the clocks
    for _ in range(rounds):
        for name in names:
            times[name].append(sides[name]())
        names = names[1:] + names[:1]
    return times


def rows_of(name: str, target: Target, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each family, and one for cuDNN."""
    workload = parse_workload(name)
    assert isinstance(workload, Conv2d)
    configs = {space: search(space, workload, target, options.trials, options.seed) for space in FAMILIES}
    sides = {space: tvm_side(space, workload, target, config) for space, config in configs.items()}
    times = in_turn({**sides, CUDNN: cudnn_side(workload)}, options.rounds)
    rows = []
    for side, each in times.items():
        low, median, high = (float(value) for value in np.percentile(each, [25, 50, 75]))
        ratio = float(np.median(np.array(times[CUDNN]) / np.array(each)))
        config = configs[side].to_json() if side in configs else None
        row = {"workload": name, "side": side, "ms": median, "ms_quartiles": [low, high], "ratio": ratio}
        rows.append({**row, "gflops": workload.flops / median / 1e6, "config": config, "gpu": gpu_name()})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = common_options(__doc__, trials=64)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, metavar="WORKLOAD", help="conv2d:... in float32")
    options = parser.parse_args(argv)
    if gpu_arch() is None:
        sys.exit("no CUDA device was found; run this benchmark on a machine with an NVIDIA GPU")
    if importlib.util.find_spec("torch") is None or not _torch_has_cuda():
        sys.exit("this benchmark uses cuDNN from PyTorch: install a build of torch for CUDA")
    try:
        for name in options.workloads:
            if not isinstance(workload := parse_workload(name), Conv2d) or workload.dtype != "float32":
                raise SearchlabError(f"{name} is not a convolution in float32")
        target = resolve_target("cuda")
        print(f"{gpu_name()}, {options.trials} trials each")
        print(f"{'workload':32} {'':14}     ms (quartiles)      GFLOPS  cuDNN's ms / ms")
        rows = []
        for name in options.workloads:
            for r in rows_of(name, target, options):
                rows.append(r)
                low, high = r["ms_quartiles"]
                print(
                    f"{name:32} {r['side']:14} {r['ms']:.4f} ({low:.4f}..{high:.4f}) {r['gflops']:7.0f}  "
                    f"{r['ratio']:.3f}",
                    flush=True,
                )
    except SearchlabError as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _torch_has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
