"""``pretrained``: a ranking model trained on other tasks, whose weight decreases with each trial of the current task.

Sources: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 4, for the sum of a global and a
local model; Zheng et al., "TenSet: A Large-scale Program Performance Dataset for Learned Tensor Compilers" (NeurIPS
2021, Datasets and Benchmarks), section 4, for training one model on many tasks with a ranking loss.
"""

from __future__ import annotations

import numpy as np

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.options import NonNegative

from .pack_sum import PackSum
from .xgboost import XGBoost


class Pretrained(CostModel):
    """Two ranking models: one trained on other tasks, and one trained on the current task, which gradually takes over.

    Both are the cost model ``xgboost`` or, with the features ``per-store``, ``pack-sum``, with ``objective = "rank"``.
    The first is trained once, and the second after every batch, on the current task's trials only. After n of these,
    the prediction is the weighted mean of both models' predictions, in which the first has the weight
    ``prior / (prior + n)``. Without other tasks, only the second is used.

    Args:
        prior: The number of trials after which both models have the same weight.
    """

    per_store = True
    uncertainty = "bootstrap"

    def __init__(self, *, seed: int, prior: NonNegative = 32.0) -> None:
        super().__init__(seed=seed)
        self.prior = prior
        self.weight = 0.0  # the weight of the model trained on other tasks
        self._transfer_model: CostModel | None = None
        self._own_model: CostModel | None = None
        self._transfer_column_count = 0  # the number of columns for other tasks, which come first

    def start_from(self, features: Floats, scores: Floats, groups: Ints) -> bool:
        self._transfer_model = self._train(features, scores, groups)
        self._transfer_column_count = features.shape[1]
        self.weight = 1.0
        return True

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._own_model = self._train(features, scores, groups)
        if self._transfer_model is not None:
            self.weight = self.prior / (self.prior + len(scores))

    def predict(self, features: Floats) -> Floats:
        predicted = np.zeros(len(features))
        if self._transfer_model is not None:
            columns = features if self.columns_per_store else features[:, : self._transfer_column_count]
            predicted += self.weight * self._transfer_model.predict(columns)
        if self._own_model is not None:
            predicted += (1 - self.weight) * self._own_model.predict(features)
        return predicted

    def _train(self, features: Floats, scores: Floats, groups: Ints) -> CostModel:
        model_class = PackSum if self.columns_per_store else XGBoost
        model = model_class(seed=self.seed, objective="rank")
        model.columns_per_store = self.columns_per_store
        model.fit(features, scores, groups)
        return model
