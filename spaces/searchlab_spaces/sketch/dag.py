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

INFIX_OPERATORS = {
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
PREFIX_OPERATORS = {"Max": "max", "Min": "min"}


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
    stage_names = {str(block.body.buffer.name) for block in blocks}
    placeholders = [param for param in func.params if str(param.name) not in stage_names]
    lines = [
        f"{param.name} = PLACEHOLDER [{', '.join(_print_expression(n) for n in param.shape)}]" for param in placeholders
    ]
    return "\n".join([*lines, *(_print_stage(block) for block in blocks)])


def _print_stage(block: Any) -> str:
    store = block.body
    name, value, operator = str(store.buffer.name), store.value, ""
    if block.init is not None:
        # A reduction stores combine(current value, next term).
        operator_name, value = type(value).__name__, value.b
        operator = INFIX_OPERATORS.get(operator_name) or PREFIX_OPERATORS[operator_name]
    return f"{name}({_print_list(store.indices)}) {operator}= {_print_expression(value)}"


def _print_list(expressions: Sequence[Any]) -> str:
    return ", ".join(_print_expression(expression) for expression in expressions)


def _print_expression(node: Any) -> str:
    """Return an expression in Ansor's notation; other nodes are printed by TVM."""
    node_type = type(node).__name__
    if node_type in INFIX_OPERATORS:
        return f"({_print_expression(node.a)}{INFIX_OPERATORS[node_type]}{_print_expression(node.b)})"
    if node_type in PREFIX_OPERATORS:
        return f"{PREFIX_OPERATORS[node_type]}({_print_expression(node.a)}, {_print_expression(node.b)})"
    if node_type == "TensorLoad":
        return f"{node.source.name}[{_print_list(node.indices)}]"
    if node_type == "Var":
        return str(node.name).removeprefix("v_")
    if node_type == "IntImm":
        return str(int(node.value))
    if node_type == "FloatImm":
        return f"{float(node.value):g}f"
    if node_type == "Cast":
        return f"{node.ty.dtype}({_print_expression(node.value)})"
    if node_type == "Call":
        return f"{str(node.op.name).rpartition('.')[2]}({_print_list(node.args)})"
    return str(node)
