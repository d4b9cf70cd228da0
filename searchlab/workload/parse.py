"""Reading a workload from its spelling, or from the name of a preset."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..errors import SearchlabError, did_you_mean
from .base import ACCUMULATED_IN, Workload
from .conv2d import Conv2d, conv2d
from .gemm import gemm
from .kernel import Kernel, kernel
from .resnet50 import preset, preset_names

_SPELLINGS = {
    "gemm": (3, "gemm:MxNxK, for example gemm:512x512x512 or gemm:512x512x512:float64:bias:relu"),
    "conv2d": (7, "conv2d:NxHxWxCOxCIxKHxKW[:sS][:pP][:dD], for example conv2d:1x7x7x512x512x3x3:s1:p1"),
}
_PAIRS = {"s": "stride", "p": "padding", "d": "dilation"}


def parse_workload(text: str | Workload) -> Workload:
    """The workload with a given spelling, or the preset with that name (see :mod:`searchlab.workload.resnet50`).

    Args:
        text: For example ``"gemm:512x512x512:float16:relu"`` or ``"resnet50/conv3.2b"``; a workload is returned as it
            is.

    Raises:
        SearchlabError: If there is no such workload.

    Example:
        >>> import searchlab
        >>> str(searchlab.parse_workload("resnet50/conv3.2b"))
        'conv2d:1x28x28x128x128x3x3:p1'
    """
    if isinstance(text, Workload):
        return text
    head, *rest = text.strip().split(":")
    if "/" in head:
        return _with_options(text, *preset(head, rest))
    if head == "kernel":
        return _kernel(text, rest)
    if head not in _SPELLINGS:
        known = [*_SPELLINGS, "kernel", *preset_names()[:2]]
        raise SearchlabError(f"unknown workload {text!r}{did_you_mean(head, known)}")
    count, spelling = _SPELLINGS[head]
    try:
        sizes = [int(number) for number in rest[0].split("x")]
        if len(sizes) != count:
            raise ValueError
    except (IndexError, ValueError):
        raise SearchlabError(f"workload {text!r} needs {count} whole numbers: {spelling}") from None
    if head == "gemm":
        m, n, k = sizes
        return _with_options(text, gemm(m, n, k), rest[1:])
    return _with_options(text, _conv2d(sizes, rest[1:]), rest[1:])


def _kernel(text: str, rest: list[str]) -> Kernel:
    name, *operations = rest or [""]
    if not operations:
        return kernel(name)
    if len(operations) > 1 or not re.fullmatch(r"\d{1,24}flop", operations[0]):
        raise SearchlabError(
            f"workload {text!r}: after the name there may be only the floating-point operations of one run, as in "
            f"kernel:{name}:7549747200flop"
        )
    return kernel(name, int(operations[0].removesuffix("flop")))


def _conv2d(sizes: list[int], options: list[str]) -> Conv2d:
    """A conv2d with its geometry, which is read first: a kernel must fit into the padded image."""
    geometry: dict[str, Any] = {}
    for option in options:
        if match := re.fullmatch(r"([spd])(-?\d+)(?:x(-?\d+))?", option):
            geometry[_PAIRS[match[1]]] = (int(match[2]), int(match[3] or match[2]))
    n, h, w, co, ci, kh, kw = sizes
    return conv2d(n, h, w, co, ci, kh, kw, **geometry)


def _with_options(text: str, base: Workload, options: list[str]) -> Workload:
    """``base`` with the suffixes of its spelling: dtype, ``bias``, ``relu``."""
    changes: dict[str, Any] = {}
    for option in options:
        if option in ACCUMULATED_IN:
            changes["dtype"] = option
        elif option in ("bias", "relu"):
            changes[option] = True
        elif base.op == "conv2d" and re.fullmatch(r"[spd]-?\d+(x-?\d+)?", option):
            continue
        else:
            known = [*ACCUMULATED_IN, "bias", "relu", *(["s1", "p1", "d1"] if base.op == "conv2d" else [])]
            raise SearchlabError(f"workload {text!r}: unknown option {option!r}{did_you_mean(option, known)}")
    return replace(base, **changes)
