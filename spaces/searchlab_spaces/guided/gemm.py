"""The guided GEMM: the BLIS-like family, a space of micro-tiles such as (mr, nr), every other choice being computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from searchlab.errors import SearchlabError, UnsupportedWorkload
from searchlab.options import one_of
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Gemm, Workload

from .blis_model import KC, Blocking, blocking
from .common import FORK, registers
from .gemm_algorithms import ALGORITHMS, EXTENT, UNROLLED, extents
from .gemm_schedule import Plan, basic, blocked

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

VARIANTS = ("basic", "blocked", "packed", "micro-kernel")
"""Each adds one step to the one before: cache blocks, packed copies, a micro-tile in registers."""


def _pack(operand: str) -> str:
    return f"pack_{operand.lower()}"


class GuidedGemm(ProductSpace):
    """The packed GEMM of GotoBLAS and BLIS over its micro-tile, and the family of algorithms around it.

    By default mr rows by nr columns of C are held in registers: nr is one to four vectors of the target, mr up to
    half its registers; a tile that does not fit spills, and is slow but right. Block sizes follow from the caches
    (:mod:`.blis_model`), edges are padded with zeros while packing, and bias and ReLU are applied as C is written.
    Any size, dtype and number of cores will do.

    Options:

    - ``variant``: ``"basic"`` is the three loops of the definition, vectorised over nr columns; ``"blocked"`` the
      algorithm's loops over cache blocks and micro-tiles, operands read in place and a row of the micro-tile updated
      at a time; ``"packed"`` that on packed copies; ``"micro-kernel"`` (the default) the packed one with the whole
      micro-tile in registers.
    - ``algorithm``: a key of ALGORITHMS, as B3A2C0. Where A is resident in registers its micro-tile is kr x mr, mr
      being whole vectors, where B is, kr x nr; the knobs are then those. As C then streams through the registers,
      written back at every step, these are slower.
    - ``pack_a``, ``pack_b``: whether that operand is packed, or ``"knob"`` to search both ways; both are by default in
      the last two variants. One that is not is loaded from where it is, step by step, or micro-tile by micro-tile
      where it is the resident operand; if its sizes are no multiples of the tile's, the loads of the edge trips have
      conditions. A copy pays where it is read often: that of A the more columns there are, that of B the more rows.
    - ``parallel``: the loop whose trips are dealt out to the target's cores: ``ic``, ``jc`` over blocks, ``ir``,
      ``jr`` over micro-tiles, each where the algorithm has it; in the basic variant ``i``. ``"none"``, or by default
      ``"auto"``: tasks of blocks computed to take the cores the least time, when the problem is worth waking them.
    - ``blocks``: ``"model"``, or ``"knobs"`` to search mc, nc and kc as well. Each is then the size of m, n or k cut
      into 1, 2, 4, ... blocks, which is rounded up to whole micro-tiles.
    - ``kc``: ``"paper"`` is the depth of Low et al. (2016), at which the micro-panels of A and B stay in L1 together.
      ``"whole"``, the default, is not the paper's: all of k, if micro-panels so deep stay in L2, and else the paper's.
      C is then written once. Where C is not resident, both are the paper's.

    Raises UnsupportedWorkload for a conv2d and for a target that is no CPU, SearchlabError for a wrong option.
    """

    workload: Gemm

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        variant: str = "micro-kernel",
        algorithm: str = "B3A2C0",
        pack_a: bool | str | None = None,
        pack_b: bool | str | None = None,
        parallel: str = "auto",
        blocks: str = "model",
        kc: str = "whole",
    ) -> None:
        if not isinstance(workload, Gemm):
            raise UnsupportedWorkload(f"guided-gemm takes gemm workloads, not {workload}; use knob-template for it")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-gemm is for CPUs (llvm), not {target.kind}; use knob-template there")
        self.variant = one_of("variant", variant, VARIANTS)
        self.algorithm = ALGORITHMS[one_of("algorithm", algorithm, ALGORITHMS)]
        self.parallel = one_of("parallel", parallel, ("auto", "none", *self._spatial_loops()))
        self.blocks = one_of("blocks", blocks, ("model", "knobs"))
        self.kc = one_of("kc", kc, KC)
        packs = variant in ("packed", "micro-kernel")
        for name, value in (("pack_a", pack_a), ("pack_b", pack_b)):
            if value is not None and value != "knob" and not isinstance(value, bool):
                raise SearchlabError(f'option {name!r} is {value!r}; it must be true, false or "knob"')
            if value and not packs:
                raise SearchlabError(f"variant {variant!r} packs nothing; leave out {name!r}, or use variant 'packed'")
        if variant == "basic" and (algorithm, blocks) != ("B3A2C0", "model"):
            raise SearchlabError("variant 'basic' has no blocks; leave out 'algorithm' and 'blocks', or use 'blocked'")
        if kc != "whole" and (variant == "basic" or blocks == "knobs"):
            raise SearchlabError(
                f"the model computes no kc with variant {variant!r}, blocks {blocks!r}; leave out 'kc'"
            )
        self.packing = {"A": packs if pack_a is None else pack_a, "B": packs if pack_b is None else pack_b}
        self.lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        super().__init__(workload, target, self._knobs(extents(workload), registers(target) // 2))

    def _spatial_loops(self) -> tuple[str, ...]:
        """The loops that may be parallel: those over i and j, except for the micro-kernel's own."""
        if self.variant == "basic":
            return ("i",)
        return ("ic", "jc", *(f"{dim}r" for dim in "ij" if dim != self.algorithm.s))

    def _knobs(self, extent: Mapping[str, int], most: int) -> list[Knob]:
        vectors = tuple(count * self.lanes for count in range(1, 5))
        if self.variant == "basic":
            return [Knob("nr", vectors)]
        u, v = self.algorithm.u, self.algorithm.v
        knobs = [Knob(f"{EXTENT[u]}r", tuple(range(1, most + 1))), Knob(f"{EXTENT[v]}r", vectors)]
        knobs += [Knob(_pack(name), (False, True)) for name, value in self.packing.items() if value == "knob"]
        if self.blocks == "knobs":
            # No smaller than any micro-tile, so that no two choices round up to the same block.
            least = max(most, vectors[-1])
            for dim, size in extent.items():
                halvings = range(max(1, (size // least).bit_length()))
                knobs.append(Knob(f"{EXTENT[dim]}c", tuple(ceil(size / 2**times) for times in reversed(halvings))))
        return knobs

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        sizes = {name: int(value) for name, value in config.items()}  # type: ignore[arg-type]
        if self.variant == "basic":
            parallel = self.parallel == "i" or (self.parallel == "auto" and self._pays(self.workload.m))
            return basic(self.workload, sizes["nr"], self.lanes, parallel)
        tile = {dim: sizes.get(f"{EXTENT[dim]}r", UNROLLED) for dim in "ijp"}
        cut, parallel_loop = self._cut(sizes, tile)
        packed = frozenset(name for name, value in self.packing.items() if config.get(_pack(name), value))
        return blocked(
            self.workload,
            Plan(self.algorithm, tile, cut, self.lanes, packed, self.variant == "micro-kernel", parallel_loop),
        )

    def _cut(self, sizes: Mapping[str, int], tile: Mapping[str, int]) -> tuple[Blocking, str]:
        """The blocks for a micro-tile, and the name of the parallel loop, empty where there is none."""
        algorithm, extent, auto = self.algorithm, extents(self.workload), self.parallel == "auto"
        if not auto:
            dim = self.parallel[0] if self.parallel.endswith("c") else ""
        elif algorithm.resident == "C":
            dim = ""  # the model's own tasks, within the loop over blocks of y
        else:
            dim = algorithm.s if algorithm.x == "p" else algorithm.x
        if self.blocks == "knobs":
            block = {dim: ceil(sizes[f"{EXTENT[dim]}c"] / tile[dim]) * tile[dim] for dim in "ijp"}
            cut = Blocking(block["i"], block["j"], block["p"], block[algorithm.x])
        else:
            cores = self.target.cores if auto or dim else 1
            cut = blocking(self.workload, self.target, algorithm, tile, cores, dim, self.kc)
        if not auto:
            return cut, "" if self.parallel == "none" else self.parallel
        dim = dim or algorithm.y
        trips = ceil(extent[dim] / cut.of(dim)) * (cut.of(algorithm.x) // cut.share)
        return cut, f"{dim}c" if self._pays(trips) else ""

    def _pays(self, tasks: int) -> bool:
        return self.target.cores > 1 and tasks > 1 and self.workload.flops >= FORK
