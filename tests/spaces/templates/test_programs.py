"""Programs of AutoTVM's policies: tails that do not divide, orders, caches at chosen loops, threads of a GPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from searchlab.errors import SearchlabError
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import gemm
from searchlab_spaces.templates import KnobTemplate, TemplateConfig
from tests.support.spaces.cuda_on_cpu import result_on_cpu
from tests.support.spaces.programs import assert_right, replay_trace

CUDA = Target({"kind": "cuda", "arch": "sm_90"})


def make_space(name: str, target: Target, size: int = 60) -> KnobTemplate:
    return KnobTemplate(gemm(size, size, size), target, template=f"{__name__}:{name}")


def tails(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Tiles of powers of two and others, a packed operand, a tile of the result, and the sum begun apart."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    ys = cfg.define_split("tile_i", i, policy="power2", num_outputs=3, max_factor=16)
    xs = cfg.define_split("tile_j", j, policy="verbose", num_outputs=3, filter=lambda split: split.size[-1] <= 32)
    ks = cfg.define_split("tile_k", k, policy="power2", num_outputs=2)
    axes = [*ys, *xs, *ks]
    inner = cfg.define_reorder("order", axes, "interleave", spatial=[ys, xs], reduce=[ks])[-2:]
    cfg.define_annotate("ann", inner, "try_unroll_vec")
    cfg.define_annotate("cache", axes[:4], "locate_cache", num_anchor=1)

    copy = sch.cache_read(block, 1, "global")
    result = sch.cache_write(block, 0, "global")
    parts = [*cfg["tile_i"].apply(sch, i), *cfg["tile_j"].apply(sch, j), *cfg["tile_k"].apply(sch, k)]
    nest = cfg["order"].apply(sch, parts)  # i0 j0 i1 j1 k0 i2 j2 k1
    cfg["cache"].apply(sch, nest, source=[[copy]])
    sch.reverse_compute_at(result, nest[1], preserve_unit_loops=True)
    cfg["ann"].apply(sch, nest[5:7])
    sch.parallel(nest[0])
    sch.decompose_reduction(block, nest[4])


def swapped(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Orders of some loops of a nest: as it is, an interval of it, and some loops alone."""
    i, j, k = sch.get_loops(sch.get_sblock("gemm"))
    cfg.define_reorder("first", [i, j, k], "identity")
    cfg.define_reorder("second", [i, j, k], "interval_all", interval=(0, 2))
    cfg.define_reorder("third", [i, j, k], "candidate", candidate=[[i, j, k], [k, i]])
    for name in ("first", "second", "third"):
        cfg[name].apply(sch, [i, j, k])


def bound(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """A GEMM for GPUs with tiles that reach past its end, all binding left to a knob."""
    block = sch.get_sblock("gemm")
    i, j, _ = sch.get_loops(block)
    cfg.define_split("tile_i", i, num_outputs=3, policy="power2")
    cfg.define_split("tile_j", j, num_outputs=3, policy="power2")
    cfg.define_annotate("virtual", list(range(6)), "bind_gpu_virtual")
    (i0, i1, i2), (j0, j1, j2) = cfg["tile_i"].apply(sch, i), cfg["tile_j"].apply(sch, j)
    sch.reorder(i0, j0, i1, j1, i2, j2)
    cfg["virtual"].apply(sch, [i0, j0, i1, j1, i2, j2])


def fused(cfg: TemplateConfig, sch: Schedule, target: Target) -> None:
    """Five loops for four levels: the two outermost become one."""
    i, j, _ = sch.get_loops(sch.get_sblock("gemm"))
    cfg.define_split("tile_i", i, num_outputs=3)
    cfg.define_split("tile_j", j, num_outputs=2)
    cfg.define_annotate("bind", list(range(5)), "bind_gpu")
    (i0, i1, i2), (j0, j1) = cfg["tile_i"].apply(sch, i), cfg["tile_j"].apply(sch, j)
    sch.reorder(i0, i1, j0, i2, j1)
    outer = cfg["bind"].apply(sch, [i0, i1, j0, i2, j1])[1]
    sch.annotate(outer, "pragma_unroll_explicit", 0)


@pytest.mark.parametrize("seed", range(8))
def test_programs_with_tails_are_right(native: Target, seed: int) -> None:
    space = make_space("tails", native)
    rng = np.random.default_rng(seed)
    config = space.sample(rng)
    schedule = space.schedule(config)
    assert_right(space.workload, schedule, native)
    assert structural_equal(replay_trace(schedule, space.workload).mod, schedule.mod)


@pytest.mark.parametrize("ann", ["none,none", "unroll,vec", "vec,unroll"])
@pytest.mark.parametrize("cache", [(0,), (3,)])
def test_no_part_divides_the_loop(native: Target, ann: str, cache: tuple[int, ...]) -> None:
    space = make_space("tails", native)
    config = Config(
        {
            "tile_i": (2, 4, 8),
            "tile_j": (2, 2, 16),
            "tile_k": (4, 16),
            "order": (0, 3, 1, 4, 6, 2, 5, 7),
            "ann": ann,
            "cache": cache,
        }
    )
    schedule = space.schedule(config)
    assert schedule.mod.script().count("T.where") >= 2
    assert_right(space.workload, schedule, native)


def test_caches_are_where_the_knob_says(native: Target) -> None:
    space = make_space("tails", native)
    config = space.config_at(0)
    depths = []
    for choice in space.axes[-1].choices:
        schedule = space.schedule(Config({**config, "cache": choice}))
        copy, block = (schedule.get_loops(schedule.get_sblock(name)) for name in ("B_global", "gemm_update"))
        depths.append(len(copy) - 2)
        assert len(block) == 8
    assert depths == [1, 2, 3, 4]


def test_orders_are_applied(native: Target) -> None:
    space = make_space("swapped", native, 8)
    orders = []
    for config in space.enumerate():
        schedule = space.schedule(config)
        assert_right(space.workload, schedule, native)
        loops = schedule.get_loops(schedule.get_sblock("gemm"))
        orders.append("".join(schedule.get(loop).loop_var.name for loop in loops))
    # The first candidate orders all loops again, the second two of them, where they are.
    assert orders == ["ijp", "ijp", "pji", "jpi"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ runs the CUDA programs on the CPU, and is missing")
@pytest.mark.parametrize(
    ("name", "tiles", "threads"),
    [
        (
            "bound",
            {"tile_i": (8, 1, 8), "tile_j": (2, 8, 4), "virtual": None},
            {"blockIdx.y": 8, "blockIdx.x": 2, "vthread.y": 1, "vthread.x": 8, "threadIdx.y": 8, "threadIdx.x": 4},
        ),
        (
            "fused",
            {"tile_i": (3, 4, 5), "tile_j": (6, 10), "bind": None},
            {"blockIdx.y": 12, "blockIdx.x": 6, "threadIdx.y": 5, "threadIdx.x": 10},
        ),
    ],
)
def test_bound_programs_are_right(name: str, tiles: dict[str, Any], threads: dict[str, int], tmp_path: Path) -> None:
    space = make_space(name, CUDA)
    config = Config({knob.name: tiles[knob.name] or knob.choices[0] for knob in space.axes})
    script = space.schedule(config).mod.script()
    assert {
        axis: int(extent) for extent, axis in re.findall(r'T.thread_binding\((\d+), thread="([\w.]+)"', script)
    } == (threads)
    rtol, atol = space.workload.tolerance()
    expected = space.workload.reference(space.workload.inputs())
    np.testing.assert_allclose(result_on_cpu(space, config, tmp_path), expected, rtol=rtol, atol=atol)


def test_annotations_for_other_loops_are_refused() -> None:
    sch = Schedule(gemm(4, 4, 4).module)
    loops = sch.get_loops(sch.get_sblock("gemm"))
    cfg = TemplateConfig(sch)
    cfg.define_annotate("ann", loops, "try_unroll")
    with pytest.raises(SearchlabError, match=r"\['none', 'none', 'none'\] do not match 2 loops"):
        cfg["ann"].apply(sch, loops[:2])
    with pytest.raises(SearchlabError, match="must be passed with policy 'locate_cache'"):
        cfg["ann"].apply(sch, loops, source=[[sch.get_sblock("gemm")]])
    cfg.define_annotate("cache", loops, "locate_cache", num_anchor=1)
    with pytest.raises(SearchlabError, match="must be passed with policy 'locate_cache'"):
        cfg["cache"].apply(sch, loops)
