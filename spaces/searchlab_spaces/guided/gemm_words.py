"""A GEMM of int8 or bfloat16 in words of 32 bits, for the instructions that sum the products of two words' elements.

``vpdpbusd`` (AVX-512 VNNI) adds four products of an unsigned and a signed byte to each int32 of a vector,
``vdpbf16ps`` (AVX512-BF16) two products of bfloat16 to each float32. A word of A is broadcast. It is neighbours in a
row, so A needs no copy. The words of B are in vectors, and are put together from rows.

With int8, B is made unsigned by adding 128, and 128 times the sum of its row of A is taken from each result:
``sum a b = sum a (b + 128) - 128 sum a``, exact in arithmetic modulo 2^32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.target import Target
from searchlab.workload import ACCUMULATED_IN, Gemm

if TYPE_CHECKING:
    import tvm
    from tvm import te
    from tvm.s_tir import Schedule
    from tvm.tirx import PrimExpr

OFFSET = 128
"""What makes a signed byte unsigned."""

_DOT = "searchlab_dot"
"""The operation on scalars, which no library has: every one of it is tensorized."""


@dataclass(frozen=True)
class Instruction:
    """One that adds the products of the elements of two words to each element of a vector."""

    title: str
    intrinsic: str  # of LLVM, without the width in bits
    element: str  # in LLVM's words
    feature: str  # of the CPU


INSTRUCTIONS = {
    "int8": Instruction("AVX-512 VNNI", "llvm.x86.avx512.vpdpbusd", "i8", "avx512vnni"),
    "bfloat16": Instruction("AVX512-BF16", "llvm.x86.avx512bf16.dpbf16ps", "bfloat", "avx512bf16"),
}
"""By the dtype of the elements."""

_INTRINSIC = """\
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1,), "int32", offset_factor=1), B: T.Buffer(({lanes},), "int32", offset_factor=1),
         C: T.Buffer(({lanes},), "{sum}", offset_factor=1)):
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:1], B[0:{lanes}])
        T.writes(C[0:{lanes}])
{body}
"""
_DESCRIPTION = """\
        for j in T.serial(0, {lanes}):
            with T.sblock("dot"):
                vj = T.axis.remap("S", [j])
                C[vj] = C[vj] + T.call_pure_extern("{sum}", "{dot}", A[0], B[vj])"""
_IMPLEMENTATION = """\
        C[T.ramp(0, 1, {lanes})] = T.call_pure_extern(
            "{sum}x{lanes}", "{name}", C.vload([0], "{sum}x{lanes}"), B.vload([0], "int32x{lanes}"),
            T.broadcast(A[0], {lanes}))"""
_FUNCTION = """\
declare <{lanes} x {ctype}> @{intrinsic}(<{lanes} x {ctype}>, <{count} x {element}>, <{count} x {element}>)
define <{lanes} x {ctype}> @{name}(<{lanes} x {ctype}> %c, <{lanes} x i32> %b, <{lanes} x i32> %a) alwaysinline {{
  %elements_b = bitcast <{lanes} x i32> %b to <{count} x {element}>
  %elements_a = bitcast <{lanes} x i32> %a to <{count} x {element}>
  %sum = call <{lanes} x {ctype}> @{intrinsic}(
    <{lanes} x {ctype}> %c, <{count} x {element}> %elements_b, <{count} x {element}> %elements_a)
  ret <{lanes} x {ctype}> %sum
}}
"""


def lacks(dtype: str, target: Target) -> str:
    """Why there is no instruction for ``dtype`` and vectors as wide as the target's; empty if there is one."""
    from tvm.target.codegen import target_has_features

    if dtype not in INSTRUCTIONS:
        return f"there is such an instruction for {' and '.join(INSTRUCTIONS)}, not for {dtype}"
    instruction = INSTRUCTIONS[dtype]
    features = {64: [instruction.feature], 32: [instruction.feature, "avx512vl"]}.get(target.simd_bytes, [""])
    if all(feature and target_has_features(feature, target.tvm) for feature in features):
        return ""
    return f"the target's CPU has no {instruction.title}"


def dot(dtype: str, lanes: int) -> tuple[str, str]:
    """The name of the tensor intrinsic for vectors of ``lanes`` words, which TVM then knows, and LLVM's function."""
    from tvm.s_tir import TensorIntrin
    from tvm.script import from_source

    instruction, name = INSTRUCTIONS[dtype], f"{_DOT}_{dtype}x{lanes}"
    sums = ACCUMULATED_IN[dtype]
    names = {
        "lanes": lanes, "count": lanes * 4 // np.dtype(dtype).itemsize, "name": name, "dot": _DOT, "sum": sums,
        "ctype": {"int32": "i32", "float32": "float"}[sums], "element": instruction.element,
        "intrinsic": f"{instruction.intrinsic}.{32 * lanes}",
    }  # fmt: skip
    if TensorIntrin.get(name, allow_missing=True) is None:
        desc, impl = (
            from_source(_INTRINSIC.format(**names, body=body.format(**names)))
            for body in (_DESCRIPTION, _IMPLEMENTATION)
        )
        TensorIntrin.register(name, desc, impl)
    return name, _FUNCTION.format(**names)


@dataclass(frozen=True)
class Words:
    """A GEMM of int8 or bfloat16 as one of words, m x n x ``k``, whose product sums those of their elements.

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
        """Words of a row of A, the last of which may have elements of 0."""
        return -(-self.workload.k // self.elements)

    @property
    def elements(self) -> int:
        """How many a word has."""
        return 4 // np.dtype(self.workload.dtype).itemsize

    @property
    def a_is_words(self) -> bool:
        """Whether the rows of A are whole words, so that A is read as it is."""
        return self.workload.k % self.elements == 0

    @property
    def has_sums(self) -> bool:
        """Whether the sums of rows of A are taken from the result."""
        return self.workload.dtype == "int8"

    @property
    def dtype(self) -> str:
        """Of a word."""
        return "int32"

    @property
    def out_dtype(self) -> str:
        return self.workload.out_dtype

    @cached_property
    def module(self) -> tvm.IRModule:
        """The program to schedule. It has more arguments than the workload: see :func:`joined`."""
        import tvm
        from tvm import te
        from tvm.tirx import call_pure_extern

        w = self.workload
        a = te.placeholder((w.m, w.k), name="A", dtype=w.dtype)
        b = te.placeholder((w.k, w.n), name="B", dtype=w.dtype)
        args = [a, b]
        if self.a_is_words:
            args.append(a_words := te.placeholder((w.m, self.k), name="A_words", dtype="int32"))
        else:
            a_words = te.compute((w.m, self.k), lambda i, q: self._word(lambda p: a[i, p], q), name="A_words")
        signs = int.from_bytes([OFFSET] * 4, "little", signed=True) if self.has_sums else 0  # adds OFFSET to each byte
        b_words = te.compute((self.k, w.n), lambda q, j: self._word(lambda p: b[p, j], q) ^ signs, name="B_words")
        q = te.reduce_axis((0, self.k), "q")
        result = te.compute(
            (w.m, w.n),
            lambda i, j: te.sum(call_pure_extern(w.out_dtype, _DOT, a_words[i, q], b_words[q, j]), q),
            name="gemm",
        )
        if self.has_sums:
            products, read = result, te.placeholder((w.m,), name="sums_read", dtype="int32")
            args += [_row_sums(a), read]
            result = te.compute((w.m, w.n), lambda i, j: products[i, j] - read[i] * OFFSET, name="signed")
        return tvm.IRModule({"main": w.epilogue(args, result, 1).with_attr("global_symbol", "main")})

    def _word(self, element: Any, q: PrimExpr) -> PrimExpr:
        """The elements of word ``q`` as an int32, the first in the lowest bits; 0 from the workload's k on."""
        from tvm.tirx import const, if_then_else, reinterpret

        k, bits = self.workload.k, 32 // self.elements
        word = None
        for place in range(self.elements):
            p = q * self.elements + place
            value = reinterpret(f"uint{bits}", element(p)).astype("int32")
            if k % self.elements:
                value = if_then_else(p < k, value, const(0, "int32"))
            value = value << const(bits * place, "int32") if place else value
            word = value if word is None else word | value
        return word


def _row_sums(a: te.Tensor) -> te.Tensor:
    """The blocks ``part`` and ``sums``: vectors of a row are added to each other, and then their elements."""
    from tvm import te

    m, k = (int(size) for size in a.shape)
    lanes = gcd(k, 64)
    chunk, lane = te.reduce_axis((0, k // lanes), "chunk"), te.reduce_axis((0, lanes), "lane")
    part = te.compute((m, lanes), lambda i, at: te.sum(a[i, chunk * lanes + at].astype("int32"), chunk), name="part")
    return te.compute((m,), lambda i: te.sum(part[i, lane], lane), name="sums")


def joined(sch: Schedule) -> Schedule:
    """The program of a schedule of :attr:`Words.module`, with the arguments of the workload.

    The sums that it reads are those that it makes. TVM moves the block that writes the result into the loops over
    micro-tiles only if all that it reads is made there, and what it reads only if it is there; so the two meet once
    both have their places. And the words of A are its memory: LLVM, if it joins elements, forgets whose they were, and
    then writes the sums in registers to memory at every step, for fear that they are the same.
    """
    import tvm
    from tvm.s_tir import SBlock, SBlockRealize, Schedule
    from tvm.tirx import DeclBuffer, PrimFunc, SeqStmt

    func = sch.mod["main"]
    given = {buffer.name: buffer for buffer in func.params}
    if "sums" in given:
        func = func.specialize({given["sums_read"]: given["sums"]})
    buffers = {buffer.name: buffer for buffer in func.params}
    root, sums, words = func.body.block, buffers.pop("sums", None), buffers.pop("A_words", None)
    body = root.body if words is None else SeqStmt([DeclBuffer(words, data=buffers["A"].data), root.body])
    made = [] if sums is None else [sums]
    block = SBlock([], [], [], "root", body, alloc_buffers=[*made, *root.alloc_buffers])
    whole = PrimFunc([*buffers.values()], SBlockRealize([], True, block), func.ret_type, func.attrs)
    return Schedule(tvm.IRModule({"main": whole}))
