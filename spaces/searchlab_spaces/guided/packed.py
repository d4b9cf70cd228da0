"""Programs that take constant weights in packed form, in the layout that their tiles read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from searchlab.workload import PACK

from .common import make_untraced_schedule

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.tirx import PrimFunc, Stmt, Var

Weights = Literal["plain", "packed"]
"""How a program takes the weights: in the workload's layout, or packed."""


def split_packing(sch: Schedule, name: str) -> Schedule:
    """Move the statements that depend only on the argument ``name`` from ``main`` to ``pack_NAME``.

    The arrays that ``pack_NAME`` writes take the argument's place in ``main``. The statements must be outermost loops
    that contain no other computation, and nothing else may read the argument.

    Args:
        sch: The schedule.
        name: The argument.
    """
    import tvm
    from tvm.tirx import SeqStmt
    from tvm_ffi import get_global_func

    func = sch.mod["main"]
    root = func.body.block
    (weights,) = (parameter for parameter in func.params if parameter.name == name)
    packing, remaining = _partition(list(root.body) if isinstance(root.body, SeqStmt) else [root.body], func, weights)
    written_keys, read_keys = _variables(packing), _variables(remaining)
    assert _key(weights) not in read_keys, f"packing {name} is not separate from the rest of the program"
    buffers = [buffer for buffer in root.alloc_buffers if _key(buffer) in written_keys]
    packed_buffers = [buffer for buffer in buffers if _key(buffer) in read_keys]
    params: list[Var] = []
    for parameter in func.params:
        params += packed_buffers if parameter.same_as(weights) else [parameter]
    functions = {
        "main": _make_function(
            func, params, [item for item in root.alloc_buffers if _key(item) not in written_keys], remaining
        ),
        PACK + name: _make_function(
            func, [weights, *packed_buffers], [item for item in buffers if _key(item) not in read_keys], packing
        ),
    }
    renew = get_global_func("s_tir.RenewDefs")  # because two functions must not share variables
    renewed_functions = {name: renew(function).with_attr("global_symbol", name) for name, function in functions.items()}
    return make_untraced_schedule(tvm.IRModule(renewed_functions))


def _partition(statements: Sequence[Stmt], func: PrimFunc, weights: Var) -> tuple[list[Stmt], list[Stmt]]:
    """Return the ``statements`` of a function that depend only on the argument ``weights``, and the others."""
    from tvm.tirx import DeclBuffer

    views = [statement.buffer for statement in statements if isinstance(statement, DeclBuffer)]
    memory = {_key(buffer) for buffer in (*func.params, *func.body.block.alloc_buffers, *views)}
    constants = {_key(weights)}
    packing: list[Stmt] = []
    remaining: list[Stmt] = []
    for statement in statements:
        written_keys = _written_buffers(statement)
        read_keys = _variables([statement]) & memory - written_keys
        if read_keys and read_keys <= constants:
            constants |= written_keys
            packing.append(statement)
        else:
            remaining.append(statement)
    return packing, remaining


def _written_buffers(statement: Stmt) -> set[int]:
    """Return the keys of the buffers to which ``statement`` writes or, if it declares a view, of the view."""
    from tvm.tirx import BufferStore, DeclBuffer
    from tvm_ffi import structural_walk

    if isinstance(statement, DeclBuffer):
        return {_key(statement.buffer)}
    variables: set[int] = set()
    structural_walk(statement, [(BufferStore, lambda node: variables.add(_key(node.buffer)))])
    return variables


def _variables(statements: Sequence[Stmt]) -> set[int]:
    """Return the keys of the variables and buffers in ``statements``."""
    from tvm.tirx import Var
    from tvm_ffi import structural_walk

    variables: set[int] = set()
    for statement in statements:
        structural_walk(statement, [(Var, lambda variable: variables.add(_key(variable)))])
    return variables


def _key(variable: Var) -> int:
    """Return the address of TVM's object, since variables are compared by identity."""
    return int(variable.__chandle__())


def _make_function(func: PrimFunc, params: Sequence[Var], buffers: Sequence[Var], body: Sequence[Stmt]) -> PrimFunc:
    from tvm.s_tir import SBlock, SBlockRealize
    from tvm.tirx import PrimFunc, SeqStmt

    root = SBlock([], [], [], "root", SeqStmt(body) if len(body) > 1 else body[0], alloc_buffers=list(buffers))
    return PrimFunc(list(params), SBlockRealize([], True, root), func.ret_type, func.attrs)
