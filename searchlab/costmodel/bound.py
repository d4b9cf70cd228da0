"""A cost model that is bound to a space and a feature extractor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError
from ..records import Trial
from ..space import Config, Space
from .contract import COST_MODELS, CostModel, fit_model, predictions
from .features import Columns, Features, laid_out, widened


class Rows(NamedTuple):
    """The training data of a cost model: the arguments of :meth:`CostModel.fit`."""

    features: Floats
    scores: Floats
    groups: Ints

    @classmethod
    def of_tasks(cls, tasks: Sequence[tuple[Floats, Floats]], absent: float = np.nan) -> Rows:
        """The features and scores of each task in turn; at least one task.

        absent: the value of the columns that a task lacks, if the tasks differ in width.
        """
        features, scores = zip(*tasks, strict=True)
        groups = np.repeat(np.arange(len(tasks)), [len(part) for part in scores])
        width = max(part.shape[1] for part in features)
        wide = [widened(part, width, absent) for part in features]
        return cls(np.concatenate(wide), np.concatenate(scores), groups)


def scores_of(trials: Sequence[Trial], best: float = np.inf) -> Floats:
    """Throughput of each trial, divided by that of a cost of ``best`` seconds.

    If ``best`` is infinite, it is the cost of the fastest trial, whose score is then 1. A failed trial has score 0.
    """
    costs = np.array([trial.cost for trial in trials], dtype=np.float64)
    best = best if np.isfinite(best) else np.min(costs, initial=np.inf)
    return best / costs if np.isfinite(best) else np.zeros(len(costs))


def bind(model: CostModel, features: Features | type[Features]) -> None:
    """Tell ``model`` how a row of ``features`` is laid out. Raises SearchlabError if it cannot learn from such rows."""
    if features.columns_per_store and not model.per_store:
        name = model.plugin.name if model.plugin else type(model).__name__
        raise SearchlabError(
            f"cost model {name!r} cannot learn from {features.name} features, which are of each store of a program; "
            f"take the cost model pack-sum, which sums over stores, or program features"
        )
    model.columns_per_store = features.columns_per_store


@dataclass(frozen=True, eq=False)
class OtherTask:
    """Trials of another task: its space, the configs, and the score (n,) of each."""

    space: Space
    configs: Sequence[Config]
    scores: Floats


class BoundCostModel:
    """A cost model bound to a space and its features: it learns from trials, and predicts configs.

    A policy that takes a cost model gets one of these.

    Args:
        model: The cost model.
        features: The features of the space.

    Attributes:
        best: Seconds of the fastest trial it was trained on, which has score 1; infinity without trials.
        rows: Its training data; None before the first training.
        started: Whether the model learned from other tasks once, so that ``rows`` is not all that it was trained on.
        fit_seconds: The time of all calls of :meth:`fit` by ``clock``, features included.
        train_seconds: The time of the last training.
        predict_seconds: The time of all predictions so far.

    Example:
        >>> import searchlab
        >>> from searchlab.costmodel import make_cost_model
        >>> from searchlab.costmodel.features import make_features
        >>> from searchlab.plugins import Plugin
        >>> result = searchlab.load_log("gemm.jsonl")
        >>> model = make_cost_model(Plugin("ridge"), seed=0)
        >>> bound = searchlab.BoundCostModel(model, make_features("knob", result.space))
        >>> bound.fit(result.trials)
        >>> bound.predict([trial.config for trial in result.trials]).shape
        (3,)
    """

    def __init__(self, model: CostModel, features: Features) -> None:
        bind(model, features)
        self.model = model
        self.features = features
        self.best = np.inf
        self.rows: Rows | None = None
        self.train_seconds = 0.0
        self.predict_seconds = 0.0
        self.fit_seconds = 0.0
        self.clock: Callable[[], float] = time.process_time
        self.started = False
        self._others: list[tuple[Features, OtherTask]] = []
        self._other_columns: Columns = []

    @property
    def fitted(self) -> bool:
        return self.rows is not None

    def pretrain(self, tasks: Sequence[OtherTask]) -> None:
        """Train on other tasks, now and, with the trials, in every later fit; or once, if the model starts from them.

        Their features are those of this model; of knobs, the columns are those that any of the tasks has.
        """
        self._others = [(type(self.features)(task.space), task) for task in tasks]
        for features, task in self._others:
            features.learn(task.configs)
        self._other_columns = [column for features, _ in self._others for column in features.columns]
        self._settle([])
        if not tasks:
            return
        rows = self._rows()
        with COST_MODELS.blamed(type(self.model), "start_from"):
            self.started = self.model.start_from(*rows)
        if self.started:
            self.rows = rows
        else:
            self.train(rows)

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train anew on ``trials``; do nothing if there are none."""
        if trials:
            begun, start = self.clock(), time.perf_counter()
            configs = [trial.config for trial in trials]
            self.features.learn(configs)
            self._settle(self.features.columns)
            self.train(self._rows((self.features(configs), scores_of(trials))))
            self.best = min(trial.cost for trial in trials)
            self.train_seconds = time.perf_counter() - start
            self.fit_seconds += self.clock() - begun

    def train(self, rows: Rows) -> None:
        """Train anew on features that were extracted before."""
        start = time.perf_counter()
        fit_model(self.model, *rows)
        self.rows = rows
        self.train_seconds = time.perf_counter() - start

    def predict(self, configs: Sequence[Config]) -> Floats:
        """Scores (n,), finite, higher is faster; zeros before the first fit.

        Raises SearchlabError, which names the cost model, if it fails or breaks its contract.
        """
        if self.rows is None or not configs:
            return np.zeros(len(configs))
        start = time.perf_counter()
        rows = laid_out(self.features, self.features(configs), self.rows.features.shape[1])
        predicted = predictions(self.model, rows)
        self.predict_seconds += time.perf_counter() - start
        return predicted

    def _settle(self, own: Columns) -> None:
        """Have all tasks take the columns ``own``, and then those that only the other tasks have."""
        if self._others:
            # A model that started from the other tasks finds their columns where they were.
            both = [*self._other_columns, *own] if self.started else [*own, *self._other_columns]
            columns = list(dict.fromkeys(both))
            for features in (self.features, *(features for features, _ in self._others)):
                features.settle(columns)

    def _rows(self, *own: tuple[Floats, Floats]) -> Rows:
        pooled = [] if own and self.started else self._others
        others = [(features(task.configs), task.scores) for features, task in pooled]
        return Rows.of_tasks([*others, *own], self.features.absent)
