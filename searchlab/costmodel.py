"""The contract of a cost model, and the surrogate that binds one to a space and a feature extractor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from .features import Features
from .records import Trial
from .space import Config

Array = np.ndarray[Any, np.dtype[np.float64]]


class CostModel(ABC):
    """Predicts how fast a program is from its features.

    Options are keyword arguments of the constructor, with defaults. The same data and seed give the same
    predictions, for any number of threads.
    """

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def fit(self, features: Array, scores: Array) -> None:
        """Learn from ``features`` (n, d), NaN where one does not apply, and ``scores`` (n,) in [0, 1]; n >= 1."""

    @abstractmethod
    def predict(self, features: Array) -> Array:
        """Scores (n,), finite, higher is faster; only their order and differences mean anything."""


def scores_of(trials: Sequence[Trial]) -> Array:
    """Throughput of each trial over the best of them: 1 for the fastest, 0 for one that failed."""
    costs = np.array([trial.cost for trial in trials], dtype=np.float64)
    best = np.min(costs, initial=np.inf)
    return best / costs if np.isfinite(best) else np.zeros(len(costs))


class Surrogate:
    """A cost model that speaks of configs: what a policy is given as ``cost_model``."""

    def __init__(self, model: CostModel, features: Features) -> None:
        self.model = model
        self.features = features
        self.fitted = False

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train afresh on all of ``trials``; does nothing while there are none."""
        if trials:
            self.features.learn([trial.config for trial in trials])
            self.model.fit(self.features([trial.config for trial in trials]), scores_of(trials))
            self.fitted = True

    def predict(self, configs: Sequence[Config]) -> Array:
        """Scores (n,), higher is faster; zeros before the first fit."""
        if not self.fitted or not configs:
            return np.zeros(len(configs))
        return np.asarray(self.model.predict(self.features(configs)), dtype=np.float64)
