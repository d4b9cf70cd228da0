"""Logs as data frames, with a row for each trial."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints, make_object_array
from ..records import FAILURES
from ..units import convert_throughput
from .columns import LogColumns

if TYPE_CHECKING:
    import pandas as pd


def make_study_frame(logs: Sequence[LogColumns], **labels: list[str | None]) -> pd.DataFrame:
    """Return the data frame that :meth:`Results.to_frame` describes.

    ``labels`` replace columns of names, such as ``workload``; they have a name for each log.
    """
    import pandas as pd

    if not logs:
        return pd.DataFrame()
    log_indices = np.repeat(np.arange(len(logs)), [log.trial_count for log in logs])
    headers = [log.header for log in logs]
    labels_by_column: dict[str, list[str | None]] = {
        "workload": [header.workload for header in headers],
        "space": [header.space_name for header in headers],
        "strategy": [header.name for header in headers],
        "policy": [header.policy.name for header in headers],
        "cost_model": [header.cost_model.name if header.cost_model else None for header in headers],
        "features": [header.features if header.cost_model else None for header in headers],
    }
    labels_by_column |= labels
    columns = {
        name: pd.Series(values, dtype="category").array.take(log_indices) for name, values in labels_by_column.items()
    }
    for name in ("batch", "seed"):
        columns[name] = _take_values([getattr(header, name) for header in headers], log_indices)
    return pd.DataFrame(columns | _make_trial_columns(logs, log_indices, math.nan), copy=False)


def make_trial_frame(log: LogColumns) -> pd.DataFrame:
    """Return the data frame that :meth:`Result.to_frame` describes."""
    import pandas as pd

    return pd.DataFrame(_make_trial_columns([log], np.zeros(log.trial_count, np.int64), None))


def _make_trial_columns(logs: Sequence[LogColumns], log_indices: Array, missing: float | None) -> dict[str, Any]:
    """Return the columns with a value for each trial.

    ``log_indices`` contains the index of each trial's log. If a config lacks a knob, the knob's value is ``missing``.
    """
    import pandas as pd

    failures: Ints = np.concatenate([log.failures for log in logs])
    kinds: list[str] = list(FAILURES)
    units = [log.unit for log in logs]
    gflops = [log.flops / log.costs / 1e9 for log in logs]
    columns: dict[str, Any] = {
        "trial": np.concatenate([np.arange(log.trial_count) for log in logs]),
        "cost": np.concatenate([log.costs for log in logs]),
        "gflops": np.concatenate(list(map(convert_throughput, gflops, units))),
        "best_gflops": np.concatenate(list(map(convert_throughput, map(np.maximum.accumulate, gflops), units))),
        "gflops_retimed": np.concatenate([_compute_retimed_throughput(log) for log in logs]),
        "unit": pd.Series(units, dtype="category").array.take(log_indices),
        "repeats": _list_repeats(logs),
        "elapsed": np.concatenate([log.elapsed_seconds for log in logs]),
        "failure": pd.Categorical.from_codes(failures, pd.Index(kinds)),
        "reused": np.concatenate([log.reused for log in logs]),
    }
    config_indices, config_texts = pd.factorize(np.concatenate([log.configs for log in logs]))
    configs = [msgspec.json.decode(text) for text in config_texts]
    for name in dict.fromkeys(name for config in configs for name in config):
        columns[f"config.{name}"] = _take_values([config.get(name, missing) for config in configs], config_indices)
    return columns


def _list_repeats(logs: Sequence[LogColumns]) -> Array:
    """Return each trial's readings. Equal readings, such as those from the same table entry, share one tuple."""
    shared_readings: dict[tuple[float, ...], tuple[float, ...]] = {}
    repeats = []
    for log in logs:
        readings = log.readings.tolist()
        ends = np.cumsum([0, *log.reading_counts.tolist()]).tolist()
        repeats_of_trials = (tuple(readings[start:end]) for start, end in pairwise(ends))
        repeats += [shared_readings.setdefault(times, times) for times in repeats_of_trials]
    return make_object_array(repeats)


def _compute_retimed_throughput(log: LogColumns) -> Floats:
    """Return each trial's throughput when it was timed again, or NaN if it is not a finalist."""
    retimed = np.full(log.trial_count, np.nan)
    for finalist in log.finalist_times.finalists if log.finalist_times else ():
        retimed[finalist.index] = log.flops / statistics.median(finalist.seconds) / 1e9
    return retimed


def _take_values(values: Sequence[Any], indices: Array) -> Any:
    """Return ``values[indices]`` with the type that pandas infers. Strings become categorical."""
    import pandas as pd

    is_text = pd.api.types.infer_dtype(values, skipna=True) == "string"
    return pd.Series(values, dtype="category" if is_text else None).array.take(indices)
