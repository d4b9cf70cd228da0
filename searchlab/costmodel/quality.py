"""How good a cost model is: its predictions for some trials of one task, compared with their measurements.

Source: Zheng et al., "TenSet: A Large-scale Program Performance Dataset for Learned Tensor Compilers" (NeurIPS 2021,
Datasets and Benchmarks), with ``metric.py`` of its code. For every function, ``predicted`` and ``measured`` are (n,),
higher is faster, and a failed trial has ``measured`` 0; the result is NaN if it is not defined.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from ..arrays import Floats, Ints


class ModelQuality(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The functions of this module on one set of trials; None for those that are not defined.

    trials: the number of trials. k: that of top-k recall and of the peak score.
    train_seconds: the time to train the model. predict_seconds: the time of all predictions that were made to choose
    these trials.
    """

    trials: int
    k: int
    pairwise_accuracy: float | None = None
    kendall_tau: float | None = None
    top_k_recall: float | None = None
    peak_score: float | None = None
    rmse: float | None = None
    train_seconds: float = 0.0
    predict_seconds: float = 0.0


def model_quality(
    predicted: Floats, measured: Floats, k: int, *, train_seconds: float, predict_seconds: float
) -> ModelQuality:
    """Every metric of n >= 1 trials; ``k`` is at most n."""
    return ModelQuality(
        trials=len(measured),
        k=k,
        pairwise_accuracy=_defined(pairwise_accuracy(predicted, measured)),
        kendall_tau=_defined(kendall_tau(predicted, measured)),
        top_k_recall=_defined(top_k_recall(predicted, measured, k)),
        peak_score=_defined(peak_score(predicted, measured, k)),
        rmse=_defined(rmse(predicted, measured)),
        train_seconds=train_seconds,
        predict_seconds=predict_seconds,
    )


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pairwise_accuracy(predicted: Floats, measured: Floats) -> float:
    """Share of the pairs with different measurements whose predictions have the same order: 0.5 by guessing.

    A pair with equal predictions counts half, and a pair with equal measurements does not count. TenSet's code takes
    both for pairs in descending order; without ties the result is the same.
    """
    first, second = np.triu_indices(len(measured), k=1)
    truth = np.sign(measured[first] - measured[second])
    guess = np.sign(predicted[first] - predicted[second])
    pairs = np.count_nonzero(truth)
    return float(np.sum((truth * guess + 1)[truth != 0]) / 2 / pairs) if pairs else math.nan


def kendall_tau(predicted: Floats, measured: Floats) -> float:
    """Kendall's tau-b in [-1, 1], which allows for ties on either side: 0 by guessing."""
    if len(measured) < 2:
        return math.nan
    from scipy.stats import kendalltau  # here, since it takes most of a second, and readers of logs do not need it

    return float(kendalltau(predicted, measured).statistic)


def top_k_recall(predicted: Floats, measured: Floats, k: int) -> float:
    """Share of the ``k`` fastest that are among the ``k`` predicted to be fastest: k / n by guessing."""
    return len(np.intersect1d(_top(predicted, k), _top(measured, k))) / k if 1 <= k <= len(measured) else math.nan


def peak_score(predicted: Floats, measured: Floats, k: int) -> float:
    """Mean of best so far / best of all over the first ``k`` trials, if they were run in predicted order."""
    best = np.max(measured, initial=0.0)
    if not 1 <= k <= len(measured) or best <= 0:
        return math.nan
    return float(np.mean(np.maximum.accumulate(measured[_top(predicted, k)])) / best)


def rmse(predicted: Floats, measured: Floats) -> float:
    """Root of the mean squared error, in units of the score."""
    return float(np.sqrt(np.mean(np.square(predicted - measured)))) if len(measured) else math.nan


def _top(values: Floats, k: int) -> Ints:
    return np.argsort(-values, kind="stable")[:k]
