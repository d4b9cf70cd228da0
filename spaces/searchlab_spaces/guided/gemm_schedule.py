"""Schedules of GEMM: the naive loops, and the six blocked algorithms with or without packing and register tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchlab.workload import Gemm

from .blis_model import Blocking
from .common import EDGE
from .gemm_algorithms import DIMS, UNROLLED, Algorithm, extents
from .gemm_words import VIEWS, Words
from .words import has_offset, in_vectors, sum_rows, tensorized

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV


@dataclass(frozen=True)
class Plan:
    """A blocked GEMM, decided: everything but the workload that :func:`blocked` needs to know."""

    algorithm: Algorithm
    tile: Mapping[str, int]  # the micro-tile by index; UNROLLED in that of the micro-kernel's loop
    cut: Blocking
    lanes: int  # elements of C in a vector
    packed: frozenset[str]  # which of A and B
    by_panel: frozenset[str]  # which of these by the task that uses it, a micro-panel at a time
    register_tile: bool  # whether the micro-tile is updated as a whole, unrolled, or a row at a time
    parallel: str  # the loop, as ic or jr; or ""


def basic(workload: Gemm, nr: int, lanes: int, parallel: bool) -> Schedule:
    """The three loops of the definition, with nr elements of a row of C in vectors; ``parallel`` over the rows."""
    from ..unchecked import Unchecked

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("gemm")
    sch.pad_einsum(gemm, [1, nr, 1])
    if workload.n % nr:
        sch.compute_inline("B_pad")
    result = _epilogue(sch, gemm)
    i, j, p = sch.get_loops(gemm)
    jo, jv, jl = sch.split(j, [None, nr // lanes, lanes])
    sch.reorder(i, jo, p, jv, jl)
    sch.reverse_compute_at(result, jo, preserve_unit_loops=True)
    sch.vectorize(jl)
    sch.unroll(jv)
    sch.annotate(jo, EDGE, 1)
    _vectorize_rows(sch, result, lanes)
    if parallel:
        sch.parallel(i)
    sch.decompose_reduction(gemm, p)
    return sch.copy()


def blocked(workload: Gemm | Words, plan: Plan) -> Schedule:
    """Blocks of the operands in the caches and a micro-tile of one in registers, as the plan's algorithm says.

    Operands, padded to whole micro-panels, become packed copies, or are loaded in place right before they are used:
    either way the padding's conditions are there, and not among the multiply-adds. The result goes through a scratch
    buffer of micro-tiles.
    """
    from ..unchecked import Unchecked

    algorithm, tile, cut = plan.algorithm, plan.tile, plan.cut
    x, y, s = algorithm.x, algorithm.y, algorithm.s
    padded = {**tile, s: cut.of(s)}
    uneven = {dim for dim, extent in extents(workload).items() if extent % padded[dim]}

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("gemm")
    sch.pad_einsum(gemm, [padded[dim] for dim in "ijp"])
    copies = {name: sch.cache_read(gemm, at, "global") for at, name in enumerate("AB")}
    in_place = copies.keys() - plan.packed
    words = workload if isinstance(workload, Words) else None
    for name in copies:
        operand = f"{name}_words" if words else name
        if uneven.intersection(DIMS[name]):
            sch.compute_inline(f"{operand}_pad")
        if words and not (name == "A" and words.a_is_words):
            sch.compute_inline(operand)
    result = _epilogue(sch, gemm)
    for name, copy in copies.items():
        if name in plan.packed or name == algorithm.resident:
            sch.transform_layout(copy, ("write", 0), _layout(name, plan))
    sch.transform_layout(gemm, ("write", 0), _layout("C", plan))
    order = algorithm.order(one_pass=cut.kc >= workload.k)
    product = gemm
    if words:
        gemm = in_vectors(sch, product, 1, plan.lanes)
    loops = _loops(sch, gemm, plan, order, {} if words else {"lane": plan.lanes})

    # X is packed outside the loop over blocks of y, so as not to be packed for each again, Y inside all loops over
    # blocks, and Z, for which no cache is meant, once for each block of x. A task may pack X itself, right before it
    # uses a micro-panel. What is not packed is copied no further than into registers: as much of it as one step uses,
    # or the resident micro-tile.
    before = {name: order[order.index(name) - 1] for name in (f"{y}c", f"{x}r")}
    places = dict(zip(algorithm.operands, (before[f"{y}c"], before[f"{x}r"], order[0]), strict=True))
    places |= dict.fromkeys(plan.by_panel, f"{x}r")
    places |= {name: f"{y}r" if name == algorithm.resident else "step" for name in in_place}
    for name in sorted(copies, key=algorithm.operands.index):
        sch.compute_at(copies[name], loops[places[name]], preserve_unit_loops=True)
    # The result is read from the scratch buffer once it is summed: outside the outermost loop over p.
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
        # What lies outside the parallel loop is shared by its tasks: the cores do it together, too.
        shared = [loop for name, loop in packing.items() if order.index(places[name]) < at]
        for loop in (loops[plan.parallel], *shared, *([rows] if first_sum == 0 else [])):
            sch.parallel(loop)
    # Last: unroll, vectorize and parallel are refused after it.
    sch.decompose_reduction(gemm, loops[order[first_sum]])
    if words:
        return tensorized(sch, product, loops[order[0]], words.workload.dtype, plan.lanes, VIEWS)
    return sch.copy()


def _loops(
    sch: Schedule, gemm: SBlockRV, plan: Plan, order: Sequence[str], lane: Mapping[str, int]
) -> dict[str, LoopRV]:
    """Cut the loops of the computation and put them in ``order``, those of the micro-kernel innermost; all by name.

    To the names of the order come, in the micro-tile, ``step`` along s, ``row`` along u, ``vector``, and that of
    ``lane`` with its extent, if the block computes single elements.
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

    loops: dict[str, LoopRV] = {}
    for dim, loop in zip("ijp", sch.get_loops(gemm), strict=True):
        loops |= zip(sizes[dim], sch.split(loop, list(sizes[dim].values())), strict=True)
    nest += [f"{s}r", "step", "row"] if plan.register_tile else ["row", f"{s}r", "step"]
    sch.reorder(*(loops[name] for name in (*nest, "vector", *lane)))
    if "share" in loops:
        loops[f"{y}c"] = sch.fuse(loops[f"{y}c"], loops["share"])
    return loops


def _epilogue(sch: Schedule, gemm: SBlockRV) -> SBlockRV:
    """The one block that writes the result, reading what ``gemm`` sums: cropping, bias and ReLU inlined into it."""
    consumers = sch.get_consumers(gemm)
    if not consumers:
        return sch.cache_write(gemm, 0, "global")
    while following := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = following
    return consumers[0]


def _vectorize_rows(sch: Schedule, result: SBlockRV, lanes: int) -> LoopRV:
    """Rows of the result in vectors; returns the loop over them."""
    *_, row, column = sch.get_loops(result)
    columns, lane = sch.split(column, [None, lanes])
    sch.vectorize(lane)
    sch.annotate(columns, EDGE, 1)
    return row


def _layout(name: str, plan: Plan) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The index map of a packed operand: micro-panels in the order in which the micro-kernel reads them.

    In the letters of the algorithm: (s, v) and (u, v) in rows of v; (u, s) with UNROLLED elements of each u in turn.
    """
    algorithm, tile, cut = plan.algorithm, plan.tile, plan.cut
    s, u, v = algorithm.s, algorithm.u, algorithm.v

    def packed(first: Any, second: Any) -> tuple[Any, ...]:
        at = dict(zip(DIMS[name], (first, second), strict=True))
        if v not in at:
            chunks = cut.of(s) // UNROLLED
            block, chunk = at[s] // cut.of(s), at[s] // UNROLLED % chunks
            return block, at[u] // tile[u], chunk, at[u] % tile[u], at[s] % UNROLLED
        ((row, depth),) = ((dim, cut.of(s) if dim == s else tile[u]) for dim in at if dim != v)
        return at[row] // depth, at[v] // tile[v], at[row] % depth, at[v] % tile[v]

    return packed


def _load(sch: Schedule, load: SBlockRV, name: str, plan: Plan) -> None:
    """Read the elements of an operand that is not packed: in vectors, or one by one if it is the scalar operand."""
    loops = dict(zip(DIMS[name], sch.get_loops(load)[-2:], strict=True))
    if plan.algorithm.v in loops:
        column = loops.pop(plan.algorithm.v)
        vector, lane = sch.split(column, [None, plan.lanes])
        sch.reorder(*loops.values(), vector, lane)
        sch.vectorize(lane)
        sch.unroll(vector)
    else:
        sch.unroll(loops[plan.algorithm.u])


def _pack(sch: Schedule, pack: SBlockRV, name: str, plan: Plan) -> LoopRV:
    """Copy A or B into its micro-panels; returns the outermost loop."""
    algorithm, tile = plan.algorithm, plan.tile
    contiguous = algorithm.v if algorithm.v in DIMS[name] else algorithm.s  # the last index of the packed copy
    if contiguous != DIMS[name][1]:
        return _transpose(sch, pack, tile[contiguous], plan.lanes)
    if contiguous == algorithm.v:
        return _pack_vectors(sch, pack, tile[contiguous] // plan.lanes, plan.lanes)
    return _pack_scalars(sch, pack, tile[algorithm.u])


def _pack_scalars(sch: Schedule, pack: SBlockRV, height: int) -> LoopRV:
    """Micro-panels of so many rows, in which every row gives UNROLLED elements in turn: copied, never transposed."""
    # Sixteen elements at a time from a row, a cache line of float32; so, too, eight rows at a time below.
    i, p = sch.get_loops(pack)[-2:]
    panel, row = sch.split(i, [None, height])
    run, chunk, lane = sch.split(p, [None, 4, UNROLLED])
    sch.reorder(panel, run, row, chunk, lane)
    sch.unroll(chunk)
    sch.vectorize(lane)
    return panel


def _pack_vectors(sch: Schedule, pack: SBlockRV, vectors: int, lanes: int) -> LoopRV:
    """Micro-panels of so many vectors a row, a few rows of the operand at a time."""
    p, j = sch.get_loops(pack)[-2:]
    rows, row = sch.split(p, [None, 8])
    panel, vector, lane = sch.split(j, [None, vectors, lanes])
    sch.reorder(rows, panel, row, vector, lane)
    sch.annotate(panel, EDGE, 1)
    sch.unroll(vector)
    sch.vectorize(lane)
    return rows


def _transpose(sch: Schedule, pack: SBlockRV, width: int, lanes: int) -> LoopRV:
    """Micro-panels whose rows of ``width`` are pieces of columns of the operand, gathered into vectors."""
    i, p = sch.get_loops(pack)[-2:]
    lanes = min(width, lanes)
    panel, vector, lane = sch.split(i, [None, width // lanes, lanes])
    sch.reorder(panel, p, vector, lane)
    sch.annotate(panel, EDGE, 1)
    sch.vectorize(lane)
    return panel
