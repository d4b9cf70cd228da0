"""Workloads by name: the convolutions of ResNet-50 v1.5, and their GEMMs by im2row.

Sizes: He et al., "Deep residual learning for image recognition" (CVPR 2016), Table 1, with the stride of a
stage's first block in its 3x3 convolution (v1.5). ``resnet50/conv3.1b`` is stage 3, block 1, second
convolution; ``s`` is the shortcut. Every block after a stage's first is the same and is called 2.
"""

from __future__ import annotations

import re

from ..errors import SearchlabError, did_you_mean
from .base import Workload
from .conv2d import Conv2d, conv2d
from .gemm import Gemm, gemm


def _resnet50() -> dict[str, tuple[int, int, int, int, int, int]]:
    """name -> (image size, co, ci, kernel, stride, padding)."""
    layers = {"1": (224, 64, 3, 7, 2, 3)}
    inputs, image = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), 2):
        stride = 1 if stage == 2 else 2
        out = image // stride
        layers |= {
            f"{stage}.1a": (image, width, inputs, 1, 1, 0),
            f"{stage}.1b": (image, width, width, 3, stride, 1),
            f"{stage}.1c": (out, 4 * width, width, 1, 1, 0),
            f"{stage}.1s": (image, 4 * width, inputs, 1, stride, 0),
            f"{stage}.2a": (out, width, 4 * width, 1, 1, 0),
            f"{stage}.2b": (out, width, width, 3, 1, 1),
            f"{stage}.2c": (out, 4 * width, width, 1, 1, 0),
        }
        inputs, image = 4 * width, out
    return layers


def preset_names() -> list[str]:
    return [f"resnet50/{op}{layer}" for op in ("conv", "gemm") for layer in _resnet50()]


def im2row(conv: Conv2d) -> Gemm:
    """The GEMM of a convolution: a row for each output pixel, a column for each output channel."""
    oh, ow = conv.out_size
    return gemm(conv.n * oh * ow, conv.co, conv.reduction, conv.dtype, bias=conv.bias, relu=conv.relu)


def preset(name: str, options: list[str]) -> tuple[Workload, list[str]]:
    """The named layer, with batch 1 or the batch of an option ``bN``; and the other options."""
    layers = _resnet50()
    match = re.fullmatch(r"resnet50/(conv|gemm)(.+)", name)
    if not match or match[2] not in layers:
        raise SearchlabError(f"unknown workload {name!r}{did_you_mean(name, preset_names())}")
    size, co, ci, kernel, stride, padding = layers[match[2]]
    batches = [option for option in options if re.fullmatch(r"b-?\d+", option)]
    conv = conv2d(int(batches[-1][1:]) if batches else 1, size, size, co, ci, kernel, kernel, stride, padding)
    return (conv if match[1] == "conv" else im2row(conv)), [o for o in options if o not in batches]
