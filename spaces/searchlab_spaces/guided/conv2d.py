"""``guided-conv2d``: convolution with few knobs, the lowering and its register tile; all other choices are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from searchlab.errors import SearchlabError, UnsupportedWorkload
from searchlab.space import Choose, Config, Knob, Space, Value
from searchlab.target import Target
from searchlab.workload import Conv2d, Workload

from ..choice_tree import ChoiceTree
from .conv2d_depthwise import Depthwise
from .conv2d_direct import Direct
from .conv2d_im2row import Im2row
from .conv2d_winograd import ERROR_FACTOR, Winograd
from .packed import Weights, split_packing
from .words import explain_missing_instruction

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


class GuidedConv2d(Space):
    """A convolution (NCHW) whose lowering and register tile are searched; everything else is computed.

    ``direct`` vectorises over output channels. Its tile has ``channels`` by ``height`` x ``width`` pixels, and weights
    are packed by blocks of channels. ``im2row`` is a GEMM of the weights and the image's patches, vectorised over
    output pixels. Its tile has ``channels`` rows by ``pixels`` columns; it is not offered if an operand is a single
    column. A tile occupies 3/8 to 3/4 of the vector registers if the workload is large enough. A depthwise convolution
    has a lowering of its own, ``depthwise``, which is vectorised over the pixels of rows. Its tile has ``height`` x
    ``width`` pixels of one channel and occupies at most 3/4 of the registers, and its weights are always plain. Such a
    program is not a transformation of the workload's own program.

    All sizes, strides, paddings, dilations, data types and numbers of cores are supported. Bias and ReLU are applied
    when the result is written. Raises UnsupportedWorkload for other workloads, including grouped convolutions with
    several input channels per group, and for targets other than CPUs.

    Args:
        blocks: ``"model"`` computes all other choices. ``"knobs"`` searches some of them; tiles may then occupy 1/8 to
            5/4 of the registers. ``depth`` is the block size of the sum: input channels in ``direct``, and products (ci
            x kh x kw) in ``im2row``. The loop over these blocks is outside a task's tiles, so partial sums stay in the
            packed result until the last block. ``outer`` is the operand whose blocks form the outermost loop, image by
            image. ``shares`` is the number of equal tasks into which the other operand's blocks are divided, or, in
            ``depthwise``, into which a channel's rows are. ``outer = weights`` applies a block of channels to all
            images; it is offered if a batch has fewer pixels than weights.
        winograd: Whether to offer a third lowering, Winograd's F(4x4, 3x3), for 3x3 kernels with stride 1 in float32
            and float64. It needs only a quarter of the multiplications, but is less accurate: errors may reach four
            times the usual tolerance.
        dot: Whether ``direct`` and ``im2row`` use the CPU's dot-product instruction, which adds the products of four
            int8 or two bfloat16 values at once. ``direct`` then also packs the image into 32-bit words, and ``depth``
            counts words. Such a program is not a transformation of the workload's own program.
        weights: With ``"plain"``, a program takes the weights as OIHW and packs them in every call. With ``"packed"``,
            they are constant: a program takes them in the layout that its tile reads, or transformed for Winograd. The
            program's function ``pack_weight`` packs them once, and this is not timed. ``direct`` also omits products
            with padding, except where values are packed into words. Such a program is not a transformation of the
            workload's own program, either.
    """

    takes = ("conv2d", "grouped-conv2d")
    workload: Conv2d

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        blocks: Literal["model", "knobs"] = "model",
        winograd: bool = False,
        dot: bool = False,
        weights: Weights = "plain",
    ) -> None:
        assert isinstance(workload, Conv2d)
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-conv2d supports only CPUs (llvm), not {target.kind}")
        if dot and (reason := explain_missing_instruction(workload.dtype, target)):
            raise SearchlabError(f"option 'dot' cannot be true: {reason}")
        super().__init__(workload, target)
        lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        has_block_knobs, is_packed = blocks == "knobs", weights == "packed"
        self._lowerings: dict[str, Depthwise | Direct | Im2row | Winograd] = {}
        if workload.groups > 1:
            if not Depthwise.supports(workload):
                raise UnsupportedWorkload(
                    f"guided-conv2d has no programs for {workload}: of grouped convolutions, it supports only those "
                    f"with one input channel per group, not {workload.ci // workload.groups}"
                )
            if dot:
                raise UnsupportedWorkload(
                    f"guided-conv2d has no programs with dot = true for {workload}, which is a depthwise convolution"
                )
            self._lowerings["depthwise"] = Depthwise(workload, target, lanes, has_block_knobs)
        else:
            self._lowerings["direct"] = Direct(workload, target, lanes, has_block_knobs, dot, is_packed)
            if Im2row.supports(workload):
                self._lowerings["im2row"] = Im2row(workload, target, lanes, has_block_knobs, dot, is_packed)
        if winograd and Winograd.supports(workload):
            self._lowerings["winograd"] = Winograd(workload, target, lanes)
            self.error_factor = ERROR_FACTOR
        self.weights: Weights = weights if workload.groups == 1 else "plain"
        self._choice_tree = ChoiceTree()

    def decide(self, choose: Choose) -> Config:
        return self._choice_tree.choose_config(choose, self._ask_for_knobs, "guided-conv2d")

    def _ask_for_knobs(self, choose: Choose) -> None:
        self._lowerings[str(choose(Knob("lowering", tuple(self._lowerings))))].ask_for_knobs(choose)

    def knobs(self, config: Mapping[str, Value]) -> list[Knob]:
        knobs = self._choice_tree.knobs(config)
        return super().knobs(config) if knobs is None else knobs  # if anything is wrong, super() reports it

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        choices: dict[str, Any] = {name: value for name, value in config.items() if name != "lowering"}
        sch = self._lowerings[str(config["lowering"])].schedule(**choices)
        return split_packing(sch, "weight") if self.weights == "packed" else sch
