"""Replacing a model's calls with calls of programs that use packed arguments; constants are packed in advance.

TVM's own passes for this are ``relax.transform.SplitLayoutRewritePreproc``, which splits a scheduled function, and
``FoldConstant``. Here, programs are already split; see :func:`~searchlab.workload.packed_arguments`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import PrimFunc

from ..errors import SearchlabError
from ..measure.code import compile_program, device_of, pack_inputs
from ..target import Target, resolve_target
from ..workload import PACK, Argument, packed_arguments
from .matching import SCHEDULED_ATTRIBUTES


@dataclass(eq=False)
class PackedFunction:
    """A function of a model, and the program that replaces it.

    Attributes:
        program: The program's module, which includes the functions that pack arguments.
        main: The program's function ``main``. Its parameters that are not packed are those of the replaced function.
        arguments: A mapping from each packed parameter's index in the replaced function to the workload's argument.
        target: The target for which the program was scheduled.
    """

    program: tvm.IRModule
    main: PrimFunc
    arguments: Mapping[int, Argument]
    target: Target

    def pack(self, index: int, value: tvm.runtime.Tensor) -> list[tvm.runtime.Tensor]:
        """Return the arrays into which a constant argument is packed."""
        argument = self.arguments[index]
        module, device = self._compiled_packs
        weights_tensor = tvm.runtime.tensor(value.numpy().reshape(argument.shape), device)
        arrays = pack_inputs(module, packed_arguments(self.program), {argument.name: weights_tensor})[argument.name]
        return [tvm.runtime.tensor(array.numpy()) for array in arrays]

    @cached_property
    def _compiled_packs(self) -> tuple[tvm.runtime.Module, tvm.runtime.Device]:
        """The compiled functions that pack arguments, and the device on which they run."""
        target = resolve_target("native") if self.target.kind == "llvm" else self.target
        pack_functions = {
            variable: function for variable, function in self.program.functions.items() if variable.name_hint != "main"
        }
        return compile_program(tvm.IRModule(pack_functions), target).jit(), device_of(target.kind)


def with_packed_calls(mod: tvm.IRModule, functions: Mapping[str, PackedFunction]) -> tuple[tvm.IRModule, list[str]]:
    """Replace calls of the named ``functions`` with calls of the programs that replace these functions.

    The program for ``conv2d`` becomes the function ``conv2d_packed``, since its parameters have different shapes.

    Returns:
        The new module, and the names of the functions with packed arguments that are not constants, which are therefore
        packed in every call.

    Raises:
        SearchlabError: If one of the functions is used in any other way than by ``call_tir``.
    """
    rewriter = _CallRewriter(mod, functions)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    if rewriter.misused_function_name:
        raise SearchlabError(
            f"the function {rewriter.misused_function_name!r}, whose program takes packed weights, is used by "
            f"something other than call_tir; apply the logs right after relax.transform.LegalizeOps"
        )
    module = rewriter.builder_.get()
    for variable in mod.functions:
        if variable.name_hint in rewriter.replacements:
            del module[variable]
    return module, list(dict.fromkeys(rewriter.packed_every_call))


@mutator
class _CallRewriter(PyExprMutator):  # type: ignore[misc]
    """A mutator that rewrites the calls of ``functions``."""

    def __init__(self, mod: tvm.IRModule, functions: Mapping[str, PackedFunction]) -> None:
        super().__init__(mod)
        self.functions = functions
        self.replacements: dict[str, Any] = {}  # the new functions, by the names of those that they replace
        self.packed_every_call: list[str] = []
        self.misused_function_name = ""  # the name of a function that is not only called

    def visit_call_(self, call: Any) -> Any:
        if not call.op.same_as(Op.get("relax.call_tir")) or call.args[0].name_hint not in self.functions:
            return super().visit_call_(call)
        function_name = call.args[0].name_hint
        function = self.functions[function_name]
        arguments: list[Any] = []
        for index, argument in enumerate(self.visit_expr(call.args[1])):
            is_packed = index in function.arguments
            arguments += self._pack(function_name, function, index, argument) if is_packed else [argument]
        outputs = call.ty_args[0]
        types = list(outputs.fields) if isinstance(outputs, tvm.ir.TupleType) else outputs
        if function_name not in self.replacements:
            self.replacements[function_name] = self.builder_.add_func(function.main, f"{function_name}_packed")
        return relax.call_tir(self.replacements[function_name], arguments, types)

    def visit_global_var_(self, variable: Any) -> Any:
        if variable.name_hint in self.functions:
            # TVM would turn an exception raised here into a RuntimeError.
            self.misused_function_name = variable.name_hint
        return variable

    def _pack(self, function_name: str, function: PackedFunction, index: int, argument: Any) -> list[Any]:
        constant = self.lookup_binding(argument) if isinstance(argument, relax.Var) else argument
        if isinstance(constant, tvm.ir.GenericConst):
            return [relax.const(array) for array in function.pack(index, constant.value)]
        self.packed_every_call.append(function_name)
        workload_argument = function.arguments[index]
        pack = function.program[PACK + workload_argument.name].without_attr("global_symbol")
        variable = self.builder_.add_func(
            pack.with_attr(SCHEDULED_ATTRIBUTES), f"{function_name}_{PACK}{workload_argument.name}"
        )
        if tuple(argument.ty.shape) != workload_argument.shape:
            argument = self.builder_.emit(relax.op.reshape(argument, workload_argument.shape))
        packed = packed_arguments(function.program)[workload_argument.name]
        types = [relax.TensorType(weights.shape, weights.dtype) for weights in packed]
        call = self.builder_.emit(relax.call_tir(variable, [argument], types if len(types) > 1 else types[0]))
        if len(types) == 1:
            return [call]
        return [self.builder_.emit(relax.TupleGetItem(call, position)) for position in range(len(types))]
