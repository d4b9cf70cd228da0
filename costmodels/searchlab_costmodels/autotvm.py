"""AutoTVM's cost model: shallow trees, as many as the ranking of the best trials takes.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.2; ``XGBoostCostModel`` of TVM 0.17
(``python/tvm/autotvm/tuner/xgboost_cost_model.py``, ``metric.py``), as it runs on XGBoost 1: exact splits, predictions
that start from 0.5, and for ``rank`` one sampled pair a trial in each round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost

from searchlab.costmodel import Array, CostModel, Groups
from searchlab.options import one_of, whole

PARAMETERS = {
    "max_depth": 3,
    "gamma": 0.0001,
    "min_child_weight": 1,
    "subsample": 1.0,
    "eta": 0.3,
    "lambda": 1.0,
    "alpha": 0.0,
    "base_score": 0.5,
    "tree_method": "exact",
    "verbosity": 0,
    "nthread": 1,
}
PAIRS = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 1,
    "lambdarank_normalization": False,
}
LOSSES: dict[str, dict[str, Any]] = {"reg": {"objective": "reg:squarederror"}, "rank": PAIRS, "rank-binary": PAIRS}

ROUNDS = 8000
PATIENCE = 20
"""Rounds without a better recall after which training ends."""

EVERY = 2
"""The recall is looked at after every second round."""


class AutoTVM(CostModel):
    """Trees that stop growing in number when the average recall of the best training rows gets no better.

    loss: ``reg`` is least squares on the scores; ``rank`` is the loss of pairs; ``rank-binary`` trains on the same
        pairs, but its recall counts every score of at least 0.5 as equally good, and all others as equally bad.
    plan_size: of the policy: the recall is that of so many rows.
    """

    def __init__(self, *, seed: int, loss: str = "reg", plan_size: int = 64) -> None:
        super().__init__(seed=seed)
        self.loss = one_of("loss", loss, LOSSES)
        self.plan_size = whole("plan_size", plan_size, 1)
        self._trees: xgboost.Booster | None = None

    def fit(self, features: Array, scores: Array, groups: Groups) -> None:
        self._trees = None
        if not features.shape[1]:  # XGBoost takes no matrix without columns, which a space without knobs has
            return
        order = shuffled(self.seed, len(scores))
        order = order[np.argsort(groups[order], kind="stable")]  # XGBoost takes the rows of a task together
        data = xgboost.DMatrix(features[order], label=scores[order], nthread=1)
        if self.loss != "reg":
            data.set_info(qid=groups[order])
        labels = np.where(scores[order] >= 0.5, 1.0, 0.0) if self.loss == "rank-binary" else scores[order]
        self._trees = xgboost.train(
            {**PARAMETERS, **LOSSES[self.loss], "seed": self.seed}, data, num_boost_round=ROUNDS,
            callbacks=[StopAtRecall(data, labels, self.plan_size)],
        )  # fmt: skip

    def predict(self, features: Array) -> Array:
        if self._trees is None or not len(features):
            return np.zeros(len(features))
        return np.asarray(self._trees.predict(xgboost.DMatrix(features, nthread=1)), dtype=np.float64)


def shuffled(seed: int, n: int) -> Groups:
    """The rows 0 to ``n`` - 1 in random order: it decides between equal predictions."""
    return np.random.default_rng([seed, n]).permutation(n)


class StopAtRecall(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Ends the training once the average recall has not risen for :data:`PATIENCE` rounds; all trees are kept."""

    def __init__(self, data: xgboost.DMatrix, labels: Array, n: int) -> None:
        super().__init__()
        self._data, self._labels, self._n = data, labels, n
        self._best, self._best_round = -np.inf, 0

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: object) -> bool:
        if epoch % EVERY:
            return False
        recall = average_recall(model.predict(self._data), self._labels, self._n)
        if recall > self._best:
            self._best, self._best_round = recall, epoch
        return epoch - self._best_round >= PATIENCE


def average_recall(predicted: Array, measured: Array, n: int) -> float:
    """The mean over k <= ``n`` of the share of the k+1 best measured among the k best predicted; of all, if n is more.

    As in AutoTVM the share is that of k, not k+1 predictions, so that 1 is never reached.
    """
    ranks = np.empty(len(measured), dtype=np.int64)
    ranks[np.argsort(-measured)] = np.arange(len(measured))
    by_prediction = ranks[np.argsort(predicted)[::-1]][:n]
    k = np.arange(len(by_prediction))
    hits = np.tril(by_prediction[None, :] <= k[:, None], k=-1).sum(axis=1)
    return float(np.sum(hits / (k + 1)) / n)
