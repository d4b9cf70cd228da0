"""How good a strategy's cost model was, batch by batch: what its logs say, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..read import Cell
from ..stats.curves import Band, quartiles


@dataclass(frozen=True)
class Metric:
    """A field of :class:`~searchlab.model_quality.ModelQuality`. guess: what guessing gives; top: the most there is."""

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


def model_rounds(cells: Sequence[Cell]) -> dict[str, Band]:
    """By metric, quartiles over the seeds at the trial that ended each batch, from 1.

    A batch counts with the seeds in which the metric is defined for it. Metrics that none defines are left out, so that
    a strategy without a cost model has none.
    """
    bands = {}
    for metric in METRICS:
        found: dict[int, list[float]] = {}
        for cell in cells:
            for record in cell.log.records:
                value = getattr(record.model, metric.field) if record.model else None
                if value is not None:
                    found.setdefault(record.index + 1, []).append(value)
        if found:
            ends = sorted(found)
            lower, median, upper = np.array([quartiles(np.array(found[end])) for end in ends]).T
            bands[metric.field] = Band(np.array(ends, dtype=np.float64), lower, median, upper)
    return bands
