"""The packed, BLIS-style GEMM: a space of micro-tiles (mr, nr), every other choice being computed."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from searchlab.errors import UnsupportedWorkload
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Gemm, Workload

from .blis_model import kc_for, mc_for, nc_for

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

UNROLLED = 4
"""Steps of k in one trip of the innermost loop, and in one chunk of a packed row of A."""

FORK = 2_000_000
"""FLOP from which a parallel loop pays: waking the workers takes as long as about so many on one core."""

EDGE = "pragma_loop_partition_hint"
"""Makes TVM peel the trips of a loop that meet an edge, so that the others need no bound checks."""


@dataclass(frozen=True)
class Blocking:
    """How one GEMM is cut up. Sizes in elements; ``mc`` and ``nb`` are multiples of mr and nr, ``kc`` of UNROLLED.

    A task of the parallel loop computes mc x nb elements of C; B is packed nc columns at a time.
    """

    mc: int
    nc: int
    kc: int
    nb: int
    passes: int  # over k, of depth kc

    def tasks(self, m: int) -> int:
        """How many tasks share the work on one block of nc columns."""
        return ceil(m / self.mc) * (self.nc // self.nb)


def registers(target: Target) -> int:
    """How many vector registers the target has: 16 on x86 before AVX-512, 32 elsewhere."""
    from tvm.target.codegen import target_has_features

    return 16 if target_has_features("sse2", target.tvm) and not target_has_features("avx512f", target.tvm) else 32


def even(total: int, limit: int) -> int:
    """The size of the blocks when ``total`` is cut into as few as ``limit`` allows, all about as large."""
    return ceil(total / ceil(total / limit))


def blocking(workload: Gemm, target: Target, mr: int, nr: int) -> Blocking:
    """The paper's mc, nc, kc for the target's caches, then evened out over this problem and the target's cores."""
    itemsize = np.dtype(workload.dtype).itemsize
    l1, l2, *rest = target.caches
    m, n, k = workload.m, workload.n, workload.k
    # A micro-tile that sums all of k in registers writes C once and takes bias and ReLU along. It beats the L1
    # optimum as long as whole micro-panels keep to L2, from where the prefetcher feeds the multiply-adds.
    depth = k if k <= kc_for(l2, mr, nr, itemsize) else even(k, kc_for(l1, mr, nr, itemsize))
    kc = ceil(depth / UNROLLED) * UNROLLED
    rows = ceil(m / mr)
    most_rows = mc_for(l2, mr, nr, kc, itemsize) // mr
    columns = ceil(n / nr)
    if rest:  # without an L3, B streams from memory however little of it is packed at a time
        columns = even(columns, nc_for(rest[0], nr, kc, most_rows * mr, itemsize) // nr)

    def time(block: tuple[int, int]) -> int:
        # Rounds of tasks over the cores, in micro-tiles; the +1 is what a task spends on fetching its panels.
        height, width = block
        return ceil(ceil(rows / height) * ceil(columns / width) / target.cores) * (height + 1) * (width + 1)

    heights = range(min(rows, most_rows), 0, -1)
    widths = sorted({ceil(columns / parts) for parts in range(1, target.cores + 1)}, reverse=True)
    height, width = min(((h, w) for w in widths for h in heights), key=time)
    return Blocking(height * mr, ceil(columns / width) * width * nr, kc, width * nr, ceil(k / kc))


class GuidedGemm(ProductSpace):
    """The packed GEMM of GotoBLAS and BLIS over its micro-tile: mr rows by nr columns of C held in registers.

    nr is one to four vectors of the target, mr up to half its registers: a tile that does not fit spills, and is
    slow but right. Block sizes follow from the caches (:mod:`.blis_model`), edges are padded with zeros while
    packing, and bias and ReLU are applied as C is written. Any size, dtype and number of cores will do; raises
    UnsupportedWorkload for a conv2d and for a target that is no CPU.
    """

    workload: Gemm

    def __init__(self, workload: Workload, target: Target) -> None:
        if not isinstance(workload, Gemm):
            raise UnsupportedWorkload(f"guided-gemm takes gemm workloads, not {workload}; use knob-template for it")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-gemm is for CPUs (llvm), not {target.kind}; use knob-template there")
        self.lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        super().__init__(
            workload,
            target,
            [
                Knob("mr", tuple(range(1, registers(target) // 2 + 1))),
                Knob("nr", tuple(vectors * self.lanes for vectors in range(1, 5))),
            ],
        )

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        self.knobs(config)
        mr, nr = int(config["mr"]), int(config["nr"])  # type: ignore[arg-type]
        cut = blocking(self.workload, self.target, mr, nr)
        one_pass = cut.passes == 1
        sch = Schedule(self.workload.module)
        gemm = sch.get_sblock("gemm")

        # Operands, padded to whole micro-panels, become packed copies; the result goes through a scratch tile.
        sch.pad_einsum(gemm, [mr, nr, cut.kc])
        a, b = sch.cache_read(gemm, 0, "global"), sch.cache_read(gemm, 1, "global")
        if self.workload.m % mr or self.workload.k % cut.kc:
            sch.compute_inline("A_pad")
        if self.workload.n % nr or self.workload.k % cut.kc:
            sch.compute_inline("B_pad")
        result = _epilogue(sch, gemm)
        sch.transform_layout(
            a, ("write", 0), lambda i, p: (p // cut.kc, i // mr, p % cut.kc // UNROLLED, i % mr, p % UNROLLED)
        )
        sch.transform_layout(b, ("write", 0), lambda p, j: (p // cut.kc, j // nr, p % cut.kc, j % nr))
        sch.transform_layout(gemm, ("write", 0), lambda i, j: (i // mr, j // nr, i % mr, j % nr))

        # The loops around the micro-kernel; with one pass over k they are loops 5, 3, 2, 1, else 5, 3, 4, 2, 1.
        i, j, p = sch.get_loops(gemm)
        ic, ir, it = sch.split(i, [None, cut.mc // mr, mr])
        jc, jb, jr, jv, jl = sch.split(j, [None, cut.nc // cut.nb, cut.nb // nr, nr // self.lanes, self.lanes])
        pc, pr, pu = sch.split(p, [None, cut.kc // UNROLLED, UNROLLED])
        sch.reorder(jc, ic, jb, *((jr, ir, pc) if one_pass else (pc, jr, ir)), pr, pu, it, jv, jl)
        task = sch.fuse(ic, jb)
        sch.compute_at(b, jc, preserve_unit_loops=True)
        sch.compute_at(a, task if one_pass else pc, preserve_unit_loops=True)
        sch.reverse_compute_at(result, ir if one_pass else task, preserve_unit_loops=True)
        sch.vectorize(jl)
        for loop in (pu, it, jv):
            sch.unroll(loop)
        for loop in (jr, ir):
            sch.annotate(loop, EDGE, 1)

        _pack_a(sch, a, mr)
        rows = _pack_b(sch, b, nr // self.lanes, self.lanes)
        columns, lane = sch.split(sch.get_loops(result)[-1], [None, self.lanes])
        sch.vectorize(lane)
        sch.annotate(columns, EDGE, 1)
        if self.target.cores > 1 and cut.tasks(self.workload.m) > 1 and self.workload.flops >= FORK:
            sch.parallel(task)
            sch.parallel(rows)
        sch.decompose_reduction(gemm, pc)  # last: unroll, vectorize and parallel are refused after it
        return sch


def _epilogue(sch: Schedule, gemm: SBlockRV) -> SBlockRV:
    """The one block that writes the result, reading what ``gemm`` sums: cropping, bias and ReLU inlined into it."""
    consumers = sch.get_consumers(gemm)
    if not consumers:
        return sch.cache_write(gemm, 0, "global")
    while following := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = following
    return consumers[0]


def _pack_a(sch: Schedule, pack: SBlockRV, mr: int) -> None:
    """Micro-panels of mr rows, in which every row gives UNROLLED elements in turn: copied, never transposed."""
    # Sixteen elements at a time from a row, a cache line of float32; so, too, eight rows at a time of B.
    i, p = sch.get_loops(pack)[-2:]
    panel, row = sch.split(i, [None, mr])
    run, chunk, lane = sch.split(p, [None, 4, UNROLLED])
    sch.reorder(panel, run, row, chunk, lane)
    sch.unroll(chunk)
    sch.vectorize(lane)


def _pack_b(sch: Schedule, pack: SBlockRV, vectors: int, lanes: int) -> LoopRV:
    """Micro-panels of so many vectors a row, a few rows of B at a time; returns the loop over those."""
    p, j = sch.get_loops(pack)[-2:]
    rows, row = sch.split(p, [None, 8])
    panel, vector, lane = sch.split(j, [None, vectors, lanes])
    sch.reorder(rows, panel, row, vector, lane)
    sch.annotate(panel, EDGE, 1)
    sch.unroll(vector)
    sch.vectorize(lane)
    return rows
