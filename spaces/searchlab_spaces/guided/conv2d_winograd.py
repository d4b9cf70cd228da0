"""guided-conv2d's Winograd lowering: F(4x4, 3x3), which needs a quarter of the multiplications.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016). The kernels and tiles of 6 x 6
pixels, at stride 4, are transformed. Then 36 GEMMs over the input channels compute the transforms of 4 x 4 result
tiles. Vectors run over tiles, and kernels are broadcast. All operands are packed into panels in access order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab.arrays import Array
from searchlab.space import Choose, Knob
from searchlab.target import Target
from searchlab.workload import Conv2d

from .common import EDGE_ANNOTATION, UNROLLED_STEPS, inline_consumers, make_untraced_schedule
from .conv2d_common import accumulator_range, is_worth_parallelizing, schedule_padding, vector_counts

if TYPE_CHECKING:
    import tvm
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV

RESULT_SIDE, KERNEL_SIDE = 4, 3
"""The side lengths of a result tile and of a kernel."""

TILE_SIDE = RESULT_SIDE + KERNEL_SIDE - 1
"""The side length of an image tile."""

POINTS = (0.0, 5 / 8, -5 / 8, 3 / 2, -3 / 2)
"""The points, besides infinity, at which the transforms' polynomials are evaluated.

They determine the rounding error: see Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks" (2020). With 0, 1, -1, 2 and -2, the error is about four times as large.
"""

ERROR_FACTOR = 4.0
"""The factor by which the tolerance for rounding errors is multiplied."""


@dataclass(frozen=True)
class Winograd:
    """The Winograd lowering of a workload. Its tile has ``channels`` by ``pixels``, the corners of 4x4 results."""

    workload: Conv2d
    target: Target
    lanes: int

    @staticmethod
    def supports(workload: Conv2d) -> bool:
        """Return whether ``workload`` has one group and a 3x3 kernel with stride 1, in float32 or float64."""
        geometry = ((workload.kh, workload.kw), workload.stride, workload.dilation, workload.groups)
        return geometry == ((KERNEL_SIDE, KERNEL_SIDE), (1, 1), (1, 1), 1) and workload.dtype in ("float32", "float64")

    @property
    def tile_counts(self) -> tuple[int, int]:
        """The numbers of result tiles that cover an image's height and width."""
        oh, ow = self.workload.out_size
        return ceil(oh / RESULT_SIDE), ceil(ow / RESULT_SIDE)

    @property
    def corner_count(self) -> int:
        """The number of result tiles in all images."""
        rows, columns = self.tile_counts
        return self.workload.n * rows * columns

    def ask_for_knobs(self, choose: Choose) -> None:
        """Ask for the tile: complete vectors of corners, and channels within the register budget."""
        pixels = choose(Knob("pixels", tuple(self.tiles)))
        choose(Knob("channels", self.tiles[int(pixels)]))  # type: ignore[arg-type]

    @cached_property
    def tiles(self) -> dict[int, tuple[int, ...]]:
        """The possible numbers of channels for each number of pixels."""
        budget = accumulator_range(self.target)
        tiles = {}
        for count in vector_counts(self.lanes, self.corner_count):
            max_channels = min((budget.stop - 1) // count, self.workload.co)
            tiles[count * self.lanes] = tuple(range(min(ceil(budget.start / count), max_channels), max_channels + 1))
        return tiles

    def schedule(self, pixels: int, channels: int) -> Schedule:
        """Schedule the program for a tile."""
        from ..unchecked import Unchecked

        in_parallel = is_worth_parallelizing(self.workload, self.target)
        sch = Unchecked(self._make_module(pixels, channels))
        for matrix in ("of_image", "of_kernel", "of_result"):
            sch.compute_inline(matrix)
        tiles = sch.get_sblock("tiles")
        sch.transform_layout(tiles, ("write", 0), lambda n, c, y, x, o, p: (n, c, o, y, p, x))
        result = inline_consumers(sch, tiles)

        kernels = self._schedule_kernels(sch)
        panel, stripe, y, x, o, p, s = sch.get_loops(tiles)
        vector, lane = sch.split(p, [None, self.lanes])
        sch.reorder(panel, stripe, o, vector, y, x, s, lane)
        self._schedule_transform(sch, "tile_rows", "tiles", vector)
        sch.compute_at("gemm", stripe, preserve_unit_loops=True)
        if not in_parallel:  # a panel of the image's transform stays in L2 until all kernels are applied to it
            sch.compute_at("image", panel, preserve_unit_loops=True)
        images = self._schedule_image(sch)
        chunks = self._schedule_gemm(sch)

        image, channel, y, x = sch.get_loops(result)
        corner, pixel = sch.split(x, [None, RESULT_SIDE])
        sch.annotate(corner, EDGE_ANNOTATION, 1)
        sch.vectorize(pixel)
        schedule_padding(sch, self.workload, in_parallel)
        if in_parallel:
            for loop in (images, kernels, sch.fuse(panel, stripe), sch.fuse(image, channel)):
                sch.parallel(loop)
        # This must be last, because it prevents unroll, vectorize and parallel.
        sch.decompose_reduction("gemm", chunks)
        for half in ("image", "image_rows", "kernels", "kernel_rows", "tiles", "tile_rows"):
            sch.decompose_reduction(half, sch.get_loops(half)[-2])
        return make_untraced_schedule(sch.mod)

    def _schedule_kernels(self, sch: Schedule) -> LoopRV:
        """Schedule the transforms of the kernels, and return the outermost loop."""
        stripe, a, b, c, o, lane, s = sch.get_loops("kernels")
        sch.reorder(stripe, c, o, a, b, s, lane)
        self._schedule_transform(sch, "kernel_rows", "kernels", o)
        sch.transform_layout("taken", ("write", 0), lambda n, c, o, lane, y, x: (n, c, o, y, x, lane))
        sch.compute_at("taken", o, preserve_unit_loops=True)
        sch.vectorize(sch.fuse(*sch.get_loops("taken")[-2:]))
        return sch.fuse(stripe, c)

    def _schedule_image(self, sch: Schedule) -> LoopRV:
        """Schedule the transforms of the image's tiles, and return the outermost loop."""
        of_panel, a, b, c, p, s = sch.get_loops("image")[-6:]
        vector, lane = sch.split(p, [None, self.lanes])
        sch.reorder(of_panel, c, vector, a, b, s, lane)
        self._schedule_transform(sch, "image_rows", "image", vector)
        sch.transform_layout("patches", ("write", 0), lambda n, c, p, y, x: (n, c, y, x, p))
        sch.compute_at("patches", vector, preserve_unit_loops=True)
        # Load vectors and store scalars; by default, LLVM would gather and store vectors, which is slower.
        *_, row, x = sch.get_loops("patches")
        sch.unroll(row)
        sch.vectorize(x)
        return sch.fuse(of_panel, c)

    def _schedule_gemm(self, sch: Schedule) -> LoopRV:
        """Schedule the products in a micro-tile of registers, and return the loop over chunks of input channels."""
        *_, o, p, c = sch.get_loops("gemm")
        vector, lane = sch.split(p, [None, self.lanes])
        chunks, step, unrolled = sch.split(c, [None, self._chunk_size // UNROLLED_STEPS, UNROLLED_STEPS])
        sch.reorder(chunks, step, unrolled, o, vector, lane)
        sch.vectorize(lane)
        for loop in (unrolled, o, vector):
            sch.unroll(loop)
        return chunks

    def _schedule_transform(self, sch: Schedule, first: str, second: str, at: LoopRV) -> None:
        """Schedule a transform, unrolled and vectorised; its ``first`` half is in the second half's loop ``at``."""
        sch.compute_at(first, at, preserve_unit_loops=True)
        *_, a, b, lane, summed = sch.get_loops(first)
        sch.reorder(a, b, summed, lane)
        for half in (first, second):
            *_, a, b, summed, lane = sch.get_loops(half)
            sch.vectorize(lane)
            for loop in (a, b, summed):
                sch.unroll(loop)

    @property
    def _chunk_size(self) -> int:
        """The number of input channels that are contiguous in a panel of kernels."""
        return min(max(self.lanes, UNROLLED_STEPS), ceil(self.workload.ci / UNROLLED_STEPS) * UNROLLED_STEPS)

    @property
    def _chunk_count(self) -> int:
        """The number of such chunks of input channels."""
        return ceil(self.workload.ci / self._chunk_size)

    def _make_module(self, pixels: int, channels: int) -> tvm.IRModule:
        """Return the computation for tiles of ``pixels`` and ``channels``, with its operands in panels."""
        import tvm
        from tvm import te
        from tvm.topi.utils import const_matrix

        w, dtype = self.workload, self.workload.dtype
        rows, columns = self.tile_counts
        image_matrix, kernel_matrix, result_matrix = (
            const_matrix(matrix.astype(dtype), name)
            for name, matrix in zip(("of_image", "of_kernel", "of_result"), make_transforms(), strict=True)
        )
        data = te.placeholder(w.shapes["data"], name="data", dtype=dtype)
        weight = te.placeholder(w.shapes["weight"], name="weight", dtype=dtype)
        image = self._transform_image(data, pixels, image_matrix)
        kernels = self._transform_kernels(weight, channels, kernel_matrix)
        tiles = self._compute_result_tiles(image, kernels, result_matrix)

        def result(n: Any, o: Any, y: Any, x: Any) -> Any:
            at = (n * rows + y // RESULT_SIDE) * columns + x // RESULT_SIDE
            return tiles[at // pixels, o // channels, y % RESULT_SIDE, x % RESULT_SIDE, o % channels, at % pixels]

        conv = te.compute((w.n, w.co, *w.out_size), result, name="conv2d")
        return tvm.IRModule({"main": w.epilogue([data, weight], conv).with_attr("global_symbol", "main")})

    def _transform_image(self, data: Any, pixels: int, matrix: Any) -> Any:
        """Return the transforms of the image's tiles, in panels of ``pixels`` tiles."""
        import tvm
        from tvm import te
        from tvm.tirx import const, if_then_else
        from tvm.tirx import min as least

        w = self.workload
        rows, columns = self.tile_counts
        py, px = w.padding
        panels, channels = ceil(self.corner_count / pixels), self._chunk_count * self._chunk_size
        padded = te.compute(
            (w.n, w.ci, rows * RESULT_SIDE + KERNEL_SIDE - 1, columns * RESULT_SIDE + KERNEL_SIDE - 1),
            lambda n, c, y, x: if_then_else(
                tvm.tirx.all(y >= py, y < w.h + py, x >= px, x < w.w + px),
                data[n, c, y - py, x - px],
                const(0, w.dtype),
            ),
            name="pad",
        )

        def of_tile(panel: Any, c: Any, pixel: Any, y: Any, x: Any) -> Any:
            # The last tile is repeated to fill up a panel.
            corner = least(panel * pixels + pixel, self.corner_count - 1)
            n, first_y, first_x = corner // (rows * columns), corner // columns % rows, corner % columns
            return padded[n, least(c, w.ci - 1), first_y * RESULT_SIDE + y, first_x * RESULT_SIDE + x]

        patches = te.compute((panels, channels, pixels, TILE_SIDE, TILE_SIDE), of_tile, name="patches")
        r = te.reduce_axis((0, TILE_SIDE), "r")
        image_rows = te.compute(
            (panels, channels, TILE_SIDE, TILE_SIDE, pixels),
            lambda panel, c, a, s, p: te.sum(patches[panel, c, p, r, s] * matrix[a, r], axis=r),
            name="image_rows",
        )
        s = te.reduce_axis((0, TILE_SIDE), "s")
        return te.compute(
            (panels, TILE_SIDE, TILE_SIDE, channels, pixels),
            lambda panel, a, b, c, p: te.sum(image_rows[panel, c, a, s, p] * matrix[b, s], axis=s),
            name="image",
        )

    def _transform_kernels(self, weight: Any, channels: int, matrix: Any) -> Any:
        """Return the transforms of the kernels, in panels of ``channels`` kernels."""
        from tvm import te
        from tvm.tirx import const, if_then_else
        from tvm.tirx import min as least

        w, chunk = self.workload, self._chunk_size
        stripes, chunks = ceil(w.co / channels), self._chunk_count
        t = te.reduce_axis((0, KERNEL_SIDE), "t")
        padded_weight = te.compute(
            (stripes, chunks, channels, chunk, KERNEL_SIDE, KERNEL_SIDE),
            lambda stripe, block, o, lane, y, x: weight[
                least(stripe * channels + o, w.co - 1), least(block * chunk + lane, w.ci - 1), y, x
            ],
            name="taken",
        )
        kernel_rows = te.compute(
            (stripes, chunks, channels, TILE_SIDE, KERNEL_SIDE, chunk),
            lambda stripe, block, o, a, s, lane: te.sum(
                padded_weight[stripe, block, o, lane, t, s] * matrix[a, t], axis=t
            ),
            name="kernel_rows",
        )
        u = te.reduce_axis((0, KERNEL_SIDE), "u")
        return te.compute(
            (stripes, TILE_SIDE, TILE_SIDE, chunks, channels, chunk),
            lambda stripe, a, b, block, o, lane: te.sum(
                if_then_else(
                    block * chunk + lane < w.ci,
                    kernel_rows[stripe, block, o, a, u, lane] * matrix[b, u],
                    const(0, w.dtype),
                ),
                axis=u,
            ),
            name="kernels",
        )

    def _compute_result_tiles(self, image: Any, kernels: Any, matrix: Any) -> Any:
        """Return the result tiles: the products of the transforms, summed over the input channels."""
        from tvm import te

        (panels, *_, pixels), (stripes, *_, channels, chunk) = image.shape, kernels.shape
        c = te.reduce_axis((0, self._chunk_count * self._chunk_size), "c")
        gemm = te.compute(
            (panels, stripes, TILE_SIDE, TILE_SIDE, channels, pixels),
            lambda panel, stripe, a, b, o, p: te.sum(
                kernels[stripe, a, b, c // chunk, o, c % chunk] * image[panel, a, b, c, p], axis=c
            ),
            name="gemm",
        )
        v = te.reduce_axis((0, TILE_SIDE), "v")
        tile_rows = te.compute(
            (panels, stripes, RESULT_SIDE, TILE_SIDE, channels, pixels),
            lambda panel, stripe, y, b, o, p: te.sum(gemm[panel, stripe, v, b, o, p] * matrix[y, v], axis=v),
            name="tile_rows",
        )
        z = te.reduce_axis((0, TILE_SIDE), "z")
        return te.compute(
            (panels, stripes, RESULT_SIDE, RESULT_SIDE, channels, pixels),
            lambda panel, stripe, y, x, o, p: te.sum(tile_rows[panel, stripe, y, z, o, p] * matrix[x, z], axis=z),
            name="tiles",
        )


def make_transforms() -> tuple[Array, Array, Array]:
    """Return the matrices that, from the left, transform image tiles (6, 6), kernels (6, 3), and results (4, 6).

    This is the Toom-Cook construction: a product of polynomials is determined by its values at POINTS and infinity.
    """
    infinity = np.eye(1, TILE_SIDE, TILE_SIDE - 1)
    values = np.vstack([np.vander(POINTS, TILE_SIDE, increasing=True), infinity])
    of_result = np.vstack([np.vander(POINTS, RESULT_SIDE, increasing=True), infinity[:, -RESULT_SIDE:]]).T
    of_kernel = np.vstack([np.vander(POINTS, KERNEL_SIDE, increasing=True), infinity[:, -KERNEL_SIDE:]])
    of_image = np.linalg.inv(values).T
    # The rows for the image are multiplied by a scale, and those for the kernel divided by it, to keep the former
    # small.
    scale = np.array([np.prod([x - y for y in POINTS if y != x]) for x in POINTS] + [1.0])[:, None]
    return np.round(of_image * scale, 12), of_kernel / scale, of_result
