"""An int8 or bfloat16 conv2d as a conv2d on words of its products or input channels: see :mod:`.words`.

The image's zero padding needs no special treatment: once made unsigned, it is 128, for which the weights' row sums
compensate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from searchlab.workload import Conv2d

from .words import (
    DOT_FUNCTION,
    UNSIGNED_OFFSET,
    compute_row_sums,
    elements_per_word,
    has_offset,
    make_word,
    reinterpret_bits,
    to_unsigned,
)

if TYPE_CHECKING:
    import tvm
    from tvm import te
    from tvm.tirx import PrimExpr

SHARED_ARGUMENTS = {"rows": "weight", "rows_words": "weight"}
"""The module's arguments that share the memory of others."""


@dataclass(frozen=True)
class PatchWords:
    """The computation result[n, co, pixel] = patches[n, k, pixel] rows_words[co, k], with k over words."""

    workload: Conv2d

    @property
    def k(self) -> int:
        """The number of words in a row of weights; the last one may be padded with zeros."""
        return -(-self.workload.reduction // elements_per_word(self.workload.dtype))

    @property
    def rows_are_words(self) -> bool:
        """Whether the rows of weights consist of complete words and can be read in place."""
        return self.workload.reduction % elements_per_word(self.workload.dtype) == 0

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`.words.tensorize`."""
        from tvm import te
        from tvm.tirx import call_pure_extern

        w, (oh, ow) = self.workload, self.workload.out_size
        data = te.placeholder(w.shapes["data"], name="data", dtype=w.dtype)
        weight = te.placeholder(w.shapes["weight"], name="weight", dtype=w.dtype)
        rows = te.placeholder((w.co, w.reduction), name="rows", dtype=w.dtype)
        image = w.pad_image(te.compute(data.shape, lambda *at: reinterpret_bits(data(*at), w.dtype), name="bits"))
        args = [data, weight]
        if has_offset(w.dtype) or not self.rows_are_words:
            args.append(rows)
        if self.rows_are_words:
            args.append(rows_words := te.placeholder((w.co, self.k), name="rows_words", dtype="int32"))
        else:
            rows_words = te.compute(
                (w.co, self.k),
                lambda o, q: make_word(lambda k: reinterpret_bits(rows[o, k], w.dtype), w.dtype, q, w.reduction),
                name="rows_words",
            )

        def element(n: tvm.tirx.Var, k: tvm.tirx.PrimExpr, p: tvm.tirx.Var) -> tvm.tirx.PrimExpr:
            (sy, sx), (dy, dx) = w.stride, w.dilation
            c, a, b = k // (w.kh * w.kw), k // w.kw % w.kh, k % w.kw
            return image[n, c, p // ow * sy + a * dy, p % ow * sx + b * dx]

        patches = te.compute(
            (w.n, self.k, oh * ow),
            lambda n, q, p: to_unsigned(make_word(lambda k: element(n, k, p), w.dtype, q, w.reduction), w.dtype),
            name="patches",
        )
        q = te.reduce_axis((0, self.k), "q")
        conv = te.compute(
            (w.n, w.co, oh * ow),
            lambda n, o, p: te.sum(call_pure_extern(w.out_dtype, DOT_FUNCTION, rows_words[o, q], patches[n, q, p]), q),
            name="conv2d",
        )
        return _make_module(w, args, lambda n, o, y, x: conv[n, o, y * ow + x], rows)


@dataclass(frozen=True)
class ChannelWords:
    """The computation result[n, co, y, x] = image[n, q, y', x'] weights[co, q, a, b], with q over words of channels.

    The image is padded, and is the unsigned operand. The weights are padded to complete blocks of ``channels``.
    """

    workload: Conv2d
    channels: int

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`.words.tensorize`."""
        from tvm import te
        from tvm.tirx import all as both
        from tvm.tirx import call_pure_extern, const, if_then_else

        w, (py, px), zero = self.workload, self.workload.padding, const(0, "int32")
        count = count_channel_words(w)
        outputs = -(-w.co // self.channels) * self.channels
        # Whether the elements of a word are contiguous.
        is_contiguous = w.kh == w.kw == 1 and w.ci % elements_per_word(w.dtype) == 0
        data = te.placeholder(w.shapes["data"], name="data", dtype=w.dtype)
        weight = te.placeholder(w.shapes["weight"], name="weight", dtype=w.dtype)
        rows = te.placeholder((w.co, w.reduction), name="rows", dtype=w.dtype)
        rows_words = te.placeholder((w.co, count), name="rows_words", dtype="int32")
        args = [data, weight] + [rows] * has_offset(w.dtype) + [rows_words] * is_contiguous

        def pixel_word(
            n: tvm.tirx.Var, q: tvm.tirx.Var, y: tvm.tirx.PrimExpr, x: tvm.tirx.PrimExpr
        ) -> tvm.tirx.PrimExpr:
            value = make_word(lambda c: reinterpret_bits(data[n, c, y - py, x - px], w.dtype), w.dtype, q, w.ci)
            if w.is_padded:
                value = if_then_else(both(y >= py, y < w.h + py, x >= px, x < w.w + px), value, zero)
            return to_unsigned(value, w.dtype)

        def weight_word(o: tvm.tirx.PrimExpr, q: tvm.tirx.Var, a: tvm.tirx.Var, b: tvm.tirx.Var) -> tvm.tirx.PrimExpr:
            if is_contiguous:
                value = rows_words[o, q]
            else:
                value = make_word(lambda c: reinterpret_bits(weight[o, c, a, b], w.dtype), w.dtype, q, w.ci)
            return if_then_else(o < w.co, value, zero) if outputs > w.co else value

        image = te.compute((w.n, count, *w.padded_size), pixel_word, name="image")
        weights = te.compute((outputs, count, w.kh, w.kw), weight_word, name="weights")
        (sy, sx), (dy, dx) = w.stride, w.dilation
        q, a, b = (te.reduce_axis((0, size), name) for size, name in ((count, "q"), (w.kh, "a"), (w.kw, "b")))
        conv = te.compute(
            (w.n, outputs, *w.out_size),
            lambda n, o, y, x: te.sum(
                call_pure_extern(
                    w.out_dtype, DOT_FUNCTION, image[n, q, y * sy + a * dy, x * sx + b * dx], weights[o, q, a, b]
                ),
                [q, a, b],
            ),
            name="conv2d",
        )
        return _make_module(w, args, lambda n, o, y, x: conv[n, o, y, x], rows)


def count_channel_words(workload: Conv2d) -> int:
    """Return the number of words in a pixel's input channels; the last one may be padded with zeros."""
    return -(-workload.ci // elements_per_word(workload.dtype))


def _make_module(
    w: Conv2d, args: list[te.Tensor], compute_sum: Callable[..., PrimExpr], rows: te.Tensor
) -> tvm.IRModule:
    """Return the module that writes sums of products as NCHW, without the unsigned operand's offset."""
    import tvm
    from tvm import te

    shape = (w.n, w.co, *w.out_size)
    if has_offset(w.dtype):
        sums_read = te.placeholder((w.co,), name="sums_read", dtype="int32")
        args = [*args, compute_row_sums(rows), sums_read]
        result = te.compute(
            shape, lambda n, o, y, x: compute_sum(n, o, y, x) - sums_read[o] * UNSIGNED_OFFSET, name="signed"
        )
    else:
        result = te.compute(shape, compute_sum, name="result")
    return tvm.IRModule({"main": w.epilogue(args, result).with_attr("global_symbol", "main")})
