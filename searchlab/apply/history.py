"""Insertion of tuned programs into a model, where they replace functions that perform the same computation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SearchlabError, warn
from ..log.read import make_no_logs_error, read_logs_in
from ..log.result import Best, Result, load_log
from ..options import checks_arguments
from ..target import Target, resolve_target
from ..workload import Gemm, Workload, packed_arguments
from .best import use_threads_of

if TYPE_CHECKING:
    import tvm
    from tvm.tirx import PrimFunc

    from .matching import FlatFunction
    from .packed import PackedFunction

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
    from .packed import with_packed_calls

    functions = {
        variable.name_hint: FlatFunction(function)
        for variable, function in mod.functions.items()
        if isinstance(function, PrimFunc) and not function.attrs.get("tirx.is_scheduled", False)
    }
    best = _select_best(_results(logs), None if target is None else resolve_target(target))
    replacements: dict[str, PrimFunc] = {}
    packed_functions: dict[str, PackedFunction] = {}
    unmatched: list[Workload] = []
    for workload, winner in best.items():
        if matches := _match_functions(functions, workload):
            _replace_functions(matches, functions, winner, replacements, packed_functions)
        else:
            unmatched.append(workload)
    if unmatched:
        warn(_describe_unmatched(unmatched, functions))
    new_module = mod.clone()
    if packed_functions:
        new_module, packed_every_call = with_packed_calls(new_module, packed_functions)
        if packed_every_call:
            warn(
                f"the programs for {', '.join(packed_every_call)} take packed weights, but the weights are not "
                f"constants in the module, so they are packed in every run; make them constants with --bind "
                f"FILE.npz (in Python, relax.transform.BindParams), or use logs of a space without weights='packed'"
            )
    for name, function in replacements.items():
        new_module.update_func(new_module.get_global_var(name), function)
    if replacements or packed_functions:
        use_threads_of(next(iter(best.values())).result.space.target)
    return new_module


def _match_functions(functions: Mapping[str, FlatFunction], workload: Workload) -> dict[str, tuple[int, ...]]:
    """Return the functions that compute ``workload``, with the order of their arguments."""
    from .matching import FlatFunction, match_arguments

    reference = FlatFunction(workload.prim_func())
    orders = {name: match_arguments(function, reference) for name, function in functions.items()}
    return {name: order for name, order in orders.items() if order is not None}


def _replace_functions(
    matches: Mapping[str, tuple[int, ...]],
    functions: Mapping[str, FlatFunction],
    winner: Best,
    replacements: dict[str, PrimFunc],
    packed_functions: dict[str, PackedFunction],
) -> None:
    """Add the program of ``winner`` for each function in ``matches``, which computes its workload."""
    from .matching import substitute_function
    from .packed import PackedFunction

    program, workload = winner.schedule().mod, winner.result.workload
    packed = packed_arguments(program)
    counts = {
        index: len(packed[argument.name])
        for index, argument in enumerate(workload.arguments)
        if argument.name in packed
    }
    for name, order in matches.items():
        main = substitute_function(functions[name].func, program["main"], order, counts)
        if packed:
            arguments = {order[index]: workload.arguments[index] for index in counts}
            packed_functions[name] = PackedFunction(program, main, arguments, winner.result.space.target)
        else:
            replacements[name] = main


def _results(logs: Logs) -> list[Result]:
    items: Sequence[LogSource] = [logs] if isinstance(logs, str | Path | Result) else logs
    results: list[Result] = []
    for item in items:
        results += [item] if isinstance(item, Result) else read_logs_in([Path(item)], load_log)
    if not results:
        raise make_no_logs_error([])
    return results


def _select_best(results: list[Result], target: Target | None) -> dict[Workload, Best]:
    """Return each workload's fastest trial for ``target``."""
    usable = [
        result for result in results if ":" not in result.log.header.fingerprint and np.isfinite(result.log.costs).any()
    ]
    if not usable:
        paths = ", ".join(str(result.log.path) for result in results[:4]) + (", ..." if len(results) > 4 else "")
        raise SearchlabError(
            f"no log has a successful trial in a searchlab space: {paths}; tune first, or pass different logs"
        )
    targets = {_target_of(result): result.log.header.target for result in usable}
    names = "; ".join(sorted(targets))
    if target is None:
        if len(targets) > 1:
            raise SearchlabError(f"the logs are for {len(targets)} targets: {names}; choose one of them with target=")
        target = resolve_target(*targets.values())
    best: dict[Workload, Best] = {}
    for result in usable:
        if _target_of(result) != _target_name(target):
            continue
        workload = result.workload
        if workload not in best or result.best.seconds < best[workload].seconds:
            best[workload] = result.best
    if not best:
        raise SearchlabError(
            f"none of the logs is for the target {target}; they are for {names}; pass different logs or a different "
            "target"
        )
    return best


def _target_of(result: Result) -> str:
    return _target_name(resolve_target(result.log.header.target))


def _target_name(target: Target) -> str:
    """Return a target as canonical JSON, without its cache sizes, which do not affect the programs that it can run."""
    return json.dumps({name: value for name, value in target.spec.items() if name != "caches"}, sort_keys=True)


def _describe_unmatched(workloads: Sequence[Workload], functions: Mapping[str, FlatFunction]) -> str:
    names = [f"{name}({_describe_arguments(function)})" for name, function in functions.items()]
    names_text = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    message = (
        f"no function in the module computes {', '.join(map(str, workloads))}, so the recorded program is not used; "
        f"unscheduled functions in the module: {names_text or 'none; relax.transform.LegalizeOps creates them'}"
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
