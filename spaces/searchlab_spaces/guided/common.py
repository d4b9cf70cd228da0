"""Helpers for the guided spaces: vector registers, the cost of threads, loop edges, packing, and epilogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab.target import Target

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

EDGE_ANNOTATION = "pragma_loop_partition_hint"
"""The annotation with which TVM peels off a loop's iterations at an edge, so that the others need no bound checks."""

MIN_PARALLEL_FLOPS = 2_000_000
"""The number of FLOP from which a parallel loop pays off: one core performs them while the workers wake up."""

UNROLLED_STEPS = 4
"""The number of reduction steps per iteration of the innermost loop and per chunk of a packed scalar operand."""


def count_registers(target: Target) -> int:
    """Return the number of vector registers, or of registers for floating-point numbers if there are no vectors.

    There are 16 on x86 before AVX-512 and in 32-bit Arm's NEON, 8 in its Helium (MVE), and 32 elsewhere.
    """
    from tvm.target.codegen import target_has_features

    def has(feature: str) -> bool:
        return bool(target_has_features(feature, target.tvm))

    if has("mve"):
        return 8
    return 16 if (has("sse2") and not has("avx512f")) or (has("neon") and has("aclass") and has("v7")) else 32


def make_untraced_schedule(module: tvm.IRModule) -> Schedule:
    """Return a schedule without a trace, of a program that is not a transformation of the workload's function."""
    from tvm.s_tir import Schedule

    return Schedule._create_non_traced(module)


def inline_consumers(sch: Schedule, block: SBlockRV) -> SBlockRV:
    """Inline the consumers of ``block`` (cropping, bias, ReLU) into the last one, which writes the result."""
    consumers = sch.get_consumers(block)
    while next_consumers := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = next_consumers
    return consumers[0]


def pack_scalars(sch: Schedule, pack: SBlockRV, height: int) -> LoopRV:
    """Copy micro-panels of rows, UNROLLED_STEPS elements of each row in turn, and return the loop over panels."""
    # Sixteen elements of a row, a cache line of float32, are copied at once. Likewise, pack_vectors copies eight rows.
    row, column = sch.get_loops(pack)[-2:]
    panel, row = sch.split(row, [None, height])
    row_chunk, chunk, lane = sch.split(column, [None, 4, UNROLLED_STEPS])
    sch.reorder(panel, row_chunk, row, chunk, lane)
    sch.unroll(chunk)
    sch.vectorize(lane)
    return panel


def pack_vectors(sch: Schedule, pack: SBlockRV, vectors: int, lanes: int) -> LoopRV:
    """Copy micro-panels with ``vectors`` vectors per row, a few rows of the operand at once. Return the outer loop."""
    row, column = sch.get_loops(pack)[-2:]
    rows, row = sch.split(row, [None, 8])
    panel, vector, lane = sch.split(column, [None, vectors, lanes])
    sch.reorder(rows, panel, row, vector, lane)
    sch.annotate(panel, EDGE_ANNOTATION, 1)
    sch.unroll(vector)
    sch.vectorize(lane)
    return rows
