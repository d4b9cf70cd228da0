"""Simulated annealing on a cost model, followed by the selection of a fast and diverse batch.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), Algorithm 1 and equation (2);
AutoTVM's XGBTuner (``model_based_tuner`` and ``sa_model_optimizer`` in ``tvm.autotvm.tuner``, TVM up to 0.22).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchlab.arrays import Floats
from searchlab.costmodel import BoundCostModel
from searchlab.options import Count, NonNegative, UnitInterval
from searchlab.policy import Origin
from searchlab.space import Config, Space, Value

from .acquisition import AcquisitionName
from .model_guided import BestConfigs, FailureHandling, ModelGuided


class Xgb(ModelGuided):
    """Simulated annealing on the predictions of a cost model, and selection of a fast and diverse batch.

    The cost model is trained on all trials after every batch and predicts the scores of the configs that annealing
    visits. The next batch is selected from the best of them.

    Args:
        n_startup: The number of random trials to run before the cost model is used. If none of them succeeds, random
            trials continue until one does. Ignored if the model was trained on other runs (a warm start).
        chains: The number of annealing chains that run in parallel.
        steps: The maximum number of steps of a chain.
        early_stop: Annealing ends after this many steps without a new best candidate.
        temperature: The temperature of the first step, in units of the score (the best trial has score 1). It falls
            linearly to 0.
        candidates: The number of best visited configs from which the batch is selected, as a multiple of the batch
            size.
        diversity: The bonus for each knob value that is not yet in the batch, in units of the score: alpha in equation
            (2) of Chen et al. (2018).
        epsilon: The probability of filling a batch slot with a random config.
        predictions: The maximum number of distinct configs to predict for a batch. By default, 256 if a prediction
            requires scheduling the program, which takes milliseconds, and otherwise enough for all steps of all chains.
            If the number is too small for eight steps of every chain, fewer chains are used. If it is then too small
            for all steps, fewer steps are taken, over which the temperature falls to 0.
        failures: How the search learns from failed trials. With "score", the cost model learns a score of 0 for them.
            With "model", the cost model learns only from successful trials, and its predictions are multiplied by the
            probability that a config works. A classifier (extremely randomised trees) predicts that probability from
            the knobs.
        acquisition: What the search maximises: the predicted score ("mean"), the expected improvement on the best trial
            ("ei"), the mean plus one standard deviation ("ucb"), or the prediction of a member of the model's ensemble,
            drawn for each batch ("thompson"). All but "mean" need a cost model with uncertainty: the trees of
            "random-forest" and "extra-trees" form an ensemble; for boosted trees, eight copies of the model are trained
            on bootstrap samples, which takes eight times as long.
    """

    origin = Origin(
        "AutoTVM's XGBTuner",
        "TVM 0.17",
        "python/tvm/autotvm/tuner/xgboost_tuner.py, model_based_tuner.py, sa_model_optimizer.py",
        "relative",
        (
            "any cost model and features, trained on all trials after every batch, not after every 64 trials",
            "16 random trials first instead of 64",
            "64 chains of 60 steps from temperature 0.1, instead of 128 chains of 500 from temperature 1",
            "the chains start from the best measured configs and random ones, not from where they last ended",
            "a batch is always selected for diversity, which is optional in AutoTVM",
            "each place of a batch is random with probability 0.05, instead of the last 5 % of a plan",
        ),
    )

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        n_startup: Count = 16,
        chains: Count = 64,
        steps: Count = 60,
        early_stop: Count = 20,
        temperature: NonNegative = 0.1,
        candidates: Count = 4,
        diversity: NonNegative = 0.01,
        epsilon: UnitInterval = 0.05,
        predictions: Count | None = None,
        failures: FailureHandling = "score",
        acquisition: AcquisitionName = "mean",
    ) -> None:
        super().__init__(
            space,
            seed=seed,
            cost_model=cost_model,
            n_startup=n_startup,
            epsilon=epsilon,
            failures=failures,
            acquisition=acquisition,
        )
        self.early_stop = early_stop
        self.temperature = temperature
        self.candidates = candidates
        self.diversity = diversity
        self.predictions = self.limit_predictions(predictions, chains * (steps + 1))
        self.chains = max(1, min(chains, self.predictions // (min(steps, 8) + 1)))
        self.steps = min(steps, self.predictions // self.chains - 1)
        self.record_effective_options({"chains": chains, "steps": steps})

    def search(self, n: int, rng: np.random.Generator) -> Sequence[Config]:
        candidates, scores = self.anneal(n * self.candidates, rng)
        return select_diverse(candidates, scores, n, self.diversity)

    def anneal(self, n: int, rng: np.random.Generator) -> tuple[list[Config], Floats]:
        """Return the ``n`` best new configs that the chains visit and their predicted scores, best first."""
        points = self.choose_starting_configs(self.chains, self.chains // 2, rng)
        predictions: dict[Config, float] = {}
        best = BestConfigs(n, self.seen)
        scores = self.predict_scores(points, predictions)
        best.offer(points, scores)
        idle_step_count = 0
        for step in range(self.steps):
            if idle_step_count == self.early_stop:
                break
            neighbours = [self.space.mutate(config, rng) for config in points]
            new_scores = self.predict_scores(neighbours, predictions)
            idle_step_count = 0 if best.offer(neighbours, new_scores) else idle_step_count + 1
            temperature = self.temperature * (1 - step / self.steps) + 1e-9
            is_accepted = rng.random(len(points)) < np.exp(np.minimum((new_scores - scores) / temperature, 0))
            points = [new if accept else old for new, old, accept in zip(neighbours, points, is_accepted, strict=True)]
            scores = np.where(is_accepted, new_scores, scores)
        ranked = sorted(best.list_entries(), reverse=True)
        return [config for _, _, config in ranked], np.array([score for score, _, _ in ranked])


def select_diverse(configs: Sequence[Config], scores: Floats, n: int, diversity: float) -> list[Config]:
    """Select up to ``n`` configs with a high sum of scores plus ``diversity`` for each distinct knob value.

    This is the greedy selection for equation (2). By submodularity, its sum is at least 1 - 1/e times the maximum.
    """
    candidates = list(range(len(configs)))
    knob_values: set[tuple[str, Value]] = set()
    selected_configs: list[Config] = []
    while candidates and len(selected_configs) < n:
        i = max(
            candidates,
            key=lambda i: scores[i] + diversity * sum(choice not in knob_values for choice in configs[i].items()),
        )
        candidates.remove(i)
        selected_configs.append(configs[i])
        knob_values.update(configs[i].items())
    return selected_configs
