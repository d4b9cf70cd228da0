"""AutoTVM's features of loops, held against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from searchlab.conformance import toys
from searchlab.costmodel.features import CurveFeatures, Features, ItervarFeatures
from searchlab.costmodel.loops import ANNOTATIONS, Loop, extract_loops
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_spaces.templates import KnobTemplate

WORKLOAD = parse_workload("gemm:8x8x8")


def touches_by_buffer(loop: Loop) -> dict[str, tuple[int, int, int]]:
    """Stride, count and reuse of each buffer. All accesses to a buffer are the same in these programs."""
    values: dict[str, tuple[int, int, int]] = {}
    for touched, touch in loop.touches.items():
        numbers = (touch.stride, touch.count, touch.reuse)
        assert values.setdefault(touched.rpartition("_")[0], numbers) == numbers
    return values


def test_the_loops_of_a_naive_gemm() -> None:
    i, j, p = extract_loops(WORKLOAD.module)
    assert [(loop.length, loop.level, loop.topdown, loop.bottomup) for loop in (i, j, p)] == [
        (8, 1, 8, 512),
        (8, 2, 64, 64),
        (8, 3, 512, 8),
    ]
    assert [(loop.adds, loop.multiplies, loop.divides) for loop in (i, j, p)] == [(0, 0, 0), (0, 0, 0), (1, 1, 0)]
    assert {loop.annotation for loop in (i, j, p)} == {"serial"}
    assert list(p.touches) == ["gemm_0", "gemm_1", "gemm_2", "A_0", "B_0"]  # set to 0, stored, and loaded
    assert touches_by_buffer(p) == {"gemm": (0, 1, 8), "A": (1, 8, 1), "B": (8, 8, 1)}
    assert touches_by_buffer(j) == {"gemm": (1, 8, 8), "A": (0, 8, 8), "B": (1, 64, 1)}
    assert touches_by_buffer(i) == {"gemm": (8, 64, 8), "A": (8, 64, 8), "B": (0, 64, 8)}
    assert all(touch.thread_count == touch.thread_reuse == 0 for loop in (i, j, p) for touch in loop.touches.values())


def tile_gemm() -> Any:
    """4 x 4 tiles: i0 (parallel), j0, p, i1, j1 (vectorized)."""
    from tvm.s_tir import Schedule

    sch = Schedule(WORKLOAD.module)
    i, j, p = sch.get_loops(sch.get_sblock("gemm"))
    (i0, i1), (j0, j1) = sch.split(i, [2, 4]), sch.split(j, [2, 4])
    sch.reorder(i0, j0, p, i1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    return sch


def test_the_loops_of_a_tiled_gemm() -> None:
    i0, j0, p, i1, j1 = loops = extract_loops(tile_gemm().mod)
    assert [loop.annotation for loop in loops] == ["parallel", "serial", "serial", "serial", "vectorized"]
    assert [loop.length for loop in loops] == [2, 2, 8, 4, 4] and [loop.level for loop in loops] == [1, 2, 3, 4, 5]
    assert [loop.topdown for loop in loops] == [2, 4, 32, 128, 512]
    assert [loop.bottomup for loop in loops] == [512, 256, 128, 16, 4]
    assert touches_by_buffer(j1) == {"gemm": (1, 4, 1), "A": (0, 1, 4), "B": (1, 4, 1)}
    assert touches_by_buffer(i1) == {"gemm": (8, 16, 1), "A": (8, 4, 4), "B": (0, 4, 4)}
    assert touches_by_buffer(p) == {"gemm": (0, 16, 8), "A": (1, 32, 4), "B": (8, 32, 4)}
    assert touches_by_buffer(j0) == {"gemm": (4, 32, 8), "A": (0, 32, 8), "B": (4, 64, 4)}
    assert touches_by_buffer(i0) == {"gemm": (32, 64, 8), "A": (32, 64, 8), "B": (0, 64, 8)}
    threads = {name: (touch.thread_count, touch.thread_reuse) for name, touch in i0.touches.items()}
    assert threads == {"gemm_0": (2, 1), "gemm_1": (2, 1), "gemm_2": (2, 1), "A_0": (2, 1), "B_0": (1, 2)}
    assert all(touch.thread_count == 0 for loop in loops[1:] for touch in loop.touches.values())


def test_a_fused_loop_and_a_compact_copy() -> None:
    """A variable within a quotient has stride 1; a copy of a tile is as large as the tile."""
    from tvm.s_tir import Schedule

    sch = Schedule(WORKLOAD.module)
    block = sch.get_sblock("gemm")
    i, j, p = sch.get_loops(block)
    (i0, i1), (j0, j1) = sch.split(i, [2, 4]), sch.split(j, [2, 4])
    sch.reorder(i0, j0, i1, j1, p)
    fused = sch.fuse(i0, j0)
    sch.reverse_compute_at(sch.cache_write(block, 0, "global"), fused)
    outer, inner, *_ = extract_loops(sch.mod)
    assert {name: touch.stride for name, touch in outer.touches.items()} == {
        "gemm_global_0": 0,
        "gemm_global_1": 0,
        "gemm_global_2": 0,
        "gemm_global_3": 0,
        "A_0": 1,
        "B_0": 1,
        "gemm_0": 1,
    }
    assert inner.touches["gemm_global_1"].stride == 4 and inner.touches["A_0"].stride == 8


def test_loops_of_a_gpu_and_loops_of_length_1() -> None:
    from tvm.s_tir import Schedule

    sch = Schedule(WORKLOAD.module)
    i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
    block = sch.split(i, [1, 8])[1]
    sch.bind(block, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    first, blocks, threads, _ = extract_loops(sch.mod)
    assert [loop.annotation for loop in (first, blocks, threads)] == ["serial", "blockIdx.x", "threadIdx.x"]
    assert touches_by_buffer(first) == {"gemm": (0, 64, 8), "A": (0, 64, 8), "B": (0, 64, 8)}
    # Compared with the body of the threads, and the blocks with one thread block.
    assert (threads.touches["A_0"].thread_count, threads.touches["A_0"].thread_reuse) == (1, 8)
    assert (threads.touches["B_0"].thread_count, threads.touches["B_0"].thread_reuse) == (8, 1)
    assert (blocks.touches["A_0"].thread_count, blocks.touches["B_0"].thread_count) == (8, 1)


class AlwaysTiled(toys.Small):
    """Every config makes the tiled program."""

    def schedule(self, config: Config) -> Any:
        return tile_gemm()


def log(number: float) -> float:
    return math.log2(number + 1)


def test_itervar_features_are_flat_and_logarithmic(native: Target) -> None:
    space = AlwaysTiled(toys.WORKLOAD, native)
    config = Config({"tile": (8, 2), "unroll": 64, "order": "ijk", "pack": True})
    (row,) = ItervarFeatures(space)([config])
    assert len(row) == 5 * (4 + 11 + 3 + 5 * 6) + 2
    i0 = row[:48].tolist()
    assert i0[:4] == [log(2), 1, log(2), log(512)]
    assert i0[4:15] == [float(kind == "parallel") for kind in ANNOTATIONS] and i0[15:18] == [0, 0, 0]
    assert i0[18:24] == [log(32), -1, log(64), log(8), log(2), log(1)]  # A_0: stride, mod, count, reuse, of threads
    assert i0[24:30] == [0, -1, log(64), log(8), log(1), log(2)]  # B_0
    assert row[4 * 48 + 15 : 4 * 48 + 18].tolist() == [1, 1, 0]  # an addition and a product in the innermost loop
    assert row[-2:].tolist() == [64, 1]  # the choices that are numbers


def test_curve_features_sample_each_buffer_of_the_innermost_loop(native: Target) -> None:
    space = AlwaysTiled(toys.WORKLOAD, native)
    config = Config({"tile": (8, 2), "unroll": 0, "order": "ijk", "pack": False})
    (row,) = CurveFeatures(space)([config])
    assert len(row) == 3 * 4 * 20 * 2 + 2  # A, B, and the last access to the result
    count_to_reuse = row[:40].reshape(20, 2).tolist()
    # A: counts 1, 4, 32, 32, 64 and reuses 4, 4, 4, 8, 8 from the inside out; both begin at 0.
    assert count_to_reuse[:8] == [[2, 0], [2, 1], [2, 0], [2, 1], [2, 2], [3, 0], [3, 0], [3, 1]]
    reuse_to_count = row[40:80].reshape(20, 2).tolist()
    assert reuse_to_count[:5] == [[0, 0], [0, 1], [5, 0], [6, 0], [6, 1]]
    count_to_product = row[80:120].reshape(20, 2).tolist()
    # The products 2, 4, 32, 128, 512, and 0 in front.
    assert count_to_product[:4] == [[1, 0], [1, 1], [2, 0], [2, 1]] and count_to_product[6] == [9, 0]


@pytest.mark.parametrize("kind", [ItervarFeatures, CurveFeatures])
def test_two_shapes_of_a_template_have_the_same_columns(kind: type[Features], native: Target) -> None:
    small, large = (KnobTemplate(parse_workload(f"gemm:{n}x64x64"), native) for n in (64, 128))
    config = {"tile_j": (2, 4, 8), "tile_k": (16, 4), "pack_b": 0}
    small_row = kind(small)([Config({"tile_i": (4, 4, 4), **config})])
    large_row = kind(large)([Config({"tile_i": (8, 4, 4), **config})])
    assert small_row.shape == large_row.shape and np.isfinite(small_row).all() and np.isfinite(large_row).all()
    different = np.flatnonzero(small_row != large_row)
    assert 0 < len(different) < small_row.shape[1] / 2


def test_a_shorter_row_ends_in_zeros_and_no_program_is_nan(native: Target) -> None:
    toy = toys.Small(toys.WORKLOAD, native)
    rows = ItervarFeatures(toy)(list(toy.enumerate()))
    nothing = np.isnan(rows).all(axis=1)
    assert nothing.any() and not nothing.all() and np.isfinite(rows[~nothing]).all()
    space = KnobTemplate(parse_workload("gemm:64x64x64"), native)
    packed, plain = (
        Config({"tile_i": (4, 4, 4), "tile_j": (2, 4, 8), "tile_k": (16, 4), "pack_b": pack}) for pack in (1, 0)
    )
    both_rows = ItervarFeatures(space)([packed, plain])
    plain_row = ItervarFeatures(space)([plain])
    assert both_rows.shape[1] > plain_row.shape[1]
    np.testing.assert_array_equal(
        both_rows[1], np.append(plain_row[0], np.zeros(both_rows.shape[1] - plain_row.shape[1]))
    )
