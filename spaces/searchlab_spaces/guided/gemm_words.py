"""An int8 GEMM in words of four: what the instructions that multiply and sum four bytes at once are given.

``vpdpbusd`` (AVX-512 VNNI) adds four products of an unsigned and a signed byte to each int32 of a vector. So B, whose
words are in the vectors, is made unsigned by adding 128, and 128 times the sum of its row of A is taken from each
result: ``sum a b = sum a (b + 128) - 128 sum a``, exact in arithmetic modulo 2^32. A word of A is broadcast. It is four
neighbours in a row, so A needs no copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any

from searchlab.target import Target
from searchlab.workload import Gemm

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.tirx import PrimExpr

BYTES = 4
"""Products that are summed at once: the bytes of a word."""

OFFSET = 128
"""What makes a signed byte unsigned."""

_DOT = "searchlab.dot"
"""The scalar operation, which no library has: every one of it is tensorized."""

_INTRINSIC = """\
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1,), "int32", offset_factor=1), B: T.Buffer(({lanes},), "int32", offset_factor=1),
         C: T.Buffer(({lanes},), "int32", offset_factor=1)):
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:1], B[0:{lanes}])
        T.writes(C[0:{lanes}])
{body}
"""
_DESCRIPTION = """\
        for j in T.serial(0, {lanes}):
            with T.sblock("dot"):
                vj = T.axis.remap("S", [j])
                C[vj] = C[vj] + T.call_pure_extern("int32", "{dot}", A[0], B[vj])"""
_IMPLEMENTATION = """\
        C[T.ramp(0, 1, {lanes})] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.{bits}"), C.vload([0], "int32x{lanes}"),
            T.reinterpret(B.vload([0], "int32x{lanes}"), dtype="int8x{bytes}"),
            T.reinterpret(T.broadcast(A[0], {lanes}), dtype="int8x{bytes}"), dtype="int32x{lanes}")"""


def suits(target: Target) -> bool:
    """Whether the CPU has the instruction for vectors as wide as its own."""
    from tvm.target.codegen import target_has_features

    bits = 8 * target.simd_bytes
    wide = {512: ["avx512vnni"], 256: ["avx512vnni", "avx512vl"]}.get(bits)
    return wide is not None and all(target_has_features(feature, target.tvm) for feature in wide)


def dot(lanes: int) -> str:
    """The name of the tensor intrinsic for vectors of ``lanes`` words, which TVM then knows."""
    from tvm.s_tir import TensorIntrin
    from tvm.script import from_source

    name = f"{_DOT}{lanes}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        names = {"lanes": lanes, "bytes": BYTES * lanes, "bits": 32 * lanes, "dot": _DOT}
        desc, impl = (
            from_source(_INTRINSIC.format(**names, body=body.format(**names)))
            for body in (_DESCRIPTION, _IMPLEMENTATION)
        )
        TensorIntrin.register(name, desc, impl)
    return name


@dataclass(frozen=True)
class Words:
    """An int8 GEMM as one of int32 words, m x n x ``k``, whose product sums four bytes.

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
        """Words of a row of A, the last of which may have bytes of 0."""
        return -(-self.workload.k // BYTES)

    @property
    def a_is_words(self) -> bool:
        """Whether the rows of A are whole words, so that A is read as it is."""
        return self.workload.k % BYTES == 0

    @property
    def flops(self) -> int:
        return self.workload.flops

    @property
    def dtype(self) -> str:
        return "int32"

    @property
    def out_dtype(self) -> str:
        return "int32"

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`joined`."""
        import tvm
        from tvm import te
        from tvm.tirx import call_pure_extern, const

        w = self.workload
        a = te.placeholder((w.m, w.k), name="A", dtype="int8")
        b = te.placeholder((w.k, w.n), name="B", dtype="int8")
        lanes = gcd(w.k, _SUMMED)
        chunk, lane = te.reduce_axis((0, w.k // lanes), "chunk"), te.reduce_axis((0, lanes), "lane")
        part = te.compute(
            (w.m, lanes), lambda i, at: te.sum(a[i, chunk * lanes + at].astype("int32"), chunk), name="part"
        )
        sums = te.compute((w.m,), lambda i: te.sum(part[i, lane], lane), name="sums")
        args = [a, b, sums, read := te.placeholder((w.m,), name="sums_read", dtype="int32")]
        if self.a_is_words:
            args.append(a_words := te.placeholder((w.m, self.k), name="A_words", dtype="int32"))
        else:
            a_words = te.compute((w.m, self.k), lambda i, q: _word(lambda p: a[i, p], q, w.k), name="A_words")
        b_words = te.compute(
            (self.k, w.n), lambda q, j: _word(lambda p: b[p, j], q, w.k) ^ const(_SIGNS, "int32"), name="B_words"
        )
        q = te.reduce_axis((0, self.k), "q")
        products = te.compute(
            (w.m, w.n),
            lambda i, j: te.sum(call_pure_extern("int32", _DOT, a_words[i, q], b_words[q, j]), q),
            name="gemm",
        )
        signed = te.compute((w.m, w.n), lambda i, j: products[i, j] - read[i] * const(OFFSET, "int32"), name="signed")
        return tvm.IRModule({"main": w.epilogue(args, signed, 1).with_attr("global_symbol", "main")})


def joined(sch: Schedule) -> Schedule:
    """The program of a schedule of :attr:`Words.module`, with the arguments of the workload.

    The sums that it reads are those that it makes. TVM moves the block that writes the result into the loops over
    micro-tiles only if all that it reads is made there, and what it reads only if it is there; so the two meet once
    both have their places. And the words of A are its memory: LLVM, if it joins bytes, forgets whose they were, and
    then writes the sums in registers to memory at every step, for fear that they are the same.
    """
    import tvm
    from tvm.s_tir import SBlock, SBlockRealize, Schedule
    from tvm.tirx import DeclBuffer, PrimFunc, SeqStmt

    func = sch.mod["main"]
    given = {buffer.name: buffer for buffer in func.params}
    func = func.specialize({given["sums_read"]: given["sums"]})
    buffers = {buffer.name: buffer for buffer in func.params}
    root, sums, words = func.body.block, buffers.pop("sums"), buffers.pop("A_words", None)
    body = root.body if words is None else SeqStmt([DeclBuffer(words, data=buffers["A"].data), root.body])
    block = SBlock([], [], [], "root", body, alloc_buffers=[sums, *root.alloc_buffers])
    whole = PrimFunc([*buffers.values()], SBlockRealize([], True, block), func.ret_type, func.attrs)
    return Schedule(tvm.IRModule({"main": whole}))


_SUMMED = 64
"""The most elements of a row of A that are added to others at once."""

_SIGNS = int.from_bytes([OFFSET] * BYTES, "little", signed=True)
"""Flips the sign bits of a word: the bytes as unsigned ones are greater by OFFSET."""


def _word(byte: Any, q: PrimExpr, k: int) -> PrimExpr:
    """The bytes at p = 4 q to 4 q + 3 as an int32, the first in the lowest bits; 0 from ``k`` on."""
    from tvm.tirx import const, if_then_else

    word = None
    for place in range(BYTES):
        p = q * BYTES + place
        value = byte(p).astype("uint8").astype("int32")
        if k % BYTES:
            value = if_then_else(p < k, value, const(0, "int32"))
        value = value << const(8 * place, "int32") if place else value
        word = value if word is None else word | value
    return word
