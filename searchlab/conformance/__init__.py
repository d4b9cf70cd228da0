"""The contracts as checks, for the author of a policy, space or cost model.

``searchlab check policy acme_policies:Bandit`` runs them on the command line, the classes of
:mod:`searchlab.conformance.pytest` in a test suite, and the functions here anywhere::

    for check in policy_checks("acme_policies:Bandit"):
        check()  # raises CheckFailed

A plug-in is given as a registered name, as ``"module:Class"``, as ``{"name": ..., "options": {...}}`` or as a class.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..policy import POLICIES
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from . import costmodels, policies, spaces, toys
from .check import Check, CheckFailed, NotApplicable, Outcome, run_checks, selected
from .subjects import CostModelSubject, PluginSpec, PolicySubject, SpaceSubject, first_taken, named

__all__ = [
    "Check",
    "CheckFailed",
    "NotApplicable",
    "Outcome",
    "cost_model_checks",
    "policy_checks",
    "run_checks",
    "selected",
    "space_checks",
]

TINY = ("gemm:2x2x1", "gemm:2x1x1", "gemm:1x1x1", "conv2d:1x2x2x2x1x1x1", "conv2d:1x1x1x1x1x1x1")
"""Workloads of which a space may be small enough to be exhausted."""

FEW = 300
"""Configs that count as few."""


def policy_checks(
    plugin: PluginSpec,
    *,
    space: PluginSpec | None = None,
    workload: str | Workload | None = None,
    target: str | Target = "native",
    cost_model: PluginSpec = "xgboost",
    features: str = "knob",
    seed: int = 0,
) -> list[Check]:
    """The checks of a policy, in order.

    space, workload, target: where it is checked, for a policy that works in certain spaces only; by default in toy
    spaces, with which nothing is scheduled, built or run. cost_model, features: what it is given, if it takes one.
    Raises SearchlabError where there is no such plug-in or option.
    """
    found, cls = named(POLICIES, plugin)
    POLICIES.check_options(found.name, cls, found.options)
    model, _ = named(COST_MODELS, cost_model)
    if space is None:
        where, small = _toy_spaces()
    else:
        resolved = resolve_target(target)
        given = first_taken(space, _workloads(workload), resolved, seed)
        where, small = {"large": given}, _small(space, given, resolved)
    subject = PolicySubject(found, cls, where, small, model, features, seed)
    return [Check(rule, subject) for rule in policies.RULES]


def space_checks(
    plugin: PluginSpec, *, workload: str | Workload | None = None, target: str | Target = "native", seed: int = 0
) -> list[Check]:
    """The checks of a space, in order, of one workload: by default the first of a handful that it has a program for.

    Raises SearchlabError where there is no such plug-in, option, workload or target.
    """
    subject = first_taken(plugin, _workloads(workload), resolve_target(target), seed)
    return [Check(rule, subject) for rule in spaces.RULES]


def cost_model_checks(plugin: PluginSpec, *, seed: int = 0) -> list[Check]:
    """The checks of a cost model, in order. Raises SearchlabError where there is no such plug-in or option."""
    subject = CostModelSubject.of(plugin, seed)
    return [Check(rule, subject) for rule in costmodels.RULES]


def _workloads(workload: str | Workload | None) -> Sequence[Workload]:
    return spaces.default_workloads() if workload is None else [parse_workload(workload)]


def _toy_spaces() -> tuple[dict[str, SpaceSubject], dict[str, SpaceSubject]]:
    kinds = (toys.Large, toys.Dependent, toys.Small, toys.One, toys.Bare)
    made = {kind: SpaceSubject.of(kind, toys.WORKLOAD, toys.TARGET) for kind in kinds}
    small = {kind.__name__.lower(): made[kind] for kind in kinds[1:]}
    return {"large": made[toys.Large], "dependent": made[toys.Dependent]}, small


def _small(space: PluginSpec, given: SpaceSubject, target: Target) -> dict[str, SpaceSubject]:
    """The space given if it has few configs, else that of the first tiny workload of which it has."""
    for subject in (given, *(SpaceSubject.of(space, parse_workload(text), target) for text in TINY)):
        try:
            if (size := subject.space.size(FEW)) is not None and size <= FEW:
                return {str(subject.workload): subject}
        except SearchlabError:
            continue
    return {}
