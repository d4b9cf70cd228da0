"""GEMM schedules: naive loops, and the six blocked algorithms with or without packing and a register tile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchlab.workload import BatchMatmul, Gemm

from .blis_model import Blocking
from .common import EDGE_ANNOTATION, UNROLLED_STEPS, inline_consumers, pack_scalars, pack_vectors
from .gemm_algorithms import OPERAND_INDICES, Algorithm, get_extents
from .gemm_words import SHARED_ARGUMENTS, Words
from .words import has_offset, sum_rows, tensorize, vectorize_block

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import LoopRV, SBlockRV


@dataclass(frozen=True)
class Plan:
    """The decisions of a blocked GEMM.

    Attributes:
        tile: The micro-tile's size by index; UNROLLED_STEPS for the index of the micro-kernel's loop.
        lanes: The number of elements of C in a vector.
        packed_operands: The packed operands among A and B.
        panel_operands: The operands packed by the task that uses them, one micro-panel at a time.
        packed_first: The operands packed before everything else.
        has_register_tile: Whether the micro-tile is updated as a unit, unrolled, rather than row by row.
        parallel: The parallel loop, such as ic or jr; or "".
        nt: Whether B is read as [n, k].
        is_batched: Whether there is a product for each element of a batch.
    """

    algorithm: Algorithm
    tile: Mapping[str, int]
    blocking: Blocking
    lanes: int
    packed_operands: frozenset[str]
    panel_operands: frozenset[str]
    packed_first: frozenset[str]
    has_register_tile: bool
    parallel: str
    nt: bool = False
    is_batched: bool = False

    @property
    def padding_multiples(self) -> dict[str, int]:
        """By index, the number to a multiple of which the extent is padded."""
        return {**self.tile, self.algorithm.s: self.blocking.size_of(self.algorithm.s)}

    def indices_of(self, operand: str) -> str:
        """Return the indices of an operand, in the order in which the program reads it."""
        return OPERAND_INDICES[operand][::-1] if operand == "B" and self.nt else OPERAND_INDICES[operand]


def schedule_basic(workload: Gemm | BatchMatmul, loops: str, nr: int, lanes: int, parallel: bool) -> Schedule:
    """Schedule the three loops of the definition, in the order ``loops``, such as ``ijk``.

    Vectors hold nr elements of a row of C, and rows may be parallel.
    """
    from ..unchecked import Unchecked

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("gemm")
    sch.pad_einsum(gemm, [1, nr, 1])
    if workload.n % nr:
        sch.compute_inline("B_pad")
    result = _find_result_block(sch, gemm)
    i, j, p = sch.get_loops(gemm)
    jo, jv, jl = sch.split(j, [None, nr // lanes, lanes])
    nest = [{"i": i, "j": jo, "k": p}[name] for name in loops]
    sch.reorder(*nest, jv, jl)
    if (reduction_position := loops.index("k")) > 0:
        sch.reverse_compute_at(result, nest[reduction_position - 1], preserve_unit_loops=True)
    sch.vectorize(jl)
    sch.unroll(jv)
    sch.annotate(jo, EDGE_ANNOTATION, 1)
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
    words = workload if isinstance(workload, Words) else None
    uneven_indices = {index for index, size in get_extents(workload).items() if size % plan.padding_multiples[index]}
    sch, product, copies, result = _copy_operands(workload, plan, uneven_indices)

    order = ("batch",) * plan.is_batched + algorithm.loop_order(is_single_pass=plan.blocking.kc >= workload.k)
    gemm = vectorize_block(sch, product, 1, plan.lanes) if words else product
    loops = _arrange_loops(sch, gemm, plan, order, {} if words else {"lane": plan.lanes})

    copy_loops = _place_copies(sch, plan, order, loops, copies)
    # The result is read from the scratch buffer once it is complete, outside the outermost loop over p.
    first_sum_position = min(order.index(name) for name in order if name.startswith("p"))
    if first_sum_position > 0:
        sch.reverse_compute_at(result, loops[order[first_sum_position - 1]], preserve_unit_loops=True)

    if not words:
        sch.vectorize(loops["lane"])
    elif has_offset(words.workload.dtype):
        sum_rows(sch, bool(plan.parallel))
    for name in ("step", "row", "vector") if plan.has_register_tile else ("vector",):
        sch.unroll(loops[name])
    for name in _find_edge_loops(plan, uneven_indices):
        sch.annotate(loops[name], EDGE_ANNOTATION, 1)

    packing_loops = {name: _pack_operand(sch, copies[name], name, plan) for name in sorted(plan.packed_operands)}
    for name in sorted(copies.keys() - plan.packed_operands):
        _load_in_place(sch, copies[name], name, plan)
    rows = _vectorize_rows(sch, result, plan.lanes)
    if plan.parallel:
        parallel_position = order.index(plan.parallel)
        # Packing outside the parallel loop is shared by that loop's tasks, and is itself parallel, as is writing the
        # result there.
        shared_packing_loops = [
            loop
            for name, loop in packing_loops.items()
            if name in plan.packed_first or order.index(copy_loops[name]) < parallel_position
        ]
        for loop in (
            loops[plan.parallel],
            *shared_packing_loops,
            *([rows] if first_sum_position <= parallel_position else []),
        ):
            sch.parallel(loop)
    # This must be last, because it prevents unroll, vectorize and parallel.
    sch.decompose_reduction(gemm, loops[order[first_sum_position]])
    if words:
        return tensorize(sch, product, loops[order[0]], words.workload.dtype, plan.lanes, SHARED_ARGUMENTS)
    return sch.copy()


def _place_copies(
    sch: Schedule, plan: Plan, order: Sequence[str], loops: Mapping[str, LoopRV], copies: Mapping[str, SBlockRV]
) -> dict[str, str]:
    """Move the copies of operands into the loops in which they are used, and return the name of each one's loop."""
    algorithm = plan.algorithm
    x, y = algorithm.x, algorithm.y
    # X is packed outside the loop over blocks of y, so it is not packed again for each of them. Y is packed inside all
    # loops over blocks. Z, which has no cache, is packed once for each block of x. A task may also pack X itself,
    # immediately before it uses a micro-panel. Operands that are not packed are only copied to registers: the elements
    # of one step, or the resident micro-tile.
    enclosing_loops = {name: order[order.index(name) - 1] for name in (f"{y}c", f"{x}r")}
    copy_loops = dict(
        zip(algorithm.operands, (enclosing_loops[f"{y}c"], enclosing_loops[f"{x}r"], f"{x}c"), strict=True)
    )
    copy_loops |= dict.fromkeys(plan.panel_operands, f"{x}r")
    copy_loops |= {
        name: f"{y}r" if name == algorithm.resident else "step" for name in copies.keys() - plan.packed_operands
    }
    for name in sorted(copies, key=algorithm.operands.index):
        if name not in plan.packed_first:
            sch.compute_at(copies[name], loops[copy_loops[name]], preserve_unit_loops=True)
    return copy_loops


def _find_edge_loops(plan: Plan, uneven_indices: set[str]) -> list[str]:
    """Return the names of the loops over micro-panels whose last iterations may need bound checks."""
    algorithm = plan.algorithm
    edge_loops = [f"{algorithm.x}r", f"{algorithm.y}r"]
    unpacked_indices = [OPERAND_INDICES[name] for name in {"A", "B"} - plan.packed_operands]
    if any(algorithm.s in indices and uneven_indices & set(indices) for indices in unpacked_indices):
        edge_loops.append(f"{algorithm.s}r")
    return edge_loops


def _copy_operands(
    workload: Gemm | BatchMatmul | Words, plan: Plan, uneven_indices: Collection[str]
) -> tuple[Schedule, SBlockRV, dict[str, SBlockRV], SBlockRV]:
    """Pad the operands along the ``uneven_indices``, and store packed ones and the sums in the plan's layouts.

    Return the schedule and its blocks, which compute the sums, copy each operand, and write the result.
    """
    from ..unchecked import Unchecked

    sch = Unchecked(workload.module)
    gemm = sch.get_sblock("batch_matmul" if plan.is_batched else "gemm")
    sch.pad_einsum(gemm, [1] * plan.is_batched + [plan.padding_multiples[index] for index in "ijp"])
    copies = {name: sch.cache_read(gemm, position, "global") for position, name in enumerate("AB")}
    words = workload if isinstance(workload, Words) else None
    for name in copies:
        operand = f"{name}_words" if words else name
        if any(index in uneven_indices for index in OPERAND_INDICES[name]):
            sch.compute_inline(f"{operand}_pad")
        if words and not (name == "A" and words.a_is_words):
            sch.compute_inline(operand)
    result = _find_result_block(sch, gemm)
    for name, copy in copies.items():
        if name in plan.packed_operands or name == plan.algorithm.resident:
            sch.transform_layout(copy, ("write", 0), _make_layout(name, plan))
    sch.transform_layout(gemm, ("write", 0), _make_layout("C", plan))
    return sch, gemm, copies, result


def _arrange_loops(
    sch: Schedule, gemm: SBlockRV, plan: Plan, order: Sequence[str], lane: Mapping[str, int]
) -> dict[str, LoopRV]:
    """Split the loops and arrange them in ``order``, with the micro-kernel's loops innermost. Return them by name.

    Within the micro-tile, the additional names are ``step`` along s, ``row`` along u, ``vector`` and, if the block
    computes single elements, a loop over a vector's elements, whose name and extent are in ``lane``.
    """
    algorithm, tile, blocking = plan.algorithm, plan.tile, plan.blocking
    x, y, s = algorithm.x, algorithm.y, algorithm.s
    extents_by_loop: dict[str, dict[str, int | None]]
    extents_by_loop = {
        index: {f"{index}c": None, f"{index}r": blocking.size_of(index) // tile[index]} for index in "ijp"
    }
    loop_names = list(order)
    if algorithm.resident == "C":
        extents_by_loop[x] = {
            f"{x}c": None,
            "share": blocking.size_of(x) // blocking.share,
            f"{x}r": blocking.share // tile[x],
        }
        loop_names.insert(loop_names.index(f"{y}c") + 1, "share")
    extents_by_loop[s]["step"] = UNROLLED_STEPS
    extents_by_loop[algorithm.u]["row"] = tile[algorithm.u]
    extents_by_loop[algorithm.v] |= {"vector": tile[algorithm.v] // plan.lanes, **lane}

    *batch, i, j, p = sch.get_loops(gemm)
    loops: dict[str, LoopRV] = dict(zip(["batch"], batch, strict=False))
    for index, loop in zip("ijp", (i, j, p), strict=True):
        loops |= zip(extents_by_loop[index], sch.split(loop, list(extents_by_loop[index].values())), strict=True)
    loop_names += [f"{s}r", "step", "row"] if plan.has_register_tile else ["row", f"{s}r", "step"]
    sch.reorder(*(loops[name] for name in (*loop_names, "vector", *lane)))
    if "share" in loops:
        loops[f"{y}c"] = sch.fuse(loops[f"{y}c"], loops["share"])
    return loops


def _find_result_block(sch: Schedule, gemm: SBlockRV) -> SBlockRV:
    """Return the block that writes the result from the sums of ``gemm``; everything in between is inlined into it."""
    return inline_consumers(sch, gemm) if sch.get_consumers(gemm) else sch.cache_write(gemm, 0, "global")


def _vectorize_rows(sch: Schedule, result: SBlockRV, lanes: int) -> LoopRV:
    """Vectorise the rows of the result, and return the loop over rows."""
    *_, row, column = sch.get_loops(result)
    columns, lane = sch.split(column, [None, lanes])
    sch.vectorize(lane)
    sch.annotate(columns, EDGE_ANNOTATION, 1)
    return row


def _make_layout(name: str, plan: Plan) -> Callable[..., tuple[Any, ...]]:
    """Return a packed operand's index map: micro-panels in the order in which the micro-kernel reads them.

    In terms of the algorithm's indices, operands (s, v) and (u, v) are stored in rows of v, and an operand (u, s) is
    stored with UNROLLED_STEPS elements of each u in turn.
    """
    algorithm, tile, blocking = plan.algorithm, plan.tile, plan.blocking
    s, u, v = algorithm.s, algorithm.u, algorithm.v

    def map_indices(*indices: Any) -> tuple[Any, ...]:
        *batch, first, second = indices
        values_by_index = dict(zip(plan.indices_of(name), (first, second), strict=True))
        if v not in values_by_index:
            chunks = blocking.size_of(s) // UNROLLED_STEPS
            block, chunk = values_by_index[s] // blocking.size_of(s), values_by_index[s] // UNROLLED_STEPS % chunks
            return (
                *batch,
                block,
                values_by_index[u] // tile[u],
                chunk,
                values_by_index[u] % tile[u],
                values_by_index[s] % UNROLLED_STEPS,
            )
        ((row, depth),) = (
            (index, blocking.size_of(s) if index == s else tile[u]) for index in values_by_index if index != v
        )
        return (
            *batch,
            values_by_index[row] // depth,
            values_by_index[v] // tile[v],
            values_by_index[row] % depth,
            values_by_index[v] % tile[v],
        )

    return map_indices


def _load_in_place(sch: Schedule, load: SBlockRV, name: str, plan: Plan) -> None:
    """Load the elements of an operand that is not packed, in vectors or, for the scalar operand, one by one."""
    loops = dict(zip(plan.indices_of(name), sch.get_loops(load)[-2:], strict=True))
    if plan.algorithm.v in loops:
        column = loops.pop(plan.algorithm.v)
        vector, lane = sch.split(column, [None, plan.lanes])
        sch.reorder(*loops.values(), vector, lane)
        sch.vectorize(lane)
        sch.unroll(vector)
    else:
        sch.unroll(loops[plan.algorithm.u])


def _pack_operand(sch: Schedule, pack: SBlockRV, name: str, plan: Plan) -> LoopRV:
    """Copy A or B into its micro-panels, and return the outermost loop."""
    algorithm, tile = plan.algorithm, plan.tile
    # The last index of the packed copy.
    contiguous = algorithm.v if algorithm.v in OPERAND_INDICES[name] else algorithm.s
    if contiguous != plan.indices_of(name)[1]:
        return _pack_transposed(sch, pack, tile[contiguous], plan.lanes)
    if contiguous == algorithm.v:
        return pack_vectors(sch, pack, tile[contiguous] // plan.lanes, plan.lanes)
    return pack_scalars(sch, pack, tile[algorithm.u])


def _pack_transposed(sch: Schedule, pack: SBlockRV, width: int, lanes: int) -> LoopRV:
    """Copy micro-panels whose rows of ``width`` elements are segments of the operand's columns, as vectors."""
    i, p = sch.get_loops(pack)[-2:]
    lanes = min(width, lanes)
    panel, vector, lane = sch.split(i, [None, width // lanes, lanes])
    sch.reorder(panel, p, vector, lane)
    sch.annotate(panel, EDGE_ANNOTATION, 1)
    sch.vectorize(lane)
    return panel
