"""Replacing functions of a model with programs, which may take packed arguments; constants are packed in advance.

TVM's own passes for packing are ``relax.transform.SplitLayoutRewritePreproc``, which splits a scheduled function, and
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
class Replacement:
    """A function of a model, and the program that replaces it.

    Attributes:
        program: The program's module, which includes the functions that pack arguments.
        main: The program's function ``main``. Its parameters that are not packed are those of the replaced function.
        arguments: A mapping from the index of each parameter of the replaced function that the program takes in packed
            form to the workload's argument.
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


def replace_functions(mod: tvm.IRModule, replacements: Mapping[str, Replacement]) -> tuple[tvm.IRModule, list[str]]:
    """Replace functions, by their names, with programs.

    If a program takes packed arguments, calls of the function are replaced. The program for ``conv2d`` then becomes the
    function ``conv2d_packed``, since its parameters have different shapes.

    Returns:
        The new module, and the names of the functions with packed arguments that are not constants, which are therefore
        packed in every call.

    Raises:
        SearchlabError: If a function whose program takes packed arguments is used other than by ``call_tir``.
    """
    module = mod.clone()
    for name, replacement in replacements.items():
        if not replacement.arguments:
            module.update_func(module.get_global_var(name), replacement.main)
    packed_replacements = {name: program for name, program in replacements.items() if program.arguments}
    if not packed_replacements:
        return module, []
    rewriter = _CallRewriter(module, packed_replacements)
    for variable, function in module.functions.items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    if rewriter.misused_function_name:
        raise SearchlabError(
            f"the function {rewriter.misused_function_name!r}, whose program takes packed weights, is used by "
            f"something other than call_tir; apply the logs right after relax.transform.LegalizeOps"
        )
    new_module = rewriter.builder_.get()
    for variable in module.functions:
        if variable.name_hint in rewriter.new_variables:
            del new_module[variable]
    return new_module, list(dict.fromkeys(rewriter.packed_every_call))


@mutator
class _CallRewriter(PyExprMutator):  # type: ignore[misc]
    """A mutator that replaces the calls of functions with calls of their ``replacements``."""

    def __init__(self, mod: tvm.IRModule, replacements: Mapping[str, Replacement]) -> None:
        super().__init__(mod)
        self.replacements = replacements
        self.new_variables: dict[str, Any] = {}  # those of the new functions, by the names of the replaced ones
        self.packed_every_call: list[str] = []
        self.misused_function_name = ""  # the name of a function that is not only called

    def visit_call_(self, call: Any) -> Any:
        if not call.op.same_as(Op.get("relax.call_tir")) or call.args[0].name_hint not in self.replacements:
            return super().visit_call_(call)
        function_name = call.args[0].name_hint
        replacement = self.replacements[function_name]
        arguments: list[Any] = []
        for index, argument in enumerate(self.visit_expr(call.args[1])):
            is_packed = index in replacement.arguments
            arguments += self._pack(function_name, replacement, index, argument) if is_packed else [argument]
        outputs = call.ty_args[0]
        types = list(outputs.fields) if isinstance(outputs, tvm.ir.TupleType) else outputs
        if function_name not in self.new_variables:
            self.new_variables[function_name] = self.builder_.add_func(replacement.main, f"{function_name}_packed")
        return relax.call_tir(self.new_variables[function_name], arguments, types)

    def visit_global_var_(self, variable: Any) -> Any:
        if variable.name_hint in self.replacements:
            # TVM would turn an exception raised here into a RuntimeError.
            self.misused_function_name = variable.name_hint
        return variable

    def _pack(self, function_name: str, replacement: Replacement, index: int, argument: Any) -> list[Any]:
        constant = self.lookup_binding(argument) if isinstance(argument, relax.Var) else argument
        if isinstance(constant, tvm.ir.GenericConst):
            return [relax.const(array) for array in replacement.pack(index, constant.value)]
        self.packed_every_call.append(function_name)
        workload_argument = replacement.arguments[index]
        pack = replacement.program[PACK + workload_argument.name].without_attr("global_symbol")
        variable = self.builder_.add_func(
            pack.with_attr(SCHEDULED_ATTRIBUTES), f"{function_name}_{PACK}{workload_argument.name}"
        )
        if tuple(argument.ty.shape) != workload_argument.shape:
            argument = self.builder_.emit(relax.op.reshape(argument, workload_argument.shape))
        packed = packed_arguments(replacement.program)[workload_argument.name]
        types = [relax.TensorType(weights.shape, weights.dtype) for weights in packed]
        call = self.builder_.emit(relax.call_tir(variable, [argument], types if len(types) > 1 else types[0]))
        if len(types) == 1:
            return [call]
        return [self.builder_.emit(relax.TupleGetItem(call, position)) for position in range(len(types))]
