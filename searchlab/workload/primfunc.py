"""The analysis of PrimFuncs: their operations, their results, and their hashes."""

from __future__ import annotations

import math
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import SearchlabError
from .base import list_arguments

if TYPE_CHECKING:
    import tvm

OPERATIONS = "searchlab.operations"
"""The attribute of a function with the number of its operations, if they cannot be counted in its body."""

PARTIAL_FUNCTIONS = {"sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "acosh"}
"""Functions that are not defined for all negative numbers."""


class Analysis(NamedTuple):
    """The properties of a function that can be a workload.

    Attributes:
        operations: The number of floating-point operations of one execution, or 0 if TVM cannot count them.
        result_count: The number of results, which are the last arguments.
        terms: The largest number of elements that any block reduces to a single one.
    """

    operations: int
    result_count: int
    terms: int


def analyse(func: tvm.tirx.PrimFunc, name: str) -> Analysis:
    """Return the properties of ``func``.

    Raises:
        SearchlabError: If ``func`` cannot be a workload; the message calls it ``name``.
    """
    from tvm.s_tir import SBlockRealize

    if not isinstance(func.body, SBlockRealize):
        raise SearchlabError(f"the function {name} is not in TensorIR with blocks, so no schedule can change it")
    if func.attrs and func.attrs.get("tirx.is_scheduled", False):
        raise SearchlabError(f"the function {name} is already scheduled; tune the function before it is scheduled")
    try:
        arguments = list_arguments(func)
    except SearchlabError as error:
        raise SearchlabError(f"the function {name} cannot be a workload: {error}") from None
    is_written, terms = _walk_blocks(func)
    result_count = sum(is_written)
    if not result_count or not all(is_written[-result_count:]):
        written_names = list(compress([argument.name for argument in arguments], is_written))
        raise SearchlabError(
            f"the function {name} writes to {', '.join(written_names) or 'none of its arguments'}; a workload writes "
            f"only to its last arguments, which are its results"
        )
    return Analysis(find_operation_count(func), result_count, terms)


def _walk_blocks(func: tvm.tirx.PrimFunc) -> tuple[list[bool], int]:
    """Return, for each argument, whether ``func`` writes to it, and the most elements that a block reduces to one."""
    from tvm.s_tir import SBlock
    from tvm.tirx import BufferStore, IntImm
    from tvm_ffi import structural_walk

    is_written = [False] * len(func.params)
    term_counts = [1]

    def visit_store(store: BufferStore) -> None:
        for index, parameter in enumerate(func.params):
            is_written[index] = is_written[index] or store.buffer.same_as(parameter)

    def visit_block(block: SBlock) -> None:
        extents = [axis.dom.extent for axis in block.iter_vars if axis.iter_type == axis.CommReduce]
        term_counts.append(math.prod(int(extent) for extent in extents if isinstance(extent, IntImm)))

    structural_walk(func.body, [(BufferStore, visit_store), (SBlock, visit_block)])
    return is_written, max(term_counts)


def find_operation_count(func: tvm.tirx.PrimFunc) -> int:
    """Return the number of floating-point operations of one execution, or 0 if TVM cannot count them."""
    import tvm
    from tvm.s_tir.analysis import estimate_tir_flops

    if func.attrs and OPERATIONS in func.attrs:
        return int(func.attrs[OPERATIONS])
    try:
        return max(0, int(estimate_tir_flops(tvm.IRModule({"main": func}))))
    except Exception:  # for example, because an extent is not a constant
        return 0


def calls_partial_function(func: tvm.tirx.PrimFunc) -> bool:
    """Return whether ``func`` calls any of :data:`PARTIAL_FUNCTIONS`."""
    from tvm.ir import Call, Op
    from tvm_ffi import structural_walk

    function_names: set[str] = set()

    def visit_call(call: Call) -> None:
        if isinstance(call.op, Op):
            function_names.add(str(call.op.name).rpartition(".")[2])

    structural_walk(func.body, (Call, visit_call))
    return not PARTIAL_FUNCTIONS.isdisjoint(function_names)


def program_hash(module: tvm.IRModule) -> str:
    """Return the structural hash of a module, which identifies its program in logs and caches."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(module) & (1 << 64) - 1:016x}"


def compile_for_cpu(func: tvm.tirx.PrimFunc) -> Any:
    """Return ``func``, as it is, as a callable compiled for this machine's CPU."""
    import tvm

    with tvm.target.Target("llvm"):
        return tvm.compile(tvm.IRModule({"main": func}), target="llvm")["main"]
