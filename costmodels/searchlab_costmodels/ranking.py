"""What both learners of order share: pairs within one task, and an order on the scale of the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from searchlab.costmodel import Array

TOP = 512
"""Pairs are compared where one of the two is among this many best ranked of its task: of up to 512 trials all pairs
are, and the time grows with the number of trials, not with its square."""


class Scale(NamedTuple):
    """``slope * ranking + offset``: the order of a ranking, in units of the score."""

    slope: float = 0.0
    offset: float = 0.0

    @classmethod
    def of(cls, ranking: Array, scores: Array) -> Scale:
        """Gives a ranking of the training rows the mean and standard deviation of their scores.

        A ranker's output has no unit, but simulated annealing accepts by differences in score, and diversity is
        worth a share of one. The order stays as it is.
        """
        spread = float(np.std(ranking))
        slope = float(np.std(scores)) / spread if spread > 0 else 0.0
        return cls(slope, float(np.mean(scores)) - slope * float(np.mean(ranking)))

    def __call__(self, ranking: Array) -> Array:
        return self.slope * ranking + self.offset
