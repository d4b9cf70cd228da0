"""Six models for one input: four of images, and a block each of BERT and GPT-2. Their weights are parameters.

    searchlab model tasks studies/tutorials/models.py:resnet18
    searchlab model tune studies/tutorials/models.py:resnet18 --trials 1000 --out resnet18

Each function returns a Relax module, which is what `searchlab model` needs; nothing is downloaded. Batch normalisation
is folded into the biases of convolutions, as for inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.frontend import nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., CVPR 2016)."""

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


Activation = Callable[[nn.Tensor], nn.Tensor]


def _relu6(x: nn.Tensor) -> nn.Tensor:
    return _as_tensor(relax.op.clip(x._expr, 0.0, 6.0))


def _mean_of_pixels(x: nn.Tensor, keepdims: bool = False) -> nn.Tensor:
    return _as_tensor(relax.op.mean(x._expr, [2, 3], keepdims=keepdims))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, and a shortcut (He et al., CVPR 2016, figure 5)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = 4 * width
        self.narrow = nn.Conv2D(inputs, width, 1)
        self.spatial = nn.Conv2D(width, width, 3, stride, 1)
        self.wide = nn.Conv2D(width, outputs, 1)
        self.shortcut = nn.Conv2D(inputs, outputs, 1, stride, 0) if inputs != outputs or stride > 1 else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        residual = self.wide(nn.op.relu(self.spatial(nn.op.relu(self.narrow(x)))))
        return nn.op.relu(nn.op.add(residual, x if self.shortcut is None else self.shortcut(x)))


class ResNet50(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        self.stem = nn.Conv2D(3, 64, 7, 2, 3)
        blocks, inputs = [], 64
        for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for number in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if number == 0 and width > 64 else 1))
                inputs = 4 * width
        self.blocks = nn.ModuleList(blocks)
        self.classes = nn.Linear(inputs, classes)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = nn.op.relu(self.stem(x))
        x = _as_tensor(relax.op.nn.max_pool2d(x._expr, (3, 3), (2, 2), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.classes(_mean_of_pixels(x))


class InvertedResidual(nn.Module):
    """A depthwise convolution between two of 1x1 (Sandler et al., CVPR 2018), and squeeze-and-excitation."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, kernel: int, expansion: int, activation: Activation, squeeze: int
    ) -> None:
        width = expansion * inputs
        self.activation = activation
        self.expand = nn.Conv2D(inputs, width, 1) if expansion > 1 else None
        self.depthwise = nn.Conv2D(width, width, kernel, stride, kernel // 2, groups=width)
        self.squeeze = nn.Conv2D(width, squeeze, 1) if squeeze else None
        self.excite = nn.Conv2D(squeeze, width, 1) if squeeze else None
        self.project = nn.Conv2D(width, outputs, 1)
        self.has_shortcut = inputs == outputs and stride == 1

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = x if self.expand is None else self.activation(self.expand(x))
        y = self.activation(self.depthwise(y))
        if self.squeeze is not None and self.excite is not None:
            scale = self.excite(self.activation(self.squeeze(_mean_of_pixels(y, keepdims=True))))
            y = nn.op.multiply(y, nn.op.sigmoid(scale))
        y = self.project(y)
        return nn.op.add(y, x) if self.has_shortcut else y


class InvertedResiduals(nn.Module):
    """A stem, stages of inverted residuals (expansion, outputs, number, stride and kernel of each), and a head."""

    def __init__(
        self, stages: list[tuple[int, int, int, int, int]], activation: Activation, squeezes: bool, classes: int = 1000
    ) -> None:
        self.activation = activation
        self.stem = nn.Conv2D(3, 32, 3, 2, 1)
        blocks, inputs = [], 32
        for expansion, outputs, count, stride, kernel in stages:
            for number in range(count):
                step = stride if number == 0 else 1
                squeeze = inputs // 4 if squeezes else 0
                blocks.append(InvertedResidual(inputs, outputs, step, kernel, expansion, activation, squeeze))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Conv2D(inputs, 1280, 1)
        self.classes = nn.Linear(1280, classes)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = self.activation(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.classes(_mean_of_pixels(self.activation(self.head(x))))


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al., NeurIPS 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: nn.Tensor, mask: nn.Tensor | None = None) -> nn.Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            nn.op.permute_dims(nn.op.reshape(layer(x), split), [0, 2, 1, 3])
            for layer in (self.query, self.key, self.value)
        )
        scores = nn.op.matmul(q, nn.op.permute_dims(k, [0, 1, 3, 2])) * (width // self.heads) ** -0.5
        scores = scores if mask is None else scores + mask
        mixed = nn.op.permute_dims(nn.op.matmul(nn.op.softmax(scores, axis=-1), v), [0, 2, 1, 3])
        return self.out(nn.op.reshape(mixed, (batch, length, width)))


class Transformer(nn.Module):
    """A block of BERT-base (Devlin et al., NAACL 2019): attention, then two layers with GELU, each normalised."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        self.attention = Attention(width, heads)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.narrow(nn.op.gelu(self.wide(x))))


class Gpt2(Transformer):
    """A block of GPT-2 (Radford et al., 2019): normalised before each part, with a mask and the GELU of tanh."""

    def forward(self, x: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        x = x + self.attention(self.norms[0](x), mask)
        return x + self.narrow(nn.op.gelu(self.wide(self.norms[1](x)), "tanh"))


def _as_tensor(expression: Any) -> nn.Tensor:
    return nn.wrap_nested(expression, "y")


def _of_image(model: nn.Module) -> Any:
    return model.export_tvm({"forward": {"x": nn.spec.Tensor((1, 3, 224, 224), "float32")}})[0]


def resnet18() -> Any:
    """Return ResNet-18 for one image of 224x224 pixels."""
    return _of_image(ResNet18())


def resnet50() -> Any:
    """Return ResNet-50 (version 1.5, with strides in the 3x3 convolutions) for one image of 224x224 pixels."""
    return _of_image(ResNet50())


def mobilenet_v2() -> Any:
    """Return MobileNet-V2 (Sandler et al., CVPR 2018, table 2) for one image of 224x224 pixels."""
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    return _of_image(InvertedResiduals([(*row, 3) for row in rows], _relu6, squeezes=False))


def efficientnet_b0() -> Any:
    """Return EfficientNet-B0 (Tan and Le, ICML 2019, table 1) for one image of 224x224 pixels."""
    stages = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]
    return _of_image(InvertedResiduals(stages, nn.op.silu, squeezes=True))


def transformer() -> Any:
    """Return a block of BERT-base for 128 tokens."""
    return Transformer().export_tvm({"forward": {"x": nn.spec.Tensor((1, 128, 768), "float32")}})[0]


def gpt2() -> Any:
    """Return a block of GPT-2 for 128 tokens."""
    tokens, mask = (nn.spec.Tensor(shape, "float32") for shape in ((1, 128, 768), (1, 1, 128, 128)))
    return Gpt2().export_tvm({"forward": {"x": tokens, "mask": mask}})[0]
