"""GEMM schedules: naive loops, and the six blocked algorithms with or without packing and a register tile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchlab.workload import BatchMatmul, Gemm

from .blis_model import Blocking
from .common import EDGE, UNROLLED, finish, pack_scalars, pack_vectors
from .gemm_algorithms import DIMS, Algorithm, extents
from .gemm_words import VIEWS, Words
from .words import has_offset, sum_rows, tensorize, vectorize_block

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV


@dataclass(frozen=True)
class Plan:
    """The decisions of a blocked GEMM.

    Attributes:
        tile: The micro-tile's size by index; UNROLLED for the index of the micro-kernel's loop.
        lanes: The number of elements of C in a vector.
        packed: The packed operands among A and B.
        by_panel: The operands packed by the task that uses them, one micro-panel at a time.
        packed_first: The operands packed before everything else.
        register_tile: Whether the micro-tile is updated as a unit, unrolled, rather than row by row.
        parallel: The parallel loop, such as ic or jr; or "".
        nt: Whether B is read as [n, k].
        batched: Whether there is a product for each element of a batch.
    """

    algorithm: Algorithm
    tile: Mapping[str, int]
    cut: Blocking
    lanes: int
    packed: frozenset[str]
    by_panel: frozenset[str]
    packed_first: frozenset[str]
    register_tile: bool
    parallel: str
    nt: bool = False
    batched: bool = False

    @property
    def padded(self) -> dict[str, int]:
        """By index, the number to a multiple of which the extent is padded."""
        return {**self.tile, self.algorithm.s: self.cut.of(self.algorithm.s)}

    def dims(self, operand: str) -> str:
        """Return the indices of an operand, in the order in which the program reads it."""
        return DIMS[operand][::-1] if operand == "B" and self.nt else DIMS[operand]


def basic(workload: Gemm | BatchMatmul, loops: str, nr: int, lanes: int, parallel: bool) -> Schedule:
    """Schedule the three loops of the definition, in the order ``loops``, such as ``ijk``.

    Vectors hold nr elements of a row of C, and rows may be parallel.
    """
    from ..unchecked import Unchecked

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("gemm")
    sch.pad_einsum(gemm, [1, nr, 1])
    if workload.n % nr:
        sch.compute_inline("B_pad")
    result = _epilogue(sch, gemm)
    i, j, p = sch.get_loops(gemm)
    jo, jv, jl = sch.split(j, [None, nr // lanes, lanes])
    nest = [{"i": i, "j": jo, "k": p}[name] for name in loops]
    sch.reorder(*nest, jv, jl)
    if (outside := loops.index("k")) > 0:
        sch.reverse_compute_at(result, nest[outside - 1], preserve_unit_loops=True)
    sch.vectorize(jl)
    sch.unroll(jv)
    sch.annotate(jo, EDGE, 1)
    _vectorize_rows(sch, result, lanes)
    if parallel:
        sch.parallel(i)
    sch.decompose_reduction(gemm, p)
    return sch.copy()


def schedule_blocks(workload: Gemm | BatchMatmul | Words, plan: Plan) -> Schedule:
    """Schedule operand blocks in the caches and one operand's micro-tile in registers, according to ``plan``.

    The products of a batch are computed one after the other, or in parallel.

    Operands are padded to complete micro-panels. They become packed copies, or are loaded in place immediately before
    use; either way, the padding's conditions are kept out of the multiply-adds. The result passes through a scratch
    buffer of micro-tiles.
    """
    algorithm = plan.algorithm
    x, y, s = algorithm.x, algorithm.y, algorithm.s
    words = workload if isinstance(workload, Words) else None
    uneven = {dim for dim, extent in extents(workload).items() if extent % plan.padded[dim]}
    sch, product, copies, result = _copy_operands(workload, plan, uneven)
    in_place = copies.keys() - plan.packed

    order = ("batch",) * plan.batched + algorithm.order(one_pass=plan.cut.kc >= workload.k)
    gemm = vectorize_block(sch, product, 1, plan.lanes) if words else product
    loops = _loops(sch, gemm, plan, order, {} if words else {"lane": plan.lanes})

    # X is packed outside the loop over blocks of y, so it is not packed again for each of them. Y is packed inside all
    # loops over blocks. Z, which has no cache, is packed once for each block of x. A task may also pack X itself,
    # immediately before it uses a micro-panel. Operands that are not packed are only copied to registers: the elements
    # of one step, or the resident micro-tile.
    before = {name: order[order.index(name) - 1] for name in (f"{y}c", f"{x}r")}
    copy_loops = dict(zip(algorithm.operands, (before[f"{y}c"], before[f"{x}r"], f"{x}c"), strict=True))
    copy_loops |= dict.fromkeys(plan.by_panel, f"{x}r")
    copy_loops |= {name: f"{y}r" if name == algorithm.resident else "step" for name in in_place}
    for name in sorted(copies, key=algorithm.operands.index):
        if name not in plan.packed_first:
            sch.compute_at(copies[name], loops[copy_loops[name]], preserve_unit_loops=True)
    # The result is read from the scratch buffer once it is complete, outside the outermost loop over p.
    first_sum = min(order.index(name) for name in order if name.startswith("p"))
    if first_sum > 0:
        sch.reverse_compute_at(result, loops[order[first_sum - 1]], preserve_unit_loops=True)

    if not words:
        sch.vectorize(loops["lane"])
    elif has_offset(words.workload.dtype):
        sum_rows(sch, bool(plan.parallel))
    for name in ("step", "row", "vector") if plan.register_tile else ("vector",):
        sch.unroll(loops[name])
    edges = [f"{x}r", f"{y}r"]
    if any(s in DIMS[name] and uneven.intersection(DIMS[name]) for name in in_place):
        edges.append(f"{s}r")
    for name in edges:
        sch.annotate(loops[name], EDGE, 1)

    packing = {name: _pack(sch, copies[name], name, plan) for name in sorted(plan.packed)}
    for name in sorted(in_place):
        _load(sch, copies[name], name, plan)
    rows = _vectorize_rows(sch, result, plan.lanes)
    if plan.parallel:
        at = order.index(plan.parallel)
        # Packing outside the parallel loop is shared by that loop's tasks, and is itself parallel, as is writing the
        # result there.
        shared = [
            loop for name, loop in packing.items() if name in plan.packed_first or order.index(copy_loops[name]) < at
        ]
        for loop in (loops[plan.parallel], *shared, *([rows] if first_sum <= at else [])):
            sch.parallel(loop)
    # This must be last, because it prevents unroll, vectorize and parallel.
    sch.decompose_reduction(gemm, loops[order[first_sum]])
    if words:
        return tensorize(sch, product, loops[order[0]], words.workload.dtype, plan.lanes, VIEWS)
    return sch.copy()


def _copy_operands(
    workload: Gemm | BatchMatmul | Words, plan: Plan, uneven: Collection[str]
) -> tuple[Schedule, SBlockRV, dict[str, SBlockRV], SBlockRV]:
    """Pad the operands along the ``uneven`` indices, and store packed ones and the sums in the plan's layouts.

    Return the schedule and its blocks, which compute the sums, copy each operand, and write the result.
    """
    from ..unchecked import Unchecked

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("batch_matmul" if plan.batched else "gemm")
    sch.pad_einsum(gemm, [1] * plan.batched + [plan.padded[dim] for dim in "ijp"])
    copies = {name: sch.cache_read(gemm, at, "global") for at, name in enumerate("AB")}
    words = workload if isinstance(workload, Words) else None
    for name in copies:
        operand = f"{name}_words" if words else name
        if any(dim in uneven for dim in DIMS[name]):
            sch.compute_inline(f"{operand}_pad")
        if words and not (name == "A" and words.a_is_words):
            sch.compute_inline(operand)
    result = _epilogue(sch, gemm)
    for name, copy in copies.items():
        if name in plan.packed or name == plan.algorithm.resident:
            sch.transform_layout(copy, ("write", 0), _layout(name, plan))
    sch.transform_layout(gemm, ("write", 0), _layout("C", plan))
    return sch, gemm, copies, result


def _loops(
    sch: Schedule, gemm: SBlockRV, plan: Plan, order: Sequence[str], lane: Mapping[str, int]
) -> dict[str, LoopRV]:
    """Split the loops and arrange them in ``order``, with the micro-kernel's loops innermost. Return them by name.

    Within the micro-tile, the additional names are ``step`` along s, ``row`` along u, ``vector`` and, if the block
    computes single elements, a loop over a vector's elements, whose name and extent are in ``lane``.
    """
    algorithm, tile, cut = plan.algorithm, plan.tile, plan.cut
    x, y, s = algorithm.x, algorithm.y, algorithm.s
    sizes: dict[str, dict[str, int | None]]
    sizes = {dim: {f"{dim}c": None, f"{dim}r": cut.of(dim) // tile[dim]} for dim in "ijp"}
    nest = list(order)
    if algorithm.resident == "C":
        sizes[x] = {f"{x}c": None, "share": cut.of(x) // cut.share, f"{x}r": cut.share // tile[x]}
        nest.insert(nest.index(f"{y}c") + 1, "share")
    sizes[s]["step"] = UNROLLED
    sizes[algorithm.u]["row"] = tile[algorithm.u]
    sizes[algorithm.v] |= {"vector": tile[algorithm.v] // plan.lanes, **lane}

    *batch, i, j, p = sch.get_loops(gemm)
    loops: dict[str, LoopRV] = dict(zip(["batch"], batch, strict=False))
    for dim, loop in zip("ijp", (i, j, p), strict=True):
        loops |= zip(sizes[dim], sch.split(loop, list(sizes[dim].values())), strict=True)
    nest += [f"{s}r", "step", "row"] if plan.register_tile else ["row", f"{s}r", "step"]
    sch.reorder(*(loops[name] for name in (*nest, "vector", *lane)))
    if "share" in loops:
        loops[f"{y}c"] = sch.fuse(loops[f"{y}c"], loops["share"])
    return loops


def _epilogue(sch: Schedule, gemm: SBlockRV) -> SBlockRV:
    """Return the block that writes the result from the sums of ``gemm``; everything in between is inlined into it."""
    return finish(sch, gemm) if sch.get_consumers(gemm) else sch.cache_write(gemm, 0, "global")


def _vectorize_rows(sch: Schedule, result: SBlockRV, lanes: int) -> LoopRV:
    """Vectorise the rows of the result, and return the loop over rows."""
    *_, row, column = sch.get_loops(result)
    columns, lane = sch.split(column, [None, lanes])
    sch.vectorize(lane)
    sch.annotate(columns, EDGE, 1)
    return row


def _layout(name: str, plan: Plan) -> Callable[..., tuple[Any, ...]]:
    """Return a packed operand's index map: micro-panels in the order in which the micro-kernel reads them.

    In terms of the algorithm's indices, operands (s, v) and (u, v) are stored in rows of v, and an operand (u, s) is
    stored with UNROLLED elements of each u in turn.
    """
    algorithm, tile, cut = plan.algorithm, plan.tile, plan.cut
    s, u, v = algorithm.s, algorithm.u, algorithm.v

    def packed(*indices: Any) -> tuple[Any, ...]:
        *batch, first, second = indices
        at = dict(zip(plan.dims(name), (first, second), strict=True))
        if v not in at:
            chunks = cut.of(s) // UNROLLED
            block, chunk = at[s] // cut.of(s), at[s] // UNROLLED % chunks
            return *batch, block, at[u] // tile[u], chunk, at[u] % tile[u], at[s] % UNROLLED
        ((row, depth),) = ((dim, cut.of(s) if dim == s else tile[u]) for dim in at if dim != v)
        return *batch, at[row] // depth, at[v] // tile[v], at[row] % depth, at[v] % tile[v]

    return packed


def _load(sch: Schedule, load: SBlockRV, name: str, plan: Plan) -> None:
    """Load the elements of an operand that is not packed, in vectors or, for the scalar operand, one by one."""
    loops = dict(zip(plan.dims(name), sch.get_loops(load)[-2:], strict=True))
    if plan.algorithm.v in loops:
        column = loops.pop(plan.algorithm.v)
        vector, lane = sch.split(column, [None, plan.lanes])
        sch.reorder(*loops.values(), vector, lane)
        sch.vectorize(lane)
        sch.unroll(vector)
    else:
        sch.unroll(loops[plan.algorithm.u])


def _pack(sch: Schedule, pack: SBlockRV, name: str, plan: Plan) -> LoopRV:
    """Copy A or B into its micro-panels, and return the outermost loop."""
    algorithm, tile = plan.algorithm, plan.tile
    contiguous = algorithm.v if algorithm.v in DIMS[name] else algorithm.s  # the last index of the packed copy
    if contiguous != plan.dims(name)[1]:
        return _transpose(sch, pack, tile[contiguous], plan.lanes)
    if contiguous == algorithm.v:
        return pack_vectors(sch, pack, tile[contiguous] // plan.lanes, plan.lanes)
    return pack_scalars(sch, pack, tile[algorithm.u])


def _transpose(sch: Schedule, pack: SBlockRV, width: int, lanes: int) -> LoopRV:
    """Copy micro-panels whose rows of ``width`` elements are segments of the operand's columns, as vectors."""
    i, p = sch.get_loops(pack)[-2:]
    lanes = min(width, lanes)
    panel, vector, lane = sch.split(i, [None, width // lanes, lanes])
    sch.reorder(panel, p, vector, lane)
    sch.annotate(panel, EDGE, 1)
    sch.vectorize(lane)
    return panel
