"""The variants of our policies that the ablations compare."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from searchlab.conformance import toys
from searchlab.policy import POLICIES
from tests.suite.test_papers import ROOT


@pytest.mark.parametrize("parts", ["PARTS", "WARM_PARTS"])
@pytest.mark.parametrize("policy", ["gp_prior", "gp_2"])
def test_every_variant_of_an_ablation_searches(policy: str, parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "papers"))
    variants: dict[str, Any] = getattr(importlib.import_module(f"variants_{policy}"), parts)
    sources = toys.run_policy(POLICIES.load("random")(toys.Large(), seed=1), toys.simulate_smooth, 16)
    configs = set()
    for label, variant in variants.items():
        name, options = variant if isinstance(variant, tuple) else (variant, {})
        cls = POLICIES.load(name) if isinstance(name, str) else name
        searcher = cls(toys.Large(), seed=0, **options)
        if parts == "WARM_PARTS":
            searcher.transfer([(toys.Large(), sources)])
        trials = toys.run_policy(searcher, toys.simulate_smooth, 24)
        assert len(trials) == 24, label
        configs.add(tuple(trial.config for trial in trials))
    assert len(configs) == len(variants), "each variant changes the trials"
