"""The adapter that binds a cost model to a space and a feature extractor."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Ints
from ..errors import SearchlabError
from ..options import checks_arguments
from ..records import SHORTEST, Trial
from ..space import Config, Space
from .contract import COST_MODELS, CostModel, fit_model, predict_member_scores, predict_scores
from .features import Columns, Features, lay_out, pad_columns

BOOTSTRAP_COPIES = 8
"""The number of copies of a cost model that are trained on bootstrap samples."""


class TaskData(NamedTuple):
    """The features of a task's configs, of shape (n, d), and their scores, of shape (n,)."""

    features: Floats
    scores: Floats


class TrainingData(NamedTuple):
    """Training data: the arguments of :meth:`CostModel.fit`."""

    features: Floats
    scores: Floats
    groups: Ints

    @classmethod
    def from_tasks(cls, tasks: Sequence[TaskData], absent: float = np.nan) -> TrainingData:
        """Concatenate the features and scores of all tasks.

        Args:
            tasks: The data of one or more tasks.
            absent: The padding value for tasks whose features have fewer columns than those of other tasks.
        """
        groups = np.repeat(np.arange(len(tasks)), [len(task.scores) for task in tasks])
        column_count = max(task.features.shape[1] for task in tasks)
        padded_features = [pad_columns(task.features, column_count, absent) for task in tasks]
        return cls(np.concatenate(padded_features), np.concatenate([task.scores for task in tasks]), groups)


def compute_scores(trials: Sequence[Trial], best: float = np.inf) -> Floats:
    """Return each trial's throughput relative to a reference; a failed trial has score 0.

    Args:
        trials: Trials of one task.
        best: The reference cost in seconds. If it is infinite, the fastest trial is the reference and has score 1.
    """
    costs = np.array([max(trial.cost, SHORTEST) for trial in trials], dtype=np.float64)
    best = best if np.isfinite(best) else np.min(costs, initial=np.inf)
    return max(best, SHORTEST) / costs if np.isfinite(best) else np.zeros(len(costs))


def bind(model: CostModel, features: Features | type[Features]) -> None:
    """Tell ``model`` the layout of ``features``. Raises SearchlabError if it cannot learn from them."""
    if features.columns_per_store and not model.per_store:
        name = model.plugin.name if model.plugin else type(model).__name__
        raise SearchlabError(
            f"cost model {name!r} cannot learn from the features {features.name!r}, which describe each store in a "
            f"program separately; use the cost model 'pack-sum', which sums over stores, or the features 'program'"
        )
    model.columns_per_store = features.columns_per_store


@dataclass(frozen=True, eq=False)
class OtherTask:
    """Trials of a task other than the searched one.

    Attributes:
        scores: The scores of the configs, of shape (n,).
    """

    space: Space
    configs: Sequence[Config]
    scores: Floats


class BoundCostModel:
    """A cost model bound to a space and its features: it learns from trials and predicts scores for configs.

    Policies that use a cost model receive an object of this class.

    Args:
        model: The cost model, which :meth:`fit` trains in place.
        features: The feature extractor for the space.

    Attributes:
        best: The cost, in seconds, of the fastest trial in the training data, whose score is 1. It is infinite before
            the first fit.
        rows: The training data, or None before the first training.
        start_rows: The data about other tasks from which the model started, or None.
        fit_seconds: The total time spent in :meth:`fit`, measured by ``clock``, including feature extraction.
        train_seconds: The wall time of the latest training.
        predict_seconds: The total wall time of all predictions.
        feature_seconds: The total time spent on features in :meth:`fit` and predictions, measured by ``clock``.

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

    @checks_arguments
    def __init__(self, model: CostModel, features: Features) -> None:
        bind(model, features)
        self.model = model
        self.features = features
        self.best = np.inf
        self.rows: TrainingData | None = None
        self.train_seconds = 0.0
        self.predict_seconds = 0.0
        self.fit_seconds = 0.0
        self.feature_seconds = 0.0
        self.clock: Callable[[], float] = time.process_time
        self.start_rows: TrainingData | None = None
        self._copies: list[CostModel] = []  # trained on bootstrap samples when they are first needed
        self._other_tasks: list[tuple[Features, OtherTask]] = []
        self._other_column_names: Columns = []

    @property
    def started(self) -> bool:
        """Whether the model started from other tasks. If so, later fits do not include these tasks."""
        return self.start_rows is not None

    @property
    def fitted(self) -> bool:
        return self.rows is not None

    def pretrain(self, tasks: Sequence[OtherTask]) -> None:
        """Train on other tasks, which every later fit includes unless the model supports ``start_from``.

        Args:
            tasks: The other tasks. The same kind of features is extracted for them, and all tasks share the union of
                their columns.
        """
        self._other_tasks = [(type(self.features)(task.space), task) for task in tasks]
        for features, task in self._other_tasks:
            features.learn(task.configs)
        self._other_column_names = [column for features, _ in self._other_tasks for column in features.columns]
        self._unify_columns([])
        if not tasks:
            return
        training_data = self._make_training_data()
        with COST_MODELS.convert_errors(type(self.model), "start_from"):
            has_started = self.model.start_from(*training_data)
        if has_started:
            self.start_rows = self.rows = training_data
        else:
            self.train(training_data)

    def fit(self, trials: Sequence[Trial]) -> None:
        """Retrain the model on ``trials``, unless there are none."""
        if trials:
            clock_start, start = self.clock(), time.perf_counter()
            configs = [trial.config for trial in trials]
            self.features.learn(configs)
            self.feature_seconds += self.clock() - clock_start
            self._unify_columns(self.features.columns)
            self.train(self._make_training_data(TaskData(self._extract(configs), compute_scores(trials))))
            self.best = min(trial.cost for trial in trials)
            self.train_seconds = time.perf_counter() - start
            self.fit_seconds += self.clock() - clock_start

    def train(self, rows: TrainingData) -> None:
        """Retrain the model on features that have already been extracted."""
        start = time.perf_counter()
        fit_model(self.model, *rows)
        self.rows = rows
        self._copies = []
        self.train_seconds = time.perf_counter() - start

    def predict(self, configs: Sequence[Config]) -> Floats:
        """Predict scores for ``configs``.

        Returns:
            Finite scores of shape (n,), where higher is faster; all zero before the first fit.

        Raises:
            SearchlabError: If the cost model fails or breaks its contract; the message names it.
        """
        if self.rows is None or not configs:
            return np.zeros(len(configs))
        start = time.perf_counter()
        feature_matrix = lay_out(self.features, self._extract(configs), self.rows.features.shape[1])
        predicted = predict_scores(self.model, feature_matrix)
        self.predict_seconds += time.perf_counter() - start
        return predicted

    def predict_members(self, configs: Sequence[Config]) -> Floats:
        """Predict scores for ``configs`` with each member of an ensemble.

        The members are the model's own or, if it declares ``uncertainty = "bootstrap"``, 8 copies of it, each of which
        is trained on a bootstrap sample of the training data.

        Returns:
            Finite scores of shape (members, n), where higher is faster; before the first fit, zeros of shape (1, n).

        Raises:
            SearchlabError: If the model declares no uncertainty, or in the same cases as :meth:`predict`.
        """
        self.check_uncertainty()
        if self.rows is None or not configs:
            return np.zeros((1, len(configs)))
        if self.model.uncertainty == "bootstrap" and not self._copies:
            self._copies = [self._train_copy(number, self.rows) for number in range(BOOTSTRAP_COPIES)]
        start = time.perf_counter()
        feature_matrix = lay_out(self.features, self._extract(configs), self.rows.features.shape[1])
        if self.model.uncertainty == "bootstrap":
            predicted = np.array([predict_scores(model, feature_matrix) for model in self._copies])
        else:
            predicted = predict_member_scores(self.model, feature_matrix)
        self.predict_seconds += time.perf_counter() - start
        return predicted

    def _extract(self, configs: Sequence[Config]) -> Floats:
        start = self.clock()
        feature_matrix = self.features(configs)
        self.feature_seconds += self.clock() - start
        return feature_matrix

    def check_uncertainty(self) -> None:
        """Raise SearchlabError if the model cannot estimate uncertainty; the message names models that can."""
        if not self.model.uncertainty:
            name = COST_MODELS.name_of(type(self.model))
            raise SearchlabError(
                f"cost model {name!r} does not estimate how uncertain its predictions are; use one of the cost models "
                f"{', '.join(_find_uncertain_models())}, or set acquisition = 'mean'"
            )

    def _train_copy(self, copy_index: int, training_data: TrainingData) -> CostModel:
        """Return a copy of the model, trained on a bootstrap sample of each task's rows."""
        start = self.clock()
        rng = np.random.default_rng([self.model.seed, len(training_data.scores), copy_index])
        groups = training_data.groups
        indices_by_task = [np.flatnonzero(groups == task) for task in np.unique(groups)]
        sampled_indices = np.concatenate([np.sort(rng.choice(indices, len(indices))) for indices in indices_by_task])
        model = copy.deepcopy(self.model)
        fit_model(model, *(array[sampled_indices] for array in training_data))
        self.fit_seconds += self.clock() - start
        return model

    def _unify_columns(self, new_columns: Columns) -> None:
        """Make all tasks use the same columns: ``new_columns``, and the columns that only other tasks have."""
        if self._other_tasks:
            column_lists = [new_columns, self._other_column_names]
            if self.started:  # from the other tasks, whose columns the model expects first
                column_lists.reverse()
            all_columns = list(dict.fromkeys(chain(*column_lists)))
            for features in (self.features, *(features for features, _ in self._other_tasks)):
                features.use_columns(all_columns)

    def _make_training_data(self, *own_data: TaskData) -> TrainingData:
        """Return the data of the other tasks, unless the model has started from them, followed by ``own_data``."""
        other_tasks = [] if own_data and self.started else self._other_tasks
        other_data = [TaskData(features(task.configs), task.scores) for features, task in other_tasks]
        return TrainingData.from_tasks([*other_data, *own_data], self.features.absent)


def _find_uncertain_models() -> list[str]:
    """Return the names of the registered, importable cost models that can estimate uncertainty."""
    names = []
    for name in COST_MODELS.entry_points_by_name():
        with suppress(SearchlabError):
            if COST_MODELS.load(name).uncertainty:
                names.append(name)
    return names
