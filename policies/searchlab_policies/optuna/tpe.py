"""Optuna's tree-structured Parzen estimator (TPE).

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011); Watanabe, "Tree-Structured Parzen
Estimator: Understanding Its Algorithm Components" (arXiv 2304.11127); ``optuna.samplers.TPESampler``. The estimator is
multivariate over the parameters that every trial has. It diversifies a batch with the constant liar: trials that have
not yet been told count as bad.
"""

from __future__ import annotations

from typing import Annotated

from optuna.samplers import BaseSampler, TPESampler

from searchlab.options import Between, Count
from searchlab.space import Space

from .adapter import OptunaPolicy, make_origin


class Tpe(OptunaPolicy):
    """Optuna's tree-structured Parzen estimator (TPE).

    It proposes configs that are likely among the good trials and unlikely among the others. Optuna learns after every
    trial, so use ``batch = 1``.

    Args:
        n_startup: The number of random trials to run before the model is used.
        ei_candidates: The number of suggestions to draw from the model of the good trials; the best one is used.
        memory: The maximum number of trials to model: the best ones fill a quarter, and the most recent of the others
            fill the rest. The time per suggestion grows with this number. Optuna counts at most 25 trials as good.
    """

    origin = make_origin(
        "TPESampler",
        "16 random trials first instead of 10",
        "at most 500 trials are modelled",
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 16,
        ei_candidates: Count = 24,
        memory: Annotated[int, Between(4)] = 500,
    ) -> None:
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.ei_candidates = ei_candidates

    def make_sampler(self, seed: int) -> BaseSampler:
        return TPESampler(n_startup_trials=1, n_ei_candidates=self.ei_candidates, constant_liar=True, seed=seed)
