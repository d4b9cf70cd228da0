"""An int8 or bfloat16 GEMM as a GEMM on words: see :mod:`.words`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from searchlab.workload import Gemm

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

SHARED_ARGUMENTS = {"A_words": "A"}
"""The module's arguments that share the memory of others."""


@dataclass(frozen=True)
class Words:
    """An int8 or bfloat16 GEMM as a GEMM on words, m x n x ``k``: the product of two words is their dot product.

    ``A_words`` and ``B_words`` are the operands of the block ``gemm``.
    """

    workload: Gemm

    @property
    def m(self) -> int:
        return self.workload.m

    @property
    def n(self) -> int:
        return self.workload.n

    @property
    def k(self) -> int:
        """The number of words in a row of A; the last one may be padded with zeros."""
        return -(-self.workload.k // elements_per_word(self.workload.dtype))

    @property
    def a_is_words(self) -> bool:
        """Whether the rows of A consist of complete words, so that A can be read in place."""
        return self.workload.k % elements_per_word(self.workload.dtype) == 0

    @property
    def dtype(self) -> str:
        """The type of a word."""
        return "int32"

    @property
    def out_dtype(self) -> str:
        return self.workload.out_dtype

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`.words.tensorize`."""
        import tvm
        from tvm import te
        from tvm.tirx import call_pure_extern

        w = self.workload
        a = te.placeholder((w.m, w.k), name="A", dtype=w.dtype)
        b = te.placeholder(w.shapes["B"], name="B", dtype=w.dtype)
        args = [a, b]
        if self.a_is_words:
            args.append(a_words := te.placeholder((w.m, self.k), name="A_words", dtype="int32"))
        else:
            a_words = te.compute(
                (w.m, self.k),
                lambda i, q: make_word(lambda p: reinterpret_bits(a[i, p], w.dtype), w.dtype, q, w.k),
                name="A_words",
            )
        b_words = te.compute(
            (self.k, w.n),
            lambda q, j: to_unsigned(
                make_word(lambda p: reinterpret_bits(b[j, p] if w.nt else b[p, j], w.dtype), w.dtype, q, w.k), w.dtype
            ),
            name="B_words",
        )
        q = te.reduce_axis((0, self.k), "q")
        result = te.compute(
            (w.m, w.n),
            lambda i, j: te.sum(call_pure_extern(w.out_dtype, DOT_FUNCTION, a_words[i, q], b_words[q, j]), q),
            name="gemm",
        )
        if has_offset(w.dtype):
            products, read = result, te.placeholder((w.m,), name="sums_read", dtype="int32")
            args += [compute_row_sums(a), read]
            result = te.compute((w.m, w.n), lambda i, j: products[i, j] - read[i] * UNSIGNED_OFFSET, name="signed")
        return tvm.IRModule({"main": w.epilogue(args, result).with_attr("global_symbol", "main")})
