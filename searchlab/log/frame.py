"""Trials as frames of pandas, a row each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..records import FAILURES
from .charges import Floats
from .columns import Array, Columns

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
    runs: dict[str, list[Any]] = {
        "workload": [header.workload for header in headers],
        "space": [header.space_name for header in headers],
        "strategy": [header.name for header in headers],
        "policy": [header.policy.name for header in headers],
        "cost_model": [header.cost_model.name if header.cost_model else None for header in headers],
        "features": [header.features if header.cost_model else None for header in headers],
        "batch": [header.batch for header in headers],
        "seed": [header.seed for header in headers],
    }
    columns = {name: _taken(values, at) for name, values in runs.items()} | _trials(logs, math.nan)
    return pd.DataFrame(columns, copy=False)  # of millions of rows there is one copy


def _trials(logs: Sequence[Columns], missing: float | None) -> dict[str, Any]:
    """The columns of all trials. missing: stands for a knob that a config does not have."""
    readings = np.concatenate([log.readings for log in logs]).tolist()
    ends = np.cumsum([0, *np.concatenate([log.counts for log in logs]).tolist()]).tolist()
    gflops = [log.flops / log.costs / 1e9 for log in logs]
    failures = np.concatenate([log.failures for log in logs])
    columns: dict[str, Any] = {
        "trial": np.concatenate([np.arange(log.trials) for log in logs]),
        "cost": np.concatenate([log.costs for log in logs]),
        "gflops": np.concatenate(gflops),
        "best_gflops": np.concatenate([np.maximum.accumulate(values) for values in gflops]),
        "gflops_retimed": np.concatenate([_retimed(log) for log in logs]),
        "repeats": [tuple(readings[start:end]) for start, end in pairwise(ends)],
        "elapsed": np.concatenate([log.elapsed for log in logs]),
        "failure": [None if kind < 0 else FAILURES[kind] for kind in failures.tolist()],
        "reused": np.concatenate([log.reused for log in logs]),
    }
    texts = np.concatenate([log.configs for log in logs]).tolist()
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    configs = [msgspec.json.decode(text) for text in places]
    at = np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
    for name in dict.fromkeys(name for config in configs for name in config):
        columns[f"config.{name}"] = _taken([config.get(name, missing) for config in configs], at)
    return columns


def _retimed(log: Columns) -> Floats:
    """GFLOPS of each finalist as it was timed again, NaN of other trials."""
    retimed = np.full(log.trials, np.nan)
    for finalist in log.final.finalists if log.final else ():
        retimed[finalist.index] = log.flops / statistics.median(finalist.seconds) / 1e9
    return retimed


def _taken(values: Sequence[Any], at: Array) -> Any:
    """``values[at]``, of the type that pandas finds in ``values``."""
    import pandas as pd

    return pd.Series(values).array.take(at)
