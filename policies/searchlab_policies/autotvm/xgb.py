"""AutoTVM's XGBTuner: plans many trials at once by simulated annealing on the predictions of boosted trees.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018); ``xgboost_tuner.py``,
``model_based_tuner.py`` and ``sa_model_optimizer.py`` in ``python/tvm/autotvm/tuner`` of TVM 0.17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from searchlab.costmodel import BoundCostModel
from searchlab.errors import SearchlabError
from searchlab.options import Count, NonNegative, UnitInterval
from searchlab.plugins import Plugin
from searchlab.policy import NeverTwice, Origin, OwnModel, private_rng
from searchlab.records import Trial
from searchlab.space import Config, Space

from ..xgb import select_diverse
from .annealer import Annealer
from .genetic import COST_DEVIATION

XGB_TUNER = Origin(
    name="AutoTVM's XGBTuner",
    version="TVM 0.17",
    source="python/tvm/autotvm/tuner: xgboost_tuner.py, model_based_tuner.py, sa_model_optimizer.py",
    kind="reproduction",
    deviations=(
        "XGBoost 3 grows the trees, with the settings of XGBoost 1, for which AutoTVM was written",
        "AutoTVM's knob features are called autotvm-knob; searchlab's knob features are logarithms of all factors",
        "the next plan is made as soon as the current one is complete, even in the middle of a batch",
        COST_DEVIATION,
    ),
)


class AutoTVMXgb(NeverTwice, own_model=OwnModel("autotvm-xgboost", "itervar", "autotvm-knob")):
    """AutoTVM's XGBTuner: simulated annealing on the predictions of boosted trees.

    The model is trained once every ``plan_size`` trials. Annealing then searches for the configs with the best
    predictions, which become the plan for the next ``plan_size`` trials. Trials before the first plan are random, as
    are the last ones of each plan. Use ``batch = 64``, as in AutoTVM.

    Args:
        plan_size: The number of trials in a plan. The cost model has an option of the same name; set both to the same
            value.
        epsilon: The fraction of a plan, at its end, that is replaced with random trials (rounded down).
        diversity_filter_ratio: The number of configs to find by annealing, as a multiple of ``plan_size``; those with
            the most diverse knob values become the plan. AutoTVM multiplies their scores by zero, so the scores have no
            influence; this reproduction does the same. With 0, the best configs become the plan.
        chains: The number of annealing chains that run in parallel.
        steps: The maximum number of steps of a chain.
        early_stop: Annealing ends after this many steps in which no new config was among the best.
        temperature: The temperature of the first step, in units of the score (the fastest trial has score 1). It falls
            linearly to 0.
    """

    origin: ClassVar[Origin | None] = XGB_TUNER

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        cost_model: BoundCostModel,
        plan_size: Count = 64,
        epsilon: UnitInterval = 0.05,
        diversity_filter_ratio: NonNegative = 0.0,
        chains: Count = 128,
        steps: Count = 500,
        early_stop: Count = 50,
        temperature: NonNegative = 1.0,
    ) -> None:
        super().__init__(space, seed=seed)
        self.cost_model = cost_model
        self.plan_size = self.n_startup = plan_size
        self.epsilon = epsilon
        self.diversity_ratio = diversity_filter_ratio
        if 0 < self.diversity_ratio < 1:
            raise SearchlabError(
                f"option 'diversity_filter_ratio' is {self.diversity_ratio}; it must be 0 or at least 1"
            )
        self._annealer = Annealer(space, chains=chains, steps=steps, early_stop=early_stop, temperature=temperature)
        self._plan: Sequence[Config] = ()
        self._measured_configs: dict[Config, None] = {}

    def propose(self, n: int, rng: np.random.Generator) -> Iterator[Config]:
        if not self._plan and not self.trials and self.cost_model.fitted:  # pretrained on other tasks
            self._plan = self._make_plan(private_rng(self.seed, "autotvm-xgb: plan", 0))
        guided_count = len(self._plan) - int(self.epsilon * self.plan_size)
        yield from self._plan[: max(0, guided_count)]

    def tell(self, trials: Sequence[Trial]) -> None:
        previous_count = len(self.trials)
        super().tell(trials)
        for trial_count, trial in enumerate(self.trials[previous_count:], previous_count + 1):
            self._measured_configs[trial.config] = None
            if trial_count % self.plan_size == 0:
                self._train_and_plan(self.trials[:trial_count])

    def _train_and_plan(self, trials: Sequence[Trial]) -> None:
        if any(np.isfinite(trial.cost) for trial in trials):
            self.cost_model.fit(trials)
            self._plan = self._make_plan(private_rng(self.seed, "autotvm-xgb: plan", len(trials)))

    def _make_plan(self, rng: np.random.Generator) -> list[Config]:
        if not self.diversity_ratio:
            return self._annealer.find_maxima(self.cost_model, self.plan_size, self._measured_configs, rng)
        candidates = self._annealer.find_maxima(
            self.cost_model, int(self.plan_size * self.diversity_ratio), self._measured_configs, rng
        )
        return select_diverse(candidates, np.zeros(len(candidates)), self.plan_size, diversity=1.0)


class AutoTVMXgbRank(
    AutoTVMXgb, own_model=OwnModel(Plugin("autotvm-xgboost", {"loss": "rank"}), "itervar", "autotvm-knob")
):
    """AutoTVM's XGBTuner with ``loss_type = "rank"``: the trees rank trials instead of predicting scores."""

    origin: ClassVar[Origin | None] = replace(XGB_TUNER, name="AutoTVM's XGBTuner, loss_type rank")
