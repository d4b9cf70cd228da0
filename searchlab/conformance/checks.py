"""Which checks a policy, a space or a cost model is put to, and where."""

from __future__ import annotations

from collections.abc import Sequence

from ..costmodel import COST_MODELS
from ..errors import SearchlabError
from ..plugins import PluginSpec
from ..policy import POLICIES
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from .check import Check
from .costmodels import RULES as COST_MODEL_RULES
from .policies import RULES as POLICY_RULES
from .spaces import RULES as SPACE_RULES
from .spaces import WORKLOADS
from .subjects import CostModelSubject, PolicySubject, SpaceSubject, first_taken, traits_of
from .toys import TARGET, WORKLOAD, Bare, Dependent, Large, One, Small

TINY = ("gemm:2x2x1", "gemm:2x1x1", "gemm:1x1x1", "conv2d:1x2x2x2x1x1x1", "conv2d:1x1x1x1x1x1x1")
"""Workloads for which a space may be small enough to be exhausted."""

FEW = 300
"""The most configs of a space that a policy must exhaust."""


def policy_checks(
    plugin: PluginSpec,
    *,
    space: PluginSpec | None = None,
    workload: str | Workload | None = None,
    target: str | Target = "native",
    cost_model: PluginSpec | None = None,
    features: str | None = None,
    seed: int = 0,
    time_limit: float = 120.0,
) -> list[Check]:
    """The checks of a policy, in order; each fails where it takes longer than ``time_limit`` seconds.

    space, workload, target: where to check a policy that works in certain spaces only. By default it is checked in toy
    spaces: nothing is scheduled, built or run. cost_model, features: given to a policy that takes a cost model; by
    default its own, else ``xgboost`` and ``knob``. Raises SearchlabError if there is no such plug-in or option.
    """
    named, cls = POLICIES.named(plugin)
    POLICIES.check_options(named.name, cls, named.options)
    model, features = traits_of(cls).model(cost_model, features)
    if space is None:
        spaces, small = _toy_spaces()
    else:
        resolved = resolve_target(target)
        given = first_taken(space, _workloads(workload), resolved, seed)
        spaces, small = {"large": given}, _small(space, given, resolved)
    subject = PolicySubject(named, cls, spaces, small, COST_MODELS.named(model)[0], features, seed, time_limit)
    return [Check(rule, subject) for rule in POLICY_RULES]


def space_checks(
    plugin: PluginSpec, *, workload: str | Workload | None = None, target: str | Target = "native", seed: int = 0
) -> list[Check]:
    """The checks of a space, in order, for one workload: by default the first of seven that the space takes.

    Raises SearchlabError if there is no such plug-in, option, workload or target.
    """
    subject = first_taken(plugin, _workloads(workload), resolve_target(target), seed)
    return [Check(rule, subject) for rule in SPACE_RULES]


def cost_model_checks(plugin: PluginSpec, *, seed: int = 0) -> list[Check]:
    """The checks of a cost model, in order. Raises SearchlabError if there is no such plug-in or option."""
    subject = CostModelSubject.of(plugin, seed)
    return [Check(rule, subject) for rule in COST_MODEL_RULES]


def _workloads(workload: str | Workload | None) -> Sequence[Workload]:
    return [parse_workload(text) for text in (WORKLOADS if workload is None else [workload])]


def _toy_spaces() -> tuple[dict[str, SpaceSubject], dict[str, SpaceSubject]]:
    """The toys that every policy is checked in, and those that it must exhaust."""
    kinds = (Large, Dependent, Small, One, Bare)
    toys = {kind.__name__.lower(): SpaceSubject.of(kind, WORKLOAD, TARGET) for kind in kinds}
    return {name: toys[name] for name in ("large", "dependent")}, {n: toy for n, toy in toys.items() if n != "large"}


def _small(space: PluginSpec, given: SpaceSubject, target: Target) -> dict[str, SpaceSubject]:
    """The given space if it has few configs; else the space for the first tiny workload for which it has few."""
    for subject in (given, *(SpaceSubject.of(space, parse_workload(text), target) for text in TINY)):
        try:
            if (size := subject.space.size(FEW)) is not None and size <= FEW:
                return {str(subject.workload): subject}
        except SearchlabError:
            continue
    return {}
