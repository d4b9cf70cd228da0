"""Gradient boosted trees (XGBoost), trained by regression on the scores or to rank the trials.

Source: Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System" (KDD 2016); as a cost model of tensor programs,
Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.2, with the objectives ``regression`` and
``rank``, as in AutoTVM's XGBTuner (``loss_type``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import xgboost

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.options import Between, Count, NonNegative

from .ranking import TOP_TRIALS, Scale

ALL_PAIRS_PARAMETERS = {
    "lambdarank_pair_method": "topk",
    "lambdarank_num_pair_per_sample": TOP_TRIALS,
    "lambdarank_normalization": False,
}
"""The parameters with which XGBoost compares all pairs of trials.

By default, it compares a trial only with the 32 best-ranked ones, and normalises its steps. With these defaults, it
ranked much worse on synthetic landscapes (Kendall's tau was 0.34 instead of 0.82 after 300 trials).
"""


class XGBoost(CostModel):
    """XGBoost: gradient boosted trees with histograms.

    At each split, missing values go to the side that fits best.

    Args:
        objective: ``regression`` minimises the squared error of the scores. ``rank`` minimises a loss over pairs of
            trials from one task; its predictions are a ranking, mapped to the scale of the scores.
        rounds: The number of trees.
        max_depth: The maximum depth of a tree.
        learning_rate: The factor by which each tree's contribution is multiplied.
        min_child_weight: The minimum number of trials in a leaf, so that a single outlier does not mislead the search.
            With ``rank``, the minimum sum of second derivatives in a leaf; each pair adds at most 1/4 per trial.
    """

    uncertainty = "bootstrap"

    def __init__(
        self,
        *,
        seed: int,
        objective: Literal["regression", "rank"] = "regression",
        rounds: Count = 100,
        max_depth: Annotated[int, Between(1, 16)] = 6,
        learning_rate: Annotated[float, Between(1e-6, 1)] = 0.2,
        min_child_weight: NonNegative = 3.0,
    ) -> None:
        super().__init__(seed=seed)
        self.rounds = rounds
        self.is_ranking = objective == "rank"
        self.parameters = {
            "objective": "rank:pairwise" if self.is_ranking else "reg:squarederror",
            "tree_method": "hist",
            "max_depth": max_depth,
            "learning_rate": learning_rate,
            "min_child_weight": min_child_weight,
            "seed": seed,
            # One thread sums gradients in a deterministic order and, for a few hundred rows, is no slower.
            "nthread": 1,
            **(ALL_PAIRS_PARAMETERS if self.is_ranking else {}),
        }
        self._mean_score = 0.0
        self._trees: xgboost.Booster | None = None
        self._scale = Scale(1.0)

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._mean_score = float(np.mean(scores))
        self._trees = None
        if features.shape[1]:  # XGBoost rejects a matrix without columns, as for a space without knobs
            matrix = xgboost.DMatrix(features, label=scores, qid=groups if self.is_ranking else None, nthread=1)
            self._trees = xgboost.Booster(self.parameters, [matrix])
            for round_index in range(self.rounds):  # not xgboost.train, whose callbacks would take a third of the time
                self._trees.update(matrix, round_index)
            if self.is_ranking:
                self._scale = Scale.fit(self._predict_ranking(self._trees, features), scores)

    def dump(self) -> dict[str, bytes]:
        return {} if self._trees is None else {"trees.json": bytes(self._trees.save_raw("json")), **self._scale.dump()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        self._trees = xgboost.Booster({"nthread": 1}, model_file=bytearray(files["trees.json"]))
        self._scale = Scale.restore(files)

    def predict(self, features: Floats) -> Floats:
        if self._trees is None or not len(features):
            return np.full(len(features), self._mean_score)
        return self._scale(self._predict_ranking(self._trees, features))

    @staticmethod
    def _predict_ranking(trees: xgboost.Booster, features: Floats) -> Floats:
        return np.asarray(trees.inplace_predict(features), dtype=np.float64)
