"""How good a strategy's cost model was, batch by batch, over seeds, as its logs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...log.columns import METRICS as FIELDS
from ..runs import LoggedRun
from ..stats.curves import Band, band_at


@dataclass(frozen=True)
class Metric:
    """A field of :class:`~searchlab.costmodel.quality.ModelQuality`. guess: its value by guessing; top: the largest."""

    field: str
    name: str
    guess: float | None = None
    top: float | None = None


METRICS = (
    Metric("pairwise_accuracy", "pairwise accuracy", guess=0.5, top=1.0),
    Metric("kendall_tau", "Kendall's tau", guess=0.0, top=1.0),
    Metric("top_k_recall", "top-k recall", top=1.0),
    Metric("peak_score", "peak score", top=1.0),
    Metric("rmse", "RMSE"),
)


def model_rounds(runs: Sequence[LoggedRun]) -> dict[str, Band]:
    """By metric, quartiles over the seeds at the trial that ended each batch, from 1.

    For each batch, the seeds count in which the metric is defined. A metric that is defined in no batch is left out, so
    that a strategy without a cost model has no metric.
    """
    ends = np.concatenate([run.log.rounds for run in runs]) + 1.0
    qualities = np.concatenate([run.log.qualities for run in runs])
    bands = {}
    for metric in METRICS:
        values = qualities[:, FIELDS.index(metric.field)]
        known = ~np.isnan(values)
        if known.any():
            bands[metric.field] = band_at(ends[known], values[known])
    return bands
