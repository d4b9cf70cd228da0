"""The stochastic trace functions that ``trace`` ships for CUDA: GEMM, and a direct conv2d.

Tiles are drawn from the inside out, so that each draw knows what the ones before it have left: a thread's accumulators
fit its registers, and a block's threads the hardware, whatever is drawn. What remains, shared memory, is counted on the
program (see :mod:`..gpu_check`). Both are plain TVM, and run in MetaSchedule too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cuda_tiling import tile
from ..gpu_check import MAX_VTHREAD, MOST, THREADS

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

ACCUMULATORS = 64
"""The most results that a thread sums for one virtual thread, of its 255 registers."""

VTHREADS = MAX_VTHREAD
"""The most virtual threads of all axes together: the body is written out for each."""

DEPTH = 64
"""The most of a reduction between two fetches into shared memory."""

UNROLL = (0, 64, 512, 1500)
"""How many statements of a loop are unrolled at the most; 0 leaves that to the CUDA compiler."""


def stochastic_schedule_mm_cuda(sch: Schedule) -> None:
    """GEMM: sampled tiles of the rows and columns of C for blocks, virtual threads and threads, and of k in three."""
    block = sch.get_sblock("gemm")
    *spatial, k = sch.get_loops(block)
    _sample_and_tile(sch, block, [], spatial, [k])


def stochastic_schedule_conv2d_cuda(sch: Schedule) -> None:
    """Direct convolution, NCHW: sampled tiles of channels, rows and columns, and of each reduction loop in three.

    The padding is computed as the image is fetched; bias and ReLU where the result is written.
    """
    block = sch.get_sblock("conv2d")
    n, *loops = sch.get_loops(block)
    _sample_and_tile(sch, block, [n], loops[:3], loops[3:])


def _sample_and_tile(
    sch: Schedule, block: SBlockRV, batch: Sequence[LoopRV], spatial: Sequence[LoopRV], reduced: Sequence[LoopRV]
) -> None:
    outside, inner = _split_off(sch, spatial, ACCUMULATORS)
    axes = "xyz"[: len(spatial)][::-1]  # as `tile` binds them
    outside, threads = _split_off(sch, outside, THREADS, [MOST[f"threadIdx.{axis}"] for axis in axes])
    blocks, virtual = _split_off(sch, outside, VTHREADS)
    outside, rest = _split_off(sch, reduced, DEPTH)
    outer, middle = _split_off(sch, outside, DEPTH // _size(sch, rest))
    unroll = sch.sample_categorical(list(UNROLL), [1 / len(UNROLL)] * len(UNROLL))
    parts = zip(blocks, virtual, threads, inner, strict=True)
    tile(sch, block, batch, list(parts), list(zip(outer, middle, rest, strict=True)), unroll, 1)


def _split_off(
    sch: Schedule, loops: Sequence[LoopRV], room: int, most: Sequence[int] | None = None
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split ``loops`` by sampled tiles in two, the inner parts going round at most ``room`` times all together.

    ``most`` says how often each may go round at the most, where that is less.
    """
    outer, inner = [], []
    for loop, limit in zip(loops, most or [room] * len(loops), strict=True):
        factors = sch.sample_perfect_tile(loop, n=2, max_innermost_factor=min(room, limit))
        left, part = sch.split(loop, factors)
        room //= _size(sch, [part])
        outer.append(left)
        inner.append(part)
    return outer, inner


def _size(sch: Schedule, loops: Sequence[LoopRV]) -> int:
    size = 1
    for loop in loops:
        size *= int(sch.get(loop).extent)
    return size
