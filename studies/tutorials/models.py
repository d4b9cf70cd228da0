"""Two models with random weights, which are parameters of the model: ResNet-18, and a block of a transformer.

    searchlab model tasks studies/tutorials/models.py:resnet18
    searchlab model tune studies/tutorials/models.py:resnet18 --trials 1000 --out resnet18

Each function returns a Relax module, which is what `searchlab model` needs; nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax.frontend import nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., CVPR 2016), with batch normalisation folded into the biases."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.first = nn.Conv2D(inputs, outputs, 3, stride, 1)
        self.second = nn.Conv2D(outputs, outputs, 3, 1, 1)
        self.shortcut = nn.Conv2D(inputs, outputs, 1, stride, 0) if inputs != outputs else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        residual = self.second(nn.op.relu(self.first(x)))
        return nn.op.relu(nn.op.add(residual, x if self.shortcut is None else self.shortcut(x)))


class ResNet18(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        self.stem = nn.Conv2D(3, 64, 7, 2, 3)
        widths = [64, 64, 128, 256, 512]
        blocks = []
        for stage in range(4):
            blocks.append(Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Block(widths[stage + 1], widths[stage + 1], 1))
        self.blocks = nn.ModuleList(blocks)
        self.classes = nn.Linear(512, classes)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = nn.op.relu(self.stem(x))
        x = _as_tensor(relax.op.nn.max_pool2d(x._expr, (3, 3), (2, 2), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.classes(_as_tensor(relax.op.mean(x._expr, [2, 3])))


class Transformer(nn.Module):
    """A block of BERT-base (Devlin et al., NAACL 2019): attention, then two layers with GELU, each normalised."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            nn.op.permute_dims(nn.op.reshape(layer(x), split), [0, 2, 1, 3])
            for layer in (self.query, self.key, self.value)
        )
        scores = nn.op.matmul(q, nn.op.permute_dims(k, [0, 1, 3, 2])) * (width // self.heads) ** -0.5
        mixed = nn.op.permute_dims(nn.op.matmul(nn.op.softmax(scores, axis=-1), v), [0, 2, 1, 3])
        x = self.norms[0](x + self.out(nn.op.reshape(mixed, (batch, length, width))))
        return self.norms[1](x + self.narrow(nn.op.gelu(self.wide(x))))


def _as_tensor(expression: Any) -> nn.Tensor:
    return nn.wrap_nested(expression, "y")


def resnet18() -> Any:
    """Return ResNet-18 for one image of 224x224 pixels."""
    return ResNet18().export_tvm({"forward": {"x": nn.spec.Tensor((1, 3, 224, 224), "float32")}})[0]


def transformer() -> Any:
    """Return a block of BERT-base for 128 tokens."""
    return Transformer().export_tvm({"forward": {"x": nn.spec.Tensor((1, 128, 768), "float32")}})[0]
