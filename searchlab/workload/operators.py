"""The built-in workloads: GEMM, conv2d, and other tuners' kernels, for which only times are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, UnsupportedWorkload
from .base import Workload

if TYPE_CHECKING:
    import tvm

UNKNOWN_FLOPS = 10**9


@dataclass(frozen=True)
class Gemm(Workload):
    """``C[m, n] = A[m, k] B[k, n]``, then optional ``+ bias[n]`` and ReLU."""

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
        return self.numpy_epilogue(inputs["A"].astype(self.exact) @ inputs["B"].astype(self.exact), inputs)

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
        return self.epilogue([a, b], c, 1)


def gemm(m: int, n: int, k: int, dtype: str = "float32", *, bias: bool = False, relu: bool = False) -> Gemm:
    """Return the matrix product ``C[m, n] = A[m, k] B[k, n]``.

    Args:
        m: The number of rows of A and C.
        n: The number of columns of B and C.
        k: The number of columns of A and rows of B.
        dtype: The type of A and B: ``float16``, ``bfloat16``, ``float32``, ``float64`` or ``int8``.
        bias: Whether to add a vector of shape (n,) to each row of C.
        relu: Whether to replace negative results with 0.

    Raises:
        SearchlabError: If a size is below 1 or ``dtype`` is unknown.

    Example:
        >>> import searchlab
        >>> searchlab.gemm(512, 512, 512, bias=True)
        Gemm(dtype='float32', bias=True, relu=False, m=512, n=512, k=512)
        >>> searchlab.gemm(512, 512, 512).flops
        268435456
    """
    return Gemm(dtype, bias, relu, m, n, k)


@dataclass(frozen=True)
class Conv2d(Workload):
    """2-D cross-correlation in NCHW with OIHW weights, then optional ``+ bias[co]`` and ReLU."""

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
                    f"conv2d: the kernel has {axis} {(kernel - 1) * dilation + 1} with dilation, "
                    f"but the padded image's {axis} is only {size + 2 * pad}"
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
        """The height and width of the result."""
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
        data = np.pad(inputs["data"].astype(self.exact), ((0, 0), (0, 0), (py, py), (px, px)))
        weight = inputs["weight"].astype(self.exact)
        out = np.zeros((self.n, oh, ow, self.co), self.exact)
        for i in range(self.kh):
            for j in range(self.kw):
                y, x = i * dy, j * dx
                window = data[:, :, y : y + (oh - 1) * sy + 1 : sy, x : x + (ow - 1) * sx + 1 : sx]
                out += np.tensordot(window, weight[:, :, i, j], axes=([1], [1]))
        return self.numpy_epilogue(np.ascontiguousarray(out.transpose(0, 3, 1, 2)), inputs)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te

        (sy, sx), (dy, dx) = self.stride, self.dilation
        oh, ow = self.out_size
        data = te.placeholder(self.shapes["data"], name="data", dtype=self.dtype)
        weight = te.placeholder(self.shapes["weight"], name="weight", dtype=self.dtype)
        source = self.padded(data)
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
        return self.epilogue([data, weight], conv, 1)

    def padded(self, data: tvm.te.Tensor) -> tvm.te.Tensor:
        """Return ``data`` surrounded by zeros (the block ``pad``), or ``data`` itself if there is no padding."""
        import tvm
        from tvm import te

        py, px = self.padding
        if not (py or px):
            return data
        zero = tvm.tirx.const(0, data.dtype)
        return te.compute(
            (self.n, self.ci, self.h + 2 * py, self.w + 2 * px),
            lambda n, c, y, x: tvm.tirx.if_then_else(
                tvm.tirx.all(y >= py, y < self.h + py, x >= px, x < self.w + px),
                data[n, c, y - py, x - px],
                zero,
            ),
            name="pad",
        )


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
    """Return the 2-D convolution of images (n, ci, h, w) with weights (co, ci, kh, kw), in NCHW layout.

    Args:
        n: The batch size.
        h: The height of the input.
        w: The width of the input.
        co: The number of output channels.
        ci: The number of input channels.
        kh: The height of a kernel.
        kw: The width of a kernel.
        stride: A single number or (vertical, horizontal).
        padding: The number of zeros added on each side, in the same form as ``stride``.
        dilation: The distance between adjacent kernel elements, in the same form as ``stride``.
        dtype: The type of the images and weights: ``float16``, ``bfloat16``, ``float32``, ``float64`` or ``int8``.
        bias: Whether to add a vector of shape (co,) along the channels.
        relu: Whether to replace negative results with 0.

    Raises:
        SearchlabError: If a size is too small, the kernel exceeds the padded image, or ``dtype`` is unknown.

    Example:
        >>> import searchlab
        >>> str(searchlab.conv2d(1, 28, 28, 128, 128, 3, 3, padding=1))
        'conv2d:1x28x28x128x128x3x3:p1'
    """

    def pair(v: int | tuple[int, int]) -> tuple[int, int]:
        return v if isinstance(v, tuple) else (v, v)

    return Conv2d(dtype, bias, relu, n, h, w, co, ci, kh, kw, pair(stride), pair(padding), pair(dilation))


@dataclass(frozen=True)
class Kernel(Workload):
    """A kernel measured by another tuner, often with the device in its name: ``kernel:convolution@A4000``.

    It has no program, so only recorded times can be searched.
    """

    name: str = ""
    operations: int | None = None  # the number of floating-point operations per execution, if known

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.@+-]+", self.name):
            raise SearchlabError(
                f"kernel: the name {self.name!r} may contain only letters, digits and the characters _ . @ + -, "
                f"for example kernel:convolution@A4000"
            )

    @property
    def op(self) -> str:
        return "kernel"

    def __str__(self) -> str:
        return f"kernel:{self.name}" + (f":{self.operations}flop" if self.operations else "")

    @property
    def flops(self) -> int:
        return self.operations or UNKNOWN_FLOPS

    @property
    def unit(self) -> str:
        return "GFLOPS" if self.operations else "runs/s"

    @property
    def cluster(self) -> str:
        """The kernel's name without the device, such as ``convolution``; empty if the name has no device."""
        name, at, _ = self.name.partition("@")
        return name if at else ""

    @property
    def reduction(self) -> int:
        self._refuse()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        self._refuse()

    def reference(self, inputs: dict[str, Array]) -> Array:
        self._refuse()

    def prim_func(self) -> tvm.tirx.PrimFunc:
        self._refuse()

    def _refuse(self) -> Never:
        raise UnsupportedWorkload(
            f"{self} is another tuner's kernel and has no program here; use the space parameters with a table of "
            f"recorded times"
        )


def kernel(name: str, operations: int | None = None) -> Kernel:
    """Return the kernel ``name``.

    Args:
        name: The kernel's name, often followed by ``@`` and the device.
        operations: The number of floating-point operations per execution, if known.

    Raises:
        SearchlabError: If the name contains characters other than letters, digits and ``_.@+-``, or if ``operations``
            is below 1.
    """
    return Kernel("float32", False, False, name, operations)
