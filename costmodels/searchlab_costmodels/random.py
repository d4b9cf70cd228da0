"""Random predictions: a control that shows how well a policy does without a model."""

from __future__ import annotations

import hashlib

import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel


class Random(CostModel):
    """Random predictions, to show how well a policy does without a cost model.

    A prediction is a number in [0, 1) that depends only on the row of features and the seed.
    """

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        """Do nothing: predictions do not depend on trials."""

    def predict(self, features: Floats) -> Floats:
        # Normalise NaN and -0: equal rows must have equal bytes.
        rows = np.where(np.isnan(features), np.nan, features) + 0.0
        key = str(self.seed).encode()
        digests = [hashlib.blake2b(row.tobytes(), digest_size=6, key=key).digest() for row in rows]
        return np.array([int.from_bytes(digest, "big") / 2**48 for digest in digests], dtype=np.float64)
