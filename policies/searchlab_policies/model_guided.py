"""The base class for policies that search on a cost model's predictions."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel, compute_scores
from searchlab.options import to_library_seed
from searchlab.policy import NeverTwice
from searchlab.records import Trial
from searchlab.space import Config, Space

from .acquisition import Acquisition, AcquisitionName

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesClassifier

FailureHandling = Literal["score", "model"]

MAX_SLOW_PREDICTIONS = 256
"""The maximum number of configs to predict for one batch if each program must be scheduled, which takes
milliseconds."""


class ModelGuided(NeverTwice, takes_cost_model=True):
    """Trains the cost model on all trials after each batch and fills the next batch with the results of :meth:`search`.

    Args:
        n_startup: The number of random trials to run before the model is used. If none of them succeeds, random trials
            continue until one does. Ignored if the model was pretrained on other runs.
        epsilon: The probability of filling a batch slot with a random config.
        failures: How the search learns from failed trials. With "score", the cost model learns a score of 0 for them.
            With "model", the cost model learns only from successful trials, and its predictions are multiplied by the
            probability that a config works. A classifier predicts that probability from the knobs.
        acquisition: What the search maximises; see :class:`.acquisition.Acquisition`.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        n_startup: int,
        epsilon: float,
        failures: FailureHandling = "score",
        acquisition: AcquisitionName = "mean",
    ) -> None:
        super().__init__(space, seed=seed)
        self.cost_model = cost_model
        self.n_startup = n_startup
        self.epsilon = epsilon
        self._success_classifier = SuccessClassifier(space, seed) if failures == "model" else None
        self._acquisition = Acquisition(acquisition, cost_model)

    @abstractmethod
    def search(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        """Return about ``n`` configs with high predictions, best first."""

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        if not self._is_ready():
            return
        if self._success_classifier is None:
            self.cost_model.fit(self.trials)
        else:
            self.cost_model.fit([trial for trial in self.trials if np.isfinite(trial.cost)])
            self._success_classifier.fit(self.trials)

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        guided_count = n - int(rng.binomial(n, self.epsilon)) if self._is_ready() else 0
        if not guided_count:
            return []
        self._acquisition.begin_batch(self.trials, rng)
        return self.search(guided_count, rng)

    def _is_ready(self) -> bool:
        has_enough_trials = len(self.trials) >= self.n_startup and bool(compute_scores(self.trials).any())
        return has_enough_trials or self.cost_model.fitted  # fitted from the start if it was pretrained on other runs

    def limit_predictions(self, predictions: int | None, needed_predictions: int) -> int:
        """Return the maximum number of predictions for one batch; a search needs at most ``needed_predictions``."""
        if predictions is not None:
            return predictions
        is_slow = self.cost_model.features.builds_programs or self.space.builds_programs
        return min(MAX_SLOW_PREDICTIONS, needed_predictions) if is_slow else needed_predictions

    def record_effective_options(self, options: Mapping[str, int]) -> None:
        """Record those of the ``options`` options whose values differ from the policy's attributes, which are used."""
        self.effective = {name: getattr(self, name) for name, value in options.items() if getattr(self, name) != value}

    def predict_scores(self, configs: Sequence[Config], predictions: dict[Config, float]) -> Floats:
        """Return the scores (n,) of ``configs``; see :func:`predict_scores`."""
        return predict_scores(self._predict, configs, predictions)

    def _predict(self, configs: Sequence[Config]) -> Floats:
        scores = self._acquisition(configs)
        if self._success_classifier is None:
            return scores
        return np.where(scores > 0, scores * self._success_classifier.predict_probabilities(configs), scores)

    def choose_starting_configs(self, size: int, max_measured: int, rng: np.random.Generator) -> list[Config]:
        """Return ``size`` configs to start from: up to ``max_measured`` of the best measured ones, and random ones."""
        measured_configs = list(dict.fromkeys(trial.config for trial in rank_successes(self.trials)))[:max_measured]
        return measured_configs + [self.space.sample(rng) for _ in range(size - len(measured_configs))]


def rank_successes(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that succeeded, fastest first."""
    return sorted((trial for trial in trials if np.isfinite(trial.cost)), key=lambda trial: trial.cost)


def predict_scores(
    predict: Callable[[Sequence[Config]], Floats], configs: Sequence[Config], predictions: dict[Config, float]
) -> Floats:
    """Return the scores (n,) of ``configs``. Scores missing from ``predictions`` are predicted once and added to it."""
    new_configs = [config for config in dict.fromkeys(configs) if config not in predictions]
    predictions.update(zip(new_configs, predict(new_configs).tolist(), strict=True))
    return np.array([predictions[config] for config in configs])


class SuccessClassifier:
    """Predicts the probability that a config works from its knobs.

    The classifier is scikit-learn's extremely randomised trees (Geurts et al., 2006). Until both a success and a
    failure are known, the probability is 1.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._trees: ExtraTreesClassifier | None = None

    def fit(self, trials: Sequence[Trial]) -> None:
        """Train on all trials so far."""
        is_success = np.isfinite([trial.cost for trial in trials])
        if 0 < is_success.sum() < len(is_success):
            from sklearn.ensemble import ExtraTreesClassifier

            self._trees = ExtraTreesClassifier(n_estimators=50, random_state=to_library_seed(self._seed))
            self._trees.fit(self._encode([trial.config for trial in trials]), is_success)

    def predict_probabilities(self, configs: Sequence[Config]) -> Floats:
        """Return the probability that each of ``configs`` works, of shape (n,)."""
        if self._trees is None or not configs:
            return np.ones(len(configs))
        # The result is identical to that of scikit-learn's predict_proba, which validates the rows once per tree. For
        # the small batches of a search, this validation takes ten times as long as the trees.
        rows = np.ascontiguousarray(self._encode(configs), dtype=np.float32)
        probability_sums = np.zeros(len(rows))
        for tree in self._trees.estimators_:
            probability_sums += tree.tree_.predict(rows)[:, 1]
        return probability_sums / len(self._trees.estimators_)

    def _encode(self, configs: Sequence[Config]) -> Floats:
        return np.array([self._space.features(config) for config in configs])


class BestConfigs:
    """Collects the ``n`` configs with the highest scores.

    Args:
        n: The number of configs to collect.
        exclude: Configs to ignore.
        number_config: A function that numbers the configs. Among configs with equal scores, the one with the lowest
            number is dropped first; by default, this is the latest one.
    """

    def __init__(
        self, n: int, exclude: Container[Config], number_config: Callable[[Config], int] | None = None
    ) -> None:
        numbers = count()
        self._exclude = exclude
        self._number_config = number_config or (lambda _: -next(numbers))
        self._heap: list[tuple[float, int, Config | None]] = [(-np.inf, -1 - i, None) for i in range(n)]
        heapq.heapify(self._heap)
        self._members: set[Config | None] = set()

    def offer(self, configs: Sequence[Config], scores: Floats) -> bool:
        """Offer ``configs`` with their scores, and return whether any of them is now among the best."""
        has_changed = False
        for config, score in zip(configs, scores.tolist(), strict=True):
            if score > self._heap[0][0] and config not in self._members and config not in self._exclude:
                self._members.discard(heapq.heapreplace(self._heap, (score, self._number_config(config), config))[2])
                self._members.add(config)
                has_changed = True
        return has_changed

    def list_entries(self) -> list[tuple[float, int, Config]]:
        """Return the score, the order number and the config of each entry, in heap order."""
        return [(score, number, config) for score, number, config in self._heap if config is not None]


def compute_selection_probabilities(scores: Floats) -> Floats | None:
    """Return selection probabilities proportional to the positive scores, or None (uniform) if no score is positive."""
    weights = np.maximum(scores, 0.0)
    return weights / weights.sum() if weights.any() else None
