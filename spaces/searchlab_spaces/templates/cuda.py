"""Built-in CUDA templates: conv2d and GEMM, tiled over blocks, virtual threads and threads.

The knobs follow AutoTVM's tutorial on conv2d for NVIDIA GPUs (``tune_conv2d_cuda.py``, TVM 0.17).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from searchlab.target import Target

from ..cuda_tiling import tile_reduction
from .knobs import TemplateConfig
from .registry import template

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


@template("conv2d_no_batching", op="conv2d", target="cuda")
def conv2d_no_batching(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Direct convolution (NCHW), with tiles of f, y, x (block, vthread, thread, inner) and of rc, ry, rx (three parts).

    The images of a batch are not tiled: each image has its own blocks.
    """
    _schedule_conv2d(cfg, sch)


@template("tutorial/conv2d_no_batching", op="conv2d", target="cuda")
def published_conv2d_no_batching(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """The same as ``conv2d_no_batching``, with the programs that AutoTVM's tutorial measured for its configs.

    The tutorial applies ``tile_rx`` to the rows of the kernel and ``tile_ry`` to its columns. AutoTVM logs of this task
    are imported into this template.
    """
    _schedule_conv2d(cfg, sch, rows="tile_rx", columns="tile_ry")


@template("grouped_conv2d_cuda", op="grouped-conv2d", target="cuda")
def grouped_conv2d(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Grouped and depthwise convolution, tiled like ``conv2d_no_batching``."""
    _schedule_conv2d(cfg, sch)


def _schedule_conv2d(cfg: TemplateConfig, sch: Schedule, rows: str = "tile_ry", columns: str = "tile_rx") -> None:
    """Schedule direct convolution; the knobs ``rows`` and ``columns`` tile those of the kernel."""
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
    kernel = [sch.split(loop, [None, *cfg[knob].size[1:]]) for loop, knob in ((ry, rows), (rx, columns))]
    reduced = [cfg["tile_rc"].apply(sch, rc), *kernel]
    tile_reduction(sch, conv, [n], spatial, reduced, cfg["auto_unroll_max_step"].val, cfg["unroll_explicit"].val)


@template("gemm_cuda", op="gemm", target="cuda")
def gemm_cuda(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """GEMM with four-part tiles of the rows and columns of C and three-part tiles of k."""
    gemm = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(gemm)
    cfg.define_split("tile_i", i, num_outputs=4)
    cfg.define_split("tile_j", j, num_outputs=4)
    cfg.define_split("tile_k", k, num_outputs=3)
    _define_unroll(cfg)
    spatial = [cfg["tile_i"].apply(sch, i), cfg["tile_j"].apply(sch, j)]
    reduced = [cfg["tile_k"].apply(sch, k)]
    tile_reduction(sch, gemm, [], spatial, reduced, cfg["auto_unroll_max_step"].val, cfg["unroll_explicit"].val)


def _define_unroll(cfg: TemplateConfig) -> None:
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])
