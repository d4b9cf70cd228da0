"""Every registered policy, with options that make it quick and a space that it supports."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from searchlab.conformance import toys
from searchlab.costmodel import BoundCostModel
from searchlab.costmodel.features import KnobFeatures
from searchlab.policy import POLICIES, Policy
from searchlab.space import Space
from searchlab.target import Target
from searchlab.workload import parse_workload
from searchlab_costmodels.xgboost import XGBoost
from searchlab_spaces.parameters import Parameters
from searchlab_spaces.sketch import Sketch

OPTIONS: dict[str, dict[str, Any]] = {
    # Small populations and short anneals, because these tests do not depend on the quality of proposals.
    "autotvm-xgb": {"plan_size": 8, "chains": 16, "steps": 10},
    "autotvm-xgb-rank": {"plan_size": 8, "chains": 16, "steps": 10},
    "autotvm-ga": {"population": 16},
    "xgb": {"chains": 16, "steps": 10},
    "pretrained": {"chains": 16, "steps": 10},
    "evolutionary-model": {"population": 32},
    "ansor": {"population": 24, "n_startup": 24},
    "pruner": {"population": 12, "drafted": 4, "draft_generations": 1, "n_startup": 24},
    "metaschedule": {"population": 12, "generations": 1, "n_startup": 24},
    "baco": {"points": 32, "searches": 1, "memory": 32},
    "lfbo": {"n_startup": 24, "neighbours": 50},
    "lfbo-tree": {"n_startup": 24, "neighbours": 30, "selected": 0.5},
    "gp-prior": {"points": 50, "neighbours": 20, "memory": 32},
    "gp-2": {"neighbours": 20, "memory": 32, "entrants": 2},
    "rgpe": {"points": 50, "neighbours": 20, "memory": 32, "samples": 32},
    "gp": {"memory": 32, "candidates": 16, "local_searches": 2},
    "llm": {"model": "stub"},
    "llm-seeded": {"model": "stub", "then": "evolutionary"},
    "smac": {"n_startup": 16, "memory": 32, "challengers": 32, "searches": 1, "plateau": 1, "trees": 4},
}
CPU = Target({"kind": "llvm", "num-cores": 2})


def make_restricted() -> Space:
    """A million configs of numbers, words and tiles, of which restrictions exclude most."""
    parameters: dict[str, Any] = {f"x{i}": [2**k for k in range(10)] for i in range(5)}
    parameters |= {"word": ["a", "b", "c"], "tile": [(1, 4), (2, 2), (4, 1)], "one": [7]}
    restrictions = ["x0 * x1 <= 64", "x2 % x3 == 0", "tile[0] <= x4 or word == 'a'"]
    return Parameters(parse_workload("python:m:f"), CPU, parameters=parameters, restrictions=restrictions)


SPACES: dict[str, Callable[[], Space]] = {
    "small": toys.Small,
    "large": toys.Large,
    "dependent": toys.Dependent,
    "restricted": make_restricted,
}
SKETCHES: dict[str, Callable[[], Space]] = {
    "small": lambda: Sketch(parse_workload("gemm:1x2x2"), CPU),
    "large": lambda: Sketch(parse_workload("gemm:64x64x64"), CPU),
    "dependent": lambda: Sketch(parse_workload("gemm:1x2x1"), CPU),
}
IN_SKETCH = ("metaschedule",)
"""Policies that refuse toys: for traces of TVM's samples alone."""

IN_PROGRAMS = (*IN_SKETCH, "pruner")
"""Policies that refuse spaces without programs."""

SAME = ("autotvm-random", "autotvm-grid", "autotvm-xgb-rank", "pretrained")

REQUIRED = {"gp": ("torch", "PyTorch"), "smac": ("smac", "SMAC3")}
"""The module that a policy requires, and its name, if an extra installs it."""

LEARN_NOTHING = ("random", "grid", "qmc", "autotvm-random", "autotvm-grid")
"""Policies that ignore results."""


def policy_params() -> list[Any]:
    """Return the names of all policies as parameters of a test."""
    return [pytest.param(name, marks=_skipped(name)) for name in POLICIES.entry_points_by_name()]


def _skipped(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name not in REQUIRED:
        return ()
    module, title = REQUIRED[name]
    return (pytest.mark.skipif(find_spec(module) is None, reason=f"{title} is not installed"),)


def strategies() -> list[Any]:
    """:func:`names`, once for policies that are the same code under another name, or with another cost model."""
    return [name for name in policy_params() if name.values[0] not in SAME]


def space_for(name: str, where: str) -> Space:
    """Return the toy space ``where``, or a real space for a policy that refuses toys."""
    return (SKETCHES if name in IN_SKETCH else SPACES)[where]()


def start(name: str, where: str, seed: int = 0) -> Policy:
    space = space_for(name, where)
    cls = POLICIES.load(name)
    options = dict(OPTIONS.get(name, {}))
    if cls.traits.takes_cost_model:
        options["cost_model"] = BoundCostModel(XGBoost(seed=seed, rounds=20), KnobFeatures(space))
    policy: Policy = cls(space, seed=seed, **options)
    return policy
