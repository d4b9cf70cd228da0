"""The built-in workloads that are sums of products: GEMM, conv2d and the batched matrix product."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean
from ..options import checks_arguments
from .base import Argument, Workload, rounding

if TYPE_CHECKING:
    import tvm

ACCUMULATED_IN = {
    "bfloat16": "float32",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
}
"""A mapping from the operands' dtype to the dtype of the accumulator and the result."""


EPILOGUE = ("bias", "add", "relu")
"""The parts of an epilogue, in order. Each name is also that of a flag, of an option in spellings, and of a block."""


@dataclass(frozen=True)
class Product(Workload):
    """A workload whose results are sums of products.

    They may be followed by an epilogue, as in a layer of a network: bias, addition of an array, and ReLU.

    Attributes:
        dtype: The type of the operands, one of :data:`ACCUMULATED_IN`.
        bias: Whether a bias is added to the result.
        add: Whether an array of the result's shape is added next, as in a residual block.
        relu: Whether negative results are then replaced with 0.
    """

    dtype: str
    bias: bool = False
    add: bool = False
    relu: bool = False
    channel_axis: ClassVar[int] = 1
    """The axis of the result along which the bias varies."""

    def __post_init__(self) -> None:
        if self.dtype not in ACCUMULATED_IN:
            raise SearchlabError(f"dtype {self.dtype!r} is not supported{did_you_mean(self.dtype, ACCUMULATED_IN)}")

    @property
    @abstractmethod
    def reduction(self) -> int:
        """The number of products summed for each element of the result."""

    @property
    def out_dtype(self) -> str:
        return ACCUMULATED_IN[self.dtype]

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        *_, result = self.shapes
        wide_names = (result, "bias", "addend")
        return tuple(
            Argument(name, shape, self.out_dtype if name in wide_names else self.dtype)
            for name, shape in self.shapes.items()
        )

    def tolerance(self) -> tuple[float, float]:
        return rounding(self.out_dtype, self.reduction)

    @property
    def reference_dtype(self) -> str:
        """The dtype in which :meth:`reference` accumulates sums, so that its error is far below the tolerance."""
        return "float32" if self.dtype == "float16" else self.out_dtype

    @property
    def suffix(self) -> str:
        """The end of the spelling, such as ``":float16:relu"``."""
        dtype = "" if self.dtype == "float32" else f":{self.dtype}"
        return dtype + "".join(f":{name}" for name in EPILOGUE if getattr(self, name))

    def operands(self, result: tuple[int, ...], channels: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the epilogue's operands, if any: the bias and the array that is added."""
        bias = {"bias": (channels,)} if self.bias else {}
        return bias | ({"addend": result} if self.add else {})

    def epilogue(self, args: list[Any], result: Any) -> tvm.tirx.PrimFunc:
        """Return a PrimFunc of ``args`` that computes ``result`` and the epilogue."""
        import tvm
        from tvm import te

        if self.bias:
            bias = te.placeholder(self.shapes["bias"], name="bias_in", dtype=self.out_dtype)
            args = [*args, bias]
            summand = result
            result = te.compute(summand.shape, lambda *i: summand(*i) + bias[i[self.channel_axis]], name="bias")
        if self.add:
            addend = te.placeholder(self.shapes["addend"], name="addend", dtype=self.out_dtype)
            args = [*args, addend]
            summand = result
            result = te.compute(summand.shape, lambda *i: summand(*i) + addend(*i), name="add")
        if self.relu:
            operand = result
            zero = tvm.tirx.const(0, self.out_dtype)
            result = te.compute(operand.shape, lambda *i: tvm.tirx.max(operand(*i), zero), name="relu")
        return te.create_prim_func([*args, result])

    def numpy_epilogue(self, result: Array, inputs: dict[str, Array]) -> Array:
        """Apply the same operations as :meth:`epilogue` with NumPy."""
        if self.bias:
            result = result + inputs["bias"].reshape(-1, *[1] * (result.ndim - 1 - self.channel_axis))
        if self.add:
            result = result + inputs["addend"]
        if self.relu:
            result = np.maximum(result, 0)
        return result.astype(self.out_dtype, copy=False)


@dataclass(frozen=True)
class MatrixProduct(Product):
    """``C[m, n] = A[m, k] B[k, n]``, perhaps for each element of a batch, then an optional epilogue.

    Attributes:
        nt: Whether B is stored as [n, k], like the weight of a linear layer.
        axes: The names of the sizes, in the order of the spelling.
        block: The name of the block that computes the product.
        form: The form of the spelling, for messages.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    nt: bool = False
    axes: ClassVar[tuple[str, ...]]
    block: ClassVar[str]
    form: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes(*self.axes)

    @classmethod
    def parse(cls, text: str) -> Self:
        sizes, options = parse_sizes(text, len(cls.axes), cls.form)
        sizes_by_axis: dict[str, Any] = dict(zip(cls.axes, sizes, strict=True))
        return with_options(cls("float32", **sizes_by_axis), options)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each of the :attr:`axes`; those before the last three are of batches."""
        return tuple(getattr(self, axis) for axis in self.axes)

    @property
    def spelling(self) -> str:
        return f"{'x'.join(map(str, self.sizes))}{':nt' if self.nt else ''}{self.suffix}"

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.sizes)

    @property
    def reduction(self) -> int:
        return self.k

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        *batch, m, n, k = self.sizes
        result = *batch, m, n
        b = (*batch, n, k) if self.nt else (*batch, k, n)
        return {"A": (*batch, m, k), "B": b, **self.operands(result, n), "C": result}

    def reference(self, inputs: dict[str, Array]) -> Array:
        a, b = (inputs[name].astype(self.reference_dtype, copy=False) for name in "AB")
        return self.numpy_epilogue(a @ (b.swapaxes(-1, -2) if self.nt else b), inputs)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te

        a, b = (te.placeholder(self.shapes[name], name=name, dtype=self.dtype) for name in "AB")
        p = te.reduce_axis((0, self.k), "p")

        def term(*indices: Any) -> Any:
            *batch, i, j = indices
            factor = b[(*batch, j, p)] if self.nt else b[(*batch, p, j)]
            return te.sum(a[(*batch, i, p)].astype(self.out_dtype) * factor.astype(self.out_dtype), axis=p)

        names = ["s", "i", "j"][-len(self.shapes["C"]) :]
        return self.epilogue([a, b], te.compute(self.shapes["C"], term, name=self.block, varargs_names=names))


@dataclass(frozen=True)
class Gemm(MatrixProduct):
    """``C[m, n] = A[m, k] B[k, n]``, then optional ``+ bias[n]``, ``+ addend[m, n]`` and ReLU.

    Attributes:
        nt: Whether B is stored as [n, k], like the weight of a linear layer.
    """

    axes = "m", "n", "k"
    block = "gemm"
    form = "gemm:MxNxK[:nt], for example gemm:512x512x512:nt:float64:bias:relu"


@checks_arguments
def gemm(
    m: int,
    n: int,
    k: int,
    dtype: str = "float32",
    *,
    nt: bool = False,
    bias: bool = False,
    add: bool = False,
    relu: bool = False,
) -> Gemm:
    """Return the matrix product ``C[m, n] = A[m, k] B[k, n]``.

    Args:
        m: The number of rows of A and C.
        n: The number of columns of B and C.
        k: The number of columns of A and rows of B.
        dtype: The type of A and B: ``float16``, ``bfloat16``, ``float32``, ``float64``, ``int8``, ``uint8`` or
            ``int16``.
        nt: Whether B is stored as [n, k], like the weight of a linear layer. BLAS calls this product "NT".
        bias: Whether to add a vector of shape (n,) to each row of C.
        add: Whether to add another matrix of C's shape.
        relu: Whether to replace negative results with 0.

    Raises:
        SearchlabError: If a size is below 1 or ``dtype`` is unknown.

    Example:
        >>> import searchlab
        >>> searchlab.gemm(512, 512, 512, bias=True)
        Gemm(dtype='float32', bias=True, add=False, relu=False, m=512, n=512, k=512, nt=False)
        >>> searchlab.gemm(512, 512, 512).flops
        268435456
    """
    return Gemm(dtype, bias, add, relu, m, n, k, nt)


@dataclass(frozen=True)
class Conv2d(Product):
    """2-D cross-correlation in NCHW with OIHW weights, then optional ``+ bias[co]``, ``+ addend`` and ReLU.

    Attributes:
        padding: The number of zeros added at the top, and on the left.
        excess: How many more zeros are added at the bottom and on the right.
    """

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
    groups: int = 1
    excess: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("n", "h", "w", "co", "ci", "kh", "kw", "stride", "dilation", "groups")
        self.check_sizes("padding", least=0)
        if min(self.all_padding) < 0:
            raise SearchlabError(f"conv2d: padding must be at least 0, not {min(self.all_padding)}")
        if self.co % self.groups or self.ci % self.groups:
            raise SearchlabError(
                f"conv2d: the channel counts, {self.co} and {self.ci}, must be divisible by the number of groups, "
                f"{self.groups}"
            )
        for size, kernel, dilation, axis in (
            (self.padded_size[0], self.kh, self.dilation[0], "height"),
            (self.padded_size[1], self.kw, self.dilation[1], "width"),
        ):
            if (kernel - 1) * dilation + 1 > size:
                raise SearchlabError(
                    f"conv2d: the kernel has {axis} {(kernel - 1) * dilation + 1} with dilation, "
                    f"but the padded image's {axis} is only {size}"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        (n, h, w, co, ci, kh, kw), options = parse_sizes(
            text, 7, "conv2d:NxHxWxCOxCIxKHxKW[:sS][:pP][:dD][:gG], for example conv2d:1x7x7x512x512x3x3:s1:p1"
        )
        # The geometry is parsed first, because a kernel must fit into the padded image.
        matches = [match for option in options if (match := GEOMETRY_PATTERN.fullmatch(option))]
        geometry: dict[str, Any] = {GEOMETRY_NAMES[m[1]]: (int(m[2]), int(m[3] or m[2])) for m in matches if m[1]}
        geometry.update(("groups", int(m[4])) for m in matches if m[4])
        geometry |= _make_padding(next((tuple(map(int, m[5].split("x"))) for m in reversed(matches) if m[5]), None))
        convolution = cls("float32", n=n, h=h, w=w, co=co, ci=ci, kh=kh, kw=kw, **geometry)
        return with_options(convolution, [option for option in options if not GEOMETRY_PATTERN.fullmatch(option)])

    @property
    def op(self) -> str:
        """``conv2d``, or ``grouped-conv2d`` if there are several groups, which need different programs."""
        return "conv2d" if self.groups == 1 else "grouped-conv2d"

    @property
    def spelling(self) -> str:
        def format_pair(letter: str, value: tuple[int, int], default: int) -> str:
            if value == (default, default):
                return ""
            return f":{letter}{value[0]}" if value[0] == value[1] else f":{letter}{value[0]}x{value[1]}"

        sizes = "x".join(str(size) for size in (self.n, self.h, self.w, self.co, self.ci, self.kh, self.kw))
        padding = f":p{'x'.join(map(str, self.all_padding))}" if any(self.excess) else format_pair("p", self.padding, 0)
        geometry = format_pair("s", self.stride, 1) + padding + format_pair("d", self.dilation, 1)
        return f"{sizes}{geometry}{f':g{self.groups}' if self.groups > 1 else ''}{self.suffix}"

    @property
    def all_padding(self) -> tuple[int, int, int, int]:
        """The numbers of zeros added at the top, on the left, at the bottom and on the right."""
        (top, left), (bottom_excess, right_excess) = self.padding, self.excess
        return top, left, top + bottom_excess, left + right_excess

    @property
    def is_padded(self) -> bool:
        return any(self.all_padding)

    @property
    def padded_size(self) -> tuple[int, int]:
        """The height and width of the padded image."""
        top, left, bottom, right = self.all_padding
        return self.h + top + bottom, self.w + left + right

    @property
    def out_size(self) -> tuple[int, int]:
        """The height and width of the result."""
        (sy, sx), (dy, dx), (h, w) = self.stride, self.dilation, self.padded_size
        return (h - (self.kh - 1) * dy - 1) // sy + 1, (w - (self.kw - 1) * dx - 1) // sx + 1

    @property
    def flops(self) -> int:
        oh, ow = self.out_size
        return 2 * self.n * self.co * oh * ow * self.reduction

    @property
    def reduction(self) -> int:
        return self.ci // self.groups * self.kh * self.kw

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        result = self.n, self.co, *self.out_size
        return {
            "data": (self.n, self.ci, self.h, self.w),
            "weight": (self.co, self.ci // self.groups, self.kh, self.kw),
            **self.operands(result, self.co),
            "out": result,
        }

    def reference(self, inputs: dict[str, Array]) -> Array:
        (sy, sx), (dy, dx), (top, left, bottom, right) = self.stride, self.dilation, self.all_padding
        oh, ow = self.out_size
        data = np.pad(inputs["data"].astype(self.reference_dtype), ((0, 0), (0, 0), (top, bottom), (left, right)))
        weight = inputs["weight"].astype(self.reference_dtype)
        out = np.zeros((self.n, oh, ow, self.co), self.reference_dtype)
        group_inputs, group_outputs = self.ci // self.groups, self.co // self.groups
        for group in range(self.groups):
            channels = slice(group * group_inputs, (group + 1) * group_inputs)
            filters = slice(group * group_outputs, (group + 1) * group_outputs)
            for i in range(self.kh):
                for j in range(self.kw):
                    y, x = i * dy, j * dx
                    window = data[:, channels, y : y + (oh - 1) * sy + 1 : sy, x : x + (ow - 1) * sx + 1 : sx]
                    out[..., filters] += np.tensordot(window, weight[filters, :, i, j], axes=([1], [1]))
        return self.numpy_epilogue(np.ascontiguousarray(out.transpose(0, 3, 1, 2)), inputs)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te

        (sy, sx), (dy, dx) = self.stride, self.dilation
        oh, ow = self.out_size
        data = te.placeholder(self.shapes["data"], name="data", dtype=self.dtype)
        weight = te.placeholder(self.shapes["weight"], name="weight", dtype=self.dtype)
        source = self.pad_image(data)
        group_inputs, group_outputs = self.ci // self.groups, self.co // self.groups

        def input_channel(f: Any, rc: Any) -> Any:
            return rc if self.groups == 1 else f // group_outputs * group_inputs + rc

        rc = te.reduce_axis((0, group_inputs), "rc")
        ry = te.reduce_axis((0, self.kh), "ry")
        rx = te.reduce_axis((0, self.kw), "rx")
        conv = te.compute(
            (self.n, self.co, oh, ow),
            lambda n, f, y, x: te.sum(
                source[n, input_channel(f, rc), y * sy + ry * dy, x * sx + rx * dx].astype(self.out_dtype)
                * weight[f, rc, ry, rx].astype(self.out_dtype),
                axis=[rc, ry, rx],
            ),
            name="conv2d",
        )
        return self.epilogue([data, weight], conv)

    def pad_image(self, data: tvm.te.Tensor) -> tvm.te.Tensor:
        """Return ``data`` surrounded by zeros (the block ``pad``), or ``data`` itself if there is no padding."""
        import tvm
        from tvm import te

        py, px = self.padding
        if not self.is_padded:
            return data
        zero = tvm.tirx.const(0, data.dtype)
        return te.compute(
            (self.n, self.ci, *self.padded_size),
            lambda n, c, y, x: tvm.tirx.if_then_else(
                tvm.tirx.all(y >= py, y < self.h + py, x >= px, x < self.w + px), data[n, c, y - py, x - px], zero
            ),
            name="pad",
        )


@checks_arguments
def conv2d(
    n: int,
    h: int,
    w: int,
    co: int,
    ci: int,
    kh: int,
    kw: int,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | tuple[int, int, int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    dtype: str = "float32",
    *,
    groups: int = 1,
    bias: bool = False,
    add: bool = False,
    relu: bool = False,
) -> Conv2d:
    """Return the 2-D convolution of images (n, ci, h, w) with weights (co, ci / groups, kh, kw), in NCHW layout.

    Args:
        n: The batch size.
        h: The height of the input.
        w: The width of the input.
        co: The number of output channels.
        ci: The number of input channels.
        kh: The height of a kernel.
        kw: The width of a kernel.
        stride: A single number or (vertical, horizontal).
        padding: The number of zeros added on each side, in the same form as ``stride``, or the four numbers at the top,
            on the left, at the bottom and on the right.
        dilation: The distance between adjacent kernel elements, in the same form as ``stride``.
        dtype: The type of the images and weights: ``float16``, ``bfloat16``, ``float32``, ``float64``, ``int8``,
            ``uint8`` or ``int16``.
        groups: The number of groups into which the channels are divided, which are convolved separately. A depthwise
            convolution has as many groups as input channels.
        bias: Whether to add a vector of shape (co,) along the channels.
        add: Whether to add another image of the result's shape.
        relu: Whether to replace negative results with 0.

    Raises:
        SearchlabError: If a size is too small, the kernel exceeds the padded image, or ``dtype`` is unknown.

    Example:
        >>> import searchlab
        >>> str(searchlab.conv2d(1, 28, 28, 128, 128, 3, 3, padding=1))
        'conv2d:1x28x28x128x128x3x3:p1'
    """

    def make_pair(v: int | tuple[int, int]) -> tuple[int, int]:
        return v if isinstance(v, tuple) else (v, v)

    padding_fields: Any = (
        _make_padding(padding) if isinstance(padding, tuple) and len(padding) == 4 else {"padding": make_pair(padding)}
    )
    geometry = {"stride": make_pair(stride), "dilation": make_pair(dilation), **padding_fields}
    return Conv2d(dtype, bias, add, relu, n, h, w, co, ci, kh, kw, groups=groups, **geometry)


def _make_padding(sides: tuple[int, ...] | None) -> dict[str, tuple[int, int]]:
    if sides is None:
        return {}
    top, left, bottom, right = sides
    return {"padding": (top, left), "excess": (bottom - top, right - left)}


def find_convolutions(
    image: Sequence[int],
    weights: Sequence[int],
    result: Sequence[int],
    dtype: str,
    padded_image: Sequence[int] | None = None,
    **epilogue: bool,
) -> Iterator[Conv2d]:
    """Yield the convolutions with these shapes, common ones first.

    Args:
        image: The shape of the images, (n, ci, h, w).
        weights: The shape of the weights, (co, ci / groups, kh, kw).
        result: The shape of the result, (n, co, rows, columns).
        dtype: The type of the images and weights.
        padded_image: The shape of the padded images, if it is known.
        epilogue: See ``bias``, ``add`` and ``relu`` of :func:`conv2d`.
    """
    (n, ci, h, w), (co, group_inputs, kh, kw) = image, weights
    if tuple(result[:2]) != (n, co) or ci % group_inputs:
        return
    rows, columns = (None, None) if padded_image is None else (padded_image[2] - h, padded_image[3] - w)
    window_pairs = product(_list_windows(h, kh, result[2], rows), _list_windows(w, kw, result[3], columns))
    for vertical, horizontal in sorted(window_pairs, key=lambda pair: (pair[0] != pair[1], pair)):
        stride, dilation, _, (top, left), (bottom, right) = zip(vertical, horizontal, strict=True)
        with suppress(SearchlabError):  # sizes below 1, or a type that is not supported
            sides = top, left, bottom, right
            yield conv2d(n, h, w, co, ci, kh, kw, stride, sides, dilation, dtype, groups=ci // group_inputs, **epilogue)


def _list_windows(size: int, kernel: int, result: int, padding: int | None) -> list[tuple[int, int, int, int, int]]:
    """Return the combinations that reduce ``size`` pixels to ``result``, if the image has ``padding`` zeros in all.

    Each consists of a stride, a dilation, by how much the numbers of zeros before and after the image differ, and these
    numbers. If the padding is unknown, only common combinations are returned. If there is only one result, all strides
    are the same.
    """
    if padding is None:
        paddings, strides, dilations = [2 * side for side in range(min(kernel, 12) + 1)], range(1, 5), range(1, 3)
    else:
        paddings, strides, dilations = [padding], range(1, 33), range(1, 33)
    return [
        (stride, dilation, abs(total - 2 * before), before, total - before)
        for stride, total, dilation in product(strides, paddings, dilations if kernel > 1 else [1])
        if (size + total - (kernel - 1) * dilation - 1) // stride + 1 == result
        and (result > 1 or stride == size + total - (kernel - 1) * dilation)
        for before in ({total // 2} if padding is None else {0, total // 2, (total + 1) // 2, total})
    ]


@dataclass(frozen=True)
class BatchMatmul(MatrixProduct):
    """``C[b, m, n] = A[b, m, k] B[b, k, n]`` for each element b of a batch, then an optional epilogue, as in a GEMM.

    Attributes:
        nt: Whether B is stored as [b, n, k], like the keys of an attention layer.
    """

    b: int = 1
    channel_axis = 2
    axes = "b", "m", "n", "k"
    block = "batch_matmul"
    form = "batch-matmul:BxMxNxK[:nt], for example batch-matmul:12x128x128x64:nt:float16"


# --- spelling -----------------------------------------------------------------------------------------

GEOMETRY_PATTERN = re.compile(r"(?:([spd])(-?\d+)(?:x(-?\d+))?|g(-?\d+)|p(-?\d+(?:x-?\d+){3}))")
GEOMETRY_NAMES = {"s": "stride", "p": "padding", "d": "dilation"}


def parse_sizes(text: str, count: int, spelling: str) -> tuple[list[int], list[str]]:
    """Split ``text``, such as ``"4x8:float64"``, into its ``count`` sizes and the options that follow them.

    Raises:
        SearchlabError: If ``text`` does not begin with ``count`` sizes; the message shows ``spelling``.
    """
    sizes, *options = text.split(":")
    try:
        numbers = [int(number) for number in sizes.split("x")]
        if len(numbers) != count:
            raise ValueError
    except ValueError:
        workload_kind = spelling.partition(":")[0]
        raise SearchlabError(f"workload '{workload_kind}:{text}' needs {count} whole numbers: {spelling}") from None
    return numbers, options


ProductT = TypeVar("ProductT", bound=Product)


def with_options(workload: ProductT, options: Sequence[str]) -> ProductT:
    """Return ``workload`` with the dtype and the parts of an epilogue that ``options`` specify."""
    changes: dict[str, Any] = {}
    flag_names = [field.name for field in fields(workload) if field.name in (*EPILOGUE, "nt")]
    for option in options:
        if option in ACCUMULATED_IN:
            changes["dtype"] = option
        elif option in flag_names:
            changes[option] = True
        else:
            geometry = ["s1", "p1", "d1", "g1"] if isinstance(workload, Conv2d) else []
            options_of_op = [*ACCUMULATED_IN, *flag_names, *geometry]
            name = ":".join([str(workload), *options])
            raise SearchlabError(f"workload {name!r}: unknown option {option!r}{did_you_mean(option, options_of_op)}")
    return replace(workload, **changes)
