"""What models are compared with: PyTorch, its compiler Inductor, and ONNX Runtime.

The networks are those of ``studies/tutorials/models.py``. Each is a function of an iterator over its weights, in the
order of the Relax module's parameters, and of its inputs. Weights are constants for all peers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turns import Side

from searchlab.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Weights = Iterator["Tensor"]


def convolution(x: Tensor, weights: Weights, stride: int = 1) -> Tensor:
    from torch.nn.functional import conv2d

    weight, bias = next(weights), next(weights)
    return conv2d(x, weight, bias, stride, weight.shape[2] // 2, groups=x.shape[1] // weight.shape[1])


def classify(x: Tensor, weights: Weights) -> Tensor:
    from torch.nn.functional import linear

    return linear(x.mean((2, 3)), next(weights), next(weights))


def resnet(weights: Weights, x: Tensor, *, counts: Sequence[int], has_bottlenecks: bool) -> Tensor:
    from torch.nn.functional import max_pool2d, relu

    x = max_pool2d(relu(convolution(x, weights, 2)), 3, 2, 1)
    for stage, count in enumerate(counts):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            if has_bottlenecks:
                y = relu(convolution(relu(convolution(x, weights)), weights, stride))
            else:
                y = relu(convolution(x, weights, stride))
            y = convolution(y, weights)
            has_convolution = number == 0 and (stage > 0 or has_bottlenecks)
            x = relu(y + (convolution(x, weights, stride) if has_convolution else x))
    return classify(x, weights)


def inverted_residuals(
    weights: Weights, x: Tensor, *, stages: Sequence[tuple[int, int]], activation: str, squeezes: bool
) -> Tensor:
    """Run MobileNet-V2 or EfficientNet; ``stages`` has the number of blocks and the stride of each stage."""
    import torch

    activate = getattr(torch.nn.functional, activation)
    x = activate(convolution(x, weights, 2))
    strides = [stride if number == 0 else 1 for count, stride in stages for number in range(count)]
    for block, stride in enumerate(strides):
        y = activate(convolution(x, weights)) if block > 0 else x
        y = activate(convolution(y, weights, stride))
        if squeezes:
            scale = activate(convolution(y.mean((2, 3), keepdim=True), weights))
            y = y * torch.sigmoid(convolution(scale, weights))
        y = convolution(y, weights)
        x = y + x if y.shape == x.shape else y
    return classify(activate(convolution(x, weights)), weights)


Layer = tuple["Tensor", "Tensor"]
"""The weight and the bias of a linear layer."""

HEADS = 12


def attention(x: Tensor, layers: Sequence[Layer], mask: Tensor | None = None) -> Tensor:
    from torch.nn.functional import linear, scaled_dot_product_attention

    *projections, output = layers
    shape = (*x.shape[:2], HEADS, -1)
    query, key, value = (linear(x, *layer).reshape(shape).transpose(1, 2) for layer in projections)
    values = scaled_dot_product_attention(query, key, value, mask)
    return linear(values.transpose(1, 2).reshape(x.shape), *output)


def transformer(weights: Weights, x: Tensor) -> Tensor:
    from torch.nn.functional import gelu, layer_norm, linear

    *layers, wide, narrow, first, second = zip(weights, weights, strict=True)
    x = layer_norm(x + attention(x, layers), x.shape[2:], *first)
    return layer_norm(x + linear(gelu(linear(x, *wide)), *narrow), x.shape[2:], *second)


def gpt2(weights: Weights, x: Tensor, mask: Tensor) -> Tensor:
    from torch.nn.functional import gelu, layer_norm, linear

    *layers, wide, narrow, first, second = zip(weights, weights, strict=True)
    x = x + attention(layer_norm(x, x.shape[2:], *first), layers, mask)
    y = layer_norm(x, x.shape[2:], *second)
    return x + linear(gelu(linear(y, *wide), approximate="tanh"), *narrow)


MOBILENET_STAGES = ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1))
EFFICIENTNET_STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))

NETWORKS: Mapping[str, Callable[..., Tensor]] = {
    "resnet18": partial(resnet, counts=(2, 2, 2, 2), has_bottlenecks=False),
    "resnet50": partial(resnet, counts=(3, 4, 6, 3), has_bottlenecks=True),
    "mobilenet_v2": partial(inverted_residuals, stages=MOBILENET_STAGES, activation="relu6", squeezes=False),
    "efficientnet_b0": partial(inverted_residuals, stages=EFFICIENTNET_STAGES, activation="silu", squeezes=True),
    "transformer": transformer,
    "gpt2": gpt2,
}


def make_module(name: str, weights: Sequence[Array]) -> Module:
    """Return a network as a PyTorch module with these weights."""
    import torch

    network = NETWORKS[name]

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(map(torch.from_numpy, weights))

        def forward(self, *inputs: Tensor) -> Tensor:
            return network(iter(self.weights), *inputs)

    return Network().eval()


def pytorch(network: Module, inputs: Sequence[Tensor], folder: Path) -> Side:
    """Return the network in PyTorch's eager mode, which calls oneDNN and MKL."""
    import torch

    def run() -> Any:
        with torch.inference_mode():
            return network(*inputs)

    return Side(run, lambda: run().numpy(), {"version": torch.__version__})


def inductor(network: Module, inputs: Sequence[Tensor], folder: Path) -> Side:
    """Return the network as compiled by Inductor with ``freezing``, which folds and packs weights."""
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return pytorch(torch.compile(network), inputs, folder)


def onnxruntime(network: Module, inputs: Sequence[Tensor], folder: Path) -> Side:
    """Return the network in ONNX Runtime with all of its optimisations, which are the default."""
    import torch
    from onnxruntime import InferenceSession, SessionOptions, __version__

    file = folder / "model.onnx"
    torch.onnx.export(network, tuple(inputs), file, dynamo=True, external_data=False, verbose=False)
    options = SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    arrays = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
    return Side(lambda: session.run(None, arrays), lambda: session.run(None, arrays)[0], {"version": __version__})


PEERS: Mapping[str, Callable[[Module, Sequence[Tensor], Path], Side]] = {
    "pytorch": pytorch,
    "inductor": inductor,
    "onnxruntime": onnxruntime,
}
"""The peers by name."""
