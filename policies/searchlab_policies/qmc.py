"""Quasi-random search: a scrambled Sobol sequence.

Source: Sobol, "On the distribution of points in a cube and the approximate evaluation of integrals" (1967), scrambled
as by Owen (1998); Bousquet et al., "Critical Hyper-Parameters: No Random, No Cry" (arXiv 1706.03200);
``optuna.samplers.QMCSampler``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import QMCSampler
from optuna.trial import TrialState, create_trial

from searchlab.policy import NeverTwice
from searchlab.space import Config, Knob, Space, Value

from .optuna.adapter import quiet


class Qmc(NeverTwice):
    """Spreads configs over the space more evenly than chance would; like random search it learns nothing.

    Every knob is a dimension of the unit cube, whichever configs ask for it, and its value the choice at that fraction
    of those it has then. So each knob alone is drawn uniformly, as by random search, and no two draws are alike in
    all. A point whose config was proposed before is passed over. The sequence goes on from the number of configs
    that are known.
    """

    def __init__(self, space: Space, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        rng = np.random.default_rng(0)
        # As far as 64 fixed random configs tell; a knob that none of them has is drawn at random.
        names = dict.fromkeys(knob.name for _ in range(64) for knob in space.knobs(space.sample(rng)))
        self._cube: dict[str, BaseDistribution] = {name: FloatDistribution(0, 1) for name in names}

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        batch: dict[Config, None] = {}
        storage = optuna.storages.InMemoryStorage()
        with quiet():
            sampler = QMCSampler(scramble=True, seed=self.seed, warn_independent_sampling=False)
            study = optuna.create_study(study_name="searchlab", storage=storage, sampler=sampler)
            # The parameters of the first trial are the dimensions of the sequence.
            study.add_trial(create_trial(params=dict.fromkeys(self._cube, 0.5), distributions=self._cube, value=0.0))
            self._draw(study)
            identity = storage.get_study_id_from_name("searchlab")
            # The sampler keeps its place in the sequence there, and nothing else.
            for name in storage.get_study_system_attrs(identity):
                storage.set_study_system_attr(identity, name, len(self.seen) - 1)
            for _ in range(4 * n + 16):
                if len(batch) == n:
                    break
                config = self._draw(study)
                if config not in self.seen:
                    batch[config] = None
        return list(batch)

    def _draw(self, study: optuna.Study) -> Config:
        trial = study.ask()

        def choose(knob: Knob) -> Value:
            fraction = trial.suggest_float(knob.name, 0, 1)
            return knob.choices[min(int(fraction * len(knob.choices)), len(knob.choices) - 1)]

        config = self.space.decide(choose)
        study.tell(trial, state=TrialState.FAIL)
        return config
