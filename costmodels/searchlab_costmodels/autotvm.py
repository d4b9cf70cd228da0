"""AutoTVM's cost model: shallow boosted trees, with early stopping when the recall of the best trials stalls.

Source: Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.2; ``XGBoostCostModel`` in
``xgboost_cost_model.py``, and ``metric.py``, in ``python/tvm/autotvm/tuner`` of TVM 0.17, as they run on XGBoost 1:
exact splits, a base score of 0.5, and for ``rank`` one sampled pair per trial and round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import xgboost

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.errors import SearchlabError
from searchlab.options import Count

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
PAIRWISE_PARAMETERS = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 1,
    "lambdarank_normalization": False,
}
PARAMETERS_BY_LOSS: dict[str, dict[str, Any]] = {
    "reg": {"objective": "reg:squarederror"},
    "rank": PAIRWISE_PARAMETERS,
    "rank-binary": PAIRWISE_PARAMETERS,
}

MAX_ROUNDS, PATIENCE = 8000, 20
"""The maximum number of rounds, and the number of rounds without improved recall after which training ends."""

BASE_MAX_ROUNDS, BASE_PATIENCE, BASE_MIN_TRIALS = 400, 100, 500
"""The same for a base model, and the minimum number of trials to train one."""

HALF_LIFE, MIN_DISCOUNT = 64, 0.05
"""The number of trials after which a base model's weight is halved, and the weight below which the model is dropped."""

RECALL_INTERVAL = 2
"""The recall is evaluated after every second round."""


class AutoTVM(CostModel):
    """AutoTVM's cost model: XGBoost, trained until the recall of the best trials no longer improves.

    Args:
        loss: ``reg`` minimises the squared error of the scores; ``rank`` minimises a pairwise ranking loss.
            ``rank-binary`` trains on the same pairs as ``rank``, but its recall counts every score of at least 0.5 as
            equally good and all others as equally bad.
        plan_size: The number of best trials whose recall decides when training stops. Use the policy's ``plan_size``.
        transfer: How trials of other tasks are used. ``pool`` always includes them in the training data.
            ``base-margin`` follows AutoTVM: a base model is trained on them once, which requires at least 500 trials.
            Later models start from its predictions, weighted by 2^(-n / 64) after n trials; once the weight is below
            0.05, the base model is dropped. Here, scores are relative to the best trial of their own task; in AutoTVM,
            they are relative to the best trial of all tasks.
    """

    uncertainty = "bootstrap"

    def __init__(
        self,
        *,
        seed: int,
        loss: Literal["reg", "rank", "rank-binary"] = "reg",
        plan_size: Count = 64,
        transfer: Literal["pool", "base-margin"] = "pool",
    ) -> None:
        super().__init__(seed=seed)
        self.loss = loss
        self.plan_size = plan_size
        self.transfer = transfer
        self._trees: xgboost.Booster | None = None
        self._base_model: xgboost.Booster | None = None
        self._discount = 1.0

    def start_from(self, features: Floats, scores: Floats, groups: Ints) -> bool:
        if self.transfer == "pool":
            return False
        if len(scores) < BASE_MIN_TRIALS:
            raise SearchlabError(
                f"transfer = 'base-margin' requires at least {BASE_MIN_TRIALS} trials of other tasks, as in AutoTVM, "
                f"but only {len(scores)} were found; warm-start from more logs, or use transfer = 'pool'"
            )
        stopping_rule = BASE_MAX_ROUNDS, BASE_PATIENCE, 2 * self.plan_size
        self._base_model = self._train(features, scores, groups, *stopping_rule)
        return True

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._discount = 2 ** (-len(scores) / HALF_LIFE)
        if self._discount < MIN_DISCOUNT:
            self._base_model = None
        self._trees = self._train(features, scores, groups, MAX_ROUNDS, PATIENCE, self.plan_size)

    def predict(self, features: Floats) -> Floats:
        if not len(features) or (self._trees is None and self._base_model is None):
            return np.zeros(len(features))
        if self._trees is None:
            return self._predict_base_margin(features)
        data = xgboost.DMatrix(features, nthread=1)
        if self._base_model is not None:
            data.set_base_margin(self._discount * self._predict_base_margin(features))
        return np.asarray(self._trees.predict(data), dtype=np.float64)

    def dump(self) -> dict[str, bytes]:
        """Return the trees, unless they add to the predictions of a base model."""
        if self._trees is None or self._base_model is not None:
            return {}
        return {"trees.json": bytes(self._trees.save_raw("json"))}

    def restore(self, files: Mapping[str, bytes]) -> None:
        self._base_model = None
        self._trees = xgboost.Booster({"nthread": 1}, model_file=bytearray(files["trees.json"]))

    def _predict_base_margin(self, features: Floats) -> Floats:
        """Return the base model's predictions, which use only the first columns."""
        assert self._base_model is not None
        data = xgboost.DMatrix(features[:, : self._base_model.num_features()], nthread=1)
        return np.asarray(self._base_model.predict(data, output_margin=True), dtype=np.float64)

    def _train(
        self, features: Floats, scores: Floats, groups: Ints, rounds: int, patience: int, recall_count: int
    ) -> xgboost.Booster | None:
        if not features.shape[1]:  # XGBoost rejects a matrix without columns, as for a space without knobs
            return None
        order = shuffle(self.seed, len(scores))
        order = order[np.argsort(groups[order], kind="stable")]  # XGBoost requires each task's rows to be contiguous
        matrix = xgboost.DMatrix(features[order], label=scores[order], nthread=1)
        if self.loss != "reg":
            matrix.set_info(qid=groups[order])
        if self._base_model is not None:
            matrix.set_base_margin(self._discount * self._predict_base_margin(features[order]))
        labels = np.where(scores[order] >= 0.5, 1.0, 0.0) if self.loss == "rank-binary" else scores[order]
        return xgboost.train(
            {**PARAMETERS, **PARAMETERS_BY_LOSS[self.loss], "seed": self.seed},
            matrix,
            num_boost_round=rounds,
            callbacks=[StopAtRecall(matrix, labels, recall_count, patience)],
        )


def shuffle(seed: int, n: int) -> Ints:
    """Return 0 to ``n`` - 1 in random order, to break ties between equal predictions."""
    return np.random.default_rng([seed, n]).permutation(n)


class StopAtRecall(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Stops training when the average recall has not risen for ``patience`` rounds; all trees are kept."""

    def __init__(self, data: xgboost.DMatrix, labels: Floats, recall_count: int, patience: int) -> None:
        super().__init__()
        self._data, self._labels, self._recall_count, self._patience = data, labels, recall_count, patience
        self._best_recall, self._best_round = -np.inf, 0

    def after_iteration(self, model: xgboost.Booster, epoch: int, evals_log: object) -> bool:
        if epoch % RECALL_INTERVAL:
            return False
        recall = compute_average_recall(model.predict(self._data), self._labels, self._recall_count)
        if recall > self._best_recall:
            self._best_recall, self._best_round = recall, epoch
        return epoch - self._best_round >= self._patience


def compute_average_recall(predicted: Floats, measured: Floats, n: int) -> float:
    """Return AutoTVM's average recall of the best rows among the first ``n`` predictions.

    This is the mean, over k < ``n``, of the fraction of the k + 1 best rows that are among the k best predictions.
    Because AutoTVM considers k rather than k + 1 predictions, the recall never reaches 1.
    """
    ranks = np.empty(len(measured), dtype=np.int64)
    ranks[np.argsort(-measured)] = np.arange(len(measured))
    predicted_ranks = ranks[np.argsort(predicted)[::-1]][:n]
    k = np.arange(len(predicted_ranks))
    hits = np.tril(predicted_ranks[None, :] <= k[:, None], k=-1).sum(axis=1)
    return float(np.sum(hits / (k + 1)) / n)
