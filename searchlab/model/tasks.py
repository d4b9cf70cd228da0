"""The tasks of a model: its distinct functions, how often each is called, and which workload each computes."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, describe, did_you_mean, first_line, needs_extra
from ..files import open_file
from ..foreign_code import convert_foreign_errors, find_raise_location
from ..options import checks_arguments
from ..plugins import execute_file, load_attribute
from ..space import SPACES
from ..target import Target
from ..workload import Workload, find_operation_count, from_primfunc
from .inputs import count_elements
from .recognise import recognise
from .scheduler import ScheduledTask
from .vector_math import with_vector_math

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Task:
    """A distinct computation of a model.

    Attributes:
        functions: The names of the functions in the lowered module that perform the computation.
        occurs: How often the model's Relax functions call these functions.
        workload: The corresponding workload, or None if the task cannot be tuned.
        flops: The number of floating-point operations per execution; 0 if unknown. Those of a product are its
            multiplications and additions, as in reports. Those of other functions are counted by TVM; exp, tanh, erf
            and sigmoid are one operation each.
        reason: Why the task cannot be tuned; empty if it can.
    """

    functions: tuple[str, ...]
    occurs: int
    workload: Workload | None
    flops: int = 0
    reason: str = ""

    @property
    def name(self) -> str:
        """The workload's spelling, or the name of the first function."""
        return self.functions[0] if self.workload is None else str(self.workload)

    def spaces(self, target: Target) -> list[str]:
        """Return the registered spaces that contain programs for the task on ``target``."""
        return [name for name, reason in self.refusals(target).items() if not reason]

    def refusals(self, target: Target) -> dict[str, str]:
        """Return why each registered space has no programs for the task on ``target``; empty for those that have."""
        return {} if self.workload is None else SPACES.refusals(self.workload, target)

    def to_scheduled_task(self) -> ScheduledTask:
        """Return the task as schedulers see it."""
        op = "" if self.workload is None else self.workload.op
        return ScheduledTask(self.name, (float(self.occurs),), self.flops, "" if op == "tir" else op)


def lower(mod: tvm.IRModule) -> tvm.IRModule:
    """Lower a Relax module to one that calls fused TIR functions, which can be tuned, instead of operators.

    The passes are those that TVM applies before scheduling when it compiles a model for a CPU, one that fuses the
    transposition of a weight, as in ``nn.Linear``, with the product, and :func:`~.vector_math.with_vector_math`. A
    module to which they were already applied is not changed, so tuned programs that it contains are preserved.
    """
    import tvm
    from tvm import relax

    passes = [
        relax.transform.FoldConstant(),  # constant weights are transposed here
        relax.transform.FuseTransposeMatmul(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    if any(isinstance(function, relax.Function) for function in mod.functions.values()):
        passes.insert(0, relax.transform.DecomposeOpsForInference())
    try:
        return with_vector_math(tvm.ir.transform.Sequential(passes)(mod))
    except Exception as error:  # TVM may raise anything
        raise SearchlabError(f"TVM cannot lower the model: {first_line(error)}") from error


@checks_arguments
def tasks_of(mod: tvm.IRModule) -> list[Task]:
    """Return the tasks of a model: its distinct TIR functions after fusion, with the most work first.

    Functions that differ only in names are one task. Its workload is a ``gemm`` or ``conv2d`` if the function is
    equivalent to one, so that all spaces for these workloads support it, and a ``tir`` workload otherwise.

    Args:
        mod: A Relax module.

    Raises:
        SearchlabError: If TVM cannot lower the module.

    Example:
        >>> import searchlab
        >>> from tvm.relax.frontend import nn
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         self.weight = nn.Parameter((32, 32), "float32")
        ...     def forward(self, x):
        ...         for _ in range(2):
        ...             x = nn.op.relu(nn.op.matmul(x, self.weight))
        ...         return x
        >>> mod, _ = Net().export_tvm({"forward": {"x": nn.spec.Tensor((32, 32), "float32")}})
        >>> [(task.name, task.occurs) for task in searchlab.tasks_of(mod)]
        [('gemm:32x32x32:relu', 2)]
    """
    from tvm.tirx import PrimFunc
    from tvm_ffi import structural_hash

    module = lower(mod)
    call_counts = Counter(_list_called_functions(module))
    variables_by_hash: dict[int, list[Any]] = {}
    for variable, function in module.functions.items():
        if isinstance(function, PrimFunc) and call_counts[variable.name_hint]:
            variables_by_hash.setdefault(structural_hash(_strip_attributes(function)), []).append(variable)
    tasks: dict[str, Task] = {}
    for variables in variables_by_hash.values():
        function_names = tuple(sorted(variable.name_hint for variable in variables))
        task = _make_task(module[variables[0]], function_names, sum(call_counts[name] for name in function_names))
        if (earlier_task := tasks.get(task.name)) is not None:  # they differ in something that the workload omits
            function_names = (*earlier_task.functions, *function_names)
            task = replace(earlier_task, functions=function_names, occurs=earlier_task.occurs + task.occurs)
        tasks[task.name] = task
    return sorted(tasks.values(), key=lambda task: (-task.flops * task.occurs, task.name))


def _strip_attributes(function: Any) -> Any:
    """Return ``function`` without the attributes that depend on its place in a module."""
    for name in ("global_symbol", "op_pattern"):
        if function.attrs and name in function.attrs:
            function = function.without_attr(name)
    return function


def _list_called_functions(module: tvm.IRModule) -> list[str]:
    """Return the name of the TIR function in each ``call_tir`` in the module's Relax functions."""
    import tvm
    from tvm import relax

    function_names: list[str] = []

    def visit(node: Any) -> None:
        if (
            isinstance(node, relax.Call)
            and isinstance(node.op, tvm.ir.Op)
            and node.op.name.startswith("relax.call_tir")
        ):
            function_names.append(node.args[0].name_hint)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function.body, visit)
    return function_names


def _make_task(function: Any, function_names: tuple[str, ...], call_count: int) -> Task:
    if function.attrs and function.attrs.get("tirx.is_scheduled", False):
        return Task(function_names, call_count, None, 0, "it is already scheduled")
    flops = find_operation_count(function)
    if not flops and (not len(function.params) or count_elements(function.params[-1]) < MIN_ELEMENTS):
        return Task(function_names, call_count, None, 0, f"it only moves fewer than {MIN_ELEMENTS:,} numbers")
    try:
        if (product_workload := recognise(function, function_names[0])) is not None:
            return Task(function_names, call_count, product_workload, product_workload.flops)
        return Task(function_names, call_count, from_primfunc(function, function_names[0]), flops)
    except SearchlabError as error:
        return Task(function_names, call_count, None, flops, str(error))


MIN_ELEMENTS = 1 << 14
"""A function that only moves fewer numbers than this, such as a reshaped bias, is not worth a trial."""


# --- reading a model ---------------------------------------------------------------------------------


def load_model(reference: str) -> tvm.IRModule:
    """Return the Relax module that ``reference`` refers to.

    Args:
        reference: ``"module:function"`` or ``"file.py:function"``, where the function returns a Relax module; an ONNX
            file (``*.onnx``), which requires the extra ``onnx``; or an exported PyTorch program (``*.pt2``), which
            requires the extra ``torch``.

    Raises:
        SearchlabError: If there is no such model, or if it cannot be converted to Relax.
    """
    if reference.endswith((".onnx", ".pt2")):
        open_file(reference, kind="the model").close()  # it must exist, and be a regular file
        return _load_onnx(Path(reference)) if reference.endswith(".onnx") else _load_torch(Path(reference))
    module_name, _, function_name = reference.rpartition(":")
    if not module_name:
        raise SearchlabError(
            f"invalid model {reference!r}; use module:function or FILE.py:function (a function that returns a Relax "
            f"module), or the path of an *.onnx or *.pt2 file"
        )
    if module_name.endswith(".py"):
        module = execute_file(Path(module_name))
        if not hasattr(module, function_name):
            hint = did_you_mean(function_name, vars(module))
            raise SearchlabError(f"{module_name} defines no {function_name!r}{hint}")
        function = getattr(module, function_name)
    else:
        function = load_attribute(reference, f"model {reference!r}")
    return to_module(_call_model_function(function, reference), reference)


def to_module(value: Any, source: str) -> tvm.IRModule:
    """Return the Relax module that is ``value`` or its first item. Raises SearchlabError if there is none."""
    import tvm
    from tvm import relax

    module = value[0] if isinstance(value, tuple) and value else value  # as returned by nn.Module.export_tvm
    if not isinstance(module, tvm.IRModule):
        raise SearchlabError(f"{source} must return a Relax module (tvm.IRModule), not {type(value).__name__}")
    if not any(isinstance(function, relax.Function) for function in module.functions.values()):
        raise SearchlabError(f"the module that {source} returned contains no Relax function")
    return module


def _call_model_function(function: Any, reference: str) -> Any:
    if not callable(function):
        return function
    required_kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(
        parameter.default is parameter.empty and parameter.kind in required_kinds
        for parameter in inspect.signature(function).parameters.values()
    ):
        raise SearchlabError(f"{reference} must be callable without arguments")
    with convert_foreign_errors(
        lambda error: SearchlabError(f"{reference} failed: {describe(error)} at {find_raise_location(error)}")
    ):
        return function()


def _load_onnx(path: Path) -> tvm.IRModule:
    with needs_extra("reading an ONNX file", "onnx"):
        import onnx  # type: ignore[import-not-found,unused-ignore]
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(onnx.load(str(path)))
    except Exception as error:  # onnx and TVM may raise anything
        raise SearchlabError(f"TVM cannot convert {path} to Relax: {describe(error)}") from error


def _load_torch(path: Path) -> tvm.IRModule:
    with needs_extra("reading a PyTorch program", "torch"):
        import torch  # type: ignore[import-not-found,unused-ignore]
    from tvm.relax.frontend.torch import from_exported_program

    try:
        return from_exported_program(torch.export.load(str(path)))
    except Exception as error:  # PyTorch and TVM may raise anything
        raise SearchlabError(f"TVM cannot convert {path} to Relax: {describe(error)}") from error
