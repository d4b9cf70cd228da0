"""A conv2d of int8 or bfloat16 as the GEMM of words of its weights and its image's patches: see :mod:`.words`.

Zeros around the image are as good as others: made unsigned they are 128, which the sums of the weights' rows take away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from searchlab.workload import Conv2d

from .words import DOT, OFFSET, bits, elements, has_offset, row_sums, unsigned, word

if TYPE_CHECKING:
    import tvm

VIEWS = {"rows": "weight", "rows_words": "weight"}
"""Arguments of the module that are the memory of others."""


@dataclass(frozen=True)
class ConvWords:
    """result[n, co, pixel] = patches[n, k, pixel] rows_words[co, k], where k counts words of products (ci, kh, kw)."""

    workload: Conv2d

    @property
    def k(self) -> int:
        """Words of a row of weights, the last of which may have elements of 0."""
        return -(-self.workload.reduction // elements(self.workload.dtype))

    @property
    def rows_are_words(self) -> bool:
        """Whether the rows of weights are whole words, so that they are read as they are."""
        return self.workload.reduction % elements(self.workload.dtype) == 0

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`.words.tensorized`."""
        import tvm
        from tvm import te
        from tvm.tirx import call_pure_extern

        w, (oh, ow) = self.workload, self.workload.out_size
        data = te.placeholder(w.shapes["data"], name="data", dtype=w.dtype)
        weight = te.placeholder(w.shapes["weight"], name="weight", dtype=w.dtype)
        rows = te.placeholder((w.co, w.reduction), name="rows", dtype=w.dtype)
        image = w.padded(te.compute(data.shape, lambda *at: bits(data(*at), w.dtype), name="bits"))
        args = [data, weight]
        if has_offset(w.dtype) or not self.rows_are_words:
            args.append(rows)
        if self.rows_are_words:
            args.append(rows_words := te.placeholder((w.co, self.k), name="rows_words", dtype="int32"))
        else:
            rows_words = te.compute(
                (w.co, self.k),
                lambda o, q: word(lambda k: bits(rows[o, k], w.dtype), w.dtype, q, w.reduction),
                name="rows_words",
            )

        def patch(n: tvm.tirx.Var, k: tvm.tirx.PrimExpr, p: tvm.tirx.Var) -> tvm.tirx.PrimExpr:
            (sy, sx), (dy, dx) = w.stride, w.dilation
            c, a, b = k // (w.kh * w.kw), k // w.kw % w.kh, k % w.kw
            return image[n, c, p // ow * sy + a * dy, p % ow * sx + b * dx]

        patches = te.compute(
            (w.n, self.k, oh * ow),
            lambda n, q, p: unsigned(word(lambda k: patch(n, k, p), w.dtype, q, w.reduction), w.dtype),
            name="patches",
        )
        q = te.reduce_axis((0, self.k), "q")
        conv = te.compute(
            (w.n, w.co, oh * ow),
            lambda n, o, p: te.sum(call_pure_extern(w.out_dtype, DOT, rows_words[o, q], patches[n, q, p]), q),
            name="conv2d",
        )
        if has_offset(w.dtype):
            read = te.placeholder((w.co,), name="sums_read", dtype="int32")
            args += [row_sums(rows), read]
            result = te.compute(
                (w.n, w.co, oh, ow), lambda n, o, y, x: conv[n, o, y * ow + x] - read[o] * OFFSET, name="signed"
            )
        else:
            result = te.compute((w.n, w.co, oh, ow), lambda n, o, y, x: conv[n, o, y * ow + x], name="result")
        return tvm.IRModule({"main": w.epilogue(args, result, 1).with_attr("global_symbol", "main")})
