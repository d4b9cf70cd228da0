"""Shared by the rankers: the pairs within one task, and an order on the scale of the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from searchlab.arrays import Floats

TOP = 512
"""A pair is compared if one of the two is among this many best ranked of its task: all pairs of up to 512 trials. So
the time grows with the number of trials, not with its square."""


@dataclass(frozen=True)
class Scale:
    """``slope * ranking + offset``: the order of a ranking, in units of the score."""

    slope: float = 0.0
    offset: float = 0.0

    @classmethod
    def of(cls, ranking: Floats, scores: Floats) -> Scale:
        """The scale that gives a ranking of the training rows the mean and standard deviation of their scores.

        The output of a ranker has no unit, but simulated annealing compares differences in score, and the diversity of
        a batch counts as a share of a score. The order does not change.
        """
        spread = float(np.std(ranking))
        slope = float(np.std(scores)) / spread if spread > 0 else 0.0
        return cls(slope, float(np.mean(scores)) - slope * float(np.mean(ranking)))

    def __call__(self, ranking: Floats) -> Floats:
        return self.slope * ranking + self.offset
