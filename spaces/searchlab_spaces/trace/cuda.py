"""Built-in stochastic trace functions for CUDA: GEMM and direct conv2d.

Tiles are drawn from the inside out, and each draw is limited by the previous ones. A thread's accumulators therefore
always fit in its registers, and a block never has more threads than the hardware allows. Only the use of shared memory
is checked in the program (see :mod:`..gpu_check`). The functions also run in MetaSchedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cuda_tiling import tile_reduction
from ..gpu_check import MAX_EXTENTS, MAX_THREADS, MAX_VTHREAD
from .space import last_sample

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

MAX_ACCUMULATORS = 64
"""The maximum number of accumulators per virtual thread, out of a thread's 255 registers."""

MAX_TOTAL_VTHREADS = MAX_VTHREAD
"""The maximum number of virtual threads over all axes; the body is replicated for each of them."""

MAX_DEPTH = 64
"""The maximum number of reduction steps between two fetches into shared memory."""

UNROLL_STEPS = (0, 64, 512, 1500)
"""The maximum number of statements in an unrolled loop; 0 leaves unrolling to the CUDA compiler."""


def stochastic_schedule_mm_cuda(sch: Schedule) -> None:
    """Schedule a GEMM with sampled tiles of C for blocks, virtual threads and threads, and three-part tiles of k."""
    block = sch.get_sblock("gemm")
    *spatial, k = sch.get_loops(block)
    _sample_and_tile(sch, block, [], spatial, [k])


def stochastic_schedule_conv2d_cuda(sch: Schedule) -> None:
    """Schedule direct convolution (NCHW), also in groups, with sampled tiles of all loops but that over images.

    Padding is applied when the image is fetched; bias and ReLU are applied when the result is written.
    """
    block = sch.get_sblock("conv2d")
    n, *loops = sch.get_loops(block)
    _sample_and_tile(sch, block, [n], loops[:3], loops[3:])


def _sample_and_tile(
    sch: Schedule, block: SBlockRV, batch: Sequence[LoopRV], spatial: Sequence[LoopRV], reduced: Sequence[LoopRV]
) -> None:
    outside, inner = _split_off(sch, spatial, MAX_ACCUMULATORS)
    axes = "xyz"[: len(spatial)][::-1]  # as `tile` binds them
    outside, threads = _split_off(sch, outside, MAX_THREADS, [MAX_EXTENTS[f"threadIdx.{axis}"] for axis in axes])
    blocks, virtual = _split_off(sch, outside, MAX_TOTAL_VTHREADS)
    outside, rest = _split_off(sch, reduced, MAX_DEPTH)
    outer, middle = _split_off(sch, outside, MAX_DEPTH // _multiply_extents(sch, rest))
    unroll = sch.sample_categorical(list(UNROLL_STEPS), [1 / len(UNROLL_STEPS)] * len(UNROLL_STEPS))
    last_sample(sch)
    parts = zip(blocks, virtual, threads, inner, strict=True)
    tile_reduction(sch, block, batch, list(parts), list(zip(outer, middle, rest, strict=True)), unroll, 1)


def _split_off(
    sch: Schedule, loops: Sequence[LoopRV], max_product: int, max_extents: Sequence[int] | None = None
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split each of ``loops`` in two with a sampled tile.

    Args:
        sch: The schedule.
        loops: The loops.
        max_product: The maximum product of the inner extents.
        max_extents: The maximum inner extent of each loop, if it is lower.

    Returns:
        The outer loops and the inner loops.
    """
    outer, inner = [], []
    for loop, limit in zip(loops, max_extents or [max_product] * len(loops), strict=True):
        factors = sch.sample_perfect_tile(loop, n=2, max_innermost_factor=min(max_product, limit))
        outer_loop, inner_loop = sch.split(loop, factors)
        max_product //= _multiply_extents(sch, [inner_loop])
        outer.append(outer_loop)
        inner.append(inner_loop)
    return outer, inner


def _multiply_extents(sch: Schedule, loops: Sequence[LoopRV]) -> int:
    return math.prod(int(sch.get(loop).extent) for loop in loops)
