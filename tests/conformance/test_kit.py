"""The kit itself: each broken plug-in fails the check that is meant for it, and no other; sound ones pass them all."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from searchlab import conformance
from searchlab.conformance import costmodels as costmodel_rules
from searchlab.conformance import policies as policy_rules
from searchlab.conformance import run_checks, toys
from searchlab.conformance import spaces as space_rules
from searchlab.conformance import workloads as workload_rules
from searchlab.conformance.check import Check, Rule, find_innermost_line
from searchlab.conformance.pytest import PolicyTests
from searchlab.space import Space
from tests.conformance.broken import costmodels, policies, spaces, workloads
from tests.support.stopping import Stops

KINDS: dict[str, tuple[Any, tuple[Rule, ...], dict[str, list[Any]]]] = {
    "policy": (conformance.policy_checks, policy_rules.RULES, policies.BROKEN),
    "space": (conformance.space_checks, space_rules.RULES, spaces.BROKEN),
    "costmodel": (conformance.cost_model_checks, costmodel_rules.RULES, costmodels.BROKEN),
    "workload": (lambda cls: conformance.workload_checks(cls(16)), workload_rules.RULES, workloads.BROKEN),
}
SLOW = {"every-process", "fingerprint", "one-function", "right-answer"}
"""Checks that start processes: here only of the plug-ins that are broken so, and of one sound one a kind."""

BROKEN = [
    pytest.param(kind, name, cls, id=f"{kind}-{name}-{cls.__name__}")
    for kind, (_, _, broken) in KINDS.items()
    for name, classes in broken.items()
    for cls in classes
]


def checks_of(kind: str, cls: type[Any], seconds: float = 60.0) -> list[Check]:
    checks: list[Check] = KINDS[kind][0](cls)
    subject: Any = checks[0].subject
    limited = replace(subject, time_limit=seconds)
    return [replace(check, subject=limited) for check in checks]


@pytest.mark.parametrize("kind", KINDS)
def test_every_check_has_a_plugin_that_breaks_it(kind: str) -> None:
    _, rules, broken = KINDS[kind]
    names = [rule.name for rule in rules]
    assert set(broken) == set(names) and len(set(names)) == len(names)
    for rule in rules:
        assert rule.expected_behaviour and rule.fix
        assert set(rule.prerequisites) <= set(names[: names.index(rule.name)]), (
            "what a check needs is checked before it"
        )


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # of a cost model that divides by 0
@pytest.mark.parametrize(("kind", "name", "cls"), BROKEN)
def test_a_broken_plugin_fails_the_check_meant_for_it(kind: str, name: str, cls: type[Any]) -> None:
    rule = next(rule for rule in KINDS[kind][1] if rule.name == name)
    checks = [
        check
        for check in checks_of(kind, cls, 2.0 if cls is policies.NeverEnds else 60.0)
        if check.name == name or check.name not in SLOW
    ]
    failed = {outcome.name: outcome.text for outcome in run_checks(checks) if outcome.status == "FAIL"}
    assert list(failed) == [name], failed
    expected, happened, fix = failed[name].splitlines()
    assert expected == f"expected: {rule.expected_behaviour}"
    assert happened.startswith("happened: ") and len(happened) > 20
    assert fix.startswith("likely fix: ") and len(fix) > 20


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("policy", policies.Sound),
        ("policy", Stops),
        ("space", spaces.Sound),
        ("space", toys.Dependent),
        ("costmodel", costmodels.Sound),
        ("workload", workloads.Sound),
    ],
)
def test_a_sound_plugin_passes(kind: str, cls: type[Any]) -> None:
    outcomes = list(run_checks(checks_of(kind, cls)))
    assert {outcome.status for outcome in outcomes} == {"pass"}, outcomes


def test_the_line_of_the_plugin_is_named() -> None:
    (failure,) = [o.text for o in run_checks(checks_of("policy", policies.NeedsSuccess)) if o.status == "FAIL"]
    line = policies.NeedsSuccess.tell.__code__.co_firstlineno + 2
    assert f"IndexError: tuple index out of range, raised at {policies.__file__}:{line}\n" in failure


def test_outside_plugins_the_innermost_line_is_named() -> None:
    try:
        "".join([1])  # type: ignore[list-item]
    except TypeError as error:
        assert find_innermost_line(error, int).startswith(f"{__file__}:")


def test_checks_that_require_a_failed_check_are_not_run() -> None:
    outcomes = {outcome.name: outcome for outcome in run_checks(checks_of("policy", policies.Unseeded))}
    assert outcomes["clock"].status == "not run" and "'same-seed'" in outcomes["clock"].text
    assert outcomes["exhausts"].status == "pass"


@pytest.mark.parametrize("kind", KINDS)
def test_the_methods_that_an_advice_names_exist(kind: str) -> None:
    for rule in KINDS[kind][1]:
        for name in re.findall(r"\bspace\.(\w+)", rule.fix):
            assert hasattr(Space, name), rule.fix


def test_the_tests_of_a_plugin_share_its_runs() -> None:
    class SoundTests(PolicyTests):
        plugin = policies.Sound

    SoundTests().test_contract("signature")
    checks = SoundTests._checks_by_name
    SoundTests().test_contract("starts")
    assert SoundTests._checks_by_name is checks
