"""Parsing of workloads' names, including presets for the layers of ResNet-50."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SearchlabError, did_you_mean
from ..options import checks_arguments
from ..plugins import names_from
from .base import WORKLOADS, Workload
from .function import Function
from .products import Conv2d, Gemm, conv2d, gemm, with_options


@checks_arguments
def parse_workload(text: str | Workload | Callable[..., Any]) -> Workload:
    """Return the workload with a given name, which may be a preset.

    Args:
        text: A name such as ``"gemm:512x512x512:float16:relu"``, whose first word is the name of a workload plug-in, or
            ``module:Class`` if it is not registered; or a preset such as ``"resnet50/conv3.2b"`` (see
            :func:`preset_names`). A :class:`Workload` is returned unchanged. A function that returns
            seconds becomes the workload ``python:MODULE:NAME``; see also :func:`maximize` and :func:`minimize`.

    Raises:
        SearchlabError: If ``text`` is none of these.

    Example:
        >>> import searchlab
        >>> str(searchlab.parse_workload("resnet50/conv3.2b"))
        'conv2d:1x28x28x128x128x3x3:p1'
    """
    if isinstance(text, Workload):
        return text
    if not isinstance(text, str):
        return Function.from_function(text)
    kind, spelling = split_workload_name(text.strip())
    if "/" in kind:
        return _make_preset(kind, spelling.split(":") if spelling else [])
    cls = _load_class(kind, text)
    with WORKLOADS.convert_errors(cls, "parse"):
        return cls.parse(spelling)


def _load_class(kind: str, text: str) -> type[Workload]:
    """Return the class for a workload of this kind. Errors quote ``text``, the workload's name."""
    if kind not in (installed := WORKLOADS.entry_points_by_name()) and ":" not in kind:
        hint = did_you_mean(kind, [*installed, *preset_names()[:2]])
        if not hint.endswith("?"):
            hint += f". A workload from another package must be registered under {WORKLOADS.group!r}"
        raise SearchlabError(f"unknown workload {text!r}{hint}")
    cls = WORKLOADS.load(kind)
    WORKLOADS.check_class(kind, cls)
    return cls


def restore_workload(text: str, content: str, path: Path) -> Workload:
    """Return the workload that a log contains, without executing code that is not installed.

    Args:
        text: The workload's name.
        content: The text that its :meth:`Workload.content` returned.
        path: The path of the log.

    Raises:
        SearchlabError: If the workload cannot be created, or if this would import code that no installed package
            registers and :func:`~searchlab.plugins.trust_plugins` is not active.
    """
    kind, spelling = split_workload_name(text)
    if "/" in kind:
        return parse_workload(text)
    with names_from(path):
        cls = _load_class(kind, text)
        with WORKLOADS.convert_errors(cls, "from_log"):
            return cls.from_log(spelling, content)


def parse_workload_in_file(text: str, path: Path) -> Workload:
    """Return the workload with the name ``text``, which the file ``path`` contains. Raises SearchlabError.

    It differs from :func:`parse_workload` in that only registered code is imported, and no file is executed.
    """
    with names_from(path):
        return parse_workload(text)


def split_workload_name(text: str) -> tuple[str, str]:
    """Split a workload's name into its kind, which may be ``module:Class``, and its spelling."""
    kind, _, spelling = text.partition(":")
    if kind in WORKLOADS.entry_points_by_name() or not re.match(r"[A-Za-z_]\w*(:|$)", spelling) or "/" in kind:
        return kind, spelling
    name, _, spelling = spelling.partition(":")
    return f"{kind}:{name}", spelling


def _make_resnet50_layers() -> dict[str, tuple[int, int, int, int, int, int]]:
    """Return a mapping from names to (image size, co, ci, kernel, stride, padding) for ResNet-50 v1.5's convolutions.

    ``3.1b`` is the second convolution of block 1 of stage 3; ``s`` is a shortcut. All blocks of a stage except the
    first are identical and have the number 2. Source: He et al., "Deep residual learning for image recognition" (CVPR
    2016), Table 1, with the stride of each stage's first block in its 3x3 convolution (v1.5).
    """
    layers = {"1": (224, 64, 3, 7, 2, 3)}
    input_channels, image_size = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), 2):
        stride = 1 if stage == 2 else 2
        out_size = image_size // stride
        layers |= {
            f"{stage}.1a": (image_size, width, input_channels, 1, 1, 0),
            f"{stage}.1b": (image_size, width, width, 3, stride, 1),
            f"{stage}.1c": (out_size, 4 * width, width, 1, 1, 0),
            f"{stage}.1s": (image_size, 4 * width, input_channels, 1, stride, 0),
            f"{stage}.2a": (out_size, width, 4 * width, 1, 1, 0),
            f"{stage}.2b": (out_size, width, width, 3, 1, 1),
            f"{stage}.2c": (out_size, 4 * width, width, 1, 1, 0),
        }
        input_channels, image_size = 4 * width, out_size
    return layers


def preset_names() -> list[str]:
    """Return the names of all presets: each ResNet-50 convolution, and its GEMM obtained by im2row."""
    return [f"resnet50/{op}{layer}" for op in ("conv", "gemm") for layer in _make_resnet50_layers()]


def im2row(conv: Conv2d) -> Gemm:
    """Convert a convolution to a GEMM with a row for each output pixel and a column for each output channel."""
    oh, ow = conv.out_size
    return gemm(conv.n * oh * ow, conv.co, conv.reduction, conv.dtype, bias=conv.bias, add=conv.add, relu=conv.relu)


def _make_preset(name: str, options: list[str]) -> Workload:
    """Return the layer ``name`` with these options, of which ``bN`` sets the batch size (1 by default)."""
    layers = _make_resnet50_layers()
    match = re.fullmatch(r"resnet50/(conv|gemm)(.+)", name)
    if not match or match[2] not in layers:
        raise SearchlabError(f"unknown workload {name!r}{did_you_mean(name, preset_names())}")
    size, co, ci, kernel_size, stride, padding = layers[match[2]]
    batch_options = [option for option in options if re.fullmatch(r"b-?\d+", option)]
    batch = int(batch_options[-1][1:]) if batch_options else 1
    conv = conv2d(batch, size, size, co, ci, kernel_size, kernel_size, stride, padding)
    other_options = [option for option in options if option not in batch_options]
    return with_options(conv if match[1] == "conv" else im2row(conv), other_options)
