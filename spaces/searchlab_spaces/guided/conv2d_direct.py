"""guided-conv2d's direct lowering: a register tile of output channels by output pixels, with packed weights.

Source: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures" (SC 2018), but
for NCHW images: only the weights are packed, into [co/v, ci, kh, kw, v], and each tile is written back as NCHW. With
words of input channels (:mod:`.conv2d_words`), the image is packed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from searchlab.space import Choose, Knob
from searchlab.target import Target
from searchlab.workload import Conv2d

from ..tiles import list_divisors
from .common import EDGE_ANNOTATION, inline_consumers, make_untraced_schedule
from .conv2d_common import (
    accumulator_range,
    choose_even_shares,
    is_balanced,
    is_worth_parallelizing,
    schedule_padding,
    vector_counts,
)
from .conv2d_words import SHARED_ARGUMENTS, ChannelWords, count_channel_words
from .words import has_offset, sum_rows, tensorize, vectorize_block

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

TRANSPOSED_PRODUCTS = 8
"""The number of elements in a row of weights to pack at once: they are read as one vector and stored one lane apart."""


@dataclass(frozen=True)
class Direct:
    """The direct lowering of a workload. Its tile has ``channels`` by ``height`` x ``width`` pixels.

    Attributes:
        has_block_knobs: Whether the blocks are knobs.
        uses_dot: Whether to use dot-product instructions; if so, depth counts words.
        is_packed: Whether the weights are packed before the program runs.
    """

    workload: Conv2d
    target: Target
    lanes: int
    has_block_knobs: bool = False
    uses_dot: bool = False
    is_packed: bool = False

    @property
    def depth(self) -> int:
        """The extent of the reduction over input channels."""
        return count_channel_words(self.workload) if self.uses_dot else self.workload.ci

    def ask_for_knobs(self, choose: Choose) -> None:
        """Ask for the tile: complete vectors of channels, and pixels that divide the image into about equal tiles."""
        channels = choose(Knob("channels", tuple(self.tiles)))
        widths = self.tiles[int(channels)]  # type: ignore[arg-type]
        width = choose(Knob("width", tuple(widths)))
        height = choose(Knob("height", widths[int(width)]))  # type: ignore[arg-type]
        if self.has_block_knobs:
            self._ask_for_blocks(choose, int(channels), int(height))  # type: ignore[arg-type]

    def _ask_for_blocks(self, choose: Choose, channels: int, height: int) -> None:
        """Ask for the blocks. Choices that would not change the order of execution are not offered."""
        w = self.workload
        depth = choose(Knob("depth", tuple(list_divisors(self.depth))))
        block_count, is_sum_split = ceil(w.co / channels), depth != self.depth
        # Whether the shares of successive blocks of channels matter.
        shares_matter = is_worth_parallelizing(w, self.target) or is_sum_split
        row_shares = tuple(list_divisors(w.out_size[0] // height)) if w.out_size[0] % height == 0 else (1,)
        share_count = choose(Knob("shares", row_shares if shares_matter or block_count > 1 else (1,)))
        orders = ("channels",) * shares_matter + ("rows",) if share_count != 1 and block_count > 1 else ("channels",)
        if share_count == 1 and block_count > 1 and self._has_more_weights_than_pixels:
            orders += ("weights",)
        choose(Knob("outer", orders))

    @cached_property
    def tiles(self) -> dict[int, dict[int, tuple[int, ...]]]:
        """The possible heights, by channels and width."""
        tiles: dict[int, dict[int, tuple[int, ...]]] = {}
        budget = accumulator_range(self.target, self.has_block_knobs)
        for count in vector_counts(self.lanes, self.workload.co):
            sizes = [(w, h) for w, h in self._list_tile_sizes(count * self.lanes) if w * h * count < budget.stop]
            # If the image is too small for any tile to fill the budget, use the largest tile.
            fitting = [(w, h) for w, h in sizes if w * h * count in budget] or [
                max(sizes, key=lambda size: size[0] * size[1])
            ]
            tiles[count * self.lanes] = {
                width: tuple(sorted(h for w, h in fitting if w == width)) for width in sorted({w for w, _ in fitting})
            }
        return tiles

    def _list_tile_sizes(self, channels: int) -> Iterator[tuple[int, int]]:
        oh, ow = self.workload.out_size
        widths = {ceil(ow / parts) for parts in range(1, ow + 1)}
        for height in sorted({ceil(oh / parts) for parts in range(1, oh + 1)}):
            # Rows shared among tasks must consist of complete tiles, and long rows are better than high tiles.
            if self.has_block_knobs or self._choose_shares(channels, height) == 1 or oh % height == 0:
                yield from ((width, height) for width in widths if height <= width or width == ow)

    def _choose_shares(self, channels: int, height: int) -> int:
        """Return the number of shares into which to split the rows of one block of channels."""
        w = self.workload
        tasks = w.n * ceil(w.co / channels)
        if not is_worth_parallelizing(w, self.target):
            return 1
        return choose_even_shares(tasks, ceil(w.out_size[0] / height), self.target.cores)

    def _choose_strips(self, channels: int, height: int) -> int:
        """Return the number of strips into which to cut the rows, so that a strip stays in L2 for all blocks.

        This is 1 if the image stays there anyway, or if it costs less to read it for each block of channels than to
        read the weights for each strip. It is also 1 if each block's weights are packed just before they are used.
        """
        w = self.workload
        oh, ow = w.out_size
        if oh % height or (w.n == 1 and not self.is_packed):
            return 1
        block_count, weight_count = ceil(w.co / channels), w.co * w.reduction
        image_size = w.ci * (oh * ow if self._skips_pixels else w.h * w.w)
        max_elements = self.target.caches[1].size // 2 // np.dtype(w.dtype).itemsize
        for strips in list_divisors(oh // height):
            is_balanced_enough = not is_worth_parallelizing(w, self.target) or is_balanced(
                w.n * block_count * strips, self.target.cores
            )
            if image_size <= strips * max_elements and is_balanced_enough:
                return strips if block_count > 1 and image_size * block_count > weight_count * strips else 1
        return 1

    @property
    def _has_more_weights_than_pixels(self) -> bool:
        """Whether there are several images and fewer pixels than weights."""
        w = self.workload
        return w.n > 1 and w.co * w.reduction > w.n * w.ci * w.h * w.w

    def _packs_by_block(self, channels: int) -> bool:
        """Return whether a task processes one block of channels for all images, which requires balanced cores.

        The block's weights are packed immediately before they are used, and stay in L2.
        """
        return self._has_more_weights_than_pixels and is_balanced(ceil(self.workload.co / channels), self.target.cores)

    def schedule(
        self, channels: int, width: int, height: int, depth: int = 0, shares: int = 0, outer: str = ""
    ) -> Schedule:
        """Schedule the program for a tile. A ``depth`` or ``shares`` of 0 and an empty ``outer`` are computed."""
        w = self.workload
        oh, ow = w.out_size
        in_parallel = is_worth_parallelizing(w, self.target)
        has_block_tasks = outer == "weights" or (not outer and self._packs_by_block(channels))
        strips = 1 if has_block_tasks or shares or outer else self._choose_strips(channels, height)
        share_count = shares or (1 if has_block_tasks else max(strips, self._choose_shares(channels, height)))
        is_sum_split = depth not in (0, self.depth)
        sch, image, weights, product, result = self._pack_operands(channels)

        conv = vectorize_block(sch, product, 1, self.lanes) if self.uses_dot else product
        n, o, y, x, rc, ry, rx = sch.get_loops(conv)
        block, vector, *lane = sch.split(o, [None, channels // self.lanes, *([] if self.uses_dot else [self.lanes])])
        share, row, tile_y = sch.split(y, [share_count, None, height])
        column, tile_x = sch.split(x, [None, width])
        sum_loops = sch.split(rc, [None, depth]) if is_sum_split else [rc]
        rows_first = outer == "rows" or strips > 1
        strip_loops = [n, share] if rows_first else [n]
        if has_block_tasks:
            strip_loops = []
        outer_loops = (*strip_loops, *(loop for loop in (block, n, share) if loop not in strip_loops))
        product_loops = (ry, sum_loops[-1]) if self._skips_padding else (sum_loops[-1], ry)
        sch.reorder(*outer_loops, *sum_loops[:-1], row, column, *product_loops, rx, tile_y, tile_x, vector, *lane)
        # If the cores share the strips evenly, each prepares its own strip of the image just before it is used.
        per_strip = not (has_block_tasks or self.uses_dot) and (
            not in_parallel or is_balanced(w.n * (share_count if rows_first else 1), self.target.cores)
        )
        task = block if has_block_tasks else sch.fuse(*outer_loops[len(strip_loops) if per_strip else 0 :])
        parallel_loop = sch.fuse(*strip_loops) if per_strip else task
        if per_strip and image:
            sch.compute_at(image, parallel_loop, preserve_unit_loops=True)
        packs_per_block = not self.is_packed and (has_block_tasks or w.n == share_count == 1)
        if packs_per_block:
            sch.compute_at(weights, task, preserve_unit_loops=True)
        sch.reverse_compute_at(result, task if is_sum_split else column, preserve_unit_loops=True)
        for loop in lane:
            sch.vectorize(loop)
        for loop in (rx, tile_y, tile_x, vector):
            sch.unroll(loop)
        if oh % height:
            sch.annotate(row, EDGE_ANNOTATION, 1)
        if ow % width:
            sch.annotate(column, EDGE_ANNOTATION, 1)

        self._schedule_packing(sch, weights, in_parallel and not packs_per_block)
        self._schedule_result(sch, result, channels, not is_sum_split)
        if self._skips_pixels:
            self._copy_pixels(sch, image, in_parallel and not per_strip)
        else:
            schedule_padding(sch, w, in_parallel and not per_strip, "image" if self.uses_dot else "pad")
        if in_parallel:
            sch.parallel(parallel_loop)
        if self.uses_dot and has_offset(w.dtype):
            sum_rows(sch, in_parallel)
        # This must be last, because it prevents unroll, vectorize and parallel.
        sch.decompose_reduction(conv, sum_loops[0] if is_sum_split else product_loops[0])
        if self._skips_padding:
            return self._omit_padding(sch, height, width)
        if self.uses_dot:
            return tensorize(sch, product, task, w.dtype, self.lanes, SHARED_ARGUMENTS, "a")
        return sch.copy()

    @property
    def _skips_padding(self) -> bool:
        """Whether products with the image's padding are omitted, which no schedule primitive can do.

        In int8, the padding counts (see :mod:`.conv2d_words`).
        """
        return self.is_packed and not self.uses_dot and self.workload.is_padded

    @property
    def _skips_pixels(self) -> bool:
        """Whether the kernel reads a contiguous copy of only the pixels that it uses.

        Otherwise, each block of channels would read, for example, every second pixel of the image.
        """
        w = self.workload
        return self.is_packed and not self.uses_dot and w.kh == w.kw == 1 and w.stride != (1, 1) and not w.is_padded

    def _copy_pixels(self, sch: Schedule, pixels: SBlockRV, in_parallel: bool) -> None:
        """Copy a row of as many channels at once as fill a cache line, so that what is read and written stays in L1."""
        n, y, x, c = sch.get_loops(pixels)[-4:]
        block, channel = sch.split(c, [None, min(self.lanes, self.workload.ci)])
        sch.reorder(n, y, block, x, channel)
        sch.vectorize(channel)
        sch.annotate(block, EDGE_ANNOTATION, 1)
        if in_parallel:
            sch.parallel(sch.fuse(n, y))

    def _omit_padding(self, sch: Schedule, height: int, width: int) -> Schedule:
        """Omit a tile's products with rows of padding and, if the tile is as wide as the image, with columns of it."""
        import tvm
        from tvm.s_tir import SBlockRealize
        from tvm.tirx import For, IfThenElse, IntImm, Var
        from tvm.tirx import all as both
        from tvm_ffi import structural_map, structural_walk

        w = self.workload
        (sy, sx), (py, px), (dy, dx) = w.stride, w.padding, w.dilation

        def restrict_product(node: SBlockRealize) -> SBlockRealize:
            if node.block.name_hint != "conv2d_update" or width < w.out_size[1]:
                return node
            column = node.iter_values[3] * sx + node.iter_values[6] * dx
            is_inside = both(node.predicate, column >= px, column < w.w + px)
            return SBlockRealize(node.iter_values, is_inside, node.block)

        def restrict_rows(node: For) -> For:
            if node.loop_var.name != "ry":
                return node
            inner_variables: list[Var] = []
            products: list[SBlockRealize] = []
            visitors = [
                (For, lambda node: inner_variables.append(node.loop_var)),
                (SBlockRealize, lambda node: products.append(node)),
            ]
            structural_walk(node.body, visitors)
            values = structural_map(
                products[0].iter_values,
                [
                    (
                        Var,
                        lambda variable: (
                            IntImm("int32", 0) if any(map(variable.same_as, inner_variables)) else variable
                        ),
                    )
                ],
            )
            first = values[2] * sy + values[5] * dy
            is_inside = both(first + (height - 1) * sy >= py, first < w.h + py)
            body = IfThenElse(is_inside, node.body, None)
            return For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, node.annotations)

        main = structural_map(sch.mod["main"], [(SBlockRealize, restrict_product), (For, restrict_rows)])
        return make_untraced_schedule(tvm.IRModule({"main": main}))

    def _pack_operands(self, channels: int) -> tuple[Schedule, SBlockRV | None, SBlockRV, SBlockRV, SBlockRV]:
        """Pack weights and sums. Return the schedule and four blocks.

        They copy the image's pixels (None if they are not copied), pack the weights, and compute the sums and the
        result.
        """
        from ..unchecked import Unchecked

        w = self.workload
        sch = Unchecked(ChannelWords(w, channels).module if self.uses_dot else w.module)
        conv = sch.get_sblock("conv2d")
        image = None if not w.is_padded or self.uses_dot else sch.get_sblock("pad")
        if self.uses_dot:
            weights = sch.get_sblock("weights")
        else:
            if not sch.get_consumers(conv):
                sch.cache_write(conv, 0, "global")
            if w.co % channels or self._skips_pixels:
                # pad_einsum requires an einsum, in which no index is a sum, so the image is replaced with its patches.
                patches = sch.reindex(conv, ("read", 0))
                if w.co % channels:
                    sch.pad_einsum(conv, [1, channels, 1, 1, 1, 1, 1])
                if self._skips_pixels:
                    image = patches
                else:
                    sch.compute_inline(patches)
            weights = sch.cache_read(conv, 1, "global")
            if w.co % channels:
                sch.compute_inline("weight_pad")
        result = inline_consumers(sch, conv)
        if self._skips_padding:
            sch.transform_layout(weights, ("write", 0), lambda o, c, a, b: (o // channels, a, c, b, o % channels))
        else:
            sch.transform_layout(weights, ("write", 0), lambda o, c, a, b: (o // channels, c, a, b, o % channels))
        sch.transform_layout(conv, ("write", 0), lambda n, o, y, x: (n, o // channels, y, x, o % channels))
        return sch, image, weights, conv, result

    def _schedule_result(self, sch: Schedule, result: SBlockRV, channels: int, registers: bool) -> None:
        """Write the sums as NCHW in vectors of channels, so that loads, bias and ReLU are vectorised.

        With ``registers``, each tile is written directly from registers.
        """
        o, y, x = sch.get_loops(result)[-3:]
        vector, lane = sch.split(o, [None, self.lanes])
        sch.reorder(vector, y, x, lane)
        sch.vectorize(lane)
        for loop in (y, x) if registers else ():
            sch.unroll(loop)
        if self.workload.co % channels:
            sch.annotate(vector, EDGE_ANNOTATION, 1)
        else:
            sch.unroll(vector)

    def _schedule_packing(self, sch: Schedule, weights: SBlockRV, in_parallel: bool) -> None:
        """Transpose the weights into vectors of channels, TRANSPOSED products of a vector at a time.

        With words and any kernel other than 1x1, the elements of a word are not contiguous, so the words for all pixels
        of a kernel are packed at once.
        """
        w = self.workload
        o, c, a, b = sch.get_loops(weights)[-4:]
        vector, lane = sch.split(o, [None, self.lanes])
        if self.uses_dot and w.kh * w.kw > 1:
            run, product = c, sch.fuse(a, b)
        else:
            products = self.depth * w.kh * w.kw
            run, product = sch.split(sch.fuse(c, a, b), [None, min(TRANSPOSED_PRODUCTS, products)])
            if products % TRANSPOSED_PRODUCTS:
                sch.annotate(run, EDGE_ANNOTATION, 1)
        sch.reorder(vector, run, lane, product)
        sch.unroll(lane)
        sch.vectorize(product)
        if in_parallel:
            sch.parallel(vector)
