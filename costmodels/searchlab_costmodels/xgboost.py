"""Gradient boosted regression trees.

Source: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System" (KDD 2016), as a cost model of tensor programs
in Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018).
"""

from __future__ import annotations

import numpy as np
import xgboost

from searchlab.costmodel import Array, CostModel
from searchlab.options import real, whole


class XGBoost(CostModel):
    """Least squares on the scores, from histograms; NaN goes the way that fits best at each split.

    rounds: how many trees.
    max_depth: levels of each tree.
    learning_rate: share of each tree's step that is taken.
    min_child_weight: how many trials a leaf must have: a search goes wherever a leaf with one lucky trial points.
    """

    def __init__(
        self,
        *,
        seed: int,
        rounds: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.2,
        min_child_weight: float = 3.0,
    ) -> None:
        super().__init__(seed=seed)
        self.rounds = whole("rounds", rounds, 1)
        self.parameters = {
            "objective": "reg:squarederror",
            "tree_method": "hist",
            "max_depth": whole("max_depth", max_depth, 1, 16),
            "learning_rate": real("learning_rate", learning_rate, 1e-6, 1),
            "min_child_weight": real("min_child_weight", min_child_weight, 0),
            "seed": seed,
            # One thread: sums of gradients are then always in one order, so the trees cannot depend on the machine.
            # Nor is it slower on the few hundred rows there are here.
            "nthread": 1,
        }
        self._mean = 0.0
        self._trees: xgboost.Booster | None = None

    def fit(self, features: Array, scores: Array) -> None:
        self._mean = float(np.mean(scores))
        self._trees = None
        if features.shape[1]:  # XGBoost takes no matrix without columns, as that of a space without knobs
            data = xgboost.DMatrix(features, label=scores, nthread=1)
            self._trees = xgboost.train(self.parameters, data, num_boost_round=self.rounds)

    def predict(self, features: Array) -> Array:
        if self._trees is None or not len(features):
            return np.full(len(features), self._mean)
        return np.asarray(self._trees.predict(xgboost.DMatrix(features, nthread=1)), dtype=np.float64)
