"""The tasks of a model: its distinct functions, how often each is called, and which workload each computes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, first_line
from ..options import checks_arguments
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
