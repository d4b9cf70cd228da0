"""Built-in CPU templates: a tiled, optionally packed GEMM and a direct conv2d with blocked channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from searchlab.target import Target

from ..operands import find_blocks_after, is_transposed, make_panel_map
from .knobs import TemplateConfig
from .registry import template

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV

MAX_UNROLLED = 16
"""The maximum number of unrolled rows or pixels: more would not fit in registers."""

MAX_VECTORISED = 64
"""The maximum number of vectorised columns or channels: four vectors of sixteen floats."""


@template("gemm_cpu", op="gemm", target="llvm")
def gemm(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """GEMM with three-level tiles of C, a two-level split of k, and optional packing of B by the innermost tile.

    If B is stored as [n, k], it is always packed. The loop order is i0 j0 k0 i1 j1 k1 i2 j2, with i2 unrolled, j2
    vectorised and (i0, j0) parallel.
    """
    _schedule_product(cfg, sch, target, "gemm")


@template("batch_matmul_cpu", op="batch-matmul", target="llvm")
def batch_matmul(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Each product of a batch like a GEMM, in parallel with the others."""
    _schedule_product(cfg, sch, target, "batch_matmul")


def _schedule_product(cfg: TemplateConfig, sch: Schedule, target: Target, name: str) -> None:
    block = sch.get_sblock(name)
    *batch, i, j, k = sch.get_loops(block)
    cfg.define_split("tile_i", i, 3, filter=lambda split: split.size[2] <= MAX_UNROLLED)
    cfg.define_split("tile_j", j, 3, filter=lambda split: split.size[2] <= MAX_VECTORISED)
    cfg.define_split("tile_k", k, 2)
    nt = is_transposed(sch, block)
    cfg.define_knob("pack_b", [1] if nt else [0, 1])

    i0, i1, i2 = cfg["tile_i"].apply(sch, i)
    j0, j1, j2 = cfg["tile_j"].apply(sch, j)
    k0, k1 = cfg["tile_k"].apply(sch, k)
    sch.reorder(*batch, i0, j0, k0, i1, j1, k1, i2, j2)
    if cfg["pack_b"].val:
        width = cfg["tile_j"].size[2]
        packed = sch.cache_read(block, 1, "global")
        sch.transform_layout(packed, ("write", 0), make_panel_map(width, nt))
        *copies, first, second = sch.get_loops(packed)
        columns, rows = (first, second) if nt else (second, first)
        outer, inner = sch.split(columns, [None, width])
        sch.reorder(outer, rows, inner)
        sch.vectorize(inner)
        _parallelize(sch, target, *copies, outer)
    sch.unroll(i2)
    sch.vectorize(j2)
    _parallelize(sch, target, *batch, i0, j0)
    _schedule_epilogue(sch, target, find_blocks_after(sch, name))
    sch.decompose_reduction(block, k0)


@template("conv2d_cpu", op="conv2d", target="llvm")
def conv2d(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Direct convolution on NCHW tensors, internally blocked by channels.

    Weights are packed into [co/v, ci, kh, kw, v]. A register tile has v vectorised channels by (y, x) unrolled pixels.
    Input channels are split in two, and the outer loop surrounds the pixels of a row of tiles. Images, channel blocks
    and rows of tiles run in parallel.
    """
    block = sch.get_sblock("conv2d")
    n, c, y, x, rc, ry, rx = sch.get_loops(block)
    cfg.define_split("tile_co", c, 2, max_factor=MAX_VECTORISED)
    cfg.define_split("tile_oh", y, 2, max_factor=MAX_UNROLLED)
    cfg.define_split("tile_ow", x, 3, filter=lambda split: split.size[2] <= MAX_UNROLLED)
    cfg.define_split("tile_ci", rc, 2)
    cfg.define_knob("unroll_kw", [0, 1])

    v = cfg["tile_co"].size[1]
    weights = sch.cache_read(block, 1, "global")
    sch.transform_layout(weights, ("write", 0), lambda o, i, a, b: (o // v, i, a, b, o % v))
    result = sch.cache_write(block, 0, "global")
    sch.transform_layout(block, ("write", 0), lambda b, o, h, w: (b, o // v, h, w, o % v))
    n, c, y, x, rc, ry, rx = sch.get_loops(block)
    c_outer, c_inner = cfg["tile_co"].apply(sch, c)
    y_outer, y_inner = cfg["tile_oh"].apply(sch, y)
    x_outer, x_middle, x_inner = cfg["tile_ow"].apply(sch, x)
    rc_outer, rc_inner = cfg["tile_ci"].apply(sch, rc)
    sch.reorder(n, c_outer, y_outer, x_outer, rc_outer, x_middle, rc_inner, ry, rx, y_inner, x_inner, c_inner)
    sch.vectorize(c_inner)
    sch.unroll(y_inner)
    sch.unroll(x_inner)
    if cfg["unroll_kw"].val:
        sch.unroll(rx)
    _parallelize(sch, target, n, c_outer, y_outer)
    _parallelize(sch, target, sch.get_loops(weights)[0])
    _, *epilogue = find_blocks_after(sch, "conv2d")  # without the block that unpacks the result
    if epilogue:
        sch.compute_inline(result)
    else:
        _parallelize(sch, target, *sch.get_loops(result)[:2])
    if "pad" in _list_block_names(sch):
        loops = sch.get_loops(sch.get_sblock("pad"))
        sch.vectorize(loops[-1])
        _parallelize(sch, target, *loops[:2])
    _schedule_epilogue(sch, target, epilogue)
    sch.decompose_reduction(block, rc_outer)


@template("grouped_conv2d_cpu", op="grouped-conv2d", target="llvm")
def grouped_conv2d(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Grouped and depthwise convolution on NCHW tensors, vectorised over columns, which are contiguous in memory.

    A register tile has vectorised columns by unrolled rows of one channel. Images, channels and rows of tiles run in
    parallel. The image is padded at once, or for each row of tiles.
    """
    block = sch.get_sblock("conv2d")
    n, c, y, x, rc, ry, rx = sch.get_loops(block)
    cfg.define_split("tile_oh", y, 2, max_factor=MAX_UNROLLED)
    cfg.define_split("tile_ow", x, 2, max_factor=MAX_VECTORISED)
    cfg.define_knob("unroll_kernel", [0, 1])
    cfg.define_knob("pad_place", [0, 1] if "pad" in _list_block_names(sch) else [0])

    *inlined, end = find_blocks_after(sch, "conv2d") or [sch.cache_write(block, 0, "global")]
    y_outer, y_inner = cfg["tile_oh"].apply(sch, y)
    x_outer, x_inner = cfg["tile_ow"].apply(sch, x)
    sch.reorder(n, c, y_outer, x_outer, rc, ry, rx, y_inner, x_inner)
    sch.unroll(y_inner)
    sch.vectorize(x_inner)
    if cfg["unroll_kernel"].val:
        sch.unroll(ry)
        sch.unroll(rx)
    for before in inlined:
        sch.compute_inline(before)
    sch.reverse_compute_at(end, x_outer, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(end)[-1])
    if "pad" in _list_block_names(sch):
        pad = sch.get_sblock("pad")
        if cfg["pad_place"].val:
            sch.compute_at(pad, y_outer, preserve_unit_loops=True)
        else:
            _parallelize(sch, target, *sch.get_loops(pad)[:2])
    _parallelize(sch, target, n, c, y_outer)
    sch.decompose_reduction(block, rc)


def _list_block_names(sch: Schedule) -> list[str]:
    """Return the names of the blocks of ``main``, in order."""
    root = sch.get_sblock("root")
    return [str(sch.get(block).name_hint) for block in sch.get_child_blocks(root)]


def _schedule_epilogue(sch: Schedule, target: Target, blocks: Sequence[SBlockRV]) -> None:
    """Apply the epilogue in one pass over the result, with rows in parallel."""
    for block in blocks[:-1]:
        sch.compute_inline(block)
    if blocks:
        loops = sch.get_loops(blocks[-1])
        sch.vectorize(sch.split(loops[-1], [None, min(16, int(sch.get(loops[-1]).extent))])[1])
        _parallelize(sch, target, *loops[: -1 if len(loops) == 2 else 2])


def _parallelize(sch: Schedule, target: Target, *loops: LoopRV) -> None:
    """Run the loop nest ``loops`` in parallel if the target has more than one core."""
    if target.cores > 1:
        sch.parallel(sch.fuse(*loops) if len(loops) > 1 else loops[0])
