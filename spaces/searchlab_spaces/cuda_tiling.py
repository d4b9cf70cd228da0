"""The CUDA schedule of a reduction tiled over blocks, virtual threads and threads.

The schedule follows AutoTVM's tutorial on conv2d for NVIDIA GPUs (``tune_conv2d_cuda.py``, TVM 0.17); the space chooses
the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import ExprRV, LoopRV, SBlockRV


def tile_reduction(
    sch: Schedule,
    block: SBlockRV,
    batch: Sequence[LoopRV],
    spatial: Sequence[Sequence[LoopRV]],
    reduced: Sequence[Sequence[LoopRV]],
    unroll_steps: int | ExprRV,
    unroll_explicit: int | ExprRV,
) -> None:
    """Bind the loops of a reduction and cache its operands.

    The operands pass through shared memory at each step of the outer reduction loops, and through registers at each
    step of the middle ones; the result is accumulated in registers.

    Args:
        sch: The schedule.
        block: The reduction.
        batch: The loops over independent images, if any.
        spatial: The four parts of each spatial loop: block, virtual thread, thread, inner.
        reduced: The three parts of each reduction loop, outermost first.
        unroll_steps: The maximum number of statements in a loop to unroll.
        unroll_explicit: Whether TVM, rather than the CUDA compiler, unrolls loops.
    """
    shared_copies = [sch.cache_read(block, operand, "shared") for operand in (0, 1)]
    register_copies = [sch.cache_read(block, operand, "local") for operand in (0, 1)]
    for cache in shared_copies:
        for padding in sch.get_producers(cache):
            sch.compute_inline(padding)
    result = _find_result_block(sch, block)

    blocks, vthreads, threads, inner = ([parts[i] for parts in spatial] for i in range(4))
    outer, middle, rest = ([parts[i] for parts in reduced] for i in range(3))
    sch.reorder(*batch, *blocks, *vthreads, *threads, *outer, *middle, *rest, *inner)
    kernel = sch.fuse(*batch, blocks[0]) if batch else blocks[0]
    axes = "xyz"[: len(spatial)][::-1]  # the innermost loop is x
    _bind(sch, "blockIdx", axes, [kernel, *blocks[1:]])
    _bind(sch, "vthread", axes, vthreads)
    _bind(sch, "threadIdx", axes, threads)

    sch.reverse_compute_at(result, threads[-1], preserve_unit_loops=True)
    for cache in register_copies:
        sch.compute_at(cache, middle[-1], preserve_unit_loops=True)
    for cache in shared_copies:
        dimension_count = len(sch.get_loops(cache))
        sch.compute_at(cache, outer[-1], preserve_unit_loops=True)
        elements = sch.fuse(*sch.get_loops(cache)[-dimension_count:])
        # All threads in a block fetch together, and neighbouring threads fetch neighbouring elements.
        extents = [int(sch.get(loop).extent) for loop in threads]
        _, *fetchers = sch.split(elements, [None, *extents])
        _bind(sch, "threadIdx", axes, fetchers)
    sch.annotate(kernel, "pragma_auto_unroll_max_step", unroll_steps)
    sch.annotate(kernel, "pragma_unroll_explicit", unroll_explicit)
    sch.decompose_reduction(block, outer[0])


def _find_result_block(sch: Schedule, block: SBlockRV) -> SBlockRV:
    """Return the block that writes the sums from registers, with bias and ReLU inlined into it."""
    consumers = sch.get_consumers(block)
    if not consumers:
        return sch.cache_write(block, 0, "local")
    sch.set_scope(block, 0, "local")
    while next_consumers := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = next_consumers
    return consumers[0]


def _bind(sch: Schedule, axis_group: str, axes: str, loops: Sequence[LoopRV]) -> None:
    for axis, loop in zip(axes, loops, strict=True):
        sch.bind(loop, f"{axis_group}.{axis}")
