"""Predictions that mean nothing: what a policy is worth without a model."""

from __future__ import annotations

import hashlib

import numpy as np

from searchlab.costmodel import Array, CostModel, Groups


class Random(CostModel):
    """A number in [0, 1) for each row of features, which depends on the row and the seed alone."""

    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        """Learns nothing."""

    def predict(self, features: Array) -> Array:
        # One NaN and one zero, since equal rows must have equal bytes.
        rows = np.where(np.isnan(features), np.nan, features) + 0.0
        key = str(self.seed).encode()
        drawn = [hashlib.blake2b(row.tobytes(), digest_size=6, key=key).digest() for row in rows]
        return np.array([int.from_bytes(digest, "big") / 2**48 for digest in drawn], dtype=np.float64)
