"""guided-conv2d's im2row lowering: a GEMM of the weights and the image's patches.

Per image, result[co, pixel] = weight[co, k] patches[k, pixel] with k over (ci, kh, kw). Weights and result keep their
NCHW layout, so only patches are packed, into panels [pixel/nr, k, nr] that contain the pixels of a register tile; for
1x1 kernels, this is a plain copy. Vectors run over pixels, and weights are broadcast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.space import Choose, Knob
from searchlab.target import Target
from searchlab.workload import Conv2d

from ..tiles import list_divisors
from .common import EDGE_ANNOTATION, UNROLLED_STEPS, inline_consumers, pack_scalars, pack_vectors
from .conv2d_common import (
    accumulator_range,
    choose_even_shares,
    is_worth_parallelizing,
    schedule_padding,
    vector_counts,
)
from .conv2d_words import SHARED_ARGUMENTS, PatchWords
from .words import has_offset, sum_rows, tensorize, vectorize_block

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV
    from tvm.tirx import IndexMap


@dataclass(frozen=True)
class Im2row:
    """The im2row lowering of a workload. Its tile has ``channels`` by ``pixels``.

    Attributes:
        has_block_knobs: Whether the blocks are knobs.
        uses_dot: Whether to use dot-product instructions; if so, k counts words.
        is_packed: Whether the weights are packed before the program runs.
    """

    workload: Conv2d
    target: Target
    lanes: int
    has_block_knobs: bool = False
    uses_dot: bool = False
    is_packed: bool = False

    @staticmethod
    def supports(workload: Conv2d) -> bool:
        """Return whether this lowering supports ``workload``: there must be several pixels and products."""
        oh, ow = workload.out_size
        return oh * ow > 1 and workload.reduction > 1

    @property
    def reduction(self) -> int:
        """The extent of k, the reduction."""
        return PatchWords(self.workload).k if self.uses_dot else self.workload.reduction

    @property
    def columns(self) -> int:
        """The number of pixels in one result image."""
        oh, ow = self.workload.out_size
        return oh * ow

    def ask_for_knobs(self, choose: Choose) -> None:
        """Ask for the tile: complete vectors of pixels, and channels within the register budget."""
        pixels = choose(Knob("pixels", tuple(self.tiles)))
        channels = choose(Knob("channels", self.tiles[int(pixels)]))  # type: ignore[arg-type]
        if self.has_block_knobs:
            self._ask_for_blocks(choose, int(pixels), int(channels))  # type: ignore[arg-type]

    def _ask_for_blocks(self, choose: Choose, pixels: int, channels: int) -> None:
        """Ask for the blocks. Choices that would not change the order of execution are not offered."""
        depth = choose(Knob("depth", self.depths))
        tiles = {"channels": ceil(self.workload.co / channels), "pixels": ceil(self.columns / pixels)}
        outer = choose(Knob("outer", tuple(tiles)))
        (inner,) = tiles.keys() - {outer}
        # On one core, the number of shares only matters if k is split.
        shares_matter = is_worth_parallelizing(self.workload, self.target) or depth != self.depths[-1]
        choose(Knob("shares", tuple(list_divisors(tiles[inner])) if shares_matter else (1,)))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The possible block sizes of k: 1, 2, 4, ... blocks, each with complete iterations of the innermost loop."""
        iteration_count = ceil(self.reduction / UNROLLED_STEPS)
        return tuple(
            ceil(iteration_count / 2**halving_count) * UNROLLED_STEPS
            for halving_count in reversed(range(iteration_count.bit_length()))
        )

    @cached_property
    def tiles(self) -> dict[int, tuple[int, ...]]:
        """The possible channels for each number of pixels. Panels must fit in L2 unless blocks of k are searched."""
        panel_bytes = self.reduction * self.lanes * (4 if self.uses_dot else np.dtype(self.workload.dtype).itemsize)
        max_vectors = None if self.has_block_knobs else max(1, self.target.caches[1].size * 3 // 4 // panel_bytes)
        budget = accumulator_range(self.target, self.has_block_knobs)
        tiles = {}
        for count in vector_counts(self.lanes, self.columns)[:max_vectors]:
            max_channels = min((budget.stop - 1) // count, self.workload.co)
            tiles[count * self.lanes] = tuple(range(min(ceil(budget.start / count), max_channels), max_channels + 1))
        return tiles

    def schedule(self, pixels: int, channels: int, depth: int = 0, outer: str = "", shares: int = 0) -> Schedule:
        """Schedule the program for a tile. A ``depth`` or ``shares`` of 0 and an empty ``outer`` are computed."""
        w = self.workload
        in_parallel = is_worth_parallelizing(w, self.target)
        is_sum_split = depth not in (0, self.depths[-1])
        sch, product, panels, weights, result = self._pack_operands(
            pixels, channels, depth if is_sum_split else UNROLLED_STEPS
        )

        conv = vectorize_block(sch, product, 2, self.lanes) if self.uses_dot else product
        n, o, p, k = sch.get_loops(conv)
        tile_o, row = sch.split(o, [None, channels])
        tile_p, vector, *lane = sch.split(p, [None, pixels // self.lanes, *([] if self.uses_dot else [self.lanes])])
        *sum_loops, unrolled = sch.split(
            k, [None, depth // UNROLLED_STEPS, UNROLLED_STEPS] if is_sum_split else [None, UNROLLED_STEPS]
        )
        # The smaller operand stays in cache while the other operand's tiles stream.
        tiles_o, tiles_p = ceil(w.co / channels), ceil(self.columns / pixels)
        has_channel_tasks = outer == "channels" if outer else w.co > self.columns
        (outer_loop, count), (inner, each) = ((tile_o, tiles_o), (tile_p, tiles_p))[:: 1 if has_channel_tasks else -1]
        share_count = shares or (choose_even_shares(w.n * count, each, self.target.cores) if in_parallel else 1)
        share, inner = sch.split(inner, [share_count, None])
        sch.reorder(n, outer_loop, share, *sum_loops[:-1], inner, sum_loops[-1], unrolled, row, vector, *lane)
        task = sch.fuse(n, outer_loop, share)
        per_task = not has_channel_tasks and share_count == 1
        if per_task:
            sch.compute_at(panels, task, preserve_unit_loops=True)
        sch.reverse_compute_at(result, task if is_sum_split else inner, preserve_unit_loops=True)
        for loop in lane:
            sch.vectorize(loop)
        for loop in (unrolled, row, vector):
            sch.unroll(loop)
        if not has_channel_tasks and w.co % channels and not is_sum_split:
            sch.annotate(inner, EDGE_ANNOTATION, 1)

        panel_loop = pack_vectors(sch, panels, pixels // self.lanes, self.lanes)
        if in_parallel and not per_task:
            sch.parallel(panel_loop)
        if weights is not None:
            weight_loop = pack_scalars(sch, weights, channels)
            if in_parallel:
                sch.parallel(weight_loop)
        block, each = sch.split(sch.get_loops(result)[-1], [None, self.lanes])
        sch.vectorize(each)
        sch.annotate(block, EDGE_ANNOTATION, 1)
        schedule_padding(sch, w, in_parallel)
        if in_parallel:
            sch.parallel(task)
        if self.uses_dot and has_offset(w.dtype):
            sum_rows(sch, in_parallel)
        sch.decompose_reduction(conv, sum_loops[0])  # last, because it prevents unroll, vectorize and parallel
        return tensorize(sch, product, task, w.dtype, self.lanes, SHARED_ARGUMENTS) if self.uses_dot else sch.copy()

    def _pack_operands(
        self, pixels: int, channels: int, depth: int
    ) -> tuple[Schedule, SBlockRV, SBlockRV, SBlockRV | None, SBlockRV]:
        """Turn the convolution into a GEMM with packed operands, whose reduction is padded to multiples of ``depth``.

        Return the schedule and four blocks, which compute the sums, pack the patches, pack the weights (None if they
        are read in place), and write the result.
        """
        from ..unchecked import Unchecked

        w = self.workload
        # Unless edges must be padded, weights are read in place, in as many streams as a tile has rows.
        is_uneven = bool(w.co % channels or self.reduction % depth)
        words = PatchWords(w) if self.uses_dot else None
        sch = Unchecked(words.module if words else w.module)
        conv = sch.get_sblock("conv2d")
        if not sch.get_consumers(conv):
            sch.cache_write(conv, 0, "global")
        if words:
            sch.compute_inline("bits")
            patches, rows = "patches", None if words.rows_are_words else "rows_words"
            block_names = ("patches", "rows_words")
        else:
            patches, rows = self._convert_to_gemm(sch, conv)
            block_names = (f"{'pad' if w.is_padded else 'data'}_reindex", "weight_reindex")
        sch.pad_einsum(conv, [1, channels, pixels, depth])
        panels = sch.cache_read(conv, at_patches := 1 if words else 0, "global")
        if self.columns % pixels or self.reduction % depth:
            sch.compute_inline(f"{block_names[0]}_pad")
        sch.compute_inline(patches)
        weights = None
        if self.is_packed or is_uneven:
            weights = sch.cache_read(conv, 1 - at_patches, "global")
            if is_uneven:
                sch.compute_inline(f"{block_names[1]}_pad")
            sch.transform_layout(
                weights,
                ("write", 0),
                lambda o, k: (o // channels, k // UNROLLED_STEPS, o % channels, k % UNROLLED_STEPS),
            )
        if rows is not None:
            sch.compute_inline(rows)
        result = inline_consumers(sch, conv)
        ow = w.out_size[1]
        sch.transform_block_layout(result, lambda n, o, y, x: (n, o, y * ow + x))
        sch.transform_layout(panels, ("write", 0), lambda n, k, p: (n, p // pixels, k, p % pixels))
        sch.transform_layout(
            conv, ("write", 0), lambda n, o, p: (n, o // channels, p // pixels, o % channels, p % pixels)
        )
        return sch, conv, panels, weights, result

    def _convert_to_gemm(self, sch: Schedule, conv: SBlockRV) -> tuple[SBlockRV, SBlockRV]:
        """Turn ``conv`` into a GEMM, result[n, o, p] += patches[n, k, p] rows[o, k]; return its operands' blocks."""
        patches, rows = sch.reindex(conv, ("read", 0)), sch.reindex(conv, ("read", 1))
        block = sch.get(conv)
        positions = {axis.var: position for position, axis in enumerate(block.iter_vars)}
        # If a kernel's height or width is 1, the patches have no axis for it.
        read_axes = [positions[index.min] for index in block.reads[0].region]
        sch.transform_layout(conv, ("read", 0), as_patches := self._make_index_map(read_axes, (0, 3, 2)))
        sch.transform_layout(conv, ("read", 1), as_rows := self._make_index_map([1, 4, 5, 6], (1, 3)))
        sch.transform_layout(conv, ("write", 0), self._make_index_map([0, 1, 2, 3], (0, 1, 2)))
        sch.transform_block_layout(conv, self._make_index_map(list(range(7)), (0, 1, 2, 3)))
        sch.transform_block_layout(patches, as_patches)
        sch.transform_block_layout(rows, as_rows)
        return patches, rows

    def _make_index_map(self, axes: list[int], axes_to_keep: tuple[int, ...]) -> IndexMap:
        """Return the map from the axes of (n, o, y, x, c, a, b) at ``axes`` to ``axes_to_keep`` of (n, o, p, k)."""
        from tvm.tirx import IndexMap

        w = self.workload

        def fuse_index(*index: Any) -> list[Any]:
            n, o, y, x, c, a, b = (dict(zip(axes, index, strict=True)).get(position, 0) for position in range(7))
            gemm = (n, o, y * w.out_size[1] + x, (c * w.kh + a) * w.kw + b)
            return [gemm[axis] for axis in axes_to_keep]

        return IndexMap.from_func(fuse_index, ndim=len(axes), index_dtype="int32")
