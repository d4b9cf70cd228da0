"""The nearest trials."""

from __future__ import annotations

import numpy as np

from searchlab import CostModel
from searchlab.arrays import Floats, Ints
from searchlab.options import Count


class Nearest(CostModel):
    """Predicts the mean score of the ``k`` trials whose features are nearest."""

    def __init__(self, *, seed: int, k: Count = 3) -> None:
        super().__init__(seed=seed)
        self.k = k

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self.features, self.scores = np.nan_to_num(features), scores.copy()

    def predict(self, features: Floats) -> Floats:
        distances = np.square(np.nan_to_num(features)[:, None] - self.features).sum(axis=2)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, : self.k]
        result: Floats = self.scores[nearest].mean(axis=1)
        return result
