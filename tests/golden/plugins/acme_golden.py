"""Plug-ins of a user, named in golden logs as ``acme_golden:Name``: they import nothing but what is public."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from searchlab import (
    Config,
    InvalidConfig,
    Knob,
    NeverTwice,
    ProductSpace,
    Space,
    Target,
    UnsupportedWorkload,
    Workload,
)

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

FAULTS = (
    "fast", "slow", "fast again", "invalid", "schedule raises", "schedule hangs", "schedule dies", "does not link",
    "aborts", "hangs", "is wrong", "fast at last",
)  # fmt: skip
CALLS: dict[str, tuple[str, ...]] = {
    "does not link": ("there_is_no_such_function",),
    "aborts": ("abort",),
    "hangs": ("pause",),
    "is wrong": ("getpid",),
}


class Faults(ProductSpace):
    """Programs of one GEMM that are fast, slow, the same as another, or fail, each in its own way."""

    def __init__(self, workload: Workload, target: Target, *, width: int = 16) -> None:
        if workload.op != "gemm":
            raise UnsupportedWorkload(f"Faults has programs for gemm, not for {workload.op}")
        super().__init__(workload, target, [Knob("fault", FAULTS), Knob("unroll", (0, 16))])
        self.width = width

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        self.knobs(config)
        fault = str(config["fault"])
        if fault == "invalid":
            raise InvalidConfig("this config is invalid on purpose")
        if fault == "schedule raises":
            raise ValueError("a mistake in a plug-in")
        if fault == "schedule hangs":
            time.sleep(60)
        if fault == "schedule dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault in CALLS:
            return Schedule(_calling(self.workload, *CALLS[fault]))
        made = Schedule(self.workload.module)
        i, j, k = made.get_loops(made.get_sblock("gemm"))
        if fault == "slow":  # every step of k reads another row of B
            made.reorder(j, i, k)
        else:
            outer, inner = made.split(j, [None, self.width])
            made.reorder(i, outer, k, inner)
            made.vectorize(inner)
            if fault == "fast at last":
                made.unroll(outer)
        return made  # both values of "unroll" make the same program


def _calling(workload: Workload, function: str) -> Any:
    """A program with the arguments of ``workload`` that does nothing but call a C function."""
    import tvm
    from tvm.script import tirx as T

    a, b, c = workload.shapes.values()

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer(a, "float32"), B: T.Buffer(b, "float32"), C: T.Buffer(c, "float32")):  # type: ignore[no-untyped-def,valid-type]
        T.evaluate(T.call_extern("int32", function))

    return tvm.IRModule({"main": main.with_attr("global_symbol", "main")})


def stripes(sch: Schedule) -> None:
    """A trace function: what it asks for last depends on what it was told first."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    columns = sch.sample_perfect_tile(j, n=2, max_innermost_factor=32)
    j0, j1 = sch.split(j, columns)
    rows = sch.sample_perfect_tile(i, n=2, max_innermost_factor=8)
    i0, i1 = sch.split(i, rows)
    sch.reorder(i0, j0, k, i1, j1)
    if int(sch.get(columns[1])) > 2:
        sch.vectorize(j1)
        if int(sch.get(sch.sample_categorical([0, 1], [0.5, 0.5]))):
            sch.unroll(i1)
    sch.decompose_reduction(block, k)


def rows(cfg: Any, sch: Schedule, target: Target) -> None:
    """A template of ``knob-template``, which no decorator registers."""
    block = sch.get_sblock("gemm")
    i, j, k = sch.get_loops(block)
    cfg.define_split("tile_i", i, 2, filter=lambda split: split.size[1] <= 4)
    cfg.define_split("tile_j", j, 2, filter=lambda split: split.size[1] <= 32)
    cfg.define_knob("unroll", [0, 1])
    i0, i1 = cfg["tile_i"].apply(sch, i)
    j0, j1 = cfg["tile_j"].apply(sch, j)
    sch.reorder(i0, j0, k, i1, j1)
    if cfg["unroll"].val:
        sch.unroll(i1)
    sch.vectorize(j1)
    sch.decompose_reduction(block, k)


class HillClimb(NeverTwice):
    """Mutates the best config so far, or leaves the place to a random one with probability ``restart``."""

    def __init__(self, space: Space, *, seed: int, restart: float = 0.2) -> None:
        super().__init__(space, seed=seed)
        self.restart = restart

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        best = min(self.trials, key=lambda trial: trial.cost, default=None)
        for _ in range(n):
            if best is not None and rng.random() >= self.restart:
                yield self.space.mutate(best.config, rng)
