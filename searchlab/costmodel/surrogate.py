"""The surrogate, which binds a cost model to a space and a feature extractor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import SearchlabError
from ..records import Trial
from ..space import Config
from .contract import Array, CostModel, Groups
from .features import Features, KnobFeatures


class Rows(NamedTuple):
    """What a cost model is trained on, as :meth:`CostModel.fit` has it."""

    features: Array
    scores: Array
    groups: Groups

    @classmethod
    def of_tasks(cls, tasks: Sequence[tuple[Array, Array]]) -> Rows:
        """The features and scores of each task in turn; at least one task."""
        features, scores = zip(*tasks, strict=True)
        groups = np.repeat(np.arange(len(tasks)), [len(part) for part in scores])
        return cls(np.concatenate(features), np.concatenate(scores), groups)


def scores_of(trials: Sequence[Trial], best: float = np.inf) -> Array:
    """Throughput of each trial over that of a cost of ``best`` seconds; where it is infinite, over the best of them.

    So by default 1 for the fastest; always 0 for one that failed.
    """
    costs = np.array([trial.cost for trial in trials], dtype=np.float64)
    best = best if np.isfinite(best) else np.min(costs, initial=np.inf)
    return best / costs if np.isfinite(best) else np.zeros(len(costs))


class Surrogate:
    """A cost model that speaks of configs: what a policy is given as ``cost_model``.

    best: seconds of the fastest trial it was trained on, which has score 1; infinity where there is none.
    rows: what it was trained on, None before.
    train_seconds: what the last training took. predict_seconds: what all predicting took so far.
    """

    def __init__(self, model: CostModel, features: Features) -> None:
        self.model = model
        self.features = features
        self.best = np.inf
        self.rows: Rows | None = None
        self.train_seconds = 0.0
        self.predict_seconds = 0.0
        self._others: list[tuple[Array, Array]] = []

    @property
    def fitted(self) -> bool:
        return self.rows is not None

    def pretrain(self, tasks: Sequence[tuple[Array, Array]]) -> None:
        """Train on other tasks, each its (features, scores), now and along with the trials of every later fit.

        Raises SearchlabError where the features are knobs, whose columns are those of one space.
        """
        if self.features.name == KnobFeatures.name:
            raise SearchlabError("knob features of other tasks have nothing in common with these; use program features")
        self._others = list(tasks)
        if tasks:
            self.train(Rows.of_tasks(tasks))

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train afresh on all of ``trials``; does nothing while there are none."""
        if trials:
            start = time.perf_counter()
            configs = [trial.config for trial in trials]
            self.features.learn(configs)
            own = self.features(configs), scores_of(trials)
            self.train(Rows.of_tasks([*self._others, own]))
            self.best = min(trial.cost for trial in trials)
            self.train_seconds = time.perf_counter() - start

    def train(self, rows: Rows) -> None:
        """Train afresh on features that were extracted before."""
        start = time.perf_counter()
        self.model.fit(*rows)
        self.rows = rows
        self.train_seconds = time.perf_counter() - start

    def predict(self, configs: Sequence[Config]) -> Array:
        """Scores (n,), higher is faster; zeros before the first fit."""
        if not self.fitted or not configs:
            return np.zeros(len(configs))
        start = time.perf_counter()
        predicted = np.asarray(self.model.predict(self.features(configs)), dtype=np.float64)
        self.predict_seconds += time.perf_counter() - start
        return predicted
