"""Print a computation as a DAG of stages, one per line, as in Ansor's tutorial (``print(task.compute_dag)``).

The notation follows Zheng et al., "Ansor" (OSDI 2020), and the ``tvm.auto_scheduler`` tutorials::

    A = PLACEHOLDER [512, 512]
    B = PLACEHOLDER [512, 512]
    gemm(i, j) += (A[i, p]*B[p, j])
    relu(i0, i1) = max(gemm[i0, i1], 0f)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

INFIX = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "FloorDiv": "//",
    "FloorMod": "%",
    "LT": " < ",
    "LE": " <= ",
    "GT": " > ",
    "GE": " >= ",
    "EQ": " == ",
    "NE": " != ",
    "And": " && ",
    "Or": " || ",
}
PREFIX = {"Max": "max", "Min": "min"}


def print_dag(func: tvm.tirx.PrimFunc) -> str:
    """Return the arguments that ``func`` reads and its blocks, in order. A reduction is ``+=``, ``max=`` or ``min=``.

    Args:
        func: A function that has not been scheduled yet, with one block per stage, as TE generates it.
    """
    from tvm.s_tir import SBlock
    from tvm_ffi import WalkResult, structural_walk

    blocks: list[Any] = []

    def visit(block: SBlock) -> WalkResult:
        if len(block.iter_vars):  # not the root
            blocks.append(block)
        return WalkResult.ADVANCE

    structural_walk(func.body, (SBlock, visit))
    stages = {str(block.body.buffer.name) for block in blocks}
    placeholders = [param for param in func.params if str(param.name) not in stages]
    lines = [f"{param.name} = PLACEHOLDER [{', '.join(_text(n) for n in param.shape)}]" for param in placeholders]
    return "\n".join([*lines, *(_stage(block) for block in blocks)])


def _stage(block: Any) -> str:
    store = block.body
    name, value, combine = str(store.buffer.name), store.value, ""
    if block.init is not None:
        # A reduction stores combine(current value, next term).
        kind, value = type(value).__name__, value.b
        combine = INFIX.get(kind) or PREFIX[kind]
    return f"{name}({_list(store.indices)}) {combine}= {_text(value)}"


def _list(parts: Sequence[Any]) -> str:
    return ", ".join(_text(part) for part in parts)


def _text(node: Any) -> str:
    """Return an expression in Ansor's notation; other nodes are printed by TVM."""
    kind = type(node).__name__
    if kind in INFIX:
        return f"({_text(node.a)}{INFIX[kind]}{_text(node.b)})"
    if kind in PREFIX:
        return f"{PREFIX[kind]}({_text(node.a)}, {_text(node.b)})"
    if kind == "TensorLoad":
        return f"{node.source.name}[{_list(node.indices)}]"
    if kind == "Var":
        return str(node.name).removeprefix("v_")
    if kind == "IntImm":
        return str(int(node.value))
    if kind == "FloatImm":
        return f"{float(node.value):g}f"
    if kind == "Cast":
        return f"{node.ty.dtype}({_text(node.value)})"
    if kind == "Call":
        return f"{str(node.op.name).rpartition('.')[2]}({_list(node.args)})"
    return str(node)
