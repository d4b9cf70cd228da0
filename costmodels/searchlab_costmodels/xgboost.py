"""Gradient boosted trees that regress the score, or that rank.

Source: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System" (KDD 2016), as a cost model of tensor programs
in Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.2: ``regression`` and ``rank`` are its
two objectives, and those of AutoTVM's XGBTuner (``loss_type``).
"""

from __future__ import annotations

import numpy as np
import xgboost

from searchlab.costmodel import Array, CostModel, Groups
from searchlab.options import one_of, real, whole

from .ranking import TOP, Scale

OBJECTIVES = {"regression": "reg:squarederror", "rank": "rank:pairwise"}
# XGBoost would compare a trial with the 32 best ranked alone, and shrink its steps: of made-up landscapes it then
# ranked half as well (Kendall's tau 0.34 rather than 0.82 after 300 trials).
EVERY_PAIR = {
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": TOP,
    "lambdarank_normalization": False,
}


class XGBoost(CostModel):
    """Trees from histograms; NaN goes the way that fits best at each split.

    objective: ``regression`` is least squares on the scores. ``rank`` is the loss of pairs within one task;
        predictions are an order, put on the scale of the scores (:class:`~searchlab_costmodels.ranking.Scale`).
    rounds: how many trees.
    max_depth: levels of each tree.
    learning_rate: share of each tree's step that is taken.
    min_child_weight: how many trials a leaf must have: a search goes wherever a leaf with one lucky trial points. Of
        ``rank``, the second derivatives that a leaf must have: at most a quarter for each pair it is in.
    """

    def __init__(
        self,
        *,
        seed: int,
        objective: str = "regression",
        rounds: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.2,
        min_child_weight: float = 3.0,
    ) -> None:
        super().__init__(seed=seed)
        self.rounds = whole("rounds", rounds, 1)
        self.ranks = one_of("objective", objective, OBJECTIVES) == "rank"
        self.parameters = {
            "objective": OBJECTIVES[objective],
            "tree_method": "hist",
            "max_depth": whole("max_depth", max_depth, 1, 16),
            "learning_rate": real("learning_rate", learning_rate, 1e-6, 1),
            "min_child_weight": real("min_child_weight", min_child_weight, 0),
            "seed": seed,
            # One thread: sums of gradients are then always in one order, so the trees cannot depend on the machine.
            # Nor is it slower on the few hundred rows there are here.
            "nthread": 1,
            **(EVERY_PAIR if self.ranks else {}),
        }
        self._mean = 0.0
        self._trees: xgboost.Booster | None = None
        self._scale = Scale(1.0)

    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        self._mean = float(np.mean(scores))
        self._trees = None
        if features.shape[1]:  # XGBoost takes no matrix without columns, as that of a space without knobs
            data = xgboost.DMatrix(features, label=scores, qid=groups if self.ranks else None, nthread=1)
            self._trees = xgboost.train(self.parameters, data, num_boost_round=self.rounds)
            if self.ranks:
                self._scale = Scale.of(self._ranked(self._trees, features), scores)

    def predict(self, features: Array) -> Array:
        if self._trees is None or not len(features):
            return np.full(len(features), self._mean)
        return self._scale(self._ranked(self._trees, features))

    @staticmethod
    def _ranked(trees: xgboost.Booster, features: Array) -> Array:
        return np.asarray(trees.predict(xgboost.DMatrix(features, nthread=1)), dtype=np.float64)
