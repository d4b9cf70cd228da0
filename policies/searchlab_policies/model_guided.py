"""The base of policies that propose configs which a cost model predicts to be fast."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import count

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel, scores_of
from searchlab.policy import NeverTwice
from searchlab.records import Trial
from searchlab.space import Config, Space

SLOW_PREDICTIONS = 256
"""How many configs are predicted for one batch where each takes a program, and so milliseconds and more."""


class ModelGuided(NeverTwice, takes_cost_model=True):
    """Trains the model on all trials after each batch, and lets :meth:`search` fill the next one by its predictions.

    n_startup: trials to draw at random before the model is asked (and until one of them succeeds), unless the model was
        trained on other runs to start with.
    epsilon: probability that a place in the batch goes to a random config.
    """

    def __init__(self, space: Space, *, seed: int, cost_model: BoundCostModel, n_startup: int, epsilon: float) -> None:
        super().__init__(space, seed=seed)
        self.cost_model = cost_model
        self.n_startup = n_startup
        self.epsilon = epsilon

    @abstractmethod
    def search(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        """About ``n`` configs with high predictions, best first."""

    def tell(self, trials: Sequence[Trial]) -> None:
        super().tell(trials)
        if self._ready():
            self.cost_model.fit(self.trials)

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        guided = n - int(rng.binomial(n, self.epsilon)) if self._ready() else 0
        return self.search(guided, rng) if guided else []

    def _ready(self) -> bool:
        enough = len(self.trials) >= self.n_startup and bool(scores_of(self.trials).any())
        return enough or self.cost_model.fitted  # or trained on other runs, before any trial

    def affordable(self, predictions: int | None, most: int) -> int:
        """How many distinct configs may be predicted for one batch, of ``most`` that a search would come to."""
        if predictions is not None:
            return predictions
        slow = self.cost_model.features.builds_programs or self.space.builds_programs
        return min(SLOW_PREDICTIONS, most) if slow else most

    def replace_options(self, given: Mapping[str, int]) -> None:
        """Declare which of the ``given`` options have another value as attributes of this policy."""
        self.effective = {name: used for name, value in given.items() if (used := getattr(self, name)) != value}

    def predicted(self, configs: Sequence[Config], known: dict[Config, float]) -> Floats:
        """Scores (n,) of ``configs``; see :func:`predicted`."""
        return predicted(self.cost_model, configs, known)

    def started(self, size: int, measured: int, rng: np.random.Generator) -> list[Config]:
        """``size`` configs to search from: at most ``measured`` of the best there are, and random ones."""
        ranked = sorted((trial for trial in self.trials if np.isfinite(trial.cost)), key=lambda trial: trial.cost)
        best = list(dict.fromkeys(trial.config for trial in ranked))[:measured]
        return best + [self.space.sample(rng) for _ in range(size - len(best))]


def predicted(model: BoundCostModel, configs: Sequence[Config], known: dict[Config, float]) -> Floats:
    """Scores (n,) of ``configs``. Each distinct config that is not ``known`` is predicted once, and then known."""
    new = [config for config in dict.fromkeys(configs) if config not in known]
    known.update(zip(new, model.predict(new).tolist(), strict=True))
    return np.array([known[config] for config in configs])


class Best:
    """The ``n`` configs with the highest scores that are offered, without those in ``exclude``.

    Args:
        n: The number of configs.
        exclude: Configs that are not taken.
        order: Of configs with equal scores, the one with the least number gives way first; by default the latest.
    """

    def __init__(self, n: int, exclude: Container[Config], order: Callable[[Config], int] | None = None) -> None:
        met = count()
        self._exclude = exclude
        self._order = order or (lambda _: -next(met))
        self._heap: list[tuple[float, int, Config | None]] = [(-np.inf, -1 - i, None) for i in range(n)]
        heapq.heapify(self._heap)
        self._held: set[Config | None] = set()

    def offer(self, configs: Sequence[Config], scores: Floats) -> bool:
        """Return whether one of ``configs`` came among the best."""
        changed = False
        for config, score in zip(configs, scores.tolist(), strict=True):
            if score > self._heap[0][0] and config not in self._held and config not in self._exclude:
                self._held.discard(heapq.heapreplace(self._heap, (score, self._order(config), config))[2])
                self._held.add(config)
                changed = True
        return changed

    def held(self) -> list[tuple[float, int, Config]]:
        """Return the score, the order and the config of each, as they lie in the heap."""
        return [(score, order, config) for score, order, config in self._heap if config is not None]


def chances(scores: Floats) -> Floats | None:
    """The probability of each parent, in proportion to its score, or 0; None (all alike) if no score is above 0."""
    weights = np.maximum(scores, 0.0)
    return weights / weights.sum() if weights.any() else None
