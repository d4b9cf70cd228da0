"""Convolution with few choices left open: a lowering and its register tile, every other choice being computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from searchlab.errors import SearchlabError, UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, Space, Value
from searchlab.target import Target
from searchlab.workload import Conv2d, Workload

from ..asked import Memory
from .conv2d_direct import Direct
from .conv2d_im2row import Im2row
from .conv2d_winograd import ERROR, Winograd
from .words import lacks

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


class GuidedConv2d(Space):
    """Lowerings of an NCHW conv2d, each over the tile of the result that it holds in registers.

    ``direct`` (:mod:`.conv2d_direct`) vectorises over output channels: ``channels`` of them by ``height`` x
    ``width`` pixels, over weights packed by blocks of channels. ``im2row`` (:mod:`.conv2d_im2row`) is the GEMM
    of the weights and the image's patches, vectorised over output pixels: ``channels`` rows by ``pixels`` columns;
    it is there if neither of the operands is a single column.
    A tile takes 3/8 to 3/4 of the vector registers, where the workload has as much to compute.

    winograd: whether there is a third lowering, ``winograd`` (:mod:`.conv2d_winograd`), where the kernel is 3x3, moves
    by one pixel and is in float32 or float64: ``channels`` by ``pixels`` that are corners of 4x4 results. It has a
    quarter of the multiplications and is less exact; what it gives may be four times as far from the right result.

    dot: whether ``direct`` and ``im2row`` take the CPU's instruction that sums the products of four int8 or two
    bfloat16 at once (:mod:`.words`). ``direct`` then packs the image, too, by words of 32 bits, and ``depth`` counts
    words. Such a program is no transformation of the workload's.

    blocks: ``"model"``, where every other choice is computed, or ``"knobs"`` to search some of them. A tile then takes
    1/8 to 5/4 of the registers. ``depth`` is the block of the sum, of input channels in ``direct`` and of products
    (ci x kh x kw) in ``im2row``: the loop over these blocks is outside the tiles of a task, whose partial sums stay
    in the packed result until the last block. ``outer`` says which operand's blocks go by outermost, image by image,
    and ``shares`` into how many equal tasks the blocks of the other one are cut. ``weights``, where a batch has fewer
    pixels than there are weights, takes a block of channels through all images.

    Any size, stride, padding, dilation, dtype and number of cores will do; bias and ReLU are applied as the result
    is written.

    Raises UnsupportedWorkload for a GEMM and for a target that is no CPU, SearchlabError for a wrong option.
    """

    workload: Conv2d

    def __init__(
        self, workload: Workload, target: Target, *, blocks: Literal["model", "knobs"] = "model",
        winograd: bool = False, dot: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(workload, Conv2d):
            raise UnsupportedWorkload(f"guided-conv2d takes conv2d workloads, not {workload}; use guided-gemm for it")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-conv2d is for CPUs (llvm), not {target.kind}; use knob-template there")
        if dot and (why := lacks(workload.dtype, target)):
            raise SearchlabError(f"option 'dot' cannot be true: {why}")
        super().__init__(workload, target)
        lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        searched = blocks == "knobs"
        self._lowerings: dict[str, Direct | Im2row | Winograd] = {
            "direct": Direct(workload, target, lanes, searched, dot)
        }
        if Im2row.suits(workload):
            self._lowerings["im2row"] = Im2row(workload, target, lanes, searched, dot)
        if winograd and Winograd.suits(workload):
            self._lowerings["winograd"] = Winograd(workload, target, lanes)
            self.error_factor = ERROR
        self._memory = Memory()

    def decide(self, choose: Choose) -> Config:
        return self._memory.config(choose, self._ask, "guided-conv2d")

    def _ask(self, choose: Choose) -> None:
        self._lowerings[str(choose(Knob("lowering", tuple(self._lowerings))))].ask(choose)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        known = self._memory.knobs(config)
        return super().knobs(config) if known is None else known  # which says what is wrong, if anything is

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        choices: dict[str, Any] = {name: value for name, value in config.items() if name != "lowering"}
        return self._lowerings[str(config["lowering"])].schedule(**choices)
