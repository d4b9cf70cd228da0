"""searchlab's conformance checks of acme's plug-ins."""

from searchlab.conformance.pytest import CostModelTests, PolicyTests, SpaceTests


class TestBandit(PolicyTests):
    plugin = "acme-bandit"


class TestBanditThatExplores(PolicyTests):
    plugin = {"name": "acme-bandit", "options": {"explore": 2.0}}  # noqa: RUF012


class TestStrips(SpaceTests):
    plugin = "acme-strips"


class TestNearest(CostModelTests):
    plugin = "acme-nearest"
