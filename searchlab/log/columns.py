"""Logs as arrays, which hold the data for an analysis in a hundred bytes per trial instead of a thousand."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints, make_object_array
from ..records import FAILURES
from .format import CodeChange, ConfigJson, FinalistTimes, Header, Log, LoggedTrials, RunEnd
from .read import read_log

QUALITY_METRICS = ("pairwise_accuracy", "kendall_tau", "top_k_recall", "peak_score", "rmse")
"""The fields of :class:`~searchlab.costmodel.quality.ModelQuality` that :attr:`LogColumns.qualities` contains."""

TRIAL_ARRAYS = (
    "costs",
    "batch_numbers",
    "spent_seconds",
    "part_seconds",
    "failures",
    "nearest",
    "reused",
    "fill_in",
    "configs",
    "sentinels",
    "reading_counts",
)
"""The names of the arrays in :class:`LogColumns` that have one value per trial."""

OTHER_ARRAYS = ("readings", "rated_trials", "qualities")
"""The names of the other arrays in :class:`LogColumns`."""

_FAILURE_CODES = {None: -1} | {kind: number for number, kind in enumerate(FAILURES)}
_CONFIG_ENCODER, _CONFIG_DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(ConfigJson)


@dataclass(frozen=True, eq=False)
class LogColumns(LoggedTrials):
    """The content of a log, as arrays. Unless stated otherwise, each array has one value per trial.

    Attributes:
        costs: The cost in seconds, or infinity for a failure.
        batch_numbers: The number of the trial's batch.
        spent_seconds: The seconds spent on proposing, training, building and running, shape (trials, 4).
        part_seconds: The seconds of these that were spent on features and on checking, shape (trials, 2).
        failures: The position of the kind of failure in :data:`~searchlab.records.FAILURES`, or -1 for none.
        nearest, reused: See :class:`~searchlab.records.Measurement`.
        fill_in: See :class:`~searchlab.log.format.Record`.
        configs: The config as JSON text. Equal texts share one object, since the runs in a study share most configs.
        sentinels: The sentinel reading before the trial, in seconds, or NaN for none.
        reading_counts: The number of readings.
        readings: The readings of all trials in order, in seconds, shape (sum of ``reading_counts``,).
        rated_trials: The indices of the trials with a :class:`~searchlab.costmodel.quality.ModelQuality`, shape
            (rated_trials,).
        qualities: The :data:`QUALITY_METRICS` of these trials, or NaN if undefined, shape (rated_trials, 5).
    """

    path: Path
    header: Header
    costs: Floats
    batch_numbers: Array
    spent_seconds: Floats
    part_seconds: Floats
    failures: Array
    nearest: Array
    reused: Array
    fill_in: Array
    configs: Array
    sentinels: Floats
    reading_counts: Array
    readings: Floats
    rated_trials: Array
    qualities: Floats
    finalist_times: FinalistTimes | None = None
    run_end: RunEnd | None = None
    changes: tuple[CodeChange, ...] = ()

    @classmethod
    def from_log(cls, log: Log) -> Self:
        """Return the columns of ``log``."""
        records = log.records
        part_seconds = [(record.feature_seconds, record.check_seconds) for record in records]
        rated_trials = [index for index, record in enumerate(records) if record.model_quality]
        qualities = [
            [getattr(records[index].model_quality, name) for name in QUALITY_METRICS] for index in rated_trials
        ]
        return cls(
            path=log.path,
            header=log.header,
            costs=log.costs,
            batch_numbers=log.batch_numbers.astype(np.int32),
            spent_seconds=log.spent_seconds,
            part_seconds=np.array(part_seconds, np.float64).reshape(-1, 2),
            failures=np.array([_FAILURE_CODES[record.failure] for record in records], np.int8),
            nearest=np.array([record.nearest for record in records], np.bool_),
            reused=np.array([record.reused for record in records], np.bool_),
            fill_in=np.array([record.fill_in for record in records], np.bool_),
            configs=make_object_array(
                [sys.intern(_CONFIG_ENCODER.encode(record.config).decode()) for record in records]
            ),
            sentinels=log.sentinels,
            reading_counts=np.array([len(record.seconds) for record in records], np.int32),
            readings=np.array([seconds for record in records for seconds in record.seconds], np.float64),
            rated_trials=np.array(rated_trials, np.int32),
            qualities=np.array(qualities, np.float64).reshape(-1, len(QUALITY_METRICS)),
            finalist_times=log.finalist_times,
            run_end=log.run_end,
            changes=log.changes,
        )

    @property
    def trial_count(self) -> int:
        """The number of trials."""
        return len(self.costs)

    def config(self, index: int) -> ConfigJson:
        """Return a trial's config."""
        return _CONFIG_DECODER.decode(self.configs[index])

    def truncate(self, trial_count: int, run_end: RunEnd | None = None) -> Self:
        """Return these columns, shortened to ``trial_count`` trials. ``run_end`` states why the run ended there."""
        rated_count = int(np.searchsorted(self.rated_trials, trial_count))
        return replace(
            self,
            **{name: getattr(self, name)[:trial_count] for name in TRIAL_ARRAYS},
            readings=self.readings[: int(self.reading_counts[:trial_count].sum())],
            rated_trials=self.rated_trials[:rated_count],
            qualities=self.qualities[:rated_count],
            finalist_times=None,
            run_end=run_end,
            changes=tuple(change for change in self.changes if change.trial_count <= trial_count),
        )

    def take(self, indices: Ints) -> Self:
        """Return the trials at ``indices``, in this order, without how well they were predicted and any last lines."""
        counts = self.reading_counts[indices].astype(np.int64)
        offsets = np.cumsum(self.reading_counts)[indices] - np.cumsum(counts)  # how far each trial's readings move
        return replace(
            self,
            **{name: getattr(self, name)[indices] for name in TRIAL_ARRAYS},
            readings=self.readings[np.arange(counts.sum()) + np.repeat(offsets, counts)],
            rated_trials=self.rated_trials[:0],
            qualities=self.qualities[:0],
            finalist_times=None,
            run_end=None,
            changes=(),
        )


def read_columns(path: Path) -> LogColumns:
    """Read the log at ``path``, ignoring an incomplete last line.

    Raises SearchlabError in the same cases as :func:`~searchlab.log.read.read_log`.
    """
    return LogColumns.from_log(read_log(path))
