"""A linear cost model."""

import numpy as np

from searchlab.costmodel import CostModel

from .constants import SHARE, weigh


class Linear(CostModel):
    def __init__(self, *, seed, damping: float = 0.1):
        self.damping = damping

    def fit(self, features, scores, groups):
        matrix = np.nan_to_num(features)
        square = matrix.T @ matrix + self.damping * np.eye(matrix.shape[1])
        self.weights = np.linalg.solve(square, matrix.T @ (np.sqrt(scores) * SHARE))

    def predict(self, features):
        return weigh(1.0) * (np.nan_to_num(features) @ self.weights) - 0.3 * np.nan_to_num(features)[:, 0] ** 2
