"""The checks as classes for pytest, to derive the tests of a plug-in from::

from searchlab.conformance.pytest import PolicyTests

class TestBandit(PolicyTests):
    plugin = "acme_policies:Bandit"
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from ..plugins import PluginSpec
from .check import Check, NotApplicable, Rule
from .costmodels import RULES as COST_MODEL_RULES
from .costmodels import cost_model_checks
from .policies import RULES as POLICY_RULES
from .policies import policy_checks
from .spaces import RULES as SPACE_RULES
from .spaces import space_checks


class _Tests:
    plugin: ClassVar[PluginSpec]
    """A registered name, ``"module:Class"``, ``{"name": ..., "options": {...}}``, or a class."""

    seed: ClassVar[int] = 0

    _checks: ClassVar[dict[str, Check]]

    @classmethod
    def checks(cls) -> list[Check]:
        """The checks, in order."""
        raise NotImplementedError

    @classmethod
    def _hold(cls, name: str) -> None:
        if "_checks" not in vars(cls):  # once for a class: its checks share the runs of the plug-in
            cls._checks = {check.name: check for check in cls.checks()}
        try:
            cls._checks[name]()
        except NotApplicable as reason:
            pytest.skip(str(reason))


def _each(rules: tuple[Rule, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [rule.name for rule in rules])


class PolicyTests(_Tests):
    """The checks of a policy. Class variables are the arguments of :func:`~searchlab.conformance.policy_checks`."""

    space: ClassVar[PluginSpec | None] = None
    workload: ClassVar[str | None] = None
    target: ClassVar[str] = "native"
    cost_model: ClassVar[PluginSpec | None] = None
    features: ClassVar[str | None] = None

    @classmethod
    def checks(cls) -> list[Check]:
        return policy_checks(
            cls.plugin, space=cls.space, workload=cls.workload, target=cls.target, cost_model=cls.cost_model,
            features=cls.features, seed=cls.seed,
        )  # fmt: skip

    @_each(POLICY_RULES)
    def test_contract(self, name: str) -> None:
        self._hold(name)


class SpaceTests(_Tests):
    """The checks of a space. Class variables are the arguments of :func:`~searchlab.conformance.space_checks`."""

    workload: ClassVar[str | None] = None
    target: ClassVar[str] = "native"

    @classmethod
    def checks(cls) -> list[Check]:
        return space_checks(cls.plugin, workload=cls.workload, target=cls.target, seed=cls.seed)

    @_each(SPACE_RULES)
    def test_contract(self, name: str) -> None:
        self._hold(name)


class CostModelTests(_Tests):
    """The checks of a cost model."""

    @classmethod
    def checks(cls) -> list[Check]:
        return cost_model_checks(cls.plugin, seed=cls.seed)

    @_each(COST_MODEL_RULES)
    def test_contract(self, name: str) -> None:
        self._hold(name)
