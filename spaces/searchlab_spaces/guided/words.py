"""Dot products of int8 or bfloat16 in 32-bit words, for CPU instructions that compute them.

``vpdpbusd`` (AVX-512 VNNI) adds four products of an unsigned and a signed byte to each int32 in a vector, and
``vdpbf16ps`` (AVX512-BF16) adds two products of bfloat16 to each float32. In a product of A and B, a word of A is
broadcast; its elements are adjacent in a row, so A need not be copied. The words of B form vectors, assembled from its
rows.

With int8, one operand is made unsigned by adding 128, and 128 times the row sum of the other operand is subtracted from
each result: ``sum a b = sum a (b + 128) - 128 sum a``, which is exact modulo 2^32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from searchlab.target import Target
from searchlab.workload import ACCUMULATED_IN

from .common import make_untraced_schedule

if TYPE_CHECKING:
    from tvm import te
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV
    from tvm.tirx import PrimExpr

UNSIGNED_OFFSET = 128
"""The offset that makes a signed byte unsigned."""

DOT_FUNCTION = "searchlab_dot"
"""The operation on two words: an external function that need not exist, because every call is tensorized."""


@dataclass(frozen=True)
class Instruction:
    """An instruction that adds the dot products of words to the elements of a vector.

    Attributes:
        intrinsic: Its name in LLVM, without the width in bits.
        element: The element type in LLVM.
        feature: LLVM's name for the CPU feature.
    """

    title: str
    intrinsic: str
    element: str
    feature: str


INSTRUCTIONS = {
    "int8": Instruction("AVX-512 VNNI", "llvm.x86.avx512.vpdpbusd", "i8", "avx512vnni"),
    "bfloat16": Instruction("AVX512-BF16", "llvm.x86.avx512bf16.dpbf16ps", "bfloat", "avx512bf16"),
}
"""The instruction for each element dtype."""

_INTRINSIC_TEMPLATE = """\
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1,), "int32", offset_factor=1), B: T.Buffer(({lanes},), "int32", offset_factor=1),
         C: T.Buffer(({lanes},), "{sum}", offset_factor=1)):
    with T.sblock("root"):
        T.reads(C[0:{lanes}], A[0:1], B[0:{lanes}])
        T.writes(C[0:{lanes}])
{body}
"""
_DESCRIPTION_TEMPLATE = """\
        for j in T.serial(0, {lanes}):
            with T.sblock("dot"):
                vj = T.axis.remap("S", [j])
                C[vj] = C[vj] + T.call_pure_extern("{sum}", "{dot}", A[0], B[vj])"""
_IMPLEMENTATION_TEMPLATE = """\
        C[T.ramp(0, 1, {lanes})] = T.call_pure_extern(
            "{sum}x{lanes}", "{name}", C.vload([0], "{sum}x{lanes}"), B.vload([0], "int32x{lanes}"),
            T.broadcast(A[0], {lanes}))"""
_FUNCTION_TEMPLATE = """\
declare <{lanes} x {ctype}> @{intrinsic}(<{lanes} x {ctype}>, <{count} x {element}>, <{count} x {element}>)
define <{lanes} x {ctype}> @{name}(<{lanes} x {ctype}> %c, <{lanes} x i32> %b, <{lanes} x i32> %a) alwaysinline {{
  %elements_b = bitcast <{lanes} x i32> %b to <{count} x {element}>
  %elements_a = bitcast <{lanes} x i32> %a to <{count} x {element}>
  %sum = call <{lanes} x {ctype}> @{intrinsic}(
    <{lanes} x {ctype}> %c, <{count} x {element}> %elements_{unsigned}, <{count} x {element}> %elements_{signed})
  ret <{lanes} x {ctype}> %sum
}}
"""


def explain_missing_instruction(dtype: str, target: Target) -> str:
    """Return why no instruction supports ``dtype`` and the target's vector width, or "" if one does."""
    from tvm.target.codegen import target_has_features

    if dtype not in INSTRUCTIONS:
        return f"dot-product instructions exist only for {' and '.join(INSTRUCTIONS)}, not for {dtype}"
    instruction = INSTRUCTIONS[dtype]
    features = {64: [instruction.feature], 32: [instruction.feature, "avx512vl"]}.get(target.simd_bytes, [""])
    if all(feature and target_has_features(feature, target.tvm) for feature in features):
        return ""
    return f"the target's CPU has no {instruction.title}"


def elements_per_word(dtype: str) -> int:
    """Return the number of elements in a word."""
    return 4 // np.dtype(dtype).itemsize


def has_offset(dtype: str) -> bool:
    """Return whether one operand is made unsigned, which requires subtracting row sums from the result."""
    return dtype == "int8"


def reinterpret_bits(element: PrimExpr, dtype: str) -> PrimExpr:
    """Return an element's bits as an unsigned integer (TVM would convert bfloat16 values to float32)."""
    from tvm.tirx import reinterpret

    return reinterpret(f"uint{32 // elements_per_word(dtype)}", element)


def make_word(element: Callable[[PrimExpr], PrimExpr], dtype: str, word_index: PrimExpr, k: int) -> PrimExpr:
    """Return a word of a row of ``k`` elements; the first is in the lowest bits, and those from ``k`` on are 0."""
    from tvm.tirx import const, if_then_else

    count = elements_per_word(dtype)
    bit_width = 32 // count
    packed_word = None
    for index in range(count):
        p = word_index * count + index
        value = element(p).astype("int32")
        if k % count:
            value = if_then_else(p < k, value, const(0, "int32"))
        value = value << const(bit_width * index, "int32") if index else value
        packed_word = value if packed_word is None else packed_word | value
    return packed_word


def to_unsigned(packed_word: PrimExpr, dtype: str) -> PrimExpr:
    """Convert a word of the operand that the instruction treats as unsigned to unsigned elements."""
    return (
        packed_word ^ int.from_bytes([UNSIGNED_OFFSET] * 4, "little", signed=True) if has_offset(dtype) else packed_word
    )


def compute_row_sums(a: te.Tensor) -> te.Tensor:
    """Return the row sums of ``a``: the block ``part`` adds the vectors of a row, and ``sums`` adds their elements."""
    from tvm import te

    m, k = (int(size) for size in a.shape)
    lanes = gcd(k, 64)
    chunk, lane = te.reduce_axis((0, k // lanes), "chunk"), te.reduce_axis((0, lanes), "lane")
    part = te.compute((m, lanes), lambda i, at: te.sum(a[i, chunk * lanes + at].astype("int32"), chunk), name="part")
    return te.compute((m,), lambda i: te.sum(part[i, lane], lane), name="sums")


def _register_intrinsic(dtype: str, lanes: int, unsigned: str) -> tuple[str, str]:
    """Register the tensor intrinsic for vectors of ``lanes`` words, and return its name and its function in LLVM IR.

    Args:
        dtype: The dtype of the elements.
        lanes: The number of words in a vector.
        unsigned: The unsigned operand: "a", of which a word is broadcast, or "b".
    """
    from tvm.s_tir import TensorIntrin
    from tvm.script import from_source

    instruction, name = INSTRUCTIONS[dtype], f"{DOT_FUNCTION}_{dtype}x{lanes}_{unsigned}"
    sum_dtype = ACCUMULATED_IN[dtype]
    fields = {
        "lanes": lanes,
        "count": lanes * elements_per_word(dtype),
        "name": name,
        "dot": DOT_FUNCTION,
        "sum": sum_dtype,
        "ctype": {"int32": "i32", "float32": "float"}[sum_dtype],
        "element": instruction.element,
        "intrinsic": f"{instruction.intrinsic}.{32 * lanes}",
        "unsigned": unsigned,
        "signed": {"a": "b", "b": "a"}[unsigned],
    }
    if TensorIntrin.get(name, allow_missing=True) is None:
        description, implementation = (
            from_source(_INTRINSIC_TEMPLATE.format(**fields, body=body.format(**fields)))
            for body in (_DESCRIPTION_TEMPLATE, _IMPLEMENTATION_TEMPLATE)
        )
        TensorIntrin.register(name, description, implementation)
    return name, _FUNCTION_TEMPLATE.format(**fields)


def vectorize_block(sch: Schedule, block: SBlockRV, position: int, lanes: int) -> SBlockRV:
    """Split a loop of ``block``, and return a block for one vector and one step, as the intrinsic expects."""
    loops = sch.get_loops(block)
    vector, lane = sch.split(loops[position], [None, lanes])
    sch.reorder(*loops[:position], vector, *loops[position + 1 :], lane)
    return sch.blockize(lane)


def sum_rows(sch: Schedule, parallel: bool) -> None:
    """Schedule :func:`compute_row_sums` in vectors; it runs before everything else."""
    row, summed = sch.get_loops("sums")
    sch.unroll(summed)
    sch.compute_at("part", row, preserve_unit_loops=True)
    *_, lane, chunk = sch.get_loops("part")
    sch.reorder(chunk, lane)
    sch.vectorize(lane)
    if parallel:
        sch.parallel(row)
    sch.decompose_reduction("part", chunk)


def tensorize(
    sch: Schedule,
    block: SBlockRV,
    outermost: LoopRV,
    dtype: str,
    lanes: int,
    views: Mapping[str, str],
    unsigned: str = "b",
) -> Schedule:
    """Replace ``block`` with the instruction, and restore the workload's arguments.

    The function in ``sch`` has additional arguments. It reads ``sums_read`` instead of the ``sums`` that it computes,
    because TVM could not otherwise move the block that writes the result into the loops over micro-tiles. Here, the two
    buffers become one. The ``views`` are arguments made of words that share the memory of other arguments. Without
    them, LLVM would assemble the words from elements; its alias analysis would then fail, and it would write the sums
    from registers to memory at every step.

    Args:
        sch: The schedule.
        block: The block for one vector and one step.
        outermost: The outermost loop of the product.
        dtype: The dtype of the elements.
        lanes: The number of words in a vector.
        views: A mapping from each argument that shares another argument's memory to the name of that other argument.
        unsigned: The unsigned operand: "a", of which a word is broadcast, or "b".
    """
    import tvm
    from tvm.s_tir import SBlock, SBlockRealize
    from tvm.tirx import DeclBuffer, PrimFunc, SeqStmt

    name, llvm_function = _register_intrinsic(dtype, lanes, unsigned)
    init_block = sch.get(block).name_hint + "_init"
    sch.vectorize(sch.get_loops(init_block)[-1])
    sch.tensorize(sch.get_loops(block)[-1], name)
    sch.annotate(outermost, "pragma_import_llvm", llvm_function)

    func = sch.mod["main"]
    parameters = {buffer.name: buffer for buffer in func.params}
    if "sums" in parameters:
        func = func.specialize({parameters["sums_read"]: parameters["sums"]})
    buffers = {buffer.name: buffer for buffer in func.params}
    root, sums = func.body.block, buffers.pop("sums", None)
    view_declarations = [
        DeclBuffer(buffers.pop(view), data=buffers[shared_name].data)
        for view, shared_name in views.items()
        if view in buffers
    ]
    body = SeqStmt([*view_declarations, root.body]) if view_declarations else root.body
    sum_buffers = [] if sums is None else [sums]
    root_block = SBlock([], [], [], "root", body, alloc_buffers=[*sum_buffers, *root.alloc_buffers])
    main = PrimFunc([*buffers.values()], SBlockRealize([], True, root_block), func.ret_type, func.attrs)
    return make_untraced_schedule(tvm.IRModule({"main": main}))
