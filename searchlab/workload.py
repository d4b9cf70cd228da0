"""GEMM and conv2d workloads: spelling, FLOP count, PrimFunc and numpy reference. TVM is imported only to build."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import SearchlabError, did_you_mean

if TYPE_CHECKING:
    import tvm

Array = np.ndarray[Any, Any]

ACCUMULATED_IN = {"float16": "float16", "float32": "float32", "float64": "float64", "int8": "int32"}
"""dtype of the operands -> dtype of the sum and of the result."""


@dataclass(frozen=True)
class Workload(ABC):
    """A computation of fixed shape. ``str(w)`` is its spelling, and ``parse_workload(str(w)) == w``."""

    @property
    @abstractmethod
    def op(self) -> str:
        """``"gemm"`` or ``"conv2d"``: also the name of the reduction's block in :meth:`prim_func`."""

    dtype: str
    bias: bool
    relu: bool

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of one run: two per multiply-add; bias and ReLU are not counted."""

    @property
    @abstractmethod
    def reduction(self) -> int:
        """How many products are summed into one element of the result."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every argument of :meth:`prim_func`, by name and in order; the last is the result."""

    @abstractmethod
    def reference(self, inputs: dict[str, Array]) -> Array:
        """The result that numpy computes."""

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """The computation for TVM; its blocks are named ``pad`` (where padded), :attr:`op`, ``bias``, ``relu``."""

    def __post_init__(self) -> None:
        if self.dtype not in ACCUMULATED_IN:
            raise SearchlabError(f"dtype {self.dtype!r} is not supported{did_you_mean(self.dtype, ACCUMULATED_IN)}")
        for field in fields(self):
            least = 0 if field.name == "padding" else 1
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and not isinstance(number, bool) and number < least:
                    raise SearchlabError(f"{self.op}: {field.name} must be at least {least}, not {number}")

    @property
    def out_dtype(self) -> str:
        return ACCUMULATED_IN[self.dtype]

    @property
    def suffix(self) -> str:
        parts = ([] if self.dtype == "float32" else [self.dtype]) + ["bias"] * self.bias + ["relu"] * self.relu
        return "".join(f":{part}" for part in parts)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Random operands by name, the same for the same seed: standard normal, or in [-8, 8) for int8."""
        rng = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        for name, shape in list(self.shapes.items())[:-1]:
            dtype = self.out_dtype if name == "bias" else self.dtype
            if self.dtype == "int8":
                made[name] = rng.integers(-8, 8, size=shape).astype(dtype)
            else:
                made[name] = rng.standard_normal(shape, dtype=np.float32).astype(dtype)
        return made

    def tolerance(self) -> tuple[float, float]:
        """(rtol, atol) within which a right result lies, however its sum was ordered.

        Standard normal products: partial sums grow as sqrt(i), so the rounding errors of a sequential sum of
        k terms add up to about eps k / 2 (rms); eight times that is beyond any element of any result here.
        """
        if self.dtype == "int8":
            return 0.0, 0.0
        eps = float(np.finfo(self.out_dtype).eps)
        return 4 * eps, 4 * eps * self.reduction

    @cached_property
    def module(self) -> tvm.IRModule:
        """:meth:`prim_func` as the ``main`` function of a module."""
        import tvm

        return tvm.IRModule({"main": self.prim_func().with_attr("global_symbol", "main")})

    def _epilogue(self, args: list[Any], result: Any, channel: int) -> tvm.tirx.PrimFunc:
        """``args -> relu(result + bias)``, as far as this workload has them; ``channel`` is the bias's axis."""
        import tvm
        from tvm import te

        if self.bias:
            bias = te.placeholder(self.shapes["bias"], name="bias_in", dtype=self.out_dtype)
            args = [*args, bias]
            conv = result
            result = te.compute(conv.shape, lambda *i: conv(*i) + bias[i[channel]], name="bias")
        if self.relu:
            before = result
            zero = tvm.tirx.const(0, self.out_dtype)
            result = te.compute(before.shape, lambda *i: tvm.tirx.max(before(*i), zero), name="relu")
        return te.create_prim_func([*args, result])

    def _finished(self, result: Array, inputs: dict[str, Array], channel: int) -> Array:
        """The numpy twin of :meth:`_epilogue`."""
        if self.bias:
            shape = [1] * result.ndim
            shape[channel] = -1
            result = result + inputs["bias"].reshape(shape)
        if self.relu:
            result = np.maximum(result, 0)
        return result.astype(self.out_dtype, copy=False)

    @property
    def _exact(self) -> str:
        """The dtype numpy sums in: wide enough that the reference's own error is nothing beside the tolerance."""
        return "int32" if self.dtype == "int8" else "float32" if self.dtype == "float16" else self.dtype


@dataclass(frozen=True)
class Gemm(Workload):
    """``C[m, n] = A[m, k] B[k, n]``, then ``+ bias[n]`` and ReLU where asked for."""

    m: int = 1
    n: int = 1
    k: int = 1

    @property
    def op(self) -> str:
        return "gemm"

    def __str__(self) -> str:
        return f"gemm:{self.m}x{self.n}x{self.k}{self.suffix}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def reduction(self) -> int:
        return self.k

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        bias = {"bias": (self.n,)} if self.bias else {}
        return {"A": (self.m, self.k), "B": (self.k, self.n), **bias, "C": (self.m, self.n)}

    def reference(self, inputs: dict[str, Array]) -> Array:
        return self._finished(inputs["A"].astype(self._exact) @ inputs["B"].astype(self._exact), inputs, 1)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te

        a = te.placeholder((self.m, self.k), name="A", dtype=self.dtype)
        b = te.placeholder((self.k, self.n), name="B", dtype=self.dtype)
        p = te.reduce_axis((0, self.k), "p")
        c = te.compute(
            (self.m, self.n),
            lambda i, j: te.sum(a[i, p].astype(self.out_dtype) * b[p, j].astype(self.out_dtype), axis=p),
            name="gemm",
        )
        return self._epilogue([a, b], c, 1)


@dataclass(frozen=True)
class Conv2d(Workload):
    """2-D cross-correlation in NCHW with OIHW weights, then ``+ bias[co]`` and ReLU where asked for."""

    n: int = 1
    h: int = 1
    w: int = 1
    co: int = 1
    ci: int = 1
    kh: int = 1
    kw: int = 1
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for size, kernel, pad, dilation, axis in (
            (self.h, self.kh, self.padding[0], self.dilation[0], "height"),
            (self.w, self.kw, self.padding[1], self.dilation[1], "width"),
        ):
            if (kernel - 1) * dilation + 1 > size + 2 * pad:
                raise SearchlabError(
                    f"conv2d: the kernel spans {(kernel - 1) * dilation + 1} in {axis}, "
                    f"but the padded image is only {size + 2 * pad}"
                )

    @property
    def op(self) -> str:
        return "conv2d"

    def __str__(self) -> str:
        def pair(letter: str, value: tuple[int, int], default: int) -> str:
            if value == (default, default):
                return ""
            return f":{letter}{value[0]}" if value[0] == value[1] else f":{letter}{value[0]}x{value[1]}"

        sizes = "x".join(str(v) for v in (self.n, self.h, self.w, self.co, self.ci, self.kh, self.kw))
        where = pair("s", self.stride, 1) + pair("p", self.padding, 0) + pair("d", self.dilation, 1)
        return f"conv2d:{sizes}{where}{self.suffix}"

    @property
    def out_size(self) -> tuple[int, int]:
        """(height, width) of the result."""
        (sy, sx), (py, px), (dy, dx) = self.stride, self.padding, self.dilation
        return (
            (self.h + 2 * py - (self.kh - 1) * dy - 1) // sy + 1,
            (self.w + 2 * px - (self.kw - 1) * dx - 1) // sx + 1,
        )

    @property
    def flops(self) -> int:
        oh, ow = self.out_size
        return 2 * self.n * self.co * oh * ow * self.reduction

    @property
    def reduction(self) -> int:
        return self.ci * self.kh * self.kw

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        bias = {"bias": (self.co,)} if self.bias else {}
        return {
            "data": (self.n, self.ci, self.h, self.w),
            "weight": (self.co, self.ci, self.kh, self.kw),
            **bias,
            "out": (self.n, self.co, *self.out_size),
        }

    def reference(self, inputs: dict[str, Array]) -> Array:
        (sy, sx), (py, px), (dy, dx) = self.stride, self.padding, self.dilation
        oh, ow = self.out_size
        data = np.pad(inputs["data"].astype(self._exact), ((0, 0), (0, 0), (py, py), (px, px)))
        weight = inputs["weight"].astype(self._exact)
        out = np.zeros((self.n, oh, ow, self.co), self._exact)
        for i in range(self.kh):
            for j in range(self.kw):
                y, x = i * dy, j * dx
                window = data[:, :, y : y + (oh - 1) * sy + 1 : sy, x : x + (ow - 1) * sx + 1 : sx]
                out += np.tensordot(window, weight[:, :, i, j], axes=([1], [1]))
        return self._finished(np.ascontiguousarray(out.transpose(0, 3, 1, 2)), inputs, 1)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        import tvm
        from tvm import te

        (sy, sx), (py, px), (dy, dx) = self.stride, self.padding, self.dilation
        oh, ow = self.out_size
        data = te.placeholder(self.shapes["data"], name="data", dtype=self.dtype)
        weight = te.placeholder(self.shapes["weight"], name="weight", dtype=self.dtype)
        source = data
        if py or px:
            zero = tvm.tirx.const(0, self.dtype)
            source = te.compute(
                (self.n, self.ci, self.h + 2 * py, self.w + 2 * px),
                lambda n, c, y, x: tvm.tirx.if_then_else(
                    tvm.tirx.all(y >= py, y < self.h + py, x >= px, x < self.w + px),
                    data[n, c, y - py, x - px],
                    zero,
                ),
                name="pad",
            )
        rc = te.reduce_axis((0, self.ci), "rc")
        ry = te.reduce_axis((0, self.kh), "ry")
        rx = te.reduce_axis((0, self.kw), "rx")
        conv = te.compute(
            (self.n, self.co, oh, ow),
            lambda n, f, y, x: te.sum(
                source[n, rc, y * sy + ry * dy, x * sx + rx * dx].astype(self.out_dtype)
                * weight[f, rc, ry, rx].astype(self.out_dtype),
                axis=[rc, ry, rx],
            ),
            name="conv2d",
        )
        return self._epilogue([data, weight], conv, 1)


def gemm(m: int, n: int, k: int, dtype: str = "float32", *, bias: bool = False, relu: bool = False) -> Gemm:
    """The GEMM ``[m, k] x [k, n]``. Raises SearchlabError for sizes below 1 or an unknown dtype."""
    return Gemm(dtype, bias, relu, m, n, k)


def conv2d(
    n: int,
    h: int,
    w: int,
    co: int,
    ci: int,
    kh: int,
    kw: int,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    dtype: str = "float32",
    *,
    bias: bool = False,
    relu: bool = False,
) -> Conv2d:
    """A conv2d over an image of [n, ci, h, w] with co kernels of [ci, kh, kw]; pairs are (height, width)."""

    def pair(v: int | tuple[int, int]) -> tuple[int, int]:
        return v if isinstance(v, tuple) else (v, v)

    return Conv2d(dtype, bias, relu, n, h, w, co, ci, kh, kw, pair(stride), pair(padding), pair(dilation))


_SPELLINGS = {
    "gemm": (3, "gemm:MxNxK, as in gemm:512x512x512 or gemm:512x512x512:float64:bias:relu"),
    "conv2d": (7, "conv2d:NxHxWxCOxCIxKHxKW[:sS][:pP][:dD], as in conv2d:1x7x7x512x512x3x3:s1:p1"),
}
_PAIRS = {"s": "stride", "p": "padding", "d": "dilation"}


def parse_workload(text: str | Workload) -> Workload:
    """The workload that ``text`` spells, or names as a preset (see :mod:`searchlab.presets`)."""
    if isinstance(text, Workload):
        return text
    from .presets import preset, preset_names

    head, *rest = text.strip().split(":")
    if "/" in head:
        return _with_options(text, *preset(head, rest))
    if head not in _SPELLINGS:
        raise SearchlabError(f"unknown workload {text!r}{did_you_mean(head, [*_SPELLINGS, *preset_names()[:2]])}")
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


def _conv2d(sizes: list[int], options: list[str]) -> Conv2d:
    """A conv2d with its geometry read at once, so that a kernel is held against the padding it really has."""
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
            raise SearchlabError(f"workload {text!r}: {option!r} is no option of it{did_you_mean(option, known)}")
    return replace(base, **changes)
