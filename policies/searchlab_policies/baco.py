"""BaCO: Bayesian optimisation for compilers.

Source: Hellsten et al., "BaCO: A Fast and Portable Bayesian Compiler Optimization Framework" (ASPLOS 2023), section 4;
the defaults and the local search in ``baco/schema.json`` and ``baco/bo`` of baco-authors/baco.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Annotated

import numpy as np
from threadpoolctl import ThreadpoolController

from searchlab.arrays import Floats
from searchlab.options import Between, Count, UnitInterval
from searchlab.policy import NeverTwice, Origin
from searchlab.records import SHORTEST, Trial
from searchlab.space import Config, Space

from .acquisition import expected_improvement
from .gaussian_process import Encoding, GaussianProcess, select_trials_to_model
from .model_guided import MAX_SLOW_PREDICTIONS, SuccessClassifier, rank_successes
from .neighbours import generate_step_neighbours


class Baco(NeverTwice):
    """Bayesian optimisation with a Gaussian process over typed knobs and a classifier of failures.

    The process models the logarithm of the cost of successful trials. The distance between two configs depends on the
    type of each knob: tiles and numbers are compared on a logarithmic scale, permutations by the positions of their
    elements, and words by equality. A config is proposed for its expected improvement times the probability that it
    works. Local searches start from the best trial and from the best of many random configs, and move to the best
    neighbour until none is better. After each config of a batch, the process treats its prediction as a measurement.

    Args:
        n_startup: The number of random trials before the model is used.
        memory: The maximum number of trials to model: the fastest ones fill half, and the most recent of the others
            fill the rest. The time to fit the process grows with the cube of this number.
        points: The number of random configs to evaluate for a batch (30,000 for each proposal in BaCO).
        searches: The number of local searches for each proposal: one from the best trial, and the others from the best
            random configs (10 in BaCO).
        threshold: The upper limit of the required probability of success, which is drawn for each proposal from eleven
            values between 0 and this limit.
        predictions: The maximum number of distinct configs to evaluate for a batch. By default, the maximum is 256 if
            an evaluation requires scheduling a program, which takes milliseconds; otherwise, there is none.
    """

    origin = Origin(
        "BaCO",
        "2023",
        "Hellsten et al., ASPLOS 2023; baco/bo in baco-authors/baco",
        "relative",
        (
            "the fastest known config is the incumbent, and costs are always logarithmic",
            "tiles are one knob, with one length scale, compared by the logarithms of their factors",
            "1000 random points for a batch and 5 local searches, instead of 30000 and 10 for each trial",
            "a batch believes its own predictions (kriging believer); BaCO proposes one config at a time",
            "extremely randomised trees instead of a random forest predict failures",
            "illegal neighbours are dropped one by one; BaCO enumerates the legal ones in a chain of trees",
            "the process is fitted from fixed starts by 30 L-BFGS steps, on at most 256 trials",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        n_startup: Count = 10,
        memory: Annotated[int, Between(2)] = 256,
        points: Count = 1000,
        searches: Count = 5,
        threshold: UnitInterval = 0.1,
        predictions: Count | None = None,
    ) -> None:
        super().__init__(space, seed=seed)
        self.n_startup = n_startup
        self.memory = memory
        self.searches = searches
        self.threshold = threshold
        self.predictions = predictions or (MAX_SLOW_PREDICTIONS if space.builds_programs else None)
        self.points = min(points, (self.predictions or 2 * points + 1) // 2)
        if self.points != points:
            self.effective = {"points": self.points}
        self._success_classifier = SuccessClassifier(space, seed)
        self._threads = ThreadpoolController()

    def propose(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        ranked = rank_successes(self.trials)
        if len(self.trials) < self.n_startup or len(ranked) < 2:
            return []
        with self._threads.limit(limits=1):  # one thread adds in a deterministic order
            return self._propose_batch(n, ranked, rng)

    def _propose_batch(self, n: int, ranked: Sequence[Trial], rng: np.random.Generator) -> list[Config]:
        """Return the batch, given the trials that succeeded, fastest first."""
        self._success_classifier.fit(self.trials)
        acquisition = FeasibleImprovement(
            select_trials_to_model(ranked, self.memory), self.encoding, self._success_classifier
        )
        candidates = self._draw_candidates(rng)
        batch: list[Config] = []
        for _ in range(n):
            acquisition.threshold = self.threshold * int(rng.integers(11)) / 10
            candidates = [config for config in candidates if config not in batch]
            values = acquisition(candidates)
            starts = [candidates[i] for i in np.argsort(-values, kind="stable")[: self.searches - 1].tolist()]
            local_maxima = [self._climb(config, acquisition, batch, rng) for config in [ranked[0].config, *starts]]
            value, best = max(local_maxima, key=lambda pair: pair[0])
            if value == -math.inf:
                break
            batch.append(best)
            acquisition.believe(best)
        return batch

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.space)

    def _draw_candidates(self, rng: np.random.Generator) -> list[Config]:
        """Return random new configs, or all new configs if the space is small."""
        if len(self._first_configs) <= self.points:
            return [config for config in self._first_configs if config not in self.seen]
        return self.space.sample_new(rng, self.points, self.seen)

    @cached_property
    def _first_configs(self) -> list[Config]:
        """The first configs of the space, one more than the number of points."""
        return list(islice(self.space.enumerate(), self.points + 1))

    def _climb(
        self, config: Config, acquisition: FeasibleImprovement, batch: Sequence[Config], rng: np.random.Generator
    ) -> tuple[float, Config]:
        """Return the new config that a local search from ``config`` finds, and its value, or -inf if it finds none."""
        value = -math.inf if config in self.seen else float(acquisition([config])[0])
        while self.predictions is None or acquisition.evaluation_count < self.predictions:
            neighbours = [
                c for c in generate_step_neighbours(self.space, config, rng) if c not in self.seen and c not in batch
            ]
            values = acquisition(neighbours)
            if not neighbours or values.max() <= value:
                break
            config, value = neighbours[int(np.argmax(values))], float(values.max())
        return value, config


class FeasibleImprovement:
    """The expected improvement of a config times the probability that it works.

    Args:
        trials: The trials to model, all of which succeeded.
        encoding: Converts configs to rows for the Gaussian process.
        success_classifier: Predicts the probability that a config works.

    Attributes:
        threshold: The required probability of success; less promising configs have the value 0.
    """

    def __init__(self, trials: Sequence[Trial], encoding: Encoding, success_classifier: SuccessClassifier) -> None:
        costs = np.log([max(trial.cost, SHORTEST) for trial in trials])
        costs = (costs - costs.mean()) / (costs.std() or 1.0)
        self.threshold = 0.0
        self._encoding = encoding
        self._success_classifier = success_classifier
        self._process = GaussianProcess(
            encoding([trial.config for trial in trials]), costs, encoding.length_scale_indices
        )
        self._best_cost = float(costs.min())
        self._rows_and_probabilities: dict[Config, tuple[Floats, float]] = {}  # row and probability of success

    @property
    def evaluation_count(self) -> int:
        """The number of distinct configs that were evaluated."""
        return len(self._rows_and_probabilities)

    def __call__(self, configs: Sequence[Config]) -> Floats:
        """Return the values of ``configs``, of shape (n,)."""
        if not configs:
            return np.empty(0)
        new_configs = [config for config in dict.fromkeys(configs) if config not in self._rows_and_probabilities]
        new_rows = self._encoding(new_configs)
        new_probabilities = self._success_classifier.predict_probabilities(new_configs)
        new_entries = zip(new_rows, new_probabilities, strict=True)
        self._rows_and_probabilities.update(zip(new_configs, new_entries, strict=True))
        entries = (self._rows_and_probabilities[config] for config in configs)
        rows, probabilities = map(np.array, zip(*entries, strict=True))
        values = expected_improvement(*self._process.predict(rows), self._best_cost) * probabilities
        return np.where(probabilities >= self.threshold, values, 0.0)

    def believe(self, config: Config) -> None:
        """Treat the predicted cost of ``config`` as a measurement."""
        row = self._rows_and_probabilities[config][0]
        self._process.believe(row, float(self._process.predict(row[None])[0][0]))
