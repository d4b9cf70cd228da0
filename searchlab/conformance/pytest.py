"""The checks as pytest classes.

Derive a plug-in's tests from one of these classes::

    from searchlab.conformance.pytest import PolicyTests

    class TestBandit(PolicyTests):
        plugin = "acme_policies:Bandit"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from ..plugins import PluginSpec
from . import costmodels, policies, spaces, workloads
from .check import Check, NotApplicable, Rule


class _Tests:
    plugin: ClassVar[PluginSpec]
    """A registered name, ``"module:Class"``, ``{"name": ..., "options": {...}}``, or a class."""

    seed: ClassVar[int] = 0

    _rules: ClassVar[tuple[Rule, ...]] = ()
    _make_checks: ClassVar[Callable[..., list[Check]]]
    _argument_names: ClassVar[tuple[str, ...]] = ()  # the names of the class variables that are passed to _make_checks
    _checks_by_name: ClassVar[dict[str, Check]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if metafunc.function.__name__ == "test_contract":  # a plug-in may add its own tests
            metafunc.parametrize("name", [rule.name for rule in self._rules])

    def test_contract(self, name: str) -> None:
        cls = type(self)
        if "_checks_by_name" not in vars(cls):  # once per class, because the checks share the plug-in's runs
            arguments = {argument: getattr(cls, argument) for argument in cls._argument_names}
            cls._checks_by_name = {
                check.name: check for check in cls._make_checks(cls.plugin, seed=cls.seed, **arguments)
            }
        try:
            cls._checks_by_name[name]()
        except NotApplicable as reason:
            pytest.skip(str(reason))


class PolicyTests(_Tests):
    """A base class for a policy's tests. Class variables are passed to :func:`~searchlab.conformance.policy_checks`."""

    space: ClassVar[PluginSpec | None] = None
    workload: ClassVar[str | None] = None
    target: ClassVar[str] = "native"
    cost_model: ClassVar[PluginSpec | None] = None
    features: ClassVar[str | None] = None

    _rules, _make_checks = policies.RULES, staticmethod(policies.policy_checks)
    _argument_names = ("space", "workload", "target", "cost_model", "features")


class SpaceTests(_Tests):
    """A base class for a space's tests. Class variables are passed to :func:`~searchlab.conformance.space_checks`."""

    workload: ClassVar[str | None] = None
    target: ClassVar[str] = "native"

    _rules, _make_checks = spaces.RULES, staticmethod(spaces.space_checks)
    _argument_names = ("workload", "target")


class CostModelTests(_Tests):
    """A base class for the tests of a cost model."""

    _rules, _make_checks = costmodels.RULES, staticmethod(costmodels.cost_model_checks)


class WorkloadTests(_Tests):
    """A base class for the tests of a workload. The class variable ``plugin`` is a small workload or its name."""

    _rules, _make_checks = workloads.RULES, staticmethod(workloads.workload_checks)
