"""Insertion of tuned programs into a model, where they replace functions that perform the same computation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, warn
from ..log.read import make_no_logs_error, read_logs_in
from ..log.result import Best, Result, load_log
from ..options import checks_arguments
from ..target import Target, resolve_target
from ..workload import Gemm, Workload, packed_arguments
from .best import use_threads_of

if TYPE_CHECKING:
    import tvm

    from .matching import FlatFunction
    from .packed import Replacement

LogSource = str | Path | Result
Logs = LogSource | Sequence[LogSource]


@checks_arguments
def apply_history_best(
    mod: tvm.IRModule, logs: Logs, target: str | Mapping[str, Any] | Target | None = None
) -> tvm.IRModule:
    """Replace a module's TIR functions with the best programs from one or more logs.

    A function is replaced if it performs the same computation as a log's workload, regardless of names, argument order,
    index type and axes of extent 1 (see :mod:`~searchlab.apply.matching`). The new function has the same name,
    arguments and attributes. It is also marked as scheduled (``tirx.is_scheduled``) and excluded from fusion
    (``op_pattern``), so later passes do not change it. Functions that are already scheduled are not replaced. TVM then
    runs programs in this process with as many threads as the trials used; see :func:`~searchlab.apply.best.apply_best`.

    If a program uses packed weights, its function has a new name, such as ``conv2d_packed``, and calls to it are
    updated. Weights that are constants in the module are packed once, here; others are packed whenever the model runs.

    Args:
        mod: A Relax module, after ``relax.transform.LegalizeOps``.
        logs: A log, a result, a directory of logs, or several of these. The fastest trial of each workload is used.
            Logs without a successful trial and logs imported for analysis are ignored.
        target: The target to build for, in any form that :func:`~searchlab.target.resolve_target` accepts. Logs for
            other targets are ignored. The default is the logs' target if they all have the same one.

    Returns:
        A new module.

    Raises:
        SearchlabError: If a log cannot be read, or if no log can be used.

    Warns:
        SearchlabWarning: If a program uses packed weights that are not constants in the module, or if no function
            computes a log's workload.

    Example:
        >>> import searchlab
        >>> from tvm import relax
        >>> from tvm.relax.frontend import nn
        >>> class Layer(nn.Module):
        ...     def __init__(self):
        ...         self.weight = nn.Parameter((32, 32), "float32")
        ...     def forward(self, x):
        ...         return nn.op.matmul(x, self.weight)
        >>> mod, _ = Layer().export_tvm({"forward": {"x": nn.spec.Tensor((32, 32), "float32")}})
        >>> mod = relax.transform.LegalizeOps()(mod)
        >>> mod = searchlab.apply_history_best(mod, "gemm.jsonl")
        >>> mod["matmul"].attrs["tirx.is_scheduled"]
        True
    """
    from tvm.tirx import PrimFunc

    from .matching import FlatFunction
    from .packed import replace_functions

    functions = {
        variable.name_hint: FlatFunction(function)
        for variable, function in mod.functions.items()
        if isinstance(function, PrimFunc) and not function.attrs.get("tirx.is_scheduled", False)
    }
    best_by_workload = _select_best(_load_results(logs), None if target is None else resolve_target(target))
    replacements: dict[str, Replacement] = {}
    unmatched_workloads: list[Workload] = []
    for workload, best in best_by_workload.items():
        if orders := _match_functions(functions, workload):
            replacements |= _make_replacements(functions, orders, best)
        else:
            unmatched_workloads.append(workload)
    if unmatched_workloads:
        warn(_describe_unmatched(unmatched_workloads, functions))
    new_module, packed_every_call = replace_functions(mod, replacements)
    if packed_every_call:
        warn(
            f"the programs for {', '.join(packed_every_call)} take packed weights, but the weights are not constants "
            f"in the module, so they are packed in every run; make them constants with --bind FILE.npz (in Python, "
            f"relax.transform.BindParams), or use logs of a space without weights='packed'"
        )
    if replacements:
        use_threads_of(next(iter(best_by_workload.values())).result.space.target)
    return new_module


def _match_functions(functions: Mapping[str, FlatFunction], workload: Workload) -> dict[str, tuple[int, ...]]:
    """Return the functions that compute ``workload``, with the order of their arguments."""
    from .matching import FlatFunction, match_arguments

    reference = FlatFunction(workload.prim_func())
    orders = {name: match_arguments(function, reference) for name, function in functions.items()}
    return {name: order for name, order in orders.items() if order is not None}


def _make_replacements(
    functions: Mapping[str, FlatFunction], orders: Mapping[str, tuple[int, ...]], best: Best
) -> dict[str, Replacement]:
    """Return the program of ``best`` in place of each function in ``orders``, by name."""
    from .matching import substitute_function
    from .packed import Replacement

    program, arguments = best.schedule().mod, best.result.workload.arguments
    packed = packed_arguments(program)
    packed_counts = {
        index: len(packed[argument.name]) for index, argument in enumerate(arguments) if argument.name in packed
    }
    return {
        name: Replacement(
            program,
            substitute_function(functions[name].func, program["main"], order, packed_counts),
            {order[index]: arguments[index] for index in packed_counts},
            best.result.space.target,
        )
        for name, order in orders.items()
    }


def _load_results(logs: Logs) -> list[Result]:
    log_sources: Sequence[LogSource] = [logs] if isinstance(logs, str | Path | Result) else logs
    results: list[Result] = []
    for log_source in log_sources:
        results += [log_source] if isinstance(log_source, Result) else read_logs_in([Path(log_source)], load_log)
    if not results:
        raise make_no_logs_error([])
    return results


def _select_best(results: list[Result], target: Target | None) -> dict[Workload, Best]:
    """Return each workload's fastest trial for ``target``."""
    usable_results = [
        result for result in results if ":" not in result.log.header.fingerprint and result.log.has_success
    ]
    if not usable_results:
        paths = ", ".join(str(result.log.path) for result in results[:4]) + (", ..." if len(results) > 4 else "")
        raise SearchlabError(
            f"no log has a successful trial in a searchlab space: {paths}; tune first, or pass different logs"
        )
    targets_by_name = {_name_target_of(result): result.log.header.target for result in usable_results}
    target_names = "; ".join(sorted(targets_by_name))
    if target is None:
        if len(targets_by_name) > 1:
            raise SearchlabError(
                f"the logs are for {len(targets_by_name)} targets: {target_names}; choose one of them with target="
            )
        target = resolve_target(*targets_by_name.values())
    best_by_workload: dict[Workload, Best] = {}
    for result in usable_results:
        if _name_target_of(result) != _name_target(target):
            continue
        workload = result.workload
        if workload not in best_by_workload or result.best.seconds < best_by_workload[workload].seconds:
            best_by_workload[workload] = result.best
    if not best_by_workload:
        raise SearchlabError(
            f"none of the logs is for the target {target}; they are for {target_names}; pass different logs or a "
            "different target"
        )
    return best_by_workload


def _name_target_of(result: Result) -> str:
    return _name_target(resolve_target(result.log.header.target))


def _name_target(target: Target) -> str:
    """Return a target as canonical JSON, without its cache sizes, which do not affect the programs that it can run."""
    return json.dumps({name: value for name, value in target.spec.items() if name != "caches"}, sort_keys=True)


def _describe_unmatched(workloads: Sequence[Workload], functions: Mapping[str, FlatFunction]) -> str:
    signatures = [f"{name}({_describe_arguments(function)})" for name, function in functions.items()]
    signatures_text = ", ".join(signatures[:8]) + (f" and {len(signatures) - 8} more" if len(signatures) > 8 else "")
    message = (
        f"no function in the module computes {', '.join(map(str, workloads))}, so the recorded program is not used; "
        f"unscheduled functions in the module: {signatures_text or 'none; relax.transform.LegalizeOps creates them'}"
    )
    for workload in workloads:
        if isinstance(workload, Gemm):
            transposed_workload = replace(workload, nt=not workload.nt)  # B is stored in the other order
            if matches := _match_functions(functions, transposed_workload):
                message += f"; {', '.join(matches)} stores B in the other order: tune {transposed_workload} instead"
    return message


def _describe_arguments(function: FlatFunction) -> str:
    if function.arguments is None:
        return "of unknown shape"
    types = [parameter.ty for parameter in function.func.params]
    return ", ".join(f"{argument.dtype}{[int(extent) for extent in argument.shape]}" for argument in types)
