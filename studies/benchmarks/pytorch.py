"""Compares a tuned model of the tutorials with PyTorch: the same outputs, and the times in turn.

    searchlab model tune studies/tutorials/models.py:resnet18 --trials 1000 --out resnet18
    python studies/benchmarks/pytorch.py resnet18 resnet18/model.so [--threads 2] [--rounds 21]

Both models have the same random weights. Each runs in a process of its own, since idle threads of one library would
disturb the other, and they take turns. PyTorch runs in eager mode, and calls oneDNN for convolutions and products.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tutorials"))

LEAST = 0.05
"""The minimum duration of a reading, in seconds."""


def inputs(model: str) -> list[Any]:
    """Return the model's input and weights, in the order of its parameters."""
    import models

    from searchlab.model.inputs import inputs_of, random_inputs

    function = getattr(models, model)()["forward"]
    return list(random_inputs(inputs_of(function), np.random.default_rng(0)))


def tuned(model: str, library: str, threads: int) -> Callable[[], Any]:
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    arrays = [tvm.runtime.tensor(array) for array in inputs(model)]
    return lambda: machine["forward"](*arrays).numpy()


def pytorch(model: str, library: str, threads: int) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(threads)
    x, *weights = map(torch.from_numpy, inputs(model))

    def forward() -> Any:
        with torch.inference_mode():
            return MODELS[model](x, iter(weights)).numpy()

    return forward


def resnet18(x: Any, weights: Iterator[Any]) -> Any:
    from torch.nn.functional import conv2d, linear, max_pool2d, relu

    def convolution(x: Any, stride: int, padding: int) -> Any:
        return conv2d(x, next(weights), next(weights), stride, padding)

    x = max_pool2d(relu(convolution(x, 2, 3)), 3, 2, 1)
    for number in range(8):
        stride = 2 if number in (2, 4, 6) else 1
        y = convolution(relu(convolution(x, stride, 1)), 1, 1)
        x = relu(y + (convolution(x, stride, 0) if stride == 2 else x))
    return linear(x.mean((2, 3)), next(weights), next(weights))


def transformer(x: Any, weights: Iterator[Any]) -> Any:
    from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

    batch, length, width = x.shape
    heads = 12
    layers = [(next(weights), next(weights)) for _ in range(8)]
    query, key, value, out, wide, narrow, *norms = layers

    def split(layer: Any) -> Any:
        return linear(x, *layer).reshape(batch, length, heads, width // heads).transpose(1, 2)

    mixed = scaled_dot_product_attention(split(query), split(key), split(value))
    x = layer_norm(x + linear(mixed.transpose(1, 2).reshape(x.shape), *out), (width,), *norms[0])
    return layer_norm(x + linear(gelu(linear(x, *wide)), *narrow), (width,), *norms[1])


MODELS = {"resnet18": resnet18, "transformer": transformer}
SIDES = {"tuned": tuned, "PyTorch": pytorch}


def serve(side: str, model: str, library: str, threads: int, pipe: Connection) -> None:
    """Send the model's output, and then the time of one execution whenever it is requested."""
    forward = SIDES[side](model, library, threads)
    pipe.send(forward())
    forward()
    while pipe.recv():
        count, start = 0, time.perf_counter()
        while (seconds := time.perf_counter() - start) < LEAST:
            forward()
            count += 1
        pipe.send(seconds / count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("library", help="the library that `searchlab model tune` has exported")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for side in SIDES:
        pipes[side], worker_end = context.Pipe()
        context.Process(
            target=serve, args=(side, args.model, args.library, args.threads, worker_end), daemon=True
        ).start()
    outputs = {side: pipe.recv() for side, pipe in pipes.items()}
    scale = float(np.abs(outputs["PyTorch"]).max())
    difference = float(np.abs(outputs["tuned"] - outputs["PyTorch"]).max()) / scale
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(args.rounds):
        for side, pipe in pipes.items():
            pipe.send(True)
            times[side].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    for side, seconds in times.items():
        low, high = np.percentile(seconds, [25, 75]) * 1e3
        print(f"{side}: {statistics.median(seconds) * 1e3:.2f} ms ({low:.2f} to {high:.2f}) on {args.threads} threads")
    print(f"the outputs differ by at most {difference:.1e} of the largest element")


if __name__ == "__main__":
    main()
