"""Deciding whether two functions perform the same computation, and replacing one with the other.

Two functions match if TVM lowers both to the same loops over the same flat memory. Since no pass changes what a
function computes, functions that are equal after the passes perform the same computation. The comparison ignores the
names of functions, arguments, buffers, blocks and loops; the argument order; the index type; axes of extent 1;
conditions that always hold; buffers that only copy an argument; in how many steps the elementwise operations after a
reduction are computed; and on which side of a sum an argument is, such as a residual block's input. It does not ignore
dtypes, the element layout, or the order of loops and of other operands. It assumes that arguments do not overlap, as
Relax does for ``call_tir``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations
from typing import Any

from tvm import IRModule
from tvm.ir.expr import TensorLoad
from tvm.ir.transform import Sequential
from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError
from tvm.s_tir import transform as s_tir_transform
from tvm.tirx import Add, BufferStore, DeclBuffer, IntImm, PrimFunc, SeqStmt, buffer_data, decl_buffer
from tvm.tirx import transform as tirx_transform
from tvm_ffi import structural_equal, structural_map

FlatArgument = tuple[str, int]
"""The dtype and the number of elements of a dense argument."""

OPAQUE_PATTERN_KIND = 8
"""Relax's ``OpPatternKind.kOpaque``. FuseOps, which the GPU pipeline contains, never fuses such a function."""

SCHEDULED_ATTRIBUTES = {"tirx.is_scheduled": True, "op_pattern": OPAQUE_PATTERN_KIND}
"""The attributes that mark a function as scheduled and as not to be fused."""


@dataclass(frozen=True, eq=False)
class FlatFunction:
    """A function and the flat form that is used to compare it with others."""

    func: PrimFunc

    @cached_property
    def arguments(self) -> tuple[FlatArgument, ...] | None:
        """The arguments, or None if one is not a dense buffer of fixed shape or if the body is already lowered."""
        arguments = [
            argument for parameter in self.func.params if (argument := _make_flat_argument(parameter)) is not None
        ]
        is_complete = len(arguments) == len(self.func.params) and isinstance(self.func.body, SBlockRealize)
        return tuple(arguments) if is_complete else None

    @cached_property
    def _normalized_function(self) -> PrimFunc:
        """The function in which elementwise operations after a reduction are one block, and no buffer is just a copy.

        An example of a copy is the unpadded input of a conv2d in Relax. Where an element of an argument is added to an
        intermediate result, the argument comes second.
        """
        func = inline_blocks(self.func)

        def is_argument(value: Any) -> bool:
            return isinstance(value, TensorLoad) and any(map(value.source.same_as, func.params))

        def order_operands(addition: Add) -> Add:
            is_swapped = is_argument(addition.a) and not is_argument(addition.b)
            return Add(addition.b, addition.a) if is_swapped else addition

        return structural_map(func, (Add, order_operands))

    def lower(self, order: Sequence[int]) -> PrimFunc:
        """Return the function lowered to loops over flat arguments, which are arranged in ``order``."""
        assert self.arguments is not None
        function = self._normalized_function
        flat_buffers = [decl_buffer((size,), dtype) for dtype, size in (self.arguments[index] for index in order)]
        views = [
            DeclBuffer(function.params[index], data=buffer_data(buffer))
            for index, buffer in zip(order, flat_buffers, strict=True)
        ]
        attributes = {"global_symbol": "main", "tirx.noalias": True, "s_tir": True}
        flat_function = PrimFunc(flat_buffers, SeqStmt([*views, function.body])).with_attr(attributes)
        return _make_lowering_passes()(IRModule({"main": flat_function}))["main"]

    @cached_property
    def lowered_function(self) -> PrimFunc:
        """The function lowered with its arguments in their own order."""
        return self.lower(range(len(self.func.params)))


MAX_INLINED_BLOCKS = 16
"""The maximum number of blocks to inline, as expressions may double in size with each of them."""


def inline_blocks(func: PrimFunc) -> PrimFunc:
    """Return ``func`` without copies, and with the elementwise operations after a reduction in a single block."""
    schedule = Schedule(IRModule({"main": func.with_attr("global_symbol", "main")}))
    root = schedule.get_sblock(func.body.block.name_hint)
    intermediates = list(schedule.get(root).alloc_buffers)
    blocks = schedule.get_child_blocks(root)
    for block in blocks:
        is_elementwise = len(blocks) <= MAX_INLINED_BLOCKS and not any(
            map(is_reduction, [schedule.get(block), *map(schedule.get, schedule.get_consumers(block))])
        )
        if is_elementwise or _is_copy(schedule.get(block), intermediates):
            with suppress(ScheduleError):  # it writes a result, or another block writes to the same buffer
                schedule.compute_inline(block)
    return schedule.mod["main"]


def is_reduction(block: SBlock) -> bool:
    """Return whether ``block`` reduces several elements to one."""
    return any(axis.iter_type == axis.CommReduce for axis in block.iter_vars)


def match_arguments(func: FlatFunction, reference: FlatFunction) -> tuple[int, ...] | None:
    """Return the order that maps the parameters of ``func`` to those of ``reference``.

    The result is None if the two functions do not perform the same computation.
    """
    if func.arguments is None or reference.arguments is None or sorted(func.arguments) != sorted(reference.arguments):
        return None
    for order in permutations(range(len(func.arguments))):
        if tuple(func.arguments[index] for index in order) != reference.arguments:
            continue
        try:
            lowered_function = func.lower(order)
        except (RuntimeError, ValueError, TypeError, LookupError):  # TVM cannot lower it, so it cannot be a workload
            return None
        if structural_equal(lowered_function, reference.lowered_function):
            return order
    return None


def substitute_function(
    func: PrimFunc, program: PrimFunc, order: Sequence[int], packed_counts: Mapping[int, int]
) -> PrimFunc:
    """Return ``program`` with the parameters and attributes of ``func``, marked as scheduled and never to be fused.

    Args:
        func: The function to replace.
        program: The scheduled function.
        order: The parameters of ``func`` in the order of the workload's arguments; see :func:`match_arguments`.
        packed_counts: A mapping from the index of each argument that ``program`` accepts in packed form to the number
            of parameters that replace it. These parameters are kept.
    """
    new_parameters: dict[int, list[Any]] = {}
    program_parameters = iter(program.params)
    for argument, index in enumerate(order):
        new_parameters[index] = list(islice(program_parameters, packed_counts.get(argument, 1)))
    unpacked_parameters = {
        index: new_parameters[index][0] for argument, index in enumerate(order) if argument not in packed_counts
    }
    if all(structural_equal(variable.ty, func.params[index].ty) for index, variable in unpacked_parameters.items()):
        # Without views, the body remains a block, which Relax's RewriteDataflowReshape expects of a function whose
        # input and output have the same number of elements.
        params = [variable for index in range(len(order)) for variable in new_parameters[index]]
        return PrimFunc(params, program.body, func.ret_type, func.attrs).with_attr(SCHEDULED_ATTRIBUTES)
    views = [
        DeclBuffer(parameter, data=buffer_data(func.params[index])) for index, parameter in unpacked_parameters.items()
    ]
    params = [
        variable
        for index, original in enumerate(func.params)
        for variable in ([original] if index in unpacked_parameters else new_parameters[index])
    ]
    scheduled = PrimFunc(params, SeqStmt([*views, program.body]), func.ret_type, func.attrs)
    return scheduled.with_attr(SCHEDULED_ATTRIBUTES)


def _make_flat_argument(parameter: Any) -> FlatArgument | None:
    shape = getattr(parameter.ty, "shape", None)
    if shape is None or not all(isinstance(extent, IntImm) for extent in shape):
        return None
    is_dense = not len(parameter.ty.strides) and isinstance(parameter.ty.elem_offset, IntImm)
    if not is_dense or int(parameter.ty.elem_offset) != 0 or parameter.ty.storage_scope not in ("", "global"):
        return None
    return str(parameter.ty.dtype.dtype), math.prod(int(extent) for extent in shape)


def _is_copy(block: Any, intermediates: Sequence[Any]) -> bool:
    """Return whether ``block`` only copies a buffer element by element to one of the buffers in ``intermediates``."""
    store = block.body
    if block.init is not None or not isinstance(store, BufferStore) or not isinstance(store.value, TensorLoad):
        return False
    indices = list(store.indices)
    return (
        any(store.buffer.same_as(buffer) for buffer in intermediates)
        and structural_equal(indices, [axis.var for axis in block.iter_vars])
        and structural_equal(indices, list(store.value.indices))
        and structural_equal(list(store.buffer.shape), list(store.value.source.ty.shape))
    )


def _make_lowering_passes() -> Sequential:
    return Sequential(
        [
            s_tir_transform.LowerInitBlock(),
            s_tir_transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir_transform.ConvertBlocksToOpaque(),
            s_tir_transform.LowerOpaqueBlock(),
            tirx_transform.FlattenBuffer(),
            tirx_transform.NarrowDataType(32),
            tirx_transform.StmtSimplify(),
        ]
    )
