"""A run as a user reads it: its trials, the best trial, and the program of that trial."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..errors import SearchlabError
from ..records import FAILURES, Trial
from ..space import SPACES, Config, Space
from ..target import resolve_target
from ..workload import parse_workload
from .columns import Columns, Texts, objects
from .format import Log, read_log
from .html import facts, table
from .noise import fastest

if TYPE_CHECKING:
    import pandas as pd
    from tvm.s_tir import Schedule


@dataclass(frozen=True)
class Best:
    """The fastest trial of a run: the winner of its finalists, if it has finalists.

    :mod:`searchlab.apply` builds and shows its program.

    Attributes:
        trial: The trial.
        gflops: Its throughput, in the unit of the log, as last measured: as a finalist if :attr:`retimed`.
        seconds: The median time of one execution, as last measured.
        tied: The other finalists within the noise of the winner; None if the run has no finalists.
        result: The run.
    """

    trial: Trial
    gflops: float
    seconds: float
    tied: tuple[Trial, ...] | None
    result: Result = field(repr=False, compare=False)

    def __repr__(self) -> str:
        log = self.result.log
        return f"<Best on {log.header.workload}: {self.gflops:.4g} {log.unit} in trial {self.trial.index}>"

    @property
    def config(self) -> Config:
        return self.trial.config

    @property
    def retimed(self) -> bool:
        """Whether it was timed again at the end of the run, in turn with the other finalists."""
        return self.tied is not None

    @property
    def gflops_as_trial(self) -> float:
        return self.result.log.flops / self.trial.cost / 1e9

    def schedule(self) -> Schedule:
        """The schedule of this config: its ``.mod`` is the program, its ``.trace`` the steps that made it."""
        return self.result.schedule(self.trial)


@dataclass(frozen=True, repr=False)
class Result:
    """A run. Everything but :attr:`space` and schedules is read from the log alone.

    Attributes:
        log: The content of the log.

    Example:
        >>> import searchlab
        >>> result = searchlab.load_log("gemm.jsonl")
        >>> len(result.trials), result.space
        (3, ConfigSpace (len=...
        >>> list(result.to_frame().columns[:3])
        ['trial', ...
    """

    log: Log
    _space: Space | None = None

    @property
    def trials(self) -> list[Trial]:
        return self.log.trials

    @property
    def best(self) -> Best:
        """The best trial. Raises SearchlabError if no trial has a program that runs."""
        if not np.isfinite(self.log.costs).any():
            kinds = Counter(record.failure for record in self.log.records)
            failures = ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "there is no trial yet"
            raise SearchlabError(f"{self.log.path} has no successful trial: {failures}")
        index, seconds, tied = fastest(self.log.costs, self.log.final)
        trials = self.log.trials
        others = None if tied is None else tuple(trials[other] for other in tied)
        return Best(trials[index], self.log.flops / seconds / 1e9, seconds, others, self)

    @property
    def space(self) -> Space:
        """The space that was searched; made again from the log if needed, which imports its plug-in and TVM.

        Raises SearchlabError if that plug-in is not registered, except within :func:`~searchlab.plugins.trusting`.
        """
        if self._space is not None:
            return self._space
        header = self.log.header
        if ":" in header.fingerprint:  # of a task in another tuner's file: see searchlab.exchange
            raise SearchlabError(
                f"{self.log.path} was imported for analysis from {header.space.name}: its configs have no schedule here"
            )
        plugin = SPACES.of_file(header.space, self.log.path)
        space = SPACES.make(plugin, parse_workload(header.workload), resolve_target(header.target))
        if space.fingerprint != header.fingerprint:
            raise SearchlabError(
                f"{self.log.path} was written for another version of the space {header.space.name!r}: its knobs differ"
            )
        object.__setattr__(self, "_space", space)
        return space

    def schedule(self, trial: Trial) -> Schedule:
        """The schedule of a trial's config. Raises InvalidConfig if it has none, SearchlabError if that fails."""
        space = self.space
        try:
            return space.schedule(trial.config)
        except SearchlabError:
            raise
        except Exception as error:  # whatever a plug-in raises
            raise SearchlabError(
                f"the space {self.log.header.space.name!r} makes no schedule of trial {trial.index}: "
                f"{type(error).__name__}: {error}"
            ) from None

    def to_frame(self) -> pd.DataFrame:
        """A row a trial: its knobs as ``config.<name>``, cost (seconds), gflops, best_gflops, failure, elapsed (s).

        repeats: the readings of which the cost is made, a tuple of seconds. gflops and best_gflops are as measured
        during the search; gflops_retimed is that of a finalist as it was timed again at the end, NaN of other trials.
        The maximum of gflops may be above :attr:`Best.gflops`, which is a gflops_retimed if the run has finalists.
        failure, and a knob whose values are texts, are categories; a knob whose values are lists, or of several types,
        is of objects.
        """
        return run_frame(Columns.of(self.log, {}))

    def __repr__(self) -> str:
        header = self.log.header
        return f"<Result of {header.name} on {header.workload}, seed {header.seed}: {len(self.log.records)} trials>"

    def _repr_html_(self) -> str:
        log, header = self.log, self.log.header
        about: dict[str, object] = {
            "workload": header.workload,
            "space": header.space_name,
            "cost model": f"{header.cost_model.name}, {header.features}" if header.cost_model else "",
            "seed": header.seed,
            "trials": _counted(log),
            "best": "no success yet",
            "seconds charged": f"{log.elapsed[-1]:.1f}" if log.records else "",
            "log": log.path,
        }
        if np.isfinite(log.costs).any():
            best = self.best
            retimed = ", timed again at the end" * best.retimed
            about["best"] = f"{best.gflops:.1f} {log.unit} in trial {best.trial.index}{retimed}"
        return facts({name: value for name, value in about.items() if value != ""}, caption=header.name)


class Results(list[Result]):
    """The runs of a study, in planned order.

    Example:
        >>> import searchlab
        >>> results = searchlab.log.result.Results([searchlab.load_log("gemm.jsonl")])
        >>> results.to_frame()["strategy"].tolist()
        ['random', 'random', 'random']
    """

    def to_frame(self) -> pd.DataFrame:
        """A row a trial of every run: what its run is, and the columns of :meth:`Result.to_frame`.

        These say what a run is: workload, space, strategy (its label), policy, cost_model and features (None if it has
        no model), batch, seed. All of these but the last two are categories: before pandas 3, ``groupby`` by several of
        them takes ``observed=True``. A knob that a space does not have is NaN.
        """
        texts: Texts = {}
        return study_frame([Columns.of(result.log, texts) for result in self])

    def _repr_html_(self) -> str:
        """A row for each strategy in each space of each workload."""
        groups: dict[tuple[str, str, str], list[Log]] = {}
        for result in self:
            header = result.log.header
            groups.setdefault((header.workload, header.space_name, header.name), []).append(result.log)
        rows = []
        for (workload, space, strategy), logs in list(groups.items())[:_MOST]:
            least = min((float(log.costs.min()) for log in logs if log.records), default=np.inf)
            best = f"{logs[0].flops / least / 1e9:.1f} {logs[0].unit}" if np.isfinite(least) else "no success yet"
            trials, failed = (sum(counts) for counts in zip(*map(_counts, logs), strict=True))
            rows.append((workload, space, strategy, len(logs), trials, failed, best))
        left = len(groups) - len(rows)
        more = f"; {left} more rows are not shown: see to_frame()" if left else ""
        columns = ("workload", "space", "strategy", "runs", "trials", "failed", "best as trial")
        return table(columns, rows, caption=f"{len(self)} run{'s' * (len(self) != 1)}{more}")


_MOST = 50
"""Rows that a notebook shows without being asked."""


def _counts(log: Log) -> tuple[int, int]:
    """The trials of a log, and how many of them failed."""
    return len(log.records), sum(record.failure is not None for record in log.records)


def _counted(log: Log) -> str:
    trials, failed = _counts(log)
    return f"{trials}, {failed} failed" if failed else str(trials)


def load_log(path: str | Path) -> Result:
    """Load a run from its log. Nothing that the log names is imported until it is needed.

    Args:
        path: A log, ``*.jsonl`` or ``*.jsonl.gz``.

    Raises:
        SearchlabError: If the file cannot be read, is not a log, or is damaged.

    Example:
        >>> import searchlab
        >>> searchlab.load_log("gemm.jsonl")
        <Result of random on gemm:32x32x32, seed 0: 3 trials>
    """
    return Result(read_log(path))


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
