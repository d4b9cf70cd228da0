"""The best programs that a store holds for the functions of a module."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sized

from ..errors import SearchlabError, SearchlabWarning
from ..log.result import Best
from ..store import Store
from ..store.store import Held
from ..target import Target
from ..workload import Workload, parse_workload

STACK = 3
"""Warnings are of the line that calls :func:`~searchlab.apply.history.apply_history_best`."""


def stored_best(store: Store, target: Target, computing: Callable[[Workload], Sized]) -> dict[Workload, Best]:
    """The fastest program for ``target`` on this machine of each workload in ``store`` that is needed.

    computing: the functions of the module that compute a workload. A program whose space cannot be made here, or has
    changed since, does not count, but the next does. Warns (SearchlabWarning) of that, of a workload that was only
    measured elsewhere, and if no function computes any workload. Raises SearchlabError if the store holds nothing.
    """
    held: dict[Workload, list[Held]] = {}
    for one in store.find():
        workload = parse_workload(one.key.workload)
        if workload.op != "kernel":  # of another tuner: only times are known
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
            _warn(f"the fastest program of {workload} cannot be made again, and {instead} used: {failed}")
        elif workload not in best:
            _warn(f"{store.nothing(str(workload), own, target)}. None is used, as they are for another place")
    return best


def _warn(said: str) -> None:
    warnings.warn(said, SearchlabWarning, stacklevel=STACK + 1)
