"""The CUDA templates of ``knob-template``: conv2d and GEMM, tiled over blocks, virtual threads and threads.

The schedule is that of AutoTVM's tutorial on conv2d for NVIDIA GPUs (``tune_conv2d_cuda.py``, TVM 0.17).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from searchlab.target import Target

from .knobs import TemplateConfig
from .template_registry import template

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV


@template("conv2d_no_batching", op="conv2d", target="cuda")
def conv2d_no_batching(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Direct convolution, NCHW: four-part tiles of f, y, x (block, vthread, thread, inner), three-part rc, ry, rx.

    Images of a batch are not tiled: each has blocks of its own.
    """
    conv = sch.get_sblock("conv2d")
    n, f, y, x, rc, ry, rx = sch.get_loops(conv)
    cfg.define_split("tile_f", f, num_outputs=4)
    cfg.define_split("tile_y", y, num_outputs=4)
    cfg.define_split("tile_x", x, num_outputs=4)
    cfg.define_split("tile_rc", rc, num_outputs=3)
    cfg.define_split("tile_ry", ry, num_outputs=3)
    cfg.define_split("tile_rx", rx, num_outputs=3)
    _define_unroll(cfg)
    spatial = [cfg["tile_f"].apply(sch, f), cfg["tile_y"].apply(sch, y), cfg["tile_x"].apply(sch, x)]
    reduced = [cfg["tile_rc"].apply(sch, rc), cfg["tile_ry"].apply(sch, ry), cfg["tile_rx"].apply(sch, rx)]
    _tile(cfg, sch, conv, [n], spatial, reduced)


@template("gemm_cuda", op="gemm", target="cuda")
def gemm_cuda(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """GEMM with four-part tiles of the rows and columns of C, and three-part tiles of k."""
    gemm = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(gemm)
    cfg.define_split("tile_i", i, num_outputs=4)
    cfg.define_split("tile_j", j, num_outputs=4)
    cfg.define_split("tile_k", k, num_outputs=3)
    _define_unroll(cfg)
    spatial = [cfg["tile_i"].apply(sch, i), cfg["tile_j"].apply(sch, j)]
    _tile(cfg, sch, gemm, [], spatial, [cfg["tile_k"].apply(sch, k)])


def _define_unroll(cfg: TemplateConfig) -> None:
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])


def _tile(
    cfg: TemplateConfig,
    sch: Schedule,
    block: SBlockRV,
    batch: Sequence[LoopRV],
    spatial: Sequence[Sequence[LoopRV]],
    reduced: Sequence[Sequence[LoopRV]],
) -> None:
    """Bind and cache a reduction whose loops are split: ``spatial`` in four each, ``reduced`` in three.

    The operands go through shared memory at each step of the outer reduction loops, and through registers at
    each step of the middle ones; the result is summed in registers.
    """
    shared = [sch.cache_read(block, operand, "shared") for operand in (0, 1)]
    local = [sch.cache_read(block, operand, "local") for operand in (0, 1)]
    for cache in shared:
        for padding in sch.get_producers(cache):
            sch.compute_inline(padding)
    result = _result(sch, block)

    blocks, virtual, threads, inner = ([tile[part] for tile in spatial] for part in range(4))
    outer, middle, rest = ([tile[part] for tile in reduced] for part in range(3))
    sch.reorder(*batch, *blocks, *virtual, *threads, *outer, *middle, *rest, *inner)
    kernel = sch.fuse(*batch, blocks[0]) if batch else blocks[0]
    axes = "xyz"[: len(spatial)][::-1]  # the innermost loop is x
    _bind(sch, "blockIdx", axes, [kernel, *blocks[1:]])
    _bind(sch, "vthread", axes, virtual)
    _bind(sch, "threadIdx", axes, threads)

    sch.reverse_compute_at(result, threads[-1], preserve_unit_loops=True)
    for cache in local:
        sch.compute_at(cache, middle[-1], preserve_unit_loops=True)
    for cache in shared:
        dims = len(sch.get_loops(cache))
        sch.compute_at(cache, outer[-1], preserve_unit_loops=True)
        elements = sch.fuse(*sch.get_loops(cache)[-dims:])
        # All threads of the block fetch together, neighbours next to each other.
        extents = [int(sch.get(loop).extent) for loop in threads]
        _, *fetchers = sch.split(elements, [None, *extents])
        _bind(sch, "threadIdx", axes, fetchers)
    sch.annotate(kernel, "pragma_auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    sch.annotate(kernel, "pragma_unroll_explicit", cfg["unroll_explicit"].val)
    sch.decompose_reduction(block, outer[0])


def _result(sch: Schedule, block: SBlockRV) -> SBlockRV:
    """The block that writes what ``block`` has summed in registers, with bias and ReLU inlined into it."""
    consumers = sch.get_consumers(block)
    if not consumers:
        return sch.cache_write(block, 0, "local")
    sch.set_scope(block, 0, "local")
    while following := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = following
    return consumers[0]


def _bind(sch: Schedule, kind: str, axes: str, loops: Sequence[LoopRV]) -> None:
    for axis, loop in zip(axes, loops, strict=True):
        sch.bind(loop, f"{kind}.{axis}")
