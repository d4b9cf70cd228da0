"""Putting tuned programs into a model: they replace the functions of a module that compute the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SearchlabError, SearchlabWarning
from ..log.format import find_logs
from ..log.result import Best, Result, load_log
from ..store import Store
from ..store.store import Held, spelled_target
from ..target import Target, resolve_target
from ..workload import Gemm, Workload, parse_workload
from .best import use_threads_of

if TYPE_CHECKING:
    import tvm

    from .matching import Computation

OneLog = str | Path | Result
Logs = OneLog | Sequence[OneLog]


def apply_history_best(
    mod: tvm.IRModule, logs: Logs | Store, target: str | Mapping[str, Any] | Target | None = None
) -> tvm.IRModule:
    """Replace the TIR functions of a module with the best programs of some logs.

    A function is replaced if it is the same computation as the workload of a log, whatever its names, the order of its
    arguments, the type of its indices and its axes of extent 1 (see :mod:`~searchlab.apply.matching`). It keeps its
    name, arguments and attributes, and is marked as scheduled (``tirx.is_scheduled``) and as not to be fused
    (``op_pattern``), so that later passes leave it alone. Functions that are already scheduled are not replaced. From
    then on, TVM runs programs in this process with as many threads as the trials had: see
    :func:`~searchlab.apply.best.apply_best`.

    Args:
        mod: A Relax module, after ``relax.transform.LegalizeOps``.
        logs: A log, a result, a directory of logs, several of these, or a :class:`~searchlab.store.Store`. The fastest
            trial of each workload wins. Logs without a successful trial, and logs that were imported for analysis, are
            ignored. From a store, programs for ``target`` that were measured on this machine are used;
            ``store.results(target=..., machine=...)`` returns others.
        target: The target to build for, as :func:`~searchlab.target.resolve_target` accepts it; logs for other targets
            are ignored. By default that of the logs, if they all have the same, and ``"native"`` for a store.

    Returns:
        A new module.

    Raises:
        SearchlabError: If a log cannot be read, or if none can be used.

    Warns:
        SearchlabWarning: For each workload that no function computes, for each function for which a store has programs,
            but only for another target or machine, and if a store has nothing for the module.

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

    from .matching import Computation, in_place_of, order_of

    functions = {
        variable: Computation(function)
        for variable, function in mod.functions.items()
        if isinstance(function, PrimFunc) and not function.attrs.get("tirx.is_scheduled", False)
    }

    @cache
    def computing(workload: Workload) -> dict[Any, Any]:
        """Return the functions that compute ``workload``, with the order of their arguments."""
        reference = Computation(workload.prim_func())
        orders = {variable: order_of(function, reference) for variable, function in functions.items()}
        return {variable: order for variable, order in orders.items() if order is not None}

    if isinstance(logs, Store):
        best = _stored_best(logs, resolve_target("native" if target is None else target), computing)
    else:
        best = _best(_results(logs), None if target is None else resolve_target(target))
    replaced: dict[Any, Any] = {}
    missing: list[Workload] = []
    for workload, winner in best.items():
        if not (matched := computing(workload)):
            missing.append(workload)
            continue
        program = winner.schedule().mod["main"]
        for variable, order in matched.items():
            replaced[variable] = in_place_of(functions[variable].func, program, order)
    if missing:
        named = {variable.name_hint: function for variable, function in functions.items()}
        warnings.warn(_no_match(missing, named), SearchlabWarning, stacklevel=2)
    applied = mod.clone()
    for variable, function in replaced.items():
        applied.update_func(variable, function)
    if replaced:
        use_threads_of(next(iter(best.values())).result.space.target)
    return applied


def _results(logs: Logs) -> list[Result]:
    given: Sequence[OneLog] = [logs] if isinstance(logs, str | Path | Result) else logs
    results: list[Result] = []
    for one in given:
        results += [one] if isinstance(one, Result) else [load_log(path) for path in find_logs(Path(one))]
    if not results:
        raise SearchlabError(f"there is no log (*.jsonl) in {', '.join(map(str, given)) or 'an empty list of logs'}")
    return results


def _best(results: list[Result], target: Target | None) -> dict[Workload, Best]:
    """Return the fastest trial of each workload for ``target``."""
    usable = [one for one in results if ":" not in one.log.header.fingerprint and np.isfinite(one.log.costs).any()]
    if not usable:
        paths = ", ".join(str(one.log.path) for one in results[:4]) + (", ..." if len(results) > 4 else "")
        raise SearchlabError(
            f"no log has a successful trial in a space of searchlab: {paths}; tune first, or give other logs"
        )
    targets = {_target(one): one.log.header.target for one in usable}
    listed = "; ".join(sorted(targets))
    if target is None:
        if len(targets) > 1:
            raise SearchlabError(f"the logs are for {len(targets)} targets: {listed}; choose one of them with target=")
        target = resolve_target(*targets.values())
    best: dict[Workload, Best] = {}
    for one in usable:
        if _target(one) != spelled_target(target):
            continue
        workload = parse_workload(one.log.header.workload)
        if workload not in best or one.best.seconds < best[workload].seconds:
            best[workload] = one.best
    if not best:
        raise SearchlabError(
            f"no log is for the target {target}; the logs are for {listed}; give other logs, or another target"
        )
    return best


def _target(result: Result) -> str:
    return spelled_target(resolve_target(result.log.header.target))


def _stored_best(store: Store, target: Target, computing: Callable[[Workload], Sized]) -> dict[Workload, Best]:
    """Return the fastest program for ``target`` on this machine of each workload in ``store`` that the module computes.

    If the schedule of a program cannot be rebuilt, because its space is missing or has changed, the next one is used.
    Warns (SearchlabWarning) about that, about workloads that were measured only elsewhere, and if the module computes
    none of the workloads.

    Args:
        store: The store.
        target: The target.
        computing: Returns the functions of the module that compute a workload.

    Raises:
        SearchlabError: If the store holds nothing.
    """
    held: dict[Workload, list[Held]] = {}
    for one in store.find():
        workload = parse_workload(one.key.workload)
        if workload.op != "kernel":  # from another tuner, which recorded only times
            held.setdefault(workload, []).append(one)
    if not held:
        raise SearchlabError(f"the store {store.path} holds no program; add logs with searchlab store add")
    needed = {workload: own for workload, own in held.items() if computing(workload)}
    if not needed:
        _warn(f"no function of the module computes any of the {len(held)} workloads in the store {store.path}")
    best: dict[Workload, Best] = {}
    for workload, own in needed.items():
        failed = ""
        for result in store.fastest(own, target):
            try:
                result.best.schedule()
            except SearchlabError as error:
                failed = failed or str(error)
                continue
            best[workload] = result.best
            break
        if failed:
            instead = "the next one is" if workload in best else "none is"
            _warn(f"the fastest program of {workload} cannot be rebuilt, and {instead} used: {failed}")
        elif workload not in best:
            _warn(f"{store.nothing(str(workload), own, target)}. None of them is used")
    return best


def _warn(message: str) -> None:
    warnings.warn(message, SearchlabWarning, stacklevel=4)  # at the call of apply_history_best


def _no_match(missing: list[Workload], functions: dict[str, Computation]) -> str:
    names = [f"{name}({_signature(function)})" for name, function in functions.items()]
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    said = f"no function of the module computes {', '.join(map(str, missing))}, so its program is not used; "
    said += f"unscheduled functions of the module: {listed or 'none; relax.transform.LegalizeOps creates them'}"
    for workload in missing:
        if transposed := [name for name, one in functions.items() if _is_transposed(one, workload)]:
            said += (
                f"; {', '.join(transposed)} computes {workload} from B as [n, k], which is a different computation: "
                f"store the weights as [k, n]"
            )
    return said


def _signature(function: Computation) -> str:
    if function.arguments is None:
        return "of unknown shape"
    types = [parameter.ty for parameter in function.func.params]
    return ", ".join(f"{one.dtype}{[int(extent) for extent in one.shape]}" for one in types)


def _is_transposed(function: Computation, workload: Workload) -> bool:
    """Return whether ``function`` is the GEMM ``workload`` except that B is [n, k]."""
    from tvm.s_tir import Schedule

    from .matching import Computation, order_of

    if not isinstance(workload, Gemm):
        return False
    schedule = Schedule(workload.module)
    schedule.transform_layout(schedule.get_sblock(workload.op), ("read", 1), lambda k, n: (n, k))
    return order_of(function, Computation(schedule.mod["main"])) is not None
