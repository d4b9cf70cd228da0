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
from .features.base import widened


class Rows(NamedTuple):
    """The training data of a cost model: the arguments of :meth:`CostModel.fit`."""

    features: Array
    scores: Array
    groups: Groups

    @classmethod
    def of_tasks(cls, tasks: Sequence[tuple[Array, Array]], absent: float = np.nan) -> Rows:
        """The features and scores of each task in turn; at least one task.

        absent: the value of the columns that a task lacks, if the tasks differ in width.
        """
        features, scores = zip(*tasks, strict=True)
        groups = np.repeat(np.arange(len(tasks)), [len(part) for part in scores])
        width = max(part.shape[1] for part in features)
        wide = [widened(part, width, absent) for part in features]
        return cls(np.concatenate(wide), np.concatenate(scores), groups)


def scores_of(trials: Sequence[Trial], best: float = np.inf) -> Array:
    """Throughput of each trial, divided by that of a cost of ``best`` seconds.

    If ``best`` is infinite, it is the cost of the fastest trial, whose score is then 1. A failed trial has score 0.
    """
    costs = np.array([trial.cost for trial in trials], dtype=np.float64)
    best = best if np.isfinite(best) else np.min(costs, initial=np.inf)
    return best / costs if np.isfinite(best) else np.zeros(len(costs))


def bind(model: CostModel, features: Features | type[Features]) -> None:
    """Tell ``model`` how a row of ``features`` is laid out. Raises SearchlabError if it cannot learn from such rows."""
    if features.store_width and not model.per_store:
        name = model.plugin.name if model.plugin else type(model).__name__
        raise SearchlabError(
            f"cost model {name!r} cannot learn from {features.name} features, which are of each store of a program; "
            f"take the cost model pack-sum, which sums over stores, or program features"
        )
    model.store_width = features.store_width


class Surrogate:
    """A cost model for configs; a policy gets it as ``cost_model``.

    best: seconds of the fastest trial it was trained on, which has score 1; infinity without trials.
    rows: its training data; None before the first training.
    train_seconds: the time of the last training. predict_seconds: the time of all predictions so far.
    """

    def __init__(self, model: CostModel, features: Features) -> None:
        bind(model, features)
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
        """Train on the (features, scores) of other tasks, now and, with the trials, in every later fit.

        Raises SearchlabError for knob features, whose columns belong to one space.
        """
        if self.features.name == KnobFeatures.name:
            raise SearchlabError("knob features have nothing in common with those of other tasks; use program features")
        self._others = list(tasks)
        if tasks:
            self.train(Rows.of_tasks(tasks, self.features.absent))

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train anew on ``trials``; do nothing if there are none."""
        if trials:
            start = time.perf_counter()
            configs = [trial.config for trial in trials]
            self.features.learn(configs)
            own = self.features(configs), scores_of(trials)
            self.train(Rows.of_tasks([*self._others, own], self.features.absent))
            self.best = min(trial.cost for trial in trials)
            self.train_seconds = time.perf_counter() - start

    def train(self, rows: Rows) -> None:
        """Train anew on features that were extracted before."""
        start = time.perf_counter()
        self.model.fit(*rows)
        self.rows = rows
        self.train_seconds = time.perf_counter() - start

    def predict(self, configs: Sequence[Config]) -> Array:
        """Scores (n,), higher is faster; zeros before the first fit."""
        if not self.fitted or not configs:
            return np.zeros(len(configs))
        start = time.perf_counter()
        predicted = np.asarray(self.model.predict(self._laid_out(self.features(configs))), dtype=np.float64)
        self.predict_seconds += time.perf_counter() - start
        return predicted

    def _laid_out(self, features: Array) -> Array:
        """``features`` with the columns that the model was trained on, unless it takes any number of stores."""
        assert self.rows is not None
        if self.features.store_width:
            return features
        width = self.rows.features.shape[1]
        return widened(features[:, :width], width, self.features.absent)
