"""``pack-sum``: the cost model of Ansor and MetaSchedule, which sums the scores of a program's stores.

Source: Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep Learning" (OSDI 2020), section 5.2.
In Apache TVM 0.17, ``python/tvm/auto_scheduler/cost_model/xgb_model.py``: parameters from ``XGBModel.__init__``,
training from ``XGBModel.update``, the loss ``pack_sum_square_error``, and early stopping on ``pack_sum_rmse``.
``xgb_model.py`` in ``tvm.s_tir.meta_schedule.cost_model`` uses the same values. For the ranking loss: Zheng et al.,
"TenSet: A Large-scale Program Performance Dataset for Learned Tensor Compilers" (NeurIPS 2021, Datasets and
Benchmarks), section 4; Burges et al., "Learning to Rank using Gradient Descent" (ICML 2005), equation (3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import xgboost
from scipy.special import expit

from searchlab.arrays import Floats, Ints
from searchlab.costmodel import CostModel
from searchlab.options import Between, Count, NonNegative

from .ranking import TOP_TRIALS, Scale

FIRST_SCORE = 0.5
"""The score of each store before the first tree: XGBoost's default ``base_score`` when Ansor was written."""


class PackSum(CostModel):
    """Ansor's and MetaSchedule's cost model: boosted trees score each store of a program; the scores are added up.

    The loss is the squared error of the sum, weighted by the measured score, so failed programs have no weight and slow
    ones have little. With features other than ``per-store``, each row counts as a program with one store. A config that
    yields no program gets a score of 0 (minus infinity in Ansor). As in the original, all trees are used for
    predictions, not only those up to the best round. Unlike the original, training uses one thread and histograms
    (XGBoost's default since 2.0), and the stopping criterion is evaluated after every round, not every second one.

    Args:
        objective: ``regression`` minimises the squared error as described. ``rank``, as in TenSet, minimises RankNet's
            loss over pairs of programs from one task, averaged over a program's pairs; training stops when the share of
            wrongly ordered pairs no longer falls. Its predictions are a ranking, mapped to the scale of the scores.
        rounds: The maximum number of trees.
        early_stopping: The number of rounds without a lower unweighted training error (``tr-p-rmse``) after which
            training ends. Each program counts once per store.
        max_depth: The maximum depth of a tree.
        gamma: The minimum gain required for a split.
        min_child_weight: The minimum sum of weights in a leaf; with ``rank``, the minimum sum of second derivatives,
            which are at most 1/4 per store.
        learning_rate: The factor by which each tree's contribution is multiplied (eta).
    """

    per_store = True
    uncertainty = "bootstrap"

    def __init__(
        self,
        *,
        seed: int,
        objective: Literal["regression", "rank"] = "regression",
        rounds: Count = 10_000,
        early_stopping: Count = 50,
        max_depth: Annotated[int, Between(1, 16)] = 10,
        gamma: NonNegative = 0.001,
        min_child_weight: NonNegative = 0.0,
        learning_rate: Annotated[float, Between(1e-6, 1)] = 0.2,
    ) -> None:
        super().__init__(seed=seed)
        self.is_ranking = objective == "rank"
        self.rounds = rounds
        self.early_stopping = early_stopping
        self.parameters = {
            "max_depth": max_depth,
            "gamma": gamma,
            "min_child_weight": min_child_weight,
            "learning_rate": learning_rate,
            "base_score": 0.0 if self.is_ranking else FIRST_SCORE,
            "tree_method": "hist",
            "seed": seed,
            "nthread": 1,  # sums gradients in a deterministic order
            "disable_default_eval_metric": True,
            "verbosity": 0,
        }
        self._mean_score = 0.0
        self._trees: xgboost.Booster | None = None
        self._scale = Scale(1.0)

    def fit(self, features: Floats, scores: Floats, groups: Ints) -> None:
        self._mean_score = float(np.mean(scores))
        self._trees = None
        stores, program_indices = self._split_stores(features)
        if not stores.size:  # XGBoost rejects a matrix without rows or columns
            return
        loss: RankingLoss | SquaredError
        loss = (
            RankingLoss(scores, groups, program_indices) if self.is_ranking else SquaredError(scores, program_indices)
        )
        labels = scores[program_indices]
        weights = None if self.is_ranking else labels  # weights give fast programs finer bins
        matrix = xgboost.DMatrix(stores, label=labels, weight=weights, nthread=1)
        early_stopping = xgboost.callback.EarlyStopping(
            rounds=self.early_stopping, metric_name=loss.name, data_name="tr"
        )
        self._trees = xgboost.train(
            self.parameters,
            matrix,
            num_boost_round=self.rounds,
            obj=loss.compute_gradients,
            evals=[(matrix, "tr")],
            custom_metric=loss.compute_metric,
            verbose_eval=False,
            callbacks=[early_stopping],
        )
        if self.is_ranking:
            self._scale = Scale.fit(self._sum_over_stores(self._trees, features), scores)

    def dump(self) -> dict[str, bytes]:
        return {} if self._trees is None else {"trees.json": bytes(self._trees.save_raw("json")), **self._scale.dump()}

    def restore(self, files: Mapping[str, bytes]) -> None:
        self._trees = xgboost.Booster({"nthread": 1}, model_file=bytearray(files["trees.json"]))
        self._scale = Scale.restore(files)

    def predict(self, features: Floats) -> Floats:
        if self._trees is None:
            return np.full(len(features), self._mean_score)
        predicted = self._sum_over_stores(self._trees, features)
        return self._scale(predicted) if self.is_ranking else predicted

    def _sum_over_stores(self, trees: xgboost.Booster, features: Floats) -> Floats:
        """Return the sum of each program's predictions over its stores."""
        stores, program_indices = self._split_stores(features)
        predicted = np.zeros(len(features))
        if len(stores):
            scores = trees.inplace_predict(stores)
            predicted += np.bincount(program_indices, weights=scores, minlength=len(features))
        return predicted

    def _split_stores(self, features: Floats) -> tuple[Floats, Ints]:
        """Return the stores (s, w) of all rows and each store's row index."""
        if not self.columns_per_store:
            return features, np.arange(len(features))
        row_count, column_count = len(features), self.columns_per_store
        stores = features.reshape(row_count * (features.shape[1] // column_count), column_count)
        program_indices = np.repeat(np.arange(row_count), features.shape[1] // column_count)
        is_store = ~np.isnan(stores).all(axis=1)
        return stores[is_store], program_indices[is_store]


class SquaredError:
    """The squared error of programs' predicted scores, weighted by the scores.

    Args:
        scores: The scores of the programs, of shape (n,).
        program_indices: The program of each store, of shape (stores,).
    """

    name = "p-rmse"

    def __init__(self, scores: Floats, program_indices: Ints) -> None:
        self._program_count = len(scores)
        self._program_indices = program_indices
        self._store_scores = scores[program_indices]

    def compute_gradients(self, predicted: Floats, _: xgboost.DMatrix) -> tuple[Floats, Floats]:
        """Return the first and second derivatives of the loss with respect to each store's prediction."""
        return self._compute_errors(predicted) * self._store_scores, self._store_scores

    def compute_metric(self, predicted: Floats, _: xgboost.DMatrix) -> tuple[str, float]:
        """Return the root mean square error."""
        return self.name, float(np.sqrt(np.mean(np.square(self._compute_errors(predicted)))))

    def _compute_errors(self, predicted: Floats) -> Floats:
        """Return, for each store, the error of its program's predicted score."""
        sums = np.bincount(self._program_indices, weights=predicted, minlength=self._program_count).astype(np.float64)
        errors: Floats = sums[self._program_indices] - self._store_scores
        return errors


class RankingLoss:
    """The logistic loss of pairs of programs, of which the faster one should have the higher predicted score.

    Args:
        scores: The scores of the programs, of shape (n,).
        groups: The task of each program, of shape (n,).
        program_indices: The program of each store, of shape (stores,).
    """

    name = "p-rank"

    def __init__(self, scores: Floats, groups: Ints, program_indices: Ints) -> None:
        self._program_count = len(scores)
        self._program_indices = program_indices
        self._faster, self._slower = _make_pairs(scores, groups)
        pair_members = np.concatenate([self._faster, self._slower])
        self._opponent_counts = np.maximum(np.bincount(pair_members, minlength=self._program_count), 1)

    def compute_gradients(self, predicted: Floats, _: xgboost.DMatrix) -> tuple[Floats, Floats]:
        """Return the first and second derivatives of the loss with respect to each store's prediction."""
        n, faster, slower = self._program_count, self._faster, self._slower
        error_probabilities: Floats = expit(self._order_errors(predicted))
        gradients = np.bincount(slower, error_probabilities, n) - np.bincount(faster, error_probabilities, n)
        pair_curvatures = error_probabilities * (1 - error_probabilities)
        curvatures = np.bincount(np.concatenate([slower, faster]), np.tile(pair_curvatures, 2), n)
        mean_gradients, mean_curvatures = gradients / self._opponent_counts, curvatures / self._opponent_counts
        return mean_gradients[self._program_indices], mean_curvatures[self._program_indices]

    def compute_metric(self, predicted: Floats, _: xgboost.DMatrix) -> tuple[str, float]:
        """Return the share of pairs in the wrong order."""
        return self.name, float(np.mean(self._order_errors(predicted) >= 0)) if len(self._faster) else 0.0

    def _order_errors(self, predicted: Floats) -> Floats:
        """Return, for each pair, how much higher the slower program's prediction is than the faster one's."""
        sums = np.bincount(self._program_indices, weights=predicted, minlength=self._program_count)
        return np.asarray(sums[self._slower] - sums[self._faster])


def _make_pairs(scores: Floats, groups: Ints) -> tuple[Ints, Ints]:
    """Return the faster and the slower program of each pair whose faster program is among the best of its task."""
    faster: list[Ints] = []
    slower: list[Ints] = []
    for task in np.unique(groups):
        rows = np.flatnonzero(groups == task)
        best = rows[np.argsort(-scores[rows], kind="stable")[:TOP_TRIALS]]
        first, second = np.nonzero(scores[best][:, None] > scores[rows])
        faster.append(best[first])
        slower.append(rows[second])
    return np.concatenate(faster), np.concatenate(slower)
