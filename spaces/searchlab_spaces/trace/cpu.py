"""Built-in stochastic trace functions for CPUs: GEMM and direct conv2d.

They also run in MetaSchedule; the target in scope determines the number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..operands import find_blocks_after, is_transposed, make_panel_map
from .space import last_sample

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

MAX_TILE_PIXELS = 16
"""The maximum number of pixels in a register tile, each with all of its channels: more would not fit in registers."""

MAX_TILE_ROWS, MAX_TILE_COLUMNS, MAX_TILE_ELEMENTS = 12, 64, 256
"""The maximum numbers of rows, columns and elements in a GEMM's register tile."""

MAX_UNROLLED_STEPS = 16
"""The maximum number of reduction steps to unroll."""

MAX_TILE_CHANNELS = 64
"""The maximum number of channels in a register tile: four vectors of sixteen floats."""


def stochastic_schedule_mm(sch: Schedule) -> None:
    """Schedule a GEMM as a first example: j is split by a sampled tile, and its outer loop stays outside k.

    It has a handful of configs and no vector instructions, so it is for learning; ``stochastic_schedule_gemm`` is fast.
    """
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, sch.sample_perfect_tile(j, n=2))
    sch.reorder(i, j0, k, j1)
    sch.decompose_reduction(block, k)


def stochastic_schedule_gemm(sch: Schedule) -> None:
    """Schedule a GEMM with register tiles of unrolled rows and vectorised columns, in a space that can be enumerated.

    A tile's maximum width depends on its height. The first pick decides what is summed before the next part begins: a
    tile, in registers (0); a row of tiles, in a scratch buffer (1); or a column of tiles, in place (2). The loop over
    blocks of k is directly inside this part, and the loops outside it are parallel. A short block of k may be unrolled;
    with pick 0, it always is. The last pick decides whether B is packed by a tile's columns, as it always is if it is
    stored as [n, k].
    """
    _schedule_product(sch, "gemm")


def stochastic_schedule_batch_matmul(sch: Schedule) -> None:
    """Schedule each product of a batch like ``stochastic_schedule_gemm``, in parallel with the others."""
    _schedule_product(sch, "batch_matmul")


def _schedule_product(sch: Schedule, name: str) -> None:
    block = sch.get_sblock(name)
    *batch, i, j, k = sch.get_loops(block)
    loop_order = _pick(sch, 3)
    rows = sch.sample_perfect_tile(i, n=2, max_innermost_factor=MAX_TILE_ROWS)
    columns = sch.sample_perfect_tile(
        j, n=2, max_innermost_factor=min(MAX_TILE_COLUMNS, MAX_TILE_ELEMENTS // int(sch.get(rows[1])))
    )
    extent = int(sch.get(k).extent)
    depth = sch.sample_perfect_tile(k, n=2, max_innermost_factor=extent if loop_order else MAX_UNROLLED_STEPS)
    unroll = not loop_order or (1 < sch.get(depth[1]) <= MAX_UNROLLED_STEPS and _pick(sch, 2))
    nt = is_transposed(sch, block)
    pack = nt or _pick(sch, 2)
    last_sample(sch)

    v = sch.get(columns[1])
    if pack:
        packed = sch.cache_read(block, 1, "global")
        sch.transform_layout(packed, ("write", 0), make_panel_map(v, nt))
    ends = find_blocks_after(sch, name)
    if loop_order < 2 and not ends:
        ends = [sch.cache_write(block, 0, "global")]
    for before in ends[:-1]:
        sch.compute_inline(before)
    i0, i1 = sch.split(i, rows)
    j0, j1 = sch.split(j, columns)
    k0, k1 = sch.split(k, depth)
    nest = [(i0, j0, k0), (i0, k0, j0), (j0, k0, i0)][loop_order]
    sch.reorder(*batch, *nest, k1, i1, j1)
    sch.vectorize(j1)
    sch.unroll(i1)
    if unroll:
        sch.unroll(k1)

    for end in ends[-1:]:
        if loop_order < 2:
            sch.reverse_compute_at(end, [j0, i0][loop_order], preserve_unit_loops=True)
        else:
            _parallelize(sch, sch.get_loops(end)[0])
        _vectorize(sch, sch.get_loops(end)[-1])
    if pack:
        _parallelize(sch, sch.get_loops(packed)[0])
    _parallelize(sch, *batch, *[(i0, j0), (i0,), (j0,)][loop_order])
    sch.decompose_reduction(block, k0)


def stochastic_schedule_conv2d(sch: Schedule) -> None:
    """Schedule direct convolution on NCHW tensors, internally blocked by channels.

    A register tile of vectorised channels by unrolled pixels iterates over two levels of input channels. Weights and
    result are packed by the tile's channels. The tile's maximum width depends on its height. If the workload has
    padding, bias or ReLU, the function also samples where to compute them.
    """
    block = sch.get_sblock("conv2d")
    _, c, y, x, rc, _, rx = sch.get_loops(block)
    channels = sch.sample_perfect_tile(c, n=2, max_innermost_factor=MAX_TILE_CHANNELS)
    rows = sch.sample_perfect_tile(y, n=2, max_innermost_factor=MAX_TILE_PIXELS)
    columns = sch.sample_perfect_tile(x, n=3, max_innermost_factor=MAX_TILE_PIXELS // sch.get(rows[1]))
    depth = sch.sample_perfect_tile(rc, n=2, max_innermost_factor=64)
    unroll_rx = _get_extent(sch, rx) > 1 and _pick(sch, 2)
    blocks = _list_block_names(sch)
    pad_place = _pick(sch, 4) if "pad" in blocks else 0
    end_place = _pick(sch, 3)
    last_sample(sch)

    v = sch.get(channels[1])
    weights = sch.cache_read(block, 1, "global")
    sch.transform_layout(weights, ("write", 0), lambda o, i, a, b: (o // v, i, a, b, o % v))
    sch.cache_write(block, 0, "global")
    sch.transform_layout(block, ("write", 0), lambda b, o, h, w: (b, o // v, h, w, o % v))
    n, c, y, x, rc, ry, rx = sch.get_loops(block)
    c0, c1 = sch.split(c, channels)
    y0, y1 = sch.split(y, rows)
    x0, x1, x2 = sch.split(x, columns)
    rc0, rc1 = sch.split(rc, depth)
    sch.reorder(n, c0, y0, x0, rc0, x1, rc1, ry, rx, y1, x2, c1)
    sch.vectorize(c1)
    sch.unroll(y1)
    sch.unroll(x2)
    if unroll_rx:
        sch.unroll(rx)

    if "pad" in blocks:
        pad = sch.get_sblock("pad")
        if pad_place:
            sch.compute_at(pad, [y0, x0, rc0][pad_place - 1], preserve_unit_loops=True)
        else:
            _parallelize(sch, *sch.get_loops(pad)[:2])
        _vectorize(sch, sch.get_loops(pad)[-1])
    *before, end = find_blocks_after(sch, "conv2d")  # the first one unpacks the result
    for inlined in before:
        sch.compute_inline(inlined)
    if end_place:
        sch.reverse_compute_at(end, [y0, x0][end_place - 1], preserve_unit_loops=True)
    else:
        _parallelize(sch, *sch.get_loops(end)[:2])
    _vectorize(sch, sch.get_loops(end)[-1])
    _parallelize(sch, sch.get_loops(weights)[0])
    _parallelize(sch, n, c0, y0)
    sch.decompose_reduction(block, rc0)


def stochastic_schedule_grouped_conv2d(sch: Schedule) -> None:
    """Schedule grouped or depthwise convolution on NCHW tensors, vectorised over columns, which are contiguous.

    A register tile has vectorised columns by unrolled rows of one channel. If the workload has padding, the function
    also samples whether the image is padded at once or for each row of tiles.
    """
    block = sch.get_sblock("conv2d")
    n, c, y, x, rc, ry, rx = sch.get_loops(block)
    rows = sch.sample_perfect_tile(y, n=2, max_innermost_factor=MAX_TILE_PIXELS)
    columns = sch.sample_perfect_tile(x, n=2, max_innermost_factor=MAX_TILE_CHANNELS)
    unroll_kernel = _pick(sch, 2)
    blocks = _list_block_names(sch)
    pad_place = _pick(sch, 2) if "pad" in blocks else 0
    last_sample(sch)

    ends = find_blocks_after(sch, "conv2d") or [sch.cache_write(block, 0, "global")]
    y0, y1 = sch.split(y, rows)
    x0, x1 = sch.split(x, columns)
    sch.reorder(n, c, y0, x0, rc, ry, rx, y1, x1)
    sch.unroll(y1)
    sch.vectorize(x1)
    if unroll_kernel:
        sch.unroll(ry)
        sch.unroll(rx)
    for before in ends[:-1]:
        sch.compute_inline(before)
    sch.reverse_compute_at(ends[-1], x0, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(ends[-1])[-1])
    if "pad" in blocks:
        pad = sch.get_sblock("pad")
        if pad_place:
            sch.compute_at(pad, y0, preserve_unit_loops=True)
        else:
            _parallelize(sch, *sch.get_loops(pad)[:2])
    _parallelize(sch, n, c, y0)
    sch.decompose_reduction(block, rc)


def _pick(sch: Schedule, count: int) -> int:
    """Sample a whole number below ``count``."""
    return int(sch.get(sch.sample_categorical(list(range(count)), [1 / count] * count)))


def _get_extent(sch: Schedule, loop: LoopRV) -> int:
    return int(sch.get(loop).extent)


def _list_block_names(sch: Schedule) -> list[str]:
    return [str(sch.get(block).name_hint) for block in sch.get_child_blocks(sch.get_sblock("root"))]


def _vectorize(sch: Schedule, loop: LoopRV) -> None:
    """Vectorise ``loop`` by the largest divisor of its extent up to CHANNELS."""
    extent = _get_extent(sch, loop)
    width = max(size for size in range(1, MAX_TILE_CHANNELS + 1) if extent % size == 0)
    sch.vectorize(sch.split(loop, [None, width])[1])


def _parallelize(sch: Schedule, *loops: LoopRV) -> None:
    """Run the loop nest ``loops`` in parallel if there is more than one core."""
    from tvm.target import Target

    if int(Target.current().attrs.get("num-cores", 1)) > 1:
        sch.parallel(sch.fuse(*loops) if len(loops) > 1 else loops[0])
