"""Creation of the policies that another policy combines, such as the arms of a bandit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from searchlab.costmodel import COST_MODELS, BoundCostModel, make_cost_model
from searchlab.costmodel.features import make_features
from searchlab.errors import SearchlabError
from searchlab.policy import POLICIES, Policy
from searchlab.space import Space


def make_arms(arms: Sequence[str | Mapping[str, Any]], space: Space, seed: int) -> list[Policy]:
    """Instantiate the policies in the option ``arms``, each with its own seed.

    Args:
        arms: A list of policies, each a registered name, ``"module:Class"``, or ``{"name": ..., "options": {...}}``.
        space: The space to search.
        seed: The seed of the policy that combines them.

    Raises:
        SearchlabError: If the option is not a list of at least one policy.
    """
    if isinstance(arms, str) or not isinstance(arms, Sequence) or not arms:
        raise SearchlabError(f"option 'arms' is {arms!r}; it must be a list of at least one policy")
    seeds = np.random.SeedSequence(seed).generate_state(len(arms)) >> 1  # XGBoost's seeds have 31 bits
    return [make_arm(arm, space, int(arm_seed)) for arm, arm_seed in zip(arms, seeds, strict=True)]


def make_arm(spec: str | Mapping[str, Any], space: Space, seed: int) -> Policy:
    """Instantiate the policy that an entry of ``arms`` specifies. Raises SearchlabError if the entry is malformed."""
    spec_keys = dict(spec) if isinstance(spec, Mapping) else {}
    model_options = [spec_keys.pop(key, None) for key in ("cost_model", "features")]
    plugin, cls = POLICIES.resolve(spec_keys if isinstance(spec, Mapping) else spec)
    POLICIES.check_class(plugin.name, cls)
    if not cls.traits.takes_cost_model:
        if any(model_options):
            raise SearchlabError(f"arm {plugin.name!r} does not use a cost model; remove 'cost_model' and 'features'")
        return POLICIES.make(plugin, space, seed=seed)
    model, features = cls.traits.model(*model_options)
    bound_model = BoundCostModel(make_cost_model(COST_MODELS.resolve(model)[0], seed), make_features(features, space))
    return POLICIES.make(plugin, space, seed=seed, cost_model=bound_model)
