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

from ..tiles import factors
from .common import EDGE, finish
from .conv2d_common import accumulators, even_shares, is_balanced, pad, parallel, vectors
from .conv2d_words import VIEWS, ChannelWords, channel_words
from .words import has_offset, sum_rows, tensorize, vectorize_block

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

TRANSPOSED = 8
"""The number of elements in a row of weights to pack at once: they are read as one vector and stored one lane apart."""


@dataclass(frozen=True)
class Direct:
    """The direct lowering of a workload. Its tile has ``channels`` by ``height`` x ``width`` pixels.

    Attributes:
        has_block_knobs: Whether the blocks are knobs.
        dot: Whether to use dot-product instructions; if so, depth counts words.
        packed: Whether the weights are packed before the program runs.
    """

    workload: Conv2d
    target: Target
    lanes: int
    has_block_knobs: bool = False
    dot: bool = False
    packed: bool = False

    @property
    def depth(self) -> int:
        """The extent of the reduction over input channels."""
        return channel_words(self.workload) if self.dot else self.workload.ci

    def ask(self, choose: Choose) -> None:
        """Ask for the tile: complete vectors of channels, and pixels that divide the image into about equal tiles."""
        channels = choose(Knob("channels", tuple(self.tiles)))
        widths = self.tiles[int(channels)]  # type: ignore[arg-type]
        width = choose(Knob("width", tuple(widths)))
        height = choose(Knob("height", widths[int(width)]))  # type: ignore[arg-type]
        if self.has_block_knobs:
            self._ask_blocks(choose, int(channels), int(height))  # type: ignore[arg-type]

    def _ask_blocks(self, choose: Choose, channels: int, height: int) -> None:
        """Ask for the blocks. Choices that would not change the order of execution are not offered."""
        w = self.workload
        depth = choose(Knob("depth", tuple(factors(self.depth))))
        blocks, cut = ceil(w.co / channels), depth != self.depth
        shares_matter = parallel(w, self.target) or cut  # whether the shares of successive blocks of channels matter
        rows = tuple(factors(w.out_size[0] // height)) if w.out_size[0] % height == 0 else (1,)
        parts = choose(Knob("shares", rows if shares_matter or blocks > 1 else (1,)))
        orders = ("channels",) * shares_matter + ("rows",) if parts != 1 and blocks > 1 else ("channels",)
        if parts == 1 and blocks > 1 and self._weights_outweigh:
            orders += ("weights",)
        choose(Knob("outer", orders))

    @cached_property
    def tiles(self) -> dict[int, dict[int, tuple[int, ...]]]:
        """The possible heights, by channels and width."""
        table: dict[int, dict[int, tuple[int, ...]]] = {}
        budget = accumulators(self.target, self.has_block_knobs)
        for count in vectors(self.lanes, self.workload.co):
            sizes = [(w, h) for w, h in self._sizes(count * self.lanes) if w * h * count < budget.stop]
            # If the image is too small for any tile to fill the budget, use the largest tile.
            fitting = [(w, h) for w, h in sizes if w * h * count in budget] or [
                max(sizes, key=lambda size: size[0] * size[1])
            ]
            table[count * self.lanes] = {
                width: tuple(sorted(h for w, h in fitting if w == width)) for width in sorted({w for w, _ in fitting})
            }
        return table

    def _sizes(self, channels: int) -> Iterator[tuple[int, int]]:
        oh, ow = self.workload.out_size
        widths = {ceil(ow / parts) for parts in range(1, ow + 1)}
        for height in sorted({ceil(oh / parts) for parts in range(1, oh + 1)}):
            # Rows shared among tasks must consist of complete tiles, and long rows are better than high tiles.
            if self.has_block_knobs or self._shares(channels, height) == 1 or oh % height == 0:
                yield from ((width, height) for width in widths if height <= width or width == ow)

    def _shares(self, channels: int, height: int) -> int:
        """Return the number of shares into which to split the rows of one block of channels."""
        w = self.workload
        tasks = w.n * ceil(w.co / channels)
        return even_shares(tasks, ceil(w.out_size[0] / height), self.target.cores) if parallel(w, self.target) else 1

    def _strips(self, channels: int, height: int) -> int:
        """Return the number of strips into which to cut the rows, so that a strip stays in L2 for all blocks.

        This is 1 if the image stays there anyway, or if it costs less to read it for each block of channels than to
        read the weights for each strip. It is also 1 if each block's weights are packed just before they are used.
        """
        w = self.workload
        oh, ow = w.out_size
        if oh % height or (w.n == 1 and not self.packed):
            return 1
        blocks, weights = ceil(w.co / channels), w.co * w.reduction
        image = w.ci * (oh * ow if self._skips_pixels else w.h * w.w)
        most = self.target.caches[1].size // 2 // np.dtype(w.dtype).itemsize
        for strips in factors(oh // height):
            balanced = not parallel(w, self.target) or is_balanced(w.n * blocks * strips, self.target.cores)
            if image <= strips * most and balanced:
                return strips if blocks > 1 and image * blocks > weights * strips else 1
        return 1

    @property
    def _weights_outweigh(self) -> bool:
        """Whether there are several images and fewer pixels than weights."""
        w = self.workload
        return w.n > 1 and w.co * w.reduction > w.n * w.ci * w.h * w.w

    def _packs_by_block(self, channels: int) -> bool:
        """Return whether a task processes one block of channels for all images, which requires balanced cores.

        The block's weights are packed immediately before they are used, and stay in L2.
        """
        return self._weights_outweigh and is_balanced(ceil(self.workload.co / channels), self.target.cores)

    def schedule(
        self, channels: int, width: int, height: int, depth: int = 0, shares: int = 0, outer: str = ""
    ) -> Schedule:
        """Schedule the program for a tile. A ``depth`` or ``shares`` of 0 and an empty ``outer`` are computed."""
        w = self.workload
        oh, ow = w.out_size
        in_parallel = parallel(w, self.target)
        by_block = outer == "weights" or (not outer and self._packs_by_block(channels))
        strips = 1 if by_block or shares or outer else self._strips(channels, height)
        parts = shares or (1 if by_block else max(strips, self._shares(channels, height)))
        cut = depth not in (0, self.depth)
        sch, image, weights, product, result = self._pack_operands(channels)

        conv = vectorize_block(sch, product, 1, self.lanes) if self.dot else product
        n, o, y, x, rc, ry, rx = sch.get_loops(conv)
        block, vector, *lane = sch.split(o, [None, channels // self.lanes, *([] if self.dot else [self.lanes])])
        share, row, tile_y = sch.split(y, [parts, None, height])
        column, tile_x = sch.split(x, [None, width])
        sums = sch.split(rc, [None, depth]) if cut else [rc]
        rows_first = outer == "rows" or strips > 1
        strip = (n, share) if rows_first else () if by_block else (n,)
        outer_loops = (*strip, *(loop for loop in (block, n, share) if loop not in strip))
        products = (ry, sums[-1]) if self._skips_padding else (sums[-1], ry)
        sch.reorder(*outer_loops, *sums[:-1], row, column, *products, rx, tile_y, tile_x, vector, *lane)
        # If the cores share the strips evenly, each prepares its own strip of the image just before it is used.
        per_strip = not (by_block or self.dot) and (
            not in_parallel or is_balanced(w.n * (parts if rows_first else 1), self.target.cores)
        )
        task = block if by_block else sch.fuse(*outer_loops[len(strip) if per_strip else 0 :])
        parallel_loop = sch.fuse(*strip) if per_strip else task
        if per_strip and image:
            sch.compute_at(image, parallel_loop, preserve_unit_loops=True)
        packs_per_block = not self.packed and (by_block or w.n == parts == 1)
        if packs_per_block:
            sch.compute_at(weights, task, preserve_unit_loops=True)
        sch.reverse_compute_at(result, task if cut else column, preserve_unit_loops=True)
        for loop in lane:
            sch.vectorize(loop)
        for loop in (rx, tile_y, tile_x, vector):
            sch.unroll(loop)
        if oh % height:
            sch.annotate(row, EDGE, 1)
        if ow % width:
            sch.annotate(column, EDGE, 1)

        self._pack(sch, weights, in_parallel and not packs_per_block)
        self._store(sch, result, channels, not cut)
        if self._skips_pixels:
            self._copy_pixels(sch, image, in_parallel and not per_strip)
        else:
            pad(sch, w, in_parallel and not per_strip, "image" if self.dot else "pad")
        if in_parallel:
            sch.parallel(parallel_loop)
        if self.dot and has_offset(w.dtype):
            sum_rows(sch, in_parallel)
        # This must be last, because it prevents unroll, vectorize and parallel.
        sch.decompose_reduction(conv, sums[0] if cut else products[0])
        if self._skips_padding:
            return self._without_padding(sch, height, width)
        return tensorize(sch, product, task, w.dtype, self.lanes, VIEWS, "a") if self.dot else sch.copy()

    @property
    def _skips_padding(self) -> bool:
        """Whether products with the image's padding are omitted, which no schedule primitive can do.

        In int8, the padding counts (see :mod:`.conv2d_words`).
        """
        return self.packed and not self.dot and self.workload.is_padded

    @property
    def _skips_pixels(self) -> bool:
        """Whether the kernel reads a contiguous copy of only the pixels that it uses.

        Otherwise, each block of channels would read, for example, every second pixel of the image.
        """
        w = self.workload
        return self.packed and not self.dot and w.kh == w.kw == 1 and w.stride != (1, 1) and not w.is_padded

    def _copy_pixels(self, sch: Schedule, pixels: SBlockRV, in_parallel: bool) -> None:
        """Copy a row of as many channels at once as fill a cache line, so that what is read and written stays in L1."""
        n, y, x, c = sch.get_loops(pixels)[-4:]
        block, channel = sch.split(c, [None, min(self.lanes, self.workload.ci)])
        sch.reorder(n, y, block, x, channel)
        sch.vectorize(channel)
        sch.annotate(block, EDGE, 1)
        if in_parallel:
            sch.parallel(sch.fuse(n, y))

    def _without_padding(self, sch: Schedule, height: int, width: int) -> Schedule:
        """Omit a tile's products with rows of padding and, if the tile is as wide as the image, with columns of it."""
        import tvm
        from tvm.s_tir import SBlockRealize, Schedule
        from tvm.tirx import For, IfThenElse, IntImm, Var
        from tvm.tirx import all as both
        from tvm_ffi import structural_map, structural_walk

        w = self.workload
        (sy, sx), (py, px), (dy, dx) = w.stride, w.padding, w.dilation

        def product(node: SBlockRealize) -> SBlockRealize:
            if node.block.name_hint != "conv2d_update" or width < w.out_size[1]:
                return node
            column = node.iter_values[3] * sx + node.iter_values[6] * dx
            inside = both(node.predicate, column >= px, column < w.w + px)
            return SBlockRealize(node.iter_values, inside, node.block)

        def rows(node: For) -> For:
            if node.loop_var.name != "ry":
                return node
            inner: list[Var] = []
            products: list[SBlockRealize] = []
            visitors = [
                (For, lambda node: inner.append(node.loop_var)),
                (SBlockRealize, lambda node: products.append(node)),
            ]
            structural_walk(node.body, visitors)
            values = structural_map(
                products[0].iter_values,
                [(Var, lambda variable: IntImm("int32", 0) if any(map(variable.same_as, inner)) else variable)],
            )
            first = values[2] * sy + values[5] * dy
            inside = both(first + (height - 1) * sy >= py, first < w.h + py)
            body = IfThenElse(inside, node.body, None)
            return For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, node.annotations)

        main = structural_map(sch.mod["main"], [(SBlockRealize, product), (For, rows)])
        return Schedule(tvm.IRModule({"main": main}))

    def _pack_operands(self, channels: int) -> tuple[Schedule, SBlockRV | None, SBlockRV, SBlockRV, SBlockRV]:
        """Pack weights and sums. Return the schedule and four blocks.

        They copy the image's pixels (None if they are not copied), pack the weights, and compute the sums and the
        result.
        """
        from ..unchecked import Unchecked

        w = self.workload
        sch = Unchecked(ChannelWords(w, channels).module if self.dot else w.module)
        conv = sch.get_sblock("conv2d")
        image = None if not w.is_padded or self.dot else sch.get_sblock("pad")
        if self.dot:
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
        result = finish(sch, conv)
        if self._skips_padding:
            sch.transform_layout(weights, ("write", 0), lambda o, c, a, b: (o // channels, a, c, b, o % channels))
        else:
            sch.transform_layout(weights, ("write", 0), lambda o, c, a, b: (o // channels, c, a, b, o % channels))
        sch.transform_layout(conv, ("write", 0), lambda n, o, y, x: (n, o // channels, y, x, o % channels))
        return sch, image, weights, conv, result

    def _store(self, sch: Schedule, result: SBlockRV, channels: int, registers: bool) -> None:
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
            sch.annotate(vector, EDGE, 1)
        else:
            sch.unroll(vector)

    def _pack(self, sch: Schedule, weights: SBlockRV, in_parallel: bool) -> None:
        """Transpose the weights into vectors of channels, TRANSPOSED products of a vector at a time.

        With words and any kernel other than 1x1, the elements of a word are not contiguous, so the words for all pixels
        of a kernel are packed at once.
        """
        w = self.workload
        o, c, a, b = sch.get_loops(weights)[-4:]
        vector, lane = sch.split(o, [None, self.lanes])
        if self.dot and w.kh * w.kw > 1:
            run, product = c, sch.fuse(a, b)
        else:
            products = self.depth * w.kh * w.kw
            run, product = sch.split(sch.fuse(c, a, b), [None, min(TRANSPOSED, products)])
            if products % TRANSPOSED:
                sch.annotate(run, EDGE, 1)
        sch.reorder(vector, run, lane, product)
        sch.unroll(lane)
        sch.vectorize(product)
        if in_parallel:
            sch.parallel(vector)
