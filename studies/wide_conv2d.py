"""A template for the space knob-template with millions of configs: direct convolution, tiled at three levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab_spaces.templates import TemplateConfig

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from searchlab import Target

LANES = 64
"""The maximum number of channels to vectorise."""
UNROLLED = 16
"""The maximum number of rows, and of columns, to unroll in registers."""


def wide_conv2d(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Schedule a direct convolution (NCHW) whose result is blocked by channels until it is written.

    Each axis of the output is split into three loops: a parallel grid, a tile for the caches, and a register tile of
    channels (vectorised) by rows and columns of pixels (unrolled). The inner reduction loops may have any order.
    """
    conv = sch.get_sblock("conv2d")
    _, f, y, x, rc, ry, rx = sch.get_loops(conv)
    cfg.define_split("tile_f", f, num_outputs=3, filter=lambda split: split.size[2] <= LANES)
    cfg.define_split("tile_y", y, num_outputs=3, filter=lambda split: split.size[2] <= UNROLLED)
    cfg.define_split("tile_x", x, num_outputs=3, filter=lambda split: split.size[2] <= UNROLLED)
    cfg.define_split("tile_rc", rc, num_outputs=2)
    cfg.define_reorder("order", [rc, ry, rx], policy="all")
    cfg.define_annotate("unroll", [ry, rx], policy="try_unroll")
    cfg.define_knob("pack_weight", [0, 1])

    lanes = cfg["tile_f"].size[2]
    if cfg["pack_weight"].val:
        packed = sch.cache_read(conv, 1, "global")
        sch.transform_layout(packed, ("write", 0), lambda o, i, a, b: (o // lanes, i, a, b, o % lanes))
        sch.parallel(sch.get_loops(packed)[0])
    result = sch.cache_write(conv, 0, "global")
    sch.transform_layout(conv, ("write", 0), lambda n, o, h, w: (n, o // lanes, h, w, o % lanes))
    n, f, y, x, rc, ry, rx = sch.get_loops(conv)[:7]
    f0, f1, f2 = cfg["tile_f"].apply(sch, f)
    y0, y1, y2 = cfg["tile_y"].apply(sch, y)
    x0, x1, x2 = cfg["tile_x"].apply(sch, x)
    rc0, rc1 = cfg["tile_rc"].apply(sch, rc)
    sch.reorder(n, f0, y0, x0, rc0, f1, y1, x1, rc1, ry, rx, y2, x2, f2)
    cfg["order"].apply(sch, [rc1, ry, rx])
    cfg["unroll"].apply(sch, [ry, rx])
    sch.unroll(y2)
    sch.unroll(x2)
    sch.vectorize(f2)
    sch.parallel(sch.fuse(n, f0, y0))
    sch.parallel(sch.fuse(*sch.get_loops(result)[:2]))
    if "pad" in [str(sch.get(block).name_hint) for block in sch.get_child_blocks(sch.get_sblock("root"))]:
        sch.parallel(sch.fuse(*sch.get_loops(sch.get_sblock("pad"))[:2]))
    sch.decompose_reduction(conv, rc0)
