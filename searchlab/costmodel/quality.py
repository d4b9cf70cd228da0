"""Metrics that compare a cost model's predictions for one task's trials with the trials' measurements.

In every function, ``predicted`` and ``measured`` are scores of shape (n,), where higher is faster; ``measured`` is 0
for a failed trial. The result is NaN if the metric is undefined.

Source: Zheng et al., "TenSet: A Large-scale Program Performance Dataset for Learned Tensor Compilers" (NeurIPS 2021,
Datasets and Benchmarks), and ``metric.py`` in its code.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np

from ..arrays import Floats, Ints


class ModelQuality(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"trial_count": "trials"},
    kw_only=True,
    omit_defaults=True,
):
    """This module's metrics for one set of trials. A metric that is undefined is None.

    Attributes:
        trial_count: The number of trials.
        k: The k used for top-k recall and the peak score.
        train_seconds: The time spent training the model, in seconds.
        predict_seconds: The time spent on all predictions that were made to choose these trials, in seconds.
    """

    trial_count: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    k: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
    pairwise_accuracy: float | None = None
    kendall_tau: float | None = None
    top_k_recall: float | None = None
    peak_score: float | None = None
    rmse: float | None = None
    train_seconds: float = 0.0
    predict_seconds: float = 0.0


def measure_quality(
    predicted: Floats, measured: Floats, k: int, *, train_seconds: float, predict_seconds: float
) -> ModelQuality:
    """Return every metric for n >= 1 trials, where ``k`` is at most n."""
    metrics = {
        "pairwise_accuracy": pairwise_accuracy(predicted, measured),
        "kendall_tau": kendall_tau(predicted, measured),
        "top_k_recall": top_k_recall(predicted, measured, k),
        "peak_score": peak_score(predicted, measured, k),
        "rmse": rmse(predicted, measured),
    }
    defined_metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return ModelQuality(
        trial_count=len(measured),
        k=k,
        train_seconds=train_seconds,
        predict_seconds=predict_seconds,
        **defined_metrics,
    )


def pairwise_accuracy(predicted: Floats, measured: Floats) -> float:
    """Return the share of pairs with different measurements that are predicted in the right order.

    Random guessing achieves 0.5. A pair with equal predictions counts as half, and a pair with equal measurements is
    ignored. TenSet's code treats both as pairs in descending order; without ties, the results agree.
    """
    first_indices, second_indices = np.triu_indices(len(measured), k=1)
    true_order = np.sign(measured[first_indices] - measured[second_indices])
    predicted_order = np.sign(predicted[first_indices] - predicted[second_indices])
    pair_count = np.count_nonzero(true_order)
    if not pair_count:
        return math.nan
    return float(np.sum((true_order * predicted_order + 1)[true_order != 0]) / 2 / pair_count)


def kendall_tau(predicted: Floats, measured: Floats) -> float:
    """Return Kendall's tau-b in [-1, 1], which accounts for ties on either side; random guessing achieves 0."""
    if len(measured) < 2:
        return math.nan
    from scipy.stats import kendalltau  # imported here because it takes most of a second

    return float(kendalltau(predicted, measured).statistic)


def top_k_recall(predicted: Floats, measured: Floats, k: int) -> float:
    """Return the share of the ``k`` fastest trials that are among the ``k`` best predictions; guessing gives k / n."""
    if not 1 <= k <= len(measured):
        return math.nan
    return len(np.intersect1d(_top_indices(predicted, k), _top_indices(measured, k))) / k


def peak_score(predicted: Floats, measured: Floats, k: int) -> float:
    """Return the mean, over the first ``k`` trials in predicted order, of the best score so far / the best of all."""
    best = np.max(measured, initial=0.0)
    if not 1 <= k <= len(measured) or best <= 0:
        return math.nan
    return float(np.mean(np.maximum.accumulate(measured[_top_indices(predicted, k)])) / best)


def rmse(predicted: Floats, measured: Floats) -> float:
    """Return the root mean square error of the predicted scores."""
    return float(np.sqrt(np.mean(np.square(predicted - measured)))) if len(measured) else math.nan


def _top_indices(scores: Floats, k: int) -> Ints:
    return np.argsort(-scores, kind="stable")[:k]
