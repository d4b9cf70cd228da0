"""``guided-gemm``: a BLIS-like GEMM with few open choices, such as the micro-tile (mr, nr); all others are computed."""

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
from .common import FORK, UNROLLED, registers
from .gemm_algorithms import ALGORITHMS, EXTENT, AlgorithmName, extents
from .gemm_schedule import Plan, basic, blocked
from .gemm_words import Words
from .words import lacks

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

Variant = Literal["basic", "blocked", "packed", "micro-kernel"]
"""Each variant extends the previous one: by cache blocks, by packed copies, by a micro-tile in registers."""

Packing = bool | Literal["knob", "panel", "places"] | None

PLACES = ("no", "block", "panel")
"""How an operand is packed: not at all, by cache blocks, or by micro-panels in the task that uses them."""

STREAM = 8
"""The kc with which B is streamed: the number of its rows that are read in parallel."""

WASTE = 1 / 20
"""How much more of C, including the edges of micro-tiles, a fitting micro-tile may compute than the best one."""

PASSES = (256, 512)
"""The maximum depth of a pass over C if k is split: micro-panels of B fill a part of an L1 cache, or all of it."""


def _pack(operand: str) -> str:
    return f"pack_{operand.lower()}"


def _pass(k: int, most: int) -> int:
    """Return the depth of passes over ``k`` of at most ``most`` each.

    Up to one and a half times the minimum number of passes, choose the fewest that leave no remainder; if there are
    none, the minimum number, of about equal depth.
    """
    fewest = ceil(k / most)
    counts = (count for count in range(fewest, fewest * 3 // 2 + 1) if k % (count * UNROLLED) == 0)
    return ceil(k / next(counts, fewest))


class GuidedGemm(ProductSpace):
    """The packed GEMM of GotoBLAS and BLIS: its micro-tile (mr, nr) is searched, everything else is computed.

    By default mr rows by nr columns of C are held in registers: nr is one to four vectors of the target, mr up to half
    the number of its registers. A tile that does not fit spills; it is slow but correct. Block sizes follow from the
    caches, edges are padded with zeros while packing, and bias and ReLU are applied when C is written. Any size, data
    type and number of cores is supported. Raises UnsupportedWorkload for a conv2d and for targets other than CPUs.

    Args:
        variant: ``"basic"`` is the three loops of the definition, vectorised over nr columns. ``"blocked"`` adds the
            loops over cache blocks and micro-tiles; operands are read in place and a row of the micro-tile is updated
            at a time. ``"packed"`` does this on packed copies. ``"micro-kernel"`` also keeps the micro-tile in
            registers.
        algorithm: Which matrix has a block in L3, in L2 and in registers: ``B3A2C0`` or one of the five others of its
            family. If A is resident in registers, the micro-tile is kr x mr, and mr consists of complete vectors; if B
            is, kr x nr. C then streams through the registers and is written in every step, so these are slower.
        pack_a: Whether this operand is packed, or ``"knob"`` to search both ways. By default both are packed in the
            last two variants. An operand that is not packed is loaded from where it is; if its sizes are not multiples
            of the tile's, loads at the edges have conditions. A copy of A pays off with many columns, a copy of B with
            many rows. The operand in the L3 cache (B in B3A2C0) may also be ``"panel"``: each task copies a micro-panel
            right before using it, so that with few rows B passes through the L1 cache once and its copy is never
            written to memory. ``"places"`` searches all three ways.
        pack_b: As ``pack_a``.
        parallel: The loop that is divided among the cores: ``ic`` and ``jc`` over blocks, ``ir`` and ``jr`` over
            micro-tiles, if the algorithm has them; ``i`` in the basic variant; ``"none"``. ``"auto"`` computes tasks of
            blocks that take the cores the least time, if the problem is large enough.
        blocks: ``"model"`` computes mc, nc and kc; ``"knobs"`` also searches them. Each is the size of m, n or k
            divided into 1, 2, 4, ... blocks, rounded up to complete micro-tiles.
        kc: ``"paper"`` is the depth of Low et al. (2016), with which the micro-panels of A and B stay in L1 together.
            ``"whole"`` takes all of k if such micro-panels stay in L2, so that C is written once, and otherwise the
            paper's depth. If C is not resident, both are the paper's. ``"knob"`` searches the depth if C is resident.
        tiles: ``"all"`` offers the knobs mr and nr. ``"fitting"`` offers a single knob ``tile``, such as ``6x16``, with
            the micro-tiles that do not spill, have enough sums to hide the latency of a multiply-add, are not higher
            than A, and compute at most a twentieth more of C (including edges) than the best tile in this respect.
        dot: Whether int8 and bfloat16 use the CPU's dot-product instruction, which adds the products of four or two
            elements at once. It is off by default, because such a program is not a transformation of the workload's own
            and not every CPU has the instruction. A kc that is searched then counts words of 32 bits.
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
            raise UnsupportedWorkload(f"guided-gemm supports gemm workloads, not {workload}; use knob-template")
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-gemm supports CPUs (llvm), not {target.kind}; use knob-template")
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
                raise SearchlabError(f"variant {variant!r} packs nothing; remove {name!r}, or use variant 'packed'")
            by_panel = _pack(self.algorithm.operands[0]) if self.algorithm.resident == "C" else ""
            if value in ("panel", "places") and name != by_panel:
                raise SearchlabError(
                    f"option {name!r} cannot be {value!r} with algorithm {algorithm!r}; it can be true"
                )
        if self.algorithm.resident != "C" and (kc == "knob" or tiles == "fitting"):
            raise SearchlabError(f"kc 'knob' and tiles 'fitting' require a resident C, unlike algorithm {algorithm!r}")
        if variant == "basic" and (algorithm, blocks) != ("B3A2C0", "model"):
            raise SearchlabError("variant 'basic' has no blocks; remove 'algorithm' and 'blocks', or use 'blocked'")
        if kc != "whole" and (variant == "basic" or blocks == "knobs"):
            raise SearchlabError(f"the model computes no kc with variant {variant!r}, blocks {blocks!r}; remove 'kc'")
        if tiles == "fitting" and variant == "basic":
            raise SearchlabError("variant 'basic' has no micro-tile; remove 'tiles'")
        if dot and (variant != "micro-kernel" or self.algorithm.resident != "C"):
            raise SearchlabError("option 'dot' requires variant 'micro-kernel' with C in registers, as in B3A2C0")
        if dot and (why := lacks(workload.dtype, target)):
            raise SearchlabError(f"option 'dot' cannot be true: {why}")
        self.product: Gemm | Words = Words(workload) if dot else workload
        self.packing = {"A": packs if pack_a is None else pack_a, "B": packs if pack_b is None else pack_b}
        self.lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        super().__init__(workload, target, self._knobs(extents(self.product), registers(target)))

    def _spatial_loops(self) -> tuple[str, ...]:
        """Return the loops that may be parallel: those over i and j, except for that of the micro-kernel."""
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
            # At least as large as any micro-tile, so that no two choices round up to the same block.
            least = max(most, vectors[-1])
            for dim, size in extent.items():
                halvings = range(max(1, (size // least).bit_length()))
                knobs.append(Knob(f"{EXTENT[dim]}c", tuple(ceil(size / 2**times) for times in reversed(halvings))))
        return knobs

    def _fitting(self, rows: int, columns: int, widths: Sequence[int], registers: int) -> Iterator[str]:
        """Return the micro-tiles whose sums, with a row of B and an element of A, fit in registers with little waste.

        With two multiply-adds per cycle and a latency of four cycles, eight independent sums hide the latency; that is
        half of the smallest register file.
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
        """Return the elements of a vector: those of a register, or half if this avoids edges of an unpacked B.

        A vector at the edge of a task is read element by element. With a single row of A, where B's bandwidth is the
        limit, that takes longer than vectors of half the width.
        """
        n, half = self.workload.n, self.lanes // 2
        streams = self.workload.m == 1 and self.algorithm.v == "j" and "B" not in packed
        return half if streams and half > 1 and n % self.lanes and n % half == 0 else self.lanes

    def _cut(self, sizes: Mapping[str, int], tile: Mapping[str, int]) -> tuple[Blocking, str]:
        """Return the blocks for a micro-tile, and the name of the parallel loop, empty if there is none."""
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
