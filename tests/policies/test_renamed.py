"""Options that have a new name: what logs of earlier versions say still holds."""

from __future__ import annotations

import pytest

from searchlab.policy import POLICIES


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("xgb", "initial"), ("evolutionary-model", "initial"), ("tpe", "startup"), ("gp", "startup"),
        ("metaschedule", "warmup"),
    ],
)  # fmt: skip
def test_trials_before_the_model_is_asked_are_n_startup_everywhere(name: str, earlier: str) -> None:
    policy = POLICIES.load(name)
    options = POLICIES.options_of(policy)
    assert "n_startup" in options and earlier not in options
    assert policy.updated({earlier: 7}) == {"n_startup": 7}
