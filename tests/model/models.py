"""Small models for tests."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.frontend import nn


class MLP(nn.Module):
    """Two layers and softmax."""

    def __init__(self, inputs: int = 16, hidden: int = 8, classes: int = 4) -> None:
        self.hidden = nn.Linear(inputs, hidden)
        self.classes = nn.Linear(hidden, classes)

    def forward(self, x: Any) -> Any:
        return nn.op.softmax(self.classes(nn.op.relu(self.hidden(x))), axis=-1)


class Convolutions(nn.Module):
    """The same convolution twice, another one, and pooling, which is no task for a template."""

    def __init__(self) -> None:
        self.first = nn.Conv2D(3, 8, 3, 1, 1)
        self.same = nn.ModuleList([nn.Conv2D(8, 8, 3, 1, 1) for _ in range(2)])
        self.strided = nn.Conv2D(8, 16, 1, 2, 0, bias=False)

    def forward(self, x: Any) -> Any:
        x = nn.op.relu(self.first(x))
        for layer in self.same:
            x = nn.op.relu(layer(x))
        x = self.strided(x)
        return nn.wrap_nested(relax.op.nn.max_pool2d(x._expr, (2, 2), (2, 2)), "pool")


class Normalised(nn.Module):
    """Softmax, then a layer: a function with as many elements in as out, whose result another one uses."""

    def __init__(self) -> None:
        self.classes = nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.classes(nn.op.softmax(x, axis=-1))


def normalised() -> Any:
    return Normalised().export_tvm({"forward": {"x": nn.spec.Tensor((2, 16), "float32")}})[0]


def mlp() -> Any:
    return MLP().export_tvm({"forward": {"x": nn.spec.Tensor((2, 16), "float32")}})[0]


def wide_mlp() -> Any:
    """Return a model whose untuned products are far slower than tuned ones."""
    return MLP(64, 64, 64).export_tvm({"forward": {"x": nn.spec.Tensor((32, 64), "float32")}})[0]


def convolutions() -> Any:
    return Convolutions().export_tvm({"forward": {"x": nn.spec.Tensor((1, 3, 8, 8), "float32")}})


class Layers(nn.Module):
    """A linear layer with GELU, and convolutions: depthwise, dilated, and in groups, with SiLU or ReLU6."""

    def __init__(self) -> None:
        self.wide = nn.Linear(16, 24)
        self.depthwise = nn.Conv2D(8, 8, 3, 1, 1, groups=8)
        self.dilated = nn.Conv2D(8, 8, 3, 1, 2, dilation=2, bias=False)
        self.grouped = nn.Conv2D(8, 12, 3, 2, 1, groups=2)

    def forward(self, x: Any, y: Any) -> Any:
        y = nn.op.minimum(nn.op.relu(self.depthwise(y)), nn.Tensor.from_scalar(6.0, "float32"))
        return nn.op.gelu(self.wide(x)), self.grouped(nn.op.silu(self.dilated(y)))


def layers() -> Any:
    shapes = {"x": nn.spec.Tensor((1, 6, 16), "float32"), "y": nn.spec.Tensor((1, 8, 9, 9), "float32")}
    return Layers().export_tvm({"forward": shapes})[0]


class Attention(nn.Module):
    """The two products of attention with two heads, whose scores are scaled and masked."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = nn.op.matmul(q, nn.op.permute_dims(k, [0, 1, 3, 2])) * 0.25 + mask
        return nn.op.matmul(nn.op.softmax(scores, axis=-1), v)


def attention() -> Any:
    heads, mask = (nn.spec.Tensor(shape, "float32") for shape in ((1, 2, 6, 16), (1, 1, 6, 6)))
    return Attention().export_tvm({"forward": {"q": heads, "k": heads, "v": heads, "mask": mask}})[0]


def needs_an_argument(size: int) -> Any:
    return size


def no_model() -> str:
    return "a string"


def fails() -> Any:
    raise ValueError("no weights")


class TwoInputs(nn.Module):
    """A layer for a batch of any size, and one for a fixed batch."""

    def __init__(self) -> None:
        self.classes = nn.Linear(16, 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.classes(x), nn.op.relu(self.classes(y))


def partly_symbolic() -> Any:
    shapes = {"x": nn.spec.Tensor(("n", 16), "float32"), "y": nn.spec.Tensor((2, 16), "float32")}
    return TwoInputs().export_tvm({"forward": shapes})[0]
