"""The guided GEMM: the BLIS-like family, a space of micro-tiles such as (mr, nr), every other choice being computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np

from searchlab.errors import SearchlabError, UnsupportedWorkload, did_you_mean
from searchlab.space import Config, Knob, ProductSpace
from searchlab.target import Target
from searchlab.workload import Gemm, Workload

from .blis_model import KC, Blocking, blocking
from .common import FORK, registers
from .gemm_algorithms import ALGORITHMS, EXTENT, UNROLLED, AlgorithmName, extents
from .gemm_schedule import Plan, basic, blocked
from .gemm_words import Words
from .words import lacks

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

Variant = Literal["basic", "blocked", "packed", "micro-kernel"]
"""Each adds one step to the one before: cache blocks, packed copies, a micro-tile in registers."""

Packing = bool | Literal["knob", "panel", "places"] | None

PLACES = ("no", "block", "panel")
"""Where an operand is packed: nowhere, a cache block at a time, or a micro-panel at a time by the task that uses it."""

STREAM = 8
"""kc where B streams by: so many of its rows are read side by side."""

WASTE = 1 / 20
"""How much more of C, with the edges of whole micro-tiles, a fitting micro-tile may compute than another one."""

PASSES = (256, 512)
"""The most of k in a pass over C, where k is cut: micro-panels of B take a part of an L1 cache, or all of it."""


def _pack(operand: str) -> str:
    return f"pack_{operand.lower()}"


def _pass(k: int, most: int) -> int:
    """The depth of passes over ``k`` of up to ``most`` each: as few as there can be, or up to half as many again.

    Among these are the fewest that leave no rest; or else the fewest, all about as deep.
    """
    fewest = ceil(k / most)
    counts = (count for count in range(fewest, fewest * 3 // 2 + 1) if k % (count * UNROLLED) == 0)
    return ceil(k / next(counts, fewest))


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
      The operand in the L3 cache, B in B3A2C0, may also be ``"panel"``: each task copies a micro-panel right before
      it uses it, for each block of the other operand anew. So with few rows B passes through the L1 cache once, and its
      copy is never written to memory. ``"places"`` searches all three ways, with the words PLACES.
    - ``parallel``: the loop whose trips are dealt out to the target's cores: ``ic``, ``jc`` over blocks, ``ir``,
      ``jr`` over micro-tiles, each where the algorithm has it; in the basic variant ``i``. ``"none"``, or by default
      ``"auto"``: tasks of blocks computed to take the cores the least time, when the problem is worth waking them.
    - ``blocks``: ``"model"``, or ``"knobs"`` to search mc, nc and kc as well. Each is then the size of m, n or k cut
      into 1, 2, 4, ... blocks, which is rounded up to whole micro-tiles.
    - ``kc``: ``"paper"`` is the depth of Low et al. (2016), at which the micro-panels of A and B stay in L1 together.
      ``"whole"``, the default, is not the paper's: all of k, if micro-panels so deep stay in L2, and else the paper's.
      C is then written once. Where C is not resident, both are the paper's. ``"knob"`` searches it where C is
      resident: all of k, passes of up to PASSES, and of STREAM where one micro-tile has all rows.
    - ``tiles``: ``"all"``, the knobs mr and nr; or ``"fitting"``, one knob ``tile`` of those micro-tiles, as ``6x16``,
      that neither spill nor have too few sums to hide the latency of a multiply-add, are no higher than A, and
      compute at most a twentieth (WASTE) more of C, edges included, than the one that computes the least.
    - ``dot``: whether int8 and bfloat16 take the CPU's instruction that sums the products of four or two elements at
      once (:mod:`.words`). It is off by default, since such a program is no transformation of the workload's own,
      and not every CPU has the instruction. A kc that is searched then counts words of 32 bits.

    Raises UnsupportedWorkload for a conv2d and for a target that is no CPU, SearchlabError for a wrong option.
    """

    workload: Gemm

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        variant: Variant = "micro-kernel",
        algorithm: AlgorithmName = "B3A2C0",
        pack_a: Packing = None,
        pack_b: Packing = None,
        parallel: Literal["auto", "none", "i", "ic", "ir", "jc", "jr"] = "auto",
        blocks: Literal["model", "knobs"] = "model",
        kc: Literal[KC, "knob"] = "whole",
        tiles: Literal["all", "fitting"] = "all",
        dot: bool = False,
    ) -> None:
        if not isinstance(workload, Gemm):
            raise UnsupportedWorkload(f"guided-gemm takes gemm workloads, not {workload}; use knob-template for it")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-gemm is for CPUs (llvm), not {target.kind}; use knob-template there")
        self.variant: Variant = variant
        self.algorithm = ALGORITHMS[algorithm]
        if parallel not in (loops := ("auto", "none", *self._spatial_loops())):
            raise SearchlabError(f"option 'parallel' cannot be {parallel!r} here{did_you_mean(parallel, loops)}")
        self.parallel = parallel
        self.blocks = blocks
        self.kc = kc
        self.tiles = tiles
        packs = variant in ("packed", "micro-kernel")
        for name, value in (("pack_a", pack_a), ("pack_b", pack_b)):
            if value and not packs:
                raise SearchlabError(f"variant {variant!r} packs nothing; leave out {name!r}, or use variant 'packed'")
            by_panel = _pack(self.algorithm.operands[0]) if self.algorithm.resident == "C" else ""
            if value in ("panel", "places") and name != by_panel:
                raise SearchlabError(
                    f"option {name!r} cannot be {value!r} with algorithm {algorithm!r}; it may be true"
                )
        if self.algorithm.resident != "C" and (kc == "knob" or tiles == "fitting"):
            raise SearchlabError(f"kc 'knob' and tiles 'fitting' are for a resident C, not for algorithm {algorithm!r}")
        if variant == "basic" and (algorithm, blocks) != ("B3A2C0", "model"):
            raise SearchlabError("variant 'basic' has no blocks; leave out 'algorithm' and 'blocks', or use 'blocked'")
        if kc != "whole" and (variant == "basic" or blocks == "knobs"):
            raise SearchlabError(
                f"the model computes no kc with variant {variant!r}, blocks {blocks!r}; leave out 'kc'"
            )
        if tiles == "fitting" and variant == "basic":
            raise SearchlabError("variant 'basic' has no micro-tile; leave out 'tiles'")
        if dot and (variant != "micro-kernel" or self.algorithm.resident != "C"):
            raise SearchlabError("option 'dot' is for variant 'micro-kernel' with C in registers, as B3A2C0 has it")
        if dot and (why := lacks(workload.dtype, target)):
            raise SearchlabError(f"option 'dot' cannot be true: {why}")
        self.product: Gemm | Words = Words(workload) if dot else workload
        self.packing = {"A": packs if pack_a is None else pack_a, "B": packs if pack_b is None else pack_b}
        self.lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        super().__init__(workload, target, self._knobs(extents(self.product), registers(target)))

    def _spatial_loops(self) -> tuple[str, ...]:
        """The loops that may be parallel: those over i and j, except for the micro-kernel's own."""
        if self.variant == "basic":
            return ("i",)
        return ("ic", "jc", *(f"{dim}r" for dim in "ij" if dim != self.algorithm.s))

    def _knobs(self, extent: Mapping[str, int], registers: int) -> list[Knob]:
        most, vectors = registers // 2, tuple(count * self.lanes for count in range(1, 5))
        if self.variant == "basic":
            return [Knob("nr", vectors)]
        u, v = self.algorithm.u, self.algorithm.v
        if self.tiles == "fitting":
            knobs = [Knob("tile", tuple(self._fitting(extent[u], extent[v], vectors, registers)))]
        else:
            knobs = [Knob(f"{EXTENT[u]}r", tuple(range(1, most + 1))), Knob(f"{EXTENT[v]}r", vectors)]
        for name, value in self.packing.items():
            if value in ("knob", "places"):
                knobs.append(Knob(_pack(name), (False, True) if value == "knob" else PLACES))
        if self.kc == "knob":
            streams = [STREAM] if extent["i"] <= most else []
            depths = {_pass(extent["p"], limit) for limit in (*streams, *PASSES)} | {extent["p"]}
            knobs.append(Knob("kc", tuple(sorted(depths))))
        if self.blocks == "knobs":
            # No smaller than any micro-tile, so that no two choices round up to the same block.
            least = max(most, vectors[-1])
            for dim, size in extent.items():
                halvings = range(max(1, (size // least).bit_length()))
                knobs.append(Knob(f"{EXTENT[dim]}c", tuple(ceil(size / 2**times) for times in reversed(halvings))))
        return knobs

    def _fitting(self, rows: int, columns: int, widths: Sequence[int], registers: int) -> Iterator[str]:
        """The micro-tiles whose sums, a row of B and one element of A are in registers, and that waste little.

        Two multiply-adds a cycle of four cycles each are hidden by eight sums, half of the fewest registers.
        """
        computed = {}
        for nr in widths:
            vectors = nr // self.lanes
            highest = min((registers - 1) // vectors - 1, registers // 2)
            for mr in range(min(ceil(registers / 2 / vectors), rows), min(highest, rows) + 1):
                computed[f"{mr}x{nr}"] = ceil(rows / mr) * mr * ceil(columns / nr) * nr
        most = (1 + WASTE) * min(computed.values())
        return (tile for tile, size in computed.items() if size <= most)

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        sizes = {name: int(value) for name, value in config.items() if not isinstance(value, str)}  # type: ignore[arg-type]
        if self.variant == "basic":
            parallel = self.parallel == "i" or (self.parallel == "auto" and self._pays(self.workload.m))
            return basic(self.workload, sizes["nr"], self.lanes, parallel)
        if "tile" in config:
            sizes["mr"], sizes["nr"] = map(int, str(config["tile"]).split("x"))
        tile = {dim: sizes.get(f"{EXTENT[dim]}r", UNROLLED) for dim in "ijp"}
        cut, parallel_loop = self._cut(sizes, tile)
        places = {name: config.get(_pack(name), value) for name, value in self.packing.items()}
        packed = frozenset(name for name, place in places.items() if place not in (False, "no"))
        by_panel = frozenset(name for name, place in places.items() if place == "panel")
        return blocked(
            self.product,
            Plan(
                self.algorithm,
                tile,
                cut,
                self._vector(packed),
                packed,
                by_panel,
                self.variant == "micro-kernel",
                parallel_loop,
            ),
        )

    def _vector(self, packed: frozenset[str]) -> int:
        """Elements of a vector: as many as a register holds, or half, if then no vector of a B in place has an edge.

        Where the tasks have different edges, such a vector is read element by element. With a single row of A, which
        is as fast as B arrives, that takes longer than vectors of half the width.
        """
        n, half = self.workload.n, self.lanes // 2
        streams = self.workload.m == 1 and self.algorithm.v == "j" and "B" not in packed
        return half if streams and half > 1 and n % self.lanes and n % half == 0 else self.lanes

    def _cut(self, sizes: Mapping[str, int], tile: Mapping[str, int]) -> tuple[Blocking, str]:
        """The blocks for a micro-tile, and the name of the parallel loop, empty where there is none."""
        algorithm, extent, auto = self.algorithm, extents(self.product), self.parallel == "auto"
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
            cut = blocking(self.product, self.target, algorithm, tile, cores, dim, sizes.get("kc", self.kc))
        if not auto:
            return cut, "" if self.parallel == "none" else self.parallel
        dim = dim or algorithm.y
        trips = ceil(extent[dim] / cut.of(dim)) * (cut.of(algorithm.x) // cut.share)
        return cut, f"{dim}c" if self._pays(trips) else ""

    def _pays(self, tasks: int) -> bool:
        return self.target.cores > 1 and tasks > 1 and self.workload.flops >= FORK
