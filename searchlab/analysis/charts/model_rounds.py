"""How good a strategy's cost model was, batch by batch, over seeds, as its logs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runs import LoggedRun
from ..stats.curves import Band, quartiles


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
    bands = {}
    for metric in METRICS:
        values: dict[int, list[float]] = {}
        for run in runs:
            for record in run.log.records:
                value = getattr(record.model, metric.field) if record.model else None
                if value is not None:
                    values.setdefault(record.index + 1, []).append(value)
        if values:
            ends = sorted(values)
            lower, median, upper = np.array([quartiles(np.array(values[end])) for end in ends]).T
            bands[metric.field] = Band(np.array(ends, dtype=np.float64), lower, median, upper)
    return bands
