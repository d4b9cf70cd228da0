"""``guided-gemm``: a BLIS-like GEMM with few knobs, such as the micro-tile (mr, nr); all other choices are computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np

from searchlab.errors import SearchlabError, UnsupportedWorkload, did_you_mean
from searchlab.space import Config, Knob, ProductSpace, Value
from searchlab.target import Target
from searchlab.workload import BatchMatmul, Gemm, Workload

from .blis_model import KC, Blocking, compute_blocking
from .common import MIN_PARALLEL_FLOPS, UNROLLED_STEPS, count_registers
from .gemm_algorithms import ALGORITHMS, EXTENT_LETTERS, AlgorithmName, get_extents
from .gemm_schedule import Plan, schedule_basic, schedule_blocks
from .gemm_words import Words
from .packed import Weights, split_packing
from .words import explain_missing_instruction

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

Variant = Literal["basic", "blocked", "packed", "micro-kernel"]
"""Each variant extends the previous one, adding cache blocks, packed copies, and a micro-tile in registers."""

Packing = bool | Literal["knob", "panel", "places"] | None

PACKINGS = ("no", "block", "panel")
"""How an operand is packed: not at all, by cache blocks, or by micro-panels within the task that uses them."""

STREAMING_DEPTH = 8
"""The kc at which B is streamed, which is the number of its rows that are read in parallel."""

MAX_WASTE = 1 / 20
"""The fraction by which a fitting micro-tile may compute more of C, including edges, than the best micro-tile."""

MAX_PASS_DEPTHS = (256, 512)
"""The maximum depths of a pass over C if k is split: micro-panels of B then fill an L1 cache partly or completely."""


def _name_packing_knob(operand: str) -> str:
    return f"pack_{operand.lower()}"


def _compute_pass_depth(k: int, max_depth: int) -> int:
    """Return the depth, at most ``max_depth``, of each pass over ``k``.

    The number of passes is the smallest that leaves no remainder, up to one and a half times the minimum number. If no
    such number exists, it is the minimum number, and the passes are of about equal depth.
    """
    min_count = ceil(k / max_depth)
    counts = (count for count in range(min_count, min_count * 3 // 2 + 1) if k % (count * UNROLLED_STEPS) == 0)
    return ceil(k / next(counts, min_count))


class GuidedGemm(ProductSpace):
    """The packed GEMM of GotoBLAS and BLIS: its micro-tile (mr, nr) is searched; everything else is computed.

    By default, mr rows by nr columns of C are kept in registers: nr is one to four of the target's vectors, and mr is
    at most half the number of its registers. A tile that does not fit spills, which is slow but correct. Block sizes
    follow from the caches, edges are padded with zeros while packing, and bias and ReLU are applied when C is written.
    All sizes, data types and numbers of cores are supported. Batched products are computed one after the other or, if
    there are at least as many as cores, in parallel. Raises UnsupportedWorkload for a conv2d and for targets other than
    CPUs.

    Args:
        variant: ``"basic"`` uses the three loops of the definition, vectorised over nr columns. ``"blocked"`` adds
            loops over cache blocks and micro-tiles; operands are read in place, and the micro-tile is updated one row
            at a time. ``"packed"`` does the same on packed copies. ``"micro-kernel"`` also keeps the micro-tile in
            registers.
        algorithm: Which matrices have a block in L3, in L2 and in registers: ``B3A2C0`` or one of the five other
            algorithms in its family. If A is resident in registers, the micro-tile is kr x mr, and mr consists of
            complete vectors; if B is resident, it is kr x nr. In both cases, C streams through the registers and is
            written in every step, so these algorithms are slower.
        order: The order of the loops over blocks. With ``"tasks"``, one task computes complete sums of C, as in jc, ic,
            pc, or packs each block of a resident A or B once. ``"published"`` uses the order of the authors' programs,
            which is jc, pc, ic for B3A2C0: a block of B, kc x nc, is packed in each pass over k, and all tasks use it
            before the next pass.
        loops: The order of the three loops of the variant ``"basic"``, from the outside; j is over vectors.
        pack_a: Whether to pack A, or ``"knob"`` to search both possibilities. By default, both operands are packed in
            the last two variants. An operand that is not packed is read in place; if its sizes are not multiples of the
            tile's, loads at the edges are conditional. Copying A pays off with many columns; copying B pays off with
            many rows. For the operand in the L3 cache (B in B3A2C0), ``"panel"`` is also allowed: each task copies a
            micro-panel immediately before using it. With few rows, B then passes through the L1 cache once, and its
            copy is never written to memory. ``"places"`` searches all three possibilities.
        pack_b: Whether to pack B; see ``pack_a``.
        parallel: The loop to divide among the cores: ``ic`` or ``jc`` over blocks, ``ir`` or ``jr`` over micro-tiles if
            the algorithm has such a loop, ``i`` in the basic variant, or ``"none"``. ``"auto"`` computes tasks of
            blocks that minimise the time on all cores, if the problem is large enough.
        blocks: ``"model"`` computes mc, nc and kc; ``"knobs"`` also searches them. Their values result from dividing m,
            n or k into 1, 2, 4, ... blocks, rounded up to complete micro-tiles.
        kc: ``"paper"`` uses the depth of Low et al. (2016), at which the micro-panels of A and B stay in L1 together.
            ``"whole"`` uses all of k if such micro-panels stay in L2, so that C is written once, and the paper's depth
            otherwise. If C is not resident, both use the paper's depth. ``"knob"`` searches the depth; it requires a
            resident C.
        tiles: ``"all"`` offers the knobs mr and nr. ``"fitting"`` offers a single knob, ``tile``, with values such as
            ``6x16``. It contains the micro-tiles that do not spill, have enough sums to hide the latency of a
            multiply-add, are not higher than A, and compute at most a twentieth more of C (including edges) than the
            best tile in this respect.
        dot: Whether int8 and bfloat16 use the CPU's dot-product instruction, which adds the products of four or two
            elements at once. This is off by default, because such a program is not a transformation of the workload's
            own program, and not every CPU has the instruction. If kc is searched, it then counts 32-bit words.
        weights: With ``"packed"``, B is constant: a program takes it in micro-panels, which the program's function
            ``pack_B`` produces once, without being timed. Such a program is not a transformation of the workload's own
            program, either. ``"plain"`` takes B as the workload does, and so do programs of batched products.
    """

    takes = ("gemm", "batch-matmul")
    workload: Gemm | BatchMatmul

    def __init__(
        self,
        workload: Workload,
        target: Target,
        *,
        variant: Variant = "micro-kernel",
        algorithm: AlgorithmName = "B3A2C0",
        order: Literal["tasks", "published"] = "tasks",
        loops: Literal["ijk", "ikj", "jik", "jki", "kij", "kji"] = "ijk",
        pack_a: Packing = None,
        pack_b: Packing = None,
        parallel: Literal["auto", "none", "i", "ic", "ir", "jc", "jr"] = "auto",
        blocks: Literal["model", "knobs"] = "model",
        kc: Literal[KC, "knob"] = "whole",
        tiles: Literal["all", "fitting"] = "all",
        dot: bool = False,
        weights: Weights = "plain",
    ) -> None:
        assert isinstance(workload, Gemm | BatchMatmul)
        if target.kind != "llvm":
            raise UnsupportedWorkload(f"guided-gemm supports only CPUs (llvm), not {target.kind}")
        self.variant: Variant = variant
        self.algorithm = replace(ALGORITHMS[algorithm], uses_published_order=order == "published")
        self.parallel, self.loops, self.blocks, self.kc, self.tiles = parallel, loops, blocks, kc, tiles
        self._check_variant(algorithm, order)
        self._check_packing(algorithm, pack_a, pack_b, weights)
        if dot and (variant != "micro-kernel" or self.algorithm.resident != "C"):
            raise SearchlabError(
                "option 'dot' requires variant 'micro-kernel' and an algorithm that keeps C resident, such as B3A2C0"
            )
        if dot and (why := explain_missing_instruction(workload.dtype, target)):
            raise SearchlabError(f"option 'dot' cannot be true: {why}")
        self.is_batched = isinstance(workload, BatchMatmul)
        if self.is_batched and (variant == "basic" or dot):
            raise UnsupportedWorkload(
                f"guided-gemm has no programs for {workload}, which is batched, with variant='basic' or dot=True"
            )
        self.weights: Weights = "plain" if self.is_batched else weights
        self.product: Gemm | BatchMatmul | Words = Words(workload) if dot and isinstance(workload, Gemm) else workload
        self.packing = {
            "A": self._packs_operands if pack_a is None else pack_a,
            "B": self._packs_operands if pack_b is None else pack_b,
        }
        self.lanes = max(1, target.simd_bytes // np.dtype(workload.out_dtype).itemsize)
        self._vector_widths = tuple(count * self.lanes for count in range(1, 5))
        super().__init__(workload, target, self._make_knobs(get_extents(self.product), count_registers(target)))

    @property
    def _packs_operands(self) -> bool:
        """Whether the variant packs operands."""
        return self.variant in ("packed", "micro-kernel")

    def _check_variant(self, algorithm: AlgorithmName, order: str) -> None:
        """Raise SearchlabError for options that the variant or the algorithm does not have."""
        if self.parallel not in (spatial := ("auto", "none", *self._spatial_loops())):
            raise SearchlabError(
                f"option 'parallel' cannot be {self.parallel!r} with these options"
                f"{did_you_mean(self.parallel, spatial)}"
            )
        if self.variant != "basic" and self.loops != "ijk":
            raise SearchlabError(
                f"option 'loops' requires variant 'basic', not {self.variant!r}; remove it, or use that variant"
            )
        if self.algorithm.resident != "C" and (self.kc == "knob" or self.tiles == "fitting"):
            raise SearchlabError(
                f"kc='knob' and tiles='fitting' require an algorithm that keeps C resident, such as B3A2C0; "
                f"{algorithm!r} does not"
            )
        if self.variant == "basic" and (algorithm, order, self.blocks) != ("B3A2C0", "tasks", "model"):
            raise SearchlabError(
                "variant 'basic' has no blocks; remove 'algorithm', 'order' and 'blocks', or use variant 'blocked'"
            )
        if self.kc != "whole" and (self.variant == "basic" or self.blocks == "knobs"):
            raise SearchlabError(
                f"kc is not computed with variant={self.variant!r} and blocks={self.blocks!r}; remove 'kc'"
            )
        if self.tiles == "fitting" and self.variant == "basic":
            raise SearchlabError("variant 'basic' has no micro-tile; remove option 'tiles'")

    def _check_packing(self, algorithm: AlgorithmName, pack_a: Packing, pack_b: Packing, weights: Weights) -> None:
        """Raise SearchlabError if the operands cannot be packed as the options say."""
        for name, value in (("pack_a", pack_a), ("pack_b", pack_b)):
            if value and not self._packs_operands:
                raise SearchlabError(
                    f"variant {self.variant!r} does not pack; remove {name!r}, or use variant 'packed'"
                )
            panel_option = _name_packing_knob(self.algorithm.operands[0]) if self.algorithm.resident == "C" else ""
            if value in ("panel", "places") and name != panel_option:
                raise SearchlabError(
                    f"option {name!r} cannot be {value!r} with algorithm {algorithm!r}; set it to true"
                )
        if weights == "packed" and (not self._packs_operands or pack_b not in (None, True)):
            raise SearchlabError(
                "weights='packed' requires variant 'packed' or 'micro-kernel' and always packs B; remove option "
                "'pack_b'"
            )

    def _spatial_loops(self) -> tuple[str, ...]:
        """Return the loops that may be parallel: those over i and j, except for the micro-kernel's own loop."""
        if self.variant == "basic":
            return ("i",)
        return ("ic", "jc", *(f"{index}r" for index in "ij" if index != self.algorithm.s))

    def _make_knobs(self, extents: Mapping[str, int], registers: int) -> list[Knob]:
        max_rows, widths = registers // 2, self._vector_widths
        if self.variant == "basic":
            return [Knob("nr", widths)]
        u, v = self.algorithm.u, self.algorithm.v
        if self.tiles == "fitting":
            knobs = [Knob("tile", tuple(self._list_fitting_tiles(extents[u], extents[v], widths, registers)))]
        else:
            knobs = [
                Knob(f"{EXTENT_LETTERS[u]}r", tuple(range(1, max_rows + 1))),
                Knob(f"{EXTENT_LETTERS[v]}r", widths),
            ]
        for name, value in self.packing.items():
            if value in ("knob", "places"):
                knobs.append(Knob(_name_packing_knob(name), (False, True) if value == "knob" else PACKINGS))
        if self.kc == "knob":
            streams = [STREAMING_DEPTH] if extents["i"] <= max_rows else []
            depths = {_compute_pass_depth(extents["p"], limit) for limit in (*streams, *MAX_PASS_DEPTHS)}
            depths.add(extents["p"])
            knobs.append(Knob("kc", tuple(sorted(depths))))
        if self.blocks == "knobs":
            # A block is at least as large as any micro-tile, so no two choices round up to the same block.
            min_block = max(max_rows, widths[-1])
            for dim, size in extents.items():
                halving_counts = reversed(range(max(1, (size // min_block).bit_length())))
                block_sizes = tuple(ceil(size / 2**halving_count) for halving_count in halving_counts)
                knobs.append(Knob(f"{EXTENT_LETTERS[dim]}c", block_sizes))
        return knobs

    def _list_fitting_tiles(self, rows: int, columns: int, widths: Sequence[int], registers: int) -> Iterator[str]:
        """Return the micro-tiles whose sums, plus a row of B and an element of A, fit in registers with little waste.

        With two multiply-adds per cycle and a latency of four cycles, eight independent sums hide the latency; that is
        half of the smallest register file.
        """
        padded_sizes = {}
        for nr in widths:
            vectors = nr // self.lanes
            max_rows = min((registers - 1) // vectors - 1, registers // 2)
            for mr in range(min(ceil(registers / 2 / vectors), rows), min(max_rows, rows) + 1):
                padded_sizes[f"{mr}x{nr}"] = ceil(rows / mr) * mr * ceil(columns / nr) * nr
        max_size = (1 + MAX_WASTE) * min(padded_sizes.values())
        return (tile for tile, size in padded_sizes.items() if size <= max_size)

    def default_config(self) -> Config:
        """Return the config whose micro-tile fits in registers and does the most multiply-adds for each loaded element.

        Operands are packed, and blocks are as large as possible. Source: Low et al. (2016), section 4.1.
        """
        u, v, extents = self.algorithm.u, self.algorithm.v, get_extents(self.product)
        fitting = self._list_fitting_tiles(extents[u], extents[v], self._vector_widths, count_registers(self.target))
        tiles = [tuple(map(int, tile.split("x"))) for tile in fitting]
        height, width = max(tiles, key=lambda tile: math.prod(tile) / sum(tile))
        values: dict[str, Value] = {
            "tile": f"{height}x{width}",
            f"{EXTENT_LETTERS[u]}r": height,
            f"{EXTENT_LETTERS[v]}r": width,
        }
        return self.decide(lambda knob: values.get(knob.name, knob.choices[-1]))

    def schedule(self, config: Config) -> Schedule:
        self.knobs(config)
        sizes = {name: int(value) for name, value in config.items() if not isinstance(value, str)}  # type: ignore[arg-type]
        if self.variant == "basic":
            parallel = self.parallel == "i" or (
                self.parallel == "auto" and self._is_worth_parallelizing(self.workload.m)
            )
            return schedule_basic(self.workload, self.loops, sizes["nr"], self.lanes, parallel)
        if "tile" in config:
            sizes["mr"], sizes["nr"] = map(int, str(config["tile"]).split("x"))
        tile = {dim: sizes.get(f"{EXTENT_LETTERS[dim]}r", UNROLLED_STEPS) for dim in "ijp"}
        blocking, parallel_loop = self._compute_blocks(sizes, tile)
        packings = {name: config.get(_name_packing_knob(name), value) for name, value in self.packing.items()}
        packed_operands = frozenset(name for name, packing in packings.items() if packing not in (False, "no"))
        panel_operands = frozenset(name for name, packing in packings.items() if packing == "panel")
        sch = schedule_blocks(
            self.product,
            Plan(
                self.algorithm,
                tile,
                blocking,
                self._choose_vector_length(packed_operands),
                packed_operands,
                panel_operands,
                frozenset("B" if self.weights == "packed" else ""),
                self.variant == "micro-kernel",
                parallel_loop,
                self.workload.nt and self.product is self.workload,
                self.is_batched,
            ),
        )
        return split_packing(sch, "B") if self.weights == "packed" else sch

    def _choose_vector_length(self, packed_operands: frozenset[str]) -> int:
        """Return the number of elements in a vector: a full register, or half if this avoids edges of an unpacked B.

        A vector at the edge of a task is read element by element. With a single row of A, the bandwidth for B is the
        limit, and reading this way takes longer than reading vectors of half the width.
        """
        n, half = self.workload.n, self.lanes // 2
        streams_b = self.workload.m == 1 and self.algorithm.v == "j" and "B" not in packed_operands
        return half if streams_b and half > 1 and n % self.lanes and n % half == 0 else self.lanes

    def _compute_blocks(self, sizes: Mapping[str, int], tile: Mapping[str, int]) -> tuple[Blocking, str]:
        """Return the blocks for a micro-tile and the name of the parallel loop, or "" if there is none."""
        algorithm, extents, is_auto = self.algorithm, get_extents(self.product), self.parallel == "auto"
        batch = self.workload.b if is_auto and isinstance(self.workload, BatchMatmul) else 1
        by_product = batch > 1 and batch >= self.target.cores  # whether each core computes complete products
        if not is_auto:
            index = self.parallel[0] if self.parallel.endswith("c") else ""
        elif algorithm.sums_in_tasks:
            index = ""  # use the model's tasks, within the loop over blocks of y
        elif algorithm.uses_published_order:
            index = algorithm.y if algorithm.resident == "C" else algorithm.s
        else:
            index = algorithm.s if algorithm.x == "p" else algorithm.x
        if self.blocks == "knobs":
            block_sizes = {
                index: ceil(sizes[f"{EXTENT_LETTERS[index]}c"] / tile[index]) * tile[index] for index in "ijp"
            }
            blocking = Blocking(block_sizes["i"], block_sizes["j"], block_sizes["p"], block_sizes[algorithm.x])
        else:
            cores = self.target.cores if (is_auto or index) and not by_product else 1
            blocking = compute_blocking(
                self.product, self.target, algorithm, tile, cores, index, sizes.get("kc", self.kc)
            )
        if not is_auto:
            return blocking, "" if self.parallel == "none" else self.parallel
        if by_product:
            return blocking, "batch" if self._is_worth_parallelizing(batch) else ""
        index = index or algorithm.y
        task_count = ceil(extents[index] / blocking.size_of(index)) * (blocking.size_of(algorithm.x) // blocking.share)
        return blocking, f"{index}c" if self._is_worth_parallelizing(task_count) else ""

    def _is_worth_parallelizing(self, tasks: int) -> bool:
        return self.target.cores > 1 and tasks > 1 and self.workload.flops >= MIN_PARALLEL_FLOPS
