"""Convolution with few choices left open: a lowering and its register tile, every other choice being computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from searchlab.errors import UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, Space
from searchlab.target import Target
from searchlab.workload import Conv2d, Workload

from .conv2d_direct import Direct
from .conv2d_im2row import Im2row

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


class GuidedConv2d(Space):
    """Two lowerings of an NCHW conv2d, each over the tile of the result that it holds in registers.

    ``direct`` (:mod:`.conv2d_direct`) vectorises over output channels: ``channels`` of them by ``height`` x
    ``width`` pixels, over weights packed by blocks of channels. ``im2row`` (:mod:`.conv2d_im2row`) is the GEMM
    of the weights and the image's patches, vectorised over output pixels: ``channels`` rows by ``pixels`` columns;
    it is there if neither of the operands is a single column.
    A tile takes 3/8 to 3/4 of the vector registers, where the workload has as much to compute.

    Any size, stride, padding, dilation, dtype and number of cores will do; bias and ReLU are applied as the result
    is written. Raises UnsupportedWorkload for a GEMM and for a target that is no CPU.
    """

    workload: Conv2d

    def __init__(self, workload: Workload, target: Target) -> None:
        if not isinstance(workload, Conv2d):
            raise UnsupportedWorkload(f"guided-conv2d takes conv2d workloads, not {workload}; use guided-gemm for it")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-conv2d is for CPUs (llvm), not {target.kind}; use knob-template there")
        super().__init__(workload, target)
        lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        self._lowerings: dict[str, Direct | Im2row] = {"direct": Direct(workload, target, lanes)}
        if Im2row.suits(workload):
            self._lowerings["im2row"] = Im2row(workload, target, lanes)

    def decide(self, choose: Choose) -> Config:
        lowering = choose(Knob("lowering", tuple(self._lowerings)))
        return Config({"lowering": lowering, **self._lowerings[str(lowering)].decide(choose)})

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        tile = {name: int(value) for name, value in config.items() if name != "lowering"}  # type: ignore[arg-type]
        return self._lowerings[str(config["lowering"])].schedule(**tile)
