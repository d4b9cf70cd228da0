"""Trials as frames of pandas, a row each. Of millions of rows none has an object of its own."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..records import FAILURES
from .columns import Columns, objects

if TYPE_CHECKING:
    import pandas as pd


def run_frame(log: Columns) -> pd.DataFrame:
    """See :meth:`searchlab.log.result.Result.to_frame`."""
    import pandas as pd

    return pd.DataFrame(_trials([log], None))


def study_frame(logs: Sequence[Columns]) -> pd.DataFrame:
    """See :meth:`searchlab.log.result.Results.to_frame`."""
    import pandas as pd

    if not logs:
        return pd.DataFrame()
    at = np.repeat(np.arange(len(logs)), [log.trials for log in logs])
    headers = [log.header for log in logs]
    names: dict[str, list[str | None]] = {
        "workload": [header.workload for header in headers],
        "space": [header.space_name for header in headers],
        "strategy": [header.name for header in headers],
        "policy": [header.policy.name for header in headers],
        "cost_model": [header.cost_model.name if header.cost_model else None for header in headers],
        "features": [header.features if header.cost_model else None for header in headers],
    }
    numbers = {"batch": [header.batch for header in headers], "seed": [header.seed for header in headers]}
    columns = {name: pd.Series(values, dtype="category").array.take(at) for name, values in names.items()}
    columns |= {name: _taken(values, at) for name, values in numbers.items()}
    return pd.DataFrame(columns | _trials(logs, math.nan), copy=False)


def _trials(logs: Sequence[Columns], missing: float | None) -> dict[str, Any]:
    """The columns of all trials. missing: stands for a knob that a config does not have."""
    import pandas as pd

    failures: Ints = np.concatenate([log.failures for log in logs])
    kinds: list[str] = list(FAILURES)
    gflops = [log.flops / log.costs / 1e9 for log in logs]
    columns: dict[str, Any] = {
        "trial": np.concatenate([np.arange(log.trials) for log in logs]),
        "cost": np.concatenate([log.costs for log in logs]),
        "gflops": np.concatenate(gflops),
        "best_gflops": np.concatenate([np.maximum.accumulate(values) for values in gflops]),
        "gflops_retimed": np.concatenate([_retimed(log) for log in logs]),
        "repeats": _repeats(logs),
        "elapsed": np.concatenate([log.elapsed for log in logs]),
        "failure": pd.Categorical.from_codes(failures, pd.Index(kinds)),
        "reused": np.concatenate([log.reused for log in logs]),
    }
    places: dict[bytes, int] = {}
    at = np.concatenate([_places(log, places) for log in logs])
    configs = [msgspec.json.decode(text) for text in places]
    for name in dict.fromkeys(name for config in configs for name in config):
        columns[f"config.{name}"] = _taken([config.get(name, missing) for config in configs], at)
    return columns


def _places(log: Columns, places: dict[bytes, int]) -> Array:
    """The place of the config of each trial among the distinct ones; new ones are added to ``places``."""
    return np.array([places.setdefault(text, len(places)) for text in log.configs.tolist()], dtype=np.int32)


def _repeats(logs: Sequence[Columns]) -> Array:
    """The readings of each trial; those of trials that a table answered with the same readings are one tuple."""
    distinct: dict[tuple[float, ...], tuple[float, ...]] = {}
    parts = []
    for log in logs:
        readings = log.readings.tolist()
        ends = np.cumsum([0, *log.counts.tolist()]).tolist()
        every = [tuple(readings[start:end]) for start, end in pairwise(ends)]
        parts.append(objects([distinct.setdefault(one, one) for one in every]))
    return np.concatenate(parts)


def _retimed(log: Columns) -> Floats:
    """GFLOPS of each finalist as it was timed again, NaN of other trials."""
    retimed = np.full(log.trials, np.nan)
    for finalist in log.final.finalists if log.final else ():
        retimed[finalist.index] = log.flops / statistics.median(finalist.seconds) / 1e9
    return retimed


def _taken(values: Sequence[Any], at: Array) -> Any:
    """``values[at]``, of the type that pandas finds in ``values``; texts are categories."""
    import pandas as pd

    texts = pd.api.types.infer_dtype(values, skipna=True) == "string"
    return pd.Series(values, dtype="category" if texts else None).array.take(at)
