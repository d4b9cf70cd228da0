"""guided-conv2d's depthwise lowering: each channel has its own kernels; vectors run over the pixels of a row.

Source: Zhang et al., "High Performance Depthwise and Pointwise Convolutions on Mobile Devices" (AAAI 2020), for the
reuse of rows of the image in registers. If there is a stride, the copy of the image separates the pixels between which
a kernel moves, so that vectors are contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.space import Choose, Knob
from searchlab.target import Target
from searchlab.workload import Conv2d

from ..tiles import list_divisors
from .common import EDGE_ANNOTATION, MIN_PARALLEL_FLOPS, inline_consumers, make_untraced_schedule
from .conv2d_common import accumulator_range, is_balanced

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV


SLOWDOWN_PER_FLOP = 4
"""How many times as long a FLOP takes as in a GEMM, since each pixel is used in few products.

With two threads of a Zen 4, a layer of MobileNet-V2 that is just worth a parallel loop reaches 52 GFLOPS, a GEMM 203.
"""


@dataclass(frozen=True)
class Depthwise:
    """The depthwise lowering of a workload. Its tile has ``height`` x ``width`` pixels of one channel.

    Attributes:
        lanes: The number of elements in a vector. Narrower rows are computed in vectors of half the size.
        has_block_knobs: Whether the number of shares into which an image's rows are divided is a knob.
    """

    workload: Conv2d
    target: Target
    lanes: int
    has_block_knobs: bool = False

    @staticmethod
    def supports(workload: Conv2d) -> bool:
        """Return whether this lowering supports ``workload``: as many groups as input channels."""
        return workload.groups == workload.ci

    def ask_for_knobs(self, choose: Choose) -> None:
        """Ask for the tile."""
        width = choose(Knob("width", tuple(self.tiles)))
        height = choose(Knob("height", self.tiles[int(width)]))  # type: ignore[arg-type]
        if self.has_block_knobs:
            choose(Knob("shares", tuple(list_divisors(self._count_tile_rows(int(height))))))  # type: ignore[arg-type]

    @cached_property
    def tiles(self) -> dict[int, tuple[int, ...]]:
        """The possible heights for each width: those whose vectors fit into registers."""
        oh, ow = self.workload.out_size
        budget = accumulator_range(self.target, self.has_block_knobs)
        heights = sorted({ceil(oh / parts) for parts in range(1, oh + 1)})
        return {
            width: tuple(height for height in heights if height == 1 or height * vectors < budget.stop)
            for width, vectors in sorted(self._list_widths(ow))
            if vectors < budget.stop
        }

    def _list_widths(self, ow: int) -> Iterator[tuple[int, int]]:
        """Yield the possible widths and their numbers of vectors, which divide rows into about equal tiles."""
        for lanes in {self.lanes, max(1, self.lanes // 2)}:
            vectors = ceil(ow / lanes)
            for count in {ceil(vectors / parts) for parts in range(1, vectors + 1)}:
                if self._choose_lanes(count * lanes) == lanes:
                    yield count * lanes, count

    def _choose_lanes(self, width: int) -> int:
        return self.lanes if width % self.lanes == 0 else max(1, self.lanes // 2)

    def _count_tile_rows(self, height: int) -> int:
        return ceil(self.workload.out_size[0] / height)

    @property
    def _is_worth_parallelizing(self) -> bool:
        """Whether there is enough work for more than one thread."""
        return self.target.cores > 1 and self.workload.flops * SLOWDOWN_PER_FLOP >= MIN_PARALLEL_FLOPS

    def _choose_shares(self, height: int, width: int) -> int:
        """Return the number of shares into which to divide a channel's rows.

        A share's copy of the image fits into half of L1, and the cores have about the same amount of work.
        """
        w = self.workload
        share_counts = list_divisors(self._count_tile_rows(height))
        _, _, sy, sx, rows, columns = self._compute_image_shape(height, width)
        row_bytes = sy * sx * columns * np.dtype(w.dtype).itemsize
        halo_rows = rows - self._count_tile_rows(height) * height
        for share_count in share_counts:
            is_even = not self._is_worth_parallelizing or is_balanced(w.n * w.ci * share_count, self.target.cores)
            share_rows = self._count_tile_rows(height) // share_count * height
            if is_even and (share_rows + halo_rows) * row_bytes <= self.target.caches[0].size // 2:
                return share_count
        return share_counts[-1]

    def _compute_image_shape(self, height: int, width: int) -> tuple[int, ...]:
        """Return the shape of the image's copy: images, channels, vertical and horizontal phases, rows, and columns."""
        w = self.workload
        (sy, sx), (dy, dx) = w.stride, w.dilation
        rows = self._count_tile_rows(height) * height + (w.kh - 1) * dy // sy
        columns = ceil(w.out_size[1] / width) * width + (w.kw - 1) * dx // sx
        return w.n, w.ci, sy, sx, rows, columns

    def schedule(self, width: int, height: int, shares: int = 0) -> Schedule:
        """Schedule the program for a tile. If ``shares`` is 0, it is computed."""
        from ..unchecked import Unchecked

        w, lanes = self.workload, self._choose_lanes(width)
        sch = Unchecked(self._make_module(height, width))
        conv = sch.get_sblock("conv2d")
        result = inline_consumers(sch, conv)

        n, o, y, x, ry, rx = sch.get_loops(conv)
        group, kernel = sch.split(o, [None, w.co // w.ci])
        share, row, tile_y = sch.split(y, [shares or self._choose_shares(height, width), None, height])
        column, vector, lane = sch.split(x, [None, width // lanes, lanes])
        sch.reorder(n, group, share, kernel, row, column, ry, rx, tile_y, vector, lane)
        task = sch.fuse(n, group, share)
        sch.compute_at("image", task, preserve_unit_loops=True)
        self._schedule_image(sch)
        sch.reverse_compute_at(result, row, preserve_unit_loops=True)
        self._schedule_result(sch, result, lanes)
        sch.vectorize(lane)
        for loop in (ry, rx, tile_y, vector):
            sch.unroll(loop)
        if self._is_worth_parallelizing:
            sch.parallel(task)
        # This must be last, because it prevents unroll, vectorize and parallel.
        sch.decompose_reduction(conv, ry)
        return make_untraced_schedule(sch.mod)

    def _schedule_image(self, sch: Schedule) -> None:
        """Copy rows of the image without bound checks.

        The columns between which the kernel moves are read together, since LLVM reads every second number, for example,
        with masked loads. With them, two layers of MobileNet-V2 took 2.3 times as long (two threads of a Zen 4).
        """
        *_, a, b, row, column = sch.get_loops("image")
        sch.reorder(row, a, column, b)
        sch.unroll(b)
        sch.annotate(column, EDGE_ANNOTATION, 1)

    def _schedule_result(self, sch: Schedule, result: SBlockRV, lanes: int) -> None:
        """Write rows of the result in vectors, with a shorter one at the end, or as one if they are shorter."""
        ow = self.workload.out_size[1]
        vector, lane = sch.split(sch.get_loops(result)[-1], [None, min(lanes, ow)])
        sch.vectorize(lane)
        sch.annotate(vector, EDGE_ANNOTATION, 1)

    def _make_module(self, height: int, width: int) -> tvm.IRModule:
        """Return the computation for tiles of ``height`` x ``width`` pixels, with a copy of the image in phases."""
        import tvm
        from tvm import te
        from tvm.tirx import const, if_then_else

        w = self.workload
        (sy, sx), (dy, dx), (py, px) = w.stride, w.dilation, w.padding
        shape = self._compute_image_shape(height, width)
        data = te.placeholder(w.shapes["data"], name="data", dtype=w.dtype)
        weight = te.placeholder(w.shapes["weight"], name="weight", dtype=w.dtype)

        def pixel(n: Any, c: Any, a: Any, b: Any, y: Any, x: Any) -> Any:
            top, left = y * sy + a - py, x * sx + b - px
            is_inside = tvm.tirx.all(top >= 0, top < w.h, left >= 0, left < w.w)
            return if_then_else(is_inside, data[n, c, top, left], const(0, w.dtype))

        image = te.compute(shape, pixel, name="image")
        ry, rx = te.reduce_axis((0, w.kh), "ry"), te.reduce_axis((0, w.kw), "rx")

        def product(n: Any, o: Any, y: Any, x: Any) -> Any:
            down, right = ry * dy, rx * dx
            value = image[n, o // (w.co // w.ci), down % sy, right % sx, y + down // sy, x + right // sx]
            return te.sum(value.astype(w.out_dtype) * weight[o, 0, ry, rx].astype(w.out_dtype), axis=[ry, rx])

        rows, columns = (ceil(size / tile) * tile for size, tile in zip(w.out_size, (height, width), strict=True))
        conv = te.compute((w.n, w.co, rows, columns), product, name="conv2d")
        result = te.compute((w.n, w.co, *w.out_size), lambda n, o, y, x: conv[n, o, y, x], name="result")
        return tvm.IRModule({"main": w.epilogue([data, weight], result).with_attr("global_symbol", "main")})
