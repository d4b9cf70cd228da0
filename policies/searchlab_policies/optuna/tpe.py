"""Optuna's tree-structured Parzen estimator.

Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011); Watanabe, "Tree-Structured
Parzen Estimator: Understanding Its Algorithm Components" (arXiv 2304.11127); ``optuna.samplers.TPESampler``, with
which it is multivariate over the parameters that every trial has, and keeps a batch apart by the constant liar:
trials not told of yet count among the bad ones.
"""

from __future__ import annotations

from typing import Annotated

from optuna.samplers import BaseSampler, TPESampler

from searchlab.options import Between, Count
from searchlab.space import Space

from .adapter import OptunaPolicy, origin


class Tpe(OptunaPolicy):
    """Models each choice by how good trials made it and how the others did, and takes the ratio's best.

    n_startup: trials to draw at random before the model is asked.
    ei_candidates: how many suggestions are drawn from the model of the good trials to take the best of.
    memory: how many trials are modelled at most: the best quarter of so many, and the latest of the others. The time
        that a suggestion takes grows with it. Optuna counts no more than 25 as good.
    """

    origin = origin(
        "TPESampler",
        "16 random trials first, not 10",
        "no more than 500 trials are modelled",
    )

    def __init__(
        self, space: Space, *, seed: int, n_startup: Count = 16, ei_candidates: Count = 24,
        memory: Annotated[int, Between(4)] = 500,
    ) -> None:  # fmt: skip
        super().__init__(space, seed=seed, n_startup=n_startup, memory=memory)
        self.ei_candidates = ei_candidates

    def sampler(self, seed: int) -> BaseSampler:
        return TPESampler(n_startup_trials=1, n_ei_candidates=self.ei_candidates, constant_liar=True, seed=seed)
