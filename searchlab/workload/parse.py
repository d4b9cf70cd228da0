"""Parsing workloads from their spellings, with the ResNet-50 layers as presets."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..errors import SearchlabError, did_you_mean
from .base import ACCUMULATED_IN, Workload
from .operators import Conv2d, Gemm, Kernel, conv2d, gemm, kernel

_SPELLINGS = {
    "gemm": (3, "gemm:MxNxK, for example gemm:512x512x512 or gemm:512x512x512:float64:bias:relu"),
    "conv2d": (7, "conv2d:NxHxWxCOxCIxKHxKW[:sS][:pP][:dD], for example conv2d:1x7x7x512x512x3x3:s1:p1"),
}
_GEOMETRY = re.compile(r"([spd])(-?\d+)(?:x(-?\d+))?")
_PAIRS = {"s": "stride", "p": "padding", "d": "dilation"}


def parse_workload(text: str | Workload) -> Workload:
    """Return the workload with a given spelling, or the ResNet-50 layer with a given name.

    Args:
        text: A spelling such as ``"gemm:512x512x512:float16:relu"``, or the name of a preset such as
            ``"resnet50/conv3.2b"`` (see :func:`preset_names`). A :class:`Workload` is returned unchanged.

    Raises:
        SearchlabError: If ``text`` is none of these.

    Example:
        >>> import searchlab
        >>> str(searchlab.parse_workload("resnet50/conv3.2b"))
        'conv2d:1x28x28x128x128x3x3:p1'
    """
    if isinstance(text, Workload):
        return text
    head, *rest = text.strip().split(":")
    if "/" in head:
        return _with_options(text, *_preset(head, rest))
    if head == "kernel":
        return _kernel(text, rest)
    if head not in _SPELLINGS:
        raise SearchlabError(
            f"unknown workload {text!r}{did_you_mean(head, [*_SPELLINGS, 'kernel', *preset_names()[:2]])}"
        )
    count, spelling = _SPELLINGS[head]
    try:
        sizes = [int(number) for number in rest.pop(0).split("x")]
        if len(sizes) != count:
            raise ValueError
    except (IndexError, ValueError):
        raise SearchlabError(f"workload {text!r} needs {count} whole numbers: {spelling}") from None
    if head == "gemm":
        m, n, k = sizes
        return _with_options(text, gemm(m, n, k), rest)
    # Stride, padding and dilation are parsed first, because a kernel must fit into the padded image.
    matches = [match for option in rest if (match := _GEOMETRY.fullmatch(option))]
    geometry: dict[str, Any] = {_PAIRS[m[1]]: (int(m[2]), int(m[3] or m[2])) for m in matches}
    n, h, w, co, ci, kh, kw = sizes
    return _with_options(text, conv2d(n, h, w, co, ci, kh, kw, **geometry), rest)


def _kernel(text: str, rest: list[str]) -> Kernel:
    name, *operations = rest or [""]
    if not operations:
        return kernel(name)
    if len(operations) > 1 or not re.fullmatch(r"\d{1,24}flop", operations[0]):
        raise SearchlabError(
            f"workload {text!r}: only the number of floating-point operations per execution may follow the name, as in "
            f"kernel:{name}:7549747200flop"
        )
    return kernel(name, int(operations[0].removesuffix("flop")))


def _with_options(text: str, base: Workload, options: list[str]) -> Workload:
    """Return ``base`` with the dtype, ``bias`` and ``relu`` that ``options`` specify."""
    changes: dict[str, Any] = {}
    for option in options:
        if option in ACCUMULATED_IN:
            changes["dtype"] = option
        elif option in ("bias", "relu"):
            changes[option] = True
        elif base.op != "conv2d" or not _GEOMETRY.fullmatch(option):
            known = [*ACCUMULATED_IN, "bias", "relu", *(["s1", "p1", "d1"] if base.op == "conv2d" else [])]
            raise SearchlabError(f"workload {text!r}: unknown option {option!r}{did_you_mean(option, known)}")
    return replace(base, **changes)


def _resnet50() -> dict[str, tuple[int, int, int, int, int, int]]:
    """Return a mapping from names to (image size, co, ci, kernel, stride, padding) for ResNet-50 v1.5's convolutions.

    ``3.1b`` is stage 3, block 1, second convolution; ``s`` is the shortcut. All blocks after a stage's first are
    identical and are called 2. Source: He et al., "Deep residual learning for image recognition" (CVPR 2016), Table 1,
    with the stride of each stage's first block in its 3x3 convolution (v1.5).
    """
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
    """Return the names of all presets: each ResNet-50 convolution, and its GEMM obtained by im2row."""
    return [f"resnet50/{op}{layer}" for op in ("conv", "gemm") for layer in _resnet50()]


def im2row(conv: Conv2d) -> Gemm:
    """Convert a convolution to a GEMM with a row for each output pixel and a column for each output channel."""
    oh, ow = conv.out_size
    return gemm(conv.n * oh * ow, conv.co, conv.reduction, conv.dtype, bias=conv.bias, relu=conv.relu)


def _preset(name: str, options: list[str]) -> tuple[Workload, list[str]]:
    """Return the named layer, with the batch size from an option ``bN`` (default 1), and the remaining options."""
    layers = _resnet50()
    match = re.fullmatch(r"resnet50/(conv|gemm)(.+)", name)
    if not match or match[2] not in layers:
        raise SearchlabError(f"unknown workload {name!r}{did_you_mean(name, preset_names())}")
    size, co, ci, kernel_size, stride, padding = layers[match[2]]
    batches = [option for option in options if re.fullmatch(r"b-?\d+", option)]
    batch = int(batches[-1][1:]) if batches else 1
    conv = conv2d(batch, size, size, co, ci, kernel_size, kernel_size, stride, padding)
    return (conv if match[1] == "conv" else im2row(conv)), [o for o in options if o not in batches]
