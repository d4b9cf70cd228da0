"""The kit over every registered policy, space, cost model and workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from searchlab.conformance import (
    cost_model_checks,
    policy_checks,
    run_checks,
    space_checks,
    workload_checks,
)
from searchlab.conformance.check import Check, Subject, run_in_two_processes
from searchlab.costmodel import COST_MODELS
from searchlab.errors import UnsupportedSpace, UnsupportedWorkload
from searchlab.space import SPACES
from searchlab.target import resolve_target
from searchlab.workload import WORKLOADS, parse_workload
from tests.support.policies import IN_SKETCH, OPTIONS, strategies

pytestmark = pytest.mark.usefixtures("language_model")  # which "llm" asks

NOT_FOR_ALL = {"bounded-time", "state-is-what-was-told"}
"""Checks that may have nothing to say."""


IN_TWO_PROCESSES = {"every-process", "fingerprint", "one-function"}
"""Checks that start a process, which takes longer than what they do there: one test makes them of all plug-ins."""

SPACES_WITH_PROGRAMS = [name for name in SPACES.entry_points_by_name() if SPACES.load(name).has_programs]


def assert_checks_pass(checks: list[Check], everywhere: bool = True) -> None:
    outcomes = list(run_checks(check for check in checks if check.name not in IN_TWO_PROCESSES))
    failed = "\n\n".join(
        f"{outcome.name}\n{outcome.text}" for outcome in outcomes if outcome.status in ("FAIL", "not run")
    )
    assert not failed, failed
    assert not everywhere or {outcome.name for outcome in outcomes if outcome.status == "n/a"} <= NOT_FOR_ALL


def checks_of_policy(name: str) -> list[Check]:
    where: dict[str, Any] = {"space": "sketch", "workload": "gemm:64x64x64"} if name in IN_SKETCH else {}
    cost_model = {"name": "xgboost", "options": {"rounds": 20}}
    policy = {"name": name, "options": OPTIONS.get(name, {})}
    return policy_checks(policy, cost_model=cost_model, features="knob", **where)


@pytest.mark.parametrize("name", strategies())
def test_policy_passes_its_checks(name: str) -> None:
    assert_checks_pass(checks_of_policy(name))


@pytest.mark.parametrize("name", IN_SKETCH)
def test_a_policy_that_refuses_toys_says_so(name: str) -> None:
    (check, *_) = [check for check in policy_checks(name) if check.name == "starts"]
    with pytest.raises(Exception, match="--space sketch --workload gemm:64x64x64") as refused:
        check()
    assert isinstance(refused.value.__cause__, UnsupportedSpace)


@pytest.mark.parametrize("name", SPACES_WITH_PROGRAMS)
def test_space_passes_its_checks(name: str) -> None:
    assert_checks_pass(space_checks(name))


@pytest.mark.parametrize(
    ("space", "options", "workload"),
    [
        ("guided-conv2d", {}, "conv2d:1x9x9x8x8x3x3:p1:g8"),
        ("guided-conv2d", {"winograd": True}, "conv2d:1x9x9x16x8x3x3:p1"),
        ("guided-conv2d", {"weights": "packed"}, "conv2d:1x9x9x16x8x3x3:p1"),
        ("guided-gemm", {"weights": "packed"}, "gemm:16x16x16"),
    ],
)
def test_programs_without_a_trace_need_not_replay(space: str, options: dict[str, Any], workload: str) -> None:
    assert_checks_pass(space_checks({"name": space, "options": options}, workload=workload), everywhere=False)


@pytest.mark.parametrize("name", COST_MODELS.entry_points_by_name())
def test_cost_model_passes_its_checks(name: str) -> None:
    assert_checks_pass(cost_model_checks(name))


WORKLOADS_OF = {
    "gemm": "gemm:8x7x6:float16:bias:relu",
    "conv2d": "conv2d:1x6x5x8x4x3x3:s2x1:p1:g4",
    "batch-matmul": "batch-matmul:2x5x6x7:int8",
    "fused-gemm": "fused-gemm:4x16x7:nt:tests/support/functions.py:squared",
    "fused-conv2d": "fused-conv2d:1x3x6x4x2x3x3:p1:tests/support/functions.py:doubled",
    "fused-batch-matmul": "fused-batch-matmul:3x4x8x7:nt:tests/support/functions.py:masked",
    "softmax": "softmax:5x40",
    "kernel": "kernel:convolution@A4000",
    "tir": "tir:tests/support/functions.py:scaled",
    "python": "python:tests.support.plain:cost",
}
"""A small workload of each kind."""

WITHOUT_PROGRAM = ("kernel", "python")
IN_FILES = ("tir", "fused-gemm", "fused-conv2d", "fused-batch-matmul")


@pytest.mark.parametrize("kind", WORKLOADS.entry_points_by_name())
def test_workload_passes_its_checks(kind: str) -> None:
    assert_checks_pass(workload_checks(WORKLOADS_OF[kind]), everywhere=kind not in (*WITHOUT_PROGRAM, *IN_FILES))


def results(subjects: Sequence[Subject]) -> dict[str, Any]:
    return {f"{type(subject).__name__} {subject.plugin.name}": subject.compute_results() for subject in subjects}


def test_every_plugin_gives_the_same_results_in_every_process() -> None:
    policies = [param.values[0] for param in strategies() if not any(mark.args[0] for mark in param.marks)]
    checks = [
        *map(checks_of_policy, policies),
        *map(space_checks, SPACES_WITH_PROGRAMS),
        *map(cost_model_checks, COST_MODELS.entry_points_by_name()),
        *(workload_checks(WORKLOADS_OF[kind]) for kind in WORKLOADS_OF if kind not in WITHOUT_PROGRAM),
    ]
    first, second = run_in_two_processes(results, [checks_of_subject[0].subject for checks_of_subject in checks])
    assert first == second


def test_a_space_is_checked_where_it_has_programs() -> None:
    check, *_ = space_checks("guided-conv2d")
    with pytest.raises(UnsupportedWorkload):
        check.subject.plugin_class(parse_workload("gemm:64x64x64"), resolve_target("native"))
    (programs,) = [check for check in space_checks("guided-conv2d") if check.name == "schedules"]
    programs()
