"""Helpers for ranking models: the limit on the pairs to compare, and the conversion of a ranking to scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from searchlab.arrays import Floats

TOP_TRIALS = 512
"""The number of best trials of a task with which all of its trials are compared. Up to 512 trials, these are all pairs;
beyond that, the time grows linearly with the number of trials."""


@dataclass(frozen=True)
class Scale:
    """The linear map ``slope * ranking + offset`` from a ranking model's output to scores."""

    slope: float = 0.0
    offset: float = 0.0

    @classmethod
    def fit(cls, ranking: Floats, scores: Floats) -> Scale:
        """Return the map that gives the outputs for the training rows the mean and standard deviation of their scores.

        A ranking model's output has no unit, but simulated annealing compares differences in score, and a batch's
        diversity is measured in units of the score. The map does not change the order.
        """
        spread = float(np.std(ranking))
        slope = float(np.std(scores)) / spread if spread > 0 else 0.0
        return cls(slope, float(np.mean(scores)) - slope * float(np.mean(ranking)))

    def dump(self) -> dict[str, bytes]:
        """Return this map as a file, for :meth:`restore`."""
        return {"scale.json": json.dumps([self.slope, self.offset]).encode()}

    @classmethod
    def restore(cls, files: Mapping[str, bytes]) -> Scale:
        slope, offset = json.loads(files["scale.json"])
        return cls(float(slope), float(offset))

    def __call__(self, ranking: Floats) -> Floats:
        return self.slope * ranking + self.offset
