"""Gradient boosted trees (LightGBM), trained by regression on the scores or to rank the trials.

Source: Ke et al., "LightGBM: A Highly Efficient Gradient Boosting Decision Tree" (NeurIPS 2017); for ``lambdarank``,
Burges, "From RankNet to LambdaRank to LambdaMART" (Microsoft Research, MSR-TR-2010-82). Zheng et al., "TenSet" (NeurIPS
2021, Datasets and Benchmarks) evaluate both LightGBM and LambdaRank's loss for cost models of tensor programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import lightgbm
import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.options import Between, Count

from .ranking import TOP_TRIALS, Scale

MAX_QUERY_ROWS = 10_000
"""LightGBM's limit on the number of rows in a query; a task with more trials is split into several queries."""


class LightGBM(CostModel):
    """LightGBM: gradient boosted trees, grown leaf by leaf.

    At each split, missing values go to the side that fits best. At least two trials are required.

    Args:
        objective: ``regression`` minimises the squared error of the scores. ``lambdarank`` learns to rank: each pair of
            trials from one task is weighted by how much swapping the two would change NDCG. Its predictions are a
            ranking, mapped to the scale of the scores.
        grades: The number of equal intervals into which the scores are divided for ``lambdarank``, which requires
            integers. The gain is linear in the grade. Trials of the same grade are not compared.
        rounds: The number of trees.
        num_leaves: The maximum number of leaves in a tree.
        learning_rate: The factor by which each tree's contribution is multiplied.
        min_data_in_leaf: The minimum number of trials in a leaf.
    """

    uncertainty = "bootstrap"

    def __init__(
        self,
        *,
        seed: int,
        objective: Literal["regression", "lambdarank"] = "regression",
        grades: Annotated[int, Between(2, 1024)] = 32,
        rounds: Count = 100,
        num_leaves: Annotated[int, Between(2)] = 31,
        learning_rate: Annotated[float, Between(1e-6, 1)] = 0.1,
        min_data_in_leaf: Count = 3,
    ) -> None:
        super().__init__(seed=seed)
        self.rounds = rounds
        self.grades = grades
        self.is_ranking = objective == "lambdarank"
        self.parameters = {
            "objective": objective,
            "num_leaves": num_leaves,
            "learning_rate": learning_rate,
            "min_data_in_leaf": min_data_in_leaf,
            "min_data_in_bin": 1,
            "label_gain": list(range(grades)),
            "lambdarank_truncation_level": TOP_TRIALS,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,  # otherwise, LightGBM times both ways and uses the faster one
            "num_threads": 1,
            "verbosity": -1,
        }
        self._mean_score = 0.0
        self._trees: lightgbm.Booster | None = None
        self._scale = Scale(1.0)

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._mean_score = float(np.mean(scores))
        self._trees = None
        if features.shape[1] and len(features) > 1:  # LightGBM requires a column and two rows
            labels, query_sizes = scores, None
            if self.is_ranking:
                labels = np.minimum((scores * self.grades).astype(np.int64), self.grades - 1)
                task_sizes = np.unique(groups, return_counts=True)[1].tolist()
                query_sizes = [min(MAX_QUERY_ROWS, n - i) for n in task_sizes for i in range(0, n, MAX_QUERY_ROWS)]
            dataset = lightgbm.Dataset(features, label=labels, group=query_sizes, params=self.parameters)
            self._trees = lightgbm.train(self.parameters, dataset, num_boost_round=self.rounds)
            if self.is_ranking:
                self._scale = Scale.fit(self._predict_ranking(self._trees, features), scores)

    def dump(self) -> dict[str, bytes]:
        if self._trees is None:
            return {}
        return {"trees.txt": self._trees.model_to_string(num_iteration=-1).encode(), **self._scale.dump()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        self._trees = lightgbm.Booster(model_str=files["trees.txt"].decode())
        self._scale = Scale.restore(files)

    def predict(self, features: Floats) -> Floats:
        if self._trees is None or not len(features):
            return np.full(len(features), self._mean_score)
        return self._scale(self._predict_ranking(self._trees, features))

    @staticmethod
    def _predict_ranking(trees: lightgbm.Booster, features: Floats) -> Floats:
        return np.asarray(trees.predict(features, num_threads=1), dtype=np.float64)
