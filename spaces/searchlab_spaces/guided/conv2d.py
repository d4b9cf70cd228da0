"""``guided-conv2d``: convolution with few open choices, a lowering and its register tile; all others are computed."""

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
    """A convolution (NCHW) whose lowering and register tile are searched; everything else is computed.

    ``direct`` vectorises over output channels: a tile of ``channels`` by ``height`` x ``width`` pixels, with weights
    packed by blocks of channels. ``im2row`` is a GEMM of the weights and the patches of the image, vectorised over
    output pixels: a tile of ``channels`` rows by ``pixels`` columns; it is not offered if an operand is a single
    column. A tile occupies 3/8 to 3/4 of the vector registers, if the workload is large enough.

    Any size, stride, padding, dilation, data type and number of cores is supported. Bias and ReLU are applied when the
    result is written. Raises UnsupportedWorkload for a GEMM and for targets other than CPUs.

    Args:
        blocks: ``"model"`` computes all other choices. ``"knobs"`` searches some of them; tiles may then occupy 1/8 to
            5/4 of the registers. ``depth`` is the block of the sum: of input channels in ``direct``, and of products
            (ci x kh x kw) in ``im2row``. The loop over these blocks is outside the tiles of a task, whose partial sums
            stay in the packed result until the last block. ``outer`` is the operand whose blocks form the outermost
            loop, image by image, and ``shares`` the number of equal tasks into which the blocks of the other one are
            divided. ``outer = weights``, offered if a batch has fewer pixels than there are weights, passes a block of
            channels through all images.
        winograd: Whether to offer a third lowering, Winograd's F(4x4, 3x3), for 3x3 kernels with stride 1 in float32
            and float64. It needs a quarter of the multiplications and is less accurate: results may be off by four
            times the usual tolerance.
        dot: Whether ``direct`` and ``im2row`` use the CPU's dot-product instruction, which adds the products of four
            int8 or two bfloat16 values at once. ``direct`` then also packs the image, in words of 32 bits, and
            ``depth`` counts words. Such a program is not a transformation of the workload's own.
    """

    workload: Conv2d

    def __init__(
        self, workload: Workload, target: Target, *, blocks: Literal["model", "knobs"] = "model",
        winograd: bool = False, dot: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(workload, Conv2d):
            raise UnsupportedWorkload(f"guided-conv2d supports conv2d workloads, not {workload}; use guided-gemm")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-conv2d supports CPUs (llvm), not {target.kind}; use knob-template")
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
        return super().knobs(config) if known is None else known  # super() reports what is wrong, if anything

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        choices: dict[str, Any] = {name: value for name, value in config.items() if name != "lowering"}
        return self._lowerings[str(config["lowering"])].schedule(**choices)
