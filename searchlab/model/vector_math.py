"""Elementary functions of float32 as polynomials, which consist of vector instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..workload import find_operation_count
from ..workload.primfunc import OPERATIONS

if TYPE_CHECKING:
    import tvm


def with_vector_math(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace exp, tanh, erf and sigmoid of float32 with polynomials, except in functions that are already scheduled.

    On a CPU, TVM would call the C library for each element, which takes 10 to 80 times as long as the polynomials.
    These are TVM's own (``topi.fast_exp`` and others). Their relative errors are below 1e-6 for arguments from -16 to
    16, and below 5e-6 for all others. In the numbers of operations, each of these functions remains a single operation.
    """
    from tvm.ir import Call, Op
    from tvm.tirx import PrimFunc
    from tvm_ffi import structural_equal, structural_map

    def replace_call(call: Any, make_replacement: Callable[[str, Any], Any]) -> Any:
        name = call.op.name.rpartition(".")[2] if isinstance(call.op, Op) else ""
        is_replaced = str(call.ty) == "float32" and name in ("exp", "tanh", "erf", "sigmoid")
        return make_replacement(name, *call.args) if is_replaced else call

    def make_polynomial(name: str, x: Any) -> Any:
        if name == "sigmoid":
            return 1 / (_get_polynomial("exp")(-x) + 1)
        return _get_polynomial(name)(x)

    def make_operation(name: str, x: Any) -> Any:
        return x + 1

    replaced_module = mod.clone()
    for variable, function in mod.functions.items():
        if isinstance(function, PrimFunc) and not function.attrs.get("tirx.is_scheduled", False):
            new_function = structural_map(function, (Call, partial(replace_call, make_replacement=make_polynomial)))
            if not structural_equal(new_function, function):
                countable = structural_map(function, (Call, partial(replace_call, make_replacement=make_operation)))
                replaced_module.update_func(
                    variable, new_function.with_attr(OPERATIONS, find_operation_count(countable))
                )
    return replaced_module


@cache
def _get_polynomial(name: str) -> Callable[[Any], Any]:
    """Return a function that returns TVM's polynomial for an expression."""
    from tvm import te, topi
    from tvm.ir import Call
    from tvm_ffi import structural_map

    def substitute_argument(tensor: Any, x: Any) -> Any:
        """Return what ``tensor`` computes, in one or several stages, from ``x`` in place of the placeholder."""
        if not tensor.op.input_tensors:
            return x
        (body,) = tensor.op.body
        return structural_map(
            body,
            (Call, lambda call: substitute_argument(call.args[0], x) if call.op.name == "te.tensor_load" else call),
        )

    polynomial = getattr(topi, f"fast_{name}")(te.placeholder((1,), dtype="float32"))
    return lambda x: substitute_argument(polynomial, x)
