"""Acquisition functions, which rate configs by their predicted scores and the uncertainty of these predictions.

Sources: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions" (1998), equation (15); Srinivas
et al., "Gaussian Process Optimization in the Bandit Setting" (ICML 2010); Thompson, "On the Likelihood that One Unknown
Probability Exceeds Another" (1933). The mean and the standard deviation of an ensemble replace those of a Gaussian
process, as in Hutter et al., "Sequential Model-Based Optimization for General Algorithm Configuration" (LION 2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import ndtr

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel
from searchlab.records import Trial
from searchlab.space import Config

AcquisitionName = Literal["mean", "ei", "ucb", "thompson"]

KAPPA = 1.0
"""The number of standard deviations that ``ucb`` adds to the mean."""


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return by how much a normal variable is expected to fall below ``best`` (Jones et al., 1998, equation 15)."""
    z = (best - mean) / deviation
    improvement: Floats = deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))
    return improvement


class Acquisition:
    """An acquisition function over the predictions of a cost model.

    Args:
        name: ``mean`` is the prediction itself; ``ei`` is the expected improvement on the best trial; ``ucb`` is the
            mean plus one standard deviation; ``thompson`` is the prediction of an ensemble member drawn for each batch.
        model: The cost model.

    Raises:
        SearchlabError: If ``name`` is not "mean" and the cost model does not estimate its uncertainty.
    """

    def __init__(self, name: AcquisitionName, model: BoundCostModel) -> None:
        if name != "mean":
            model.check_uncertainty()
        self.name = name
        self.model = model
        self._improvement_scale = 1.0
        self._member_quantile = 0.0

    def begin_batch(self, trials: Sequence[Trial], rng: np.random.Generator) -> None:
        """Prepare for a new batch, after the model has been trained on ``trials``."""
        if self.name == "thompson":
            self._member_quantile = rng.random()
        elif self.name == "ei":
            # Temperatures and bonuses are in units of the score, so the improvement is scaled to their spread.
            predictions = self.model.predict_members([trial.config for trial in trials])
            improvement_spread = float(np.std(_expect_improvement(predictions))) if trials else 0.0
            self._improvement_scale = (
                float(np.std(predictions.mean(axis=0))) / improvement_spread if improvement_spread > 0 else 1.0
            )

    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Return the function's values for ``configs``, of shape (n,), in units of the score."""
        if self.name == "mean":
            return self.model.predict(configs)
        predictions = self.model.predict_members(configs)
        if self.name == "thompson":
            member: Floats = predictions[int(self._member_quantile * len(predictions))]
            return member
        if self.name == "ei":
            return self._improvement_scale * _expect_improvement(predictions)
        bound: Floats = predictions.mean(axis=0) + KAPPA * predictions.std(axis=0)
        return bound


def _expect_improvement(predictions: Floats) -> Floats:
    """Return the expected improvement on the best trial's score, which is 1, from ``predictions``, (members, n)."""
    return expected_improvement(-predictions.mean(axis=0), np.maximum(predictions.std(axis=0), 1e-9), -1.0)
