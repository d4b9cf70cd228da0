"""A run's result as presented to users: its trials, the best trial, and the reliability of its times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..arrays import Array, Floats, Ints
from ..console import speed
from ..errors import SearchlabError, warn
from ..options import checks_arguments
from ..plugins import names_from
from ..records import FAILURES, Trial, describe_failures
from ..space import SPACES, Config, Space
from ..target import resolve_target
from ..units import convert_throughput, value_of_cost
from ..workload import Workload
from .columns import Columns, Texts, objects
from .format import Final, Finalist, Log, read_log, workload_of
from .programs import check_program, check_sample, recorded_program

if TYPE_CHECKING:
    import pandas as pd
    from tvm.s_tir import Schedule


@dataclass(frozen=True)
class Best:
    """The fastest trial in a run or, if the run has finalists, their winner.

    To build or show its program, use :mod:`searchlab.apply`.

    Attributes:
        trial: The trial.
        gflops: The latest throughput, in the log's unit, or the inverse cost of a value. If :attr:`retimed`, the trial
            was measured as a finalist.
        seconds: The latest median time of one execution, in seconds.
        tied: The other finalists within the winner's noise (see :func:`winner`), or None if there are no finalists.
        result: The run.
    """

    trial: Trial
    gflops: float
    seconds: float
    tied: tuple[Trial, ...] | None
    result: Result = field(repr=False, compare=False)

    def __repr__(self) -> str:
        log = self.result.log
        return f"<Best on {log.header.workload}: {speed(self.gflops, log.unit, '.4g')} in trial {self.trial.index}>"

    @property
    def config(self) -> Config:
        return self.trial.config

    @property
    def retimed(self) -> bool:
        """Whether the trial was timed again at the end of the run, in turn with the other finalists."""
        return self.tied is not None

    @property
    def value(self) -> float:
        """What a function returned for this config if it is maximised or minimised, and otherwise the seconds."""
        return value_of_cost(self.seconds, self.result.log.unit)

    @property
    def gflops_as_trial(self) -> float:
        return self.result.log.flops / self.trial.cost / 1e9

    def schedule(self) -> Schedule:
        """Return this config's schedule. ``.mod`` is the program, and ``.trace`` contains the steps that created it."""
        return self.result.schedule(self.trial)


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run. Everything except :attr:`space` and schedules is read from the log alone.

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
        """The best trial. Raises SearchlabError if no trial was successful."""
        if not np.isfinite(self.log.costs).any():
            records = self.log.records
            failures = describe_failures((record.failure, record.message) for record in records)
            failures = failures or "it has no trials yet"
            raise SearchlabError(f"{self.log.path} has no successful trial: {failures}")
        index, seconds, tied = find_best_trial(self.log.costs, self.log.final)
        trials = self.log.trials
        tied_trials = None if tied is None else tuple(trials[i] for i in tied)
        return Best(trials[index], self.log.flops / seconds / 1e9, seconds, tied_trials, self)

    @property
    def workload(self) -> Workload:
        """The run's workload. If necessary, it is created from the log, in the same way as :attr:`space`."""
        return workload_of(self.log.header, self.log.path) if self._space is None else self._space.workload

    @property
    def space(self) -> Space:
        """The run's space. If necessary, it is created from the log, which imports its plug-in and TVM.

        Raises SearchlabError if the plug-in is not registered, except within :func:`~searchlab.plugins.trust_plugins`.
        """
        if self._space is not None:
            return self._space
        object.__setattr__(self, "_space", self.space_of(self.workload))
        assert self._space is not None
        return self._space

    def space_of(self, workload: Workload) -> Space:
        """Return a new space for ``workload``, which must be the log's workload; see :attr:`space`."""
        header = self.log.header
        if ":" in header.fingerprint:  # a task in another tuner's file: see searchlab.exchange
            raise SearchlabError(
                f"{self.log.path} was imported for analysis only; configs from {header.space.name} have no schedules"
            )
        with names_from(self.log.path):
            space = SPACES.make(header.space, workload, resolve_target(header.target))
        if space.fingerprint != header.fingerprint:
            raise SearchlabError(
                f"{self.log.path} was written with a different version of the space {header.space.name!r}, which has "
                f"different knobs; use the version of its package that wrote the log"
            )
        return space

    def schedule(self, trial: Trial) -> Schedule:
        """Return a trial's schedule, whose program is the one that was measured.

        Raises:
            InvalidConfig: If the config has no schedule.
            ChangedProgram: If its program is not the one that was measured.
            SearchlabError: If the space fails.

        Warns:
            SearchlabWarning: If the log does not record which program was measured.
        """
        space = self.space
        with SPACES.convert_errors(type(space), "schedule"):
            schedule = space.schedule(trial.config)
        check_program(self.log.path, trial, schedule, self.log.versions)
        if not recorded_program(trial) and trial.measurement.failure is None:
            reason = (
                "its time is that of the nearest config in a table, not of this program"
                if trial.measurement.nearest
                else "the log does not record the hash of the program that was measured"
            )
            warn(f"{self.log.path}: the program is unverified, because {reason}")
        return schedule

    def check_programs(self) -> None:
        """Check a sample of the programs that the space builds now. Raises ChangedProgram if one is different."""
        check_sample(self.log.path, self.trials, self.space, self.log.versions)

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each trial.

        Its columns are ``trial``, ``cost`` (in seconds), ``gflops``, ``best_gflops``, ``gflops_retimed``, ``unit``,
        ``repeats`` (a tuple of seconds), ``elapsed`` (in seconds), ``failure``, ``reused``, and a column
        ``config.<name>`` for each knob. ``unit`` is that of the throughputs: "GFLOPS", or "runs/s" if the number of
        operations is unknown, as for functions. If a function is maximised or minimised, it is "value" or "-value", and
        throughputs are its values, with a minus sign if they are minimised. ``gflops`` and ``best_gflops`` were
        measured during the search. ``gflops_retimed`` is the throughput of a finalist that was timed again at the end,
        and NaN for other trials. The maximum of ``gflops`` may exceed :attr:`Best.gflops`, which is taken from
        ``gflops_retimed`` if the run has finalists. ``failure`` and knobs with string values are categorical; knobs
        with lists or mixed types are objects.
        """
        import pandas as pd

        columns = Columns.from_log(self.log, {})
        return pd.DataFrame(_trial_columns([columns], np.zeros(columns.trials, np.int64), None))

    def __repr__(self) -> str:
        log, header = self.log, self.log.header
        best = f", best {speed(self.best.gflops, log.unit)}" if np.isfinite(log.costs).any() else ""
        return f"<Result of {header.name} on {header.workload}, seed {header.seed}: {len(log.records)} trials{best}>"

    def _repr_html_(self) -> str:
        log, header = self.log, self.log.header
        trials, failures = _counts(log)
        facts: dict[str, object] = {
            "workload": header.workload,
            "space": header.space_name,
            "cost model": f"{header.cost_model.name}, {header.features}" if header.cost_model else "",
            "seed": header.seed,
            "trials": f"{trials}, {failures} failed" if failures else trials,
            "best": "no success yet",
            "seconds charged": f"{log.elapsed[-1]:.1f}" if log.records else "",
            "log": log.path,
        }
        if np.isfinite(log.costs).any():
            best = self.best
            retimed = ", timed again at the end" * best.retimed
            facts["best"] = f"{speed(best.gflops, log.unit)} in trial {best.trial.index}{retimed}"
        return html_facts({name: value for name, value in facts.items() if value != ""}, caption=header.name)


class Results(list[Result]):
    """A study's runs, in planned order.

    Example:
        >>> import searchlab
        >>> results = searchlab.log.result.Results([searchlab.load_log("gemm.jsonl")])
        >>> results.to_frame()["strategy"].tolist()
        ['random', 'random', 'random']
    """

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row for each trial in every run.

        The columns ``workload``, ``space``, ``strategy`` (its label), ``policy``, ``cost_model`` and ``features`` (None
        without a cost model), ``batch`` and ``seed`` identify the run. They are followed by the columns of
        :meth:`Result.to_frame`. All identifying columns except ``batch`` and ``seed`` are categorical: before pandas 3,
        pass ``observed=True`` to ``groupby`` if you group by several of them. Knobs that a space does not have are NaN.
        """
        texts: Texts = {}
        return study_frame([Columns.from_log(result.log, texts) for result in self])

    def _repr_html_(self) -> str:
        """Return an HTML table with a row for each workload, space and strategy."""
        groups: dict[tuple[str, str, str], list[Log]] = {}
        for result in self:
            header = result.log.header
            groups.setdefault((header.workload, header.space_name, header.name), []).append(result.log)
        rows = []
        for (workload, space, strategy), logs in list(groups.items())[:_MAX_ROWS]:
            lowest = min((float(log.costs.min()) for log in logs if log.records), default=np.inf)
            best = speed(logs[0].flops / lowest / 1e9, logs[0].unit) if np.isfinite(lowest) else "no success yet"
            trials, failures = (sum(counts) for counts in zip(*map(_counts, logs), strict=True))
            rows.append((workload, space, strategy, len(logs), trials, failures, best))
        hidden_rows = len(groups) - len(rows)
        more = f"; {hidden_rows} more rows are not shown; use to_frame()" if hidden_rows else ""
        columns = ("workload", "space", "strategy", "runs", "trials", "failed", "best as trial")
        return html_table(columns, rows, caption=f"{len(self)} run{'s' * (len(self) != 1)}{more}")


_MAX_ROWS = 50
"""The maximum number of rows that a notebook shows for Results."""


def _counts(log: Log) -> tuple[int, int]:
    """Return the number of trials, and the number of failed trials."""
    return len(log.records), sum(record.failure is not None for record in log.records)


@checks_arguments
def load_log(path: str | Path) -> Result:
    """Load a run from its log. The plug-ins that the log names are not imported until they are needed.

    Args:
        path: The path of a log, ``*.jsonl``, ``*.jsonl.gz`` or ``*.parquet``.

    Raises:
        SearchlabError: If the file cannot be read, is not a log, or is damaged.

    Example:
        >>> import searchlab
        >>> searchlab.load_log("gemm.jsonl")
        <Result of random on gemm:32x32x32, seed 0: 3 trials, best ... GFLOPS>
    """
    return Result(read_log(path))


def study_frame(logs: Sequence[Columns], **labels: list[str | None]) -> pd.DataFrame:
    """Return the data frame that :meth:`Results.to_frame` describes.

    ``labels`` replace columns of names, such as ``workload``; they have a name for each log.
    """
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
    names |= labels
    columns = {name: pd.Series(values, dtype="category").array.take(at) for name, values in names.items()}
    columns |= {name: _take([getattr(header, name) for header in headers], at) for name in ("batch", "seed")}
    return pd.DataFrame(columns | _trial_columns(logs, at, math.nan), copy=False)


def _trial_columns(logs: Sequence[Columns], at: Array, missing: float | None) -> dict[str, Any]:
    """Return the columns with a value for each trial.

    ``at`` contains the index of each trial's log. If a config lacks a knob, the knob's value is ``missing``.
    """
    import pandas as pd

    failures: Ints = np.concatenate([log.failures for log in logs])
    kinds: list[str] = list(FAILURES)
    units = [log.unit for log in logs]
    gflops = [log.flops / log.costs / 1e9 for log in logs]
    columns: dict[str, Any] = {
        "trial": np.concatenate([np.arange(log.trials) for log in logs]),
        "cost": np.concatenate([log.costs for log in logs]),
        "gflops": np.concatenate(list(map(convert_throughput, gflops, units))),
        "best_gflops": np.concatenate(list(map(convert_throughput, map(np.maximum.accumulate, gflops), units))),
        "gflops_retimed": np.concatenate([_retimed_throughput(log) for log in logs]),
        "unit": pd.Series(units, dtype="category").array.take(at),
        "repeats": _repeats(logs),
        "elapsed": np.concatenate([log.elapsed for log in logs]),
        "failure": pd.Categorical.from_codes(failures, pd.Index(kinds)),
        "reused": np.concatenate([log.reused for log in logs]),
    }
    index_of: dict[bytes, int] = {}
    config_indices = np.array(
        [index_of.setdefault(text, len(index_of)) for log in logs for text in log.configs.tolist()], np.int32
    )
    configs = [msgspec.json.decode(text) for text in index_of]
    for name in dict.fromkeys(name for config in configs for name in config):
        columns[f"config.{name}"] = _take([config.get(name, missing) for config in configs], config_indices)
    return columns


def _repeats(logs: Sequence[Columns]) -> Array:
    """Return each trial's readings. Equal readings, such as those from the same table entry, share one tuple."""
    distinct: dict[tuple[float, ...], tuple[float, ...]] = {}
    repeats = []
    for log in logs:
        readings = log.readings.tolist()
        ends = np.cumsum([0, *log.counts.tolist()]).tolist()
        repeats_of_trials = (tuple(readings[start:end]) for start, end in pairwise(ends))
        repeats += [distinct.setdefault(times, times) for times in repeats_of_trials]
    return objects(repeats)


def _retimed_throughput(log: Columns) -> Floats:
    """Return each trial's throughput when it was timed again, or NaN if it is not a finalist."""
    retimed = np.full(log.trials, np.nan)
    for finalist in log.final.finalists if log.final else ():
        retimed[finalist.index] = log.flops / statistics.median(finalist.seconds) / 1e9
    return retimed


def _take(values: Sequence[Any], at: Array) -> Any:
    """Return ``values[at]`` with the type that pandas infers. Strings become categorical."""
    import pandas as pd

    texts = pd.api.types.infer_dtype(values, skipna=True) == "string"
    return pd.Series(values, dtype="category" if texts else None).array.take(at)


ROUNDS = 11
"""The number of rounds in which a run's finalists are measured again."""

LOST_ROUNDS = 1
"""The number of rounds that a winner may lose and still count as faster.

According to the sign test, p is then (1 + 11) / 2^11 = 0.6 % for one rival, and at most 2.4 % for four (the default).
"""

MARGIN = 1.1
"""The maximum ratio of a finalist's time to that of the fastest trial."""

DISAGREES = 1.25
"""The largest factor by which two times of the same program should differ on an idle machine."""


def noise(log: Log) -> float | None:
    """Return the noise floor: the median of (slowest - fastest) / cost over repeated trials, or None if none are."""
    spreads = [
        (max(record.seconds) - min(record.seconds)) / record.cost
        for record in log.records
        if len(record.seconds) > 1 and record.failure is None
    ]
    return float(np.median(spreads)) if spreads else None


def find_best_trial(costs: Floats, final: Final | None) -> tuple[int, float, list[int] | None]:
    """Return the best trial of a run with at least one success: its index, its latest time in seconds, and its rivals.

    If the run has finalists, these are the winner and the other finalists within its noise; see :func:`winner`.
    Otherwise, the rivals are None.
    """
    if final is None:
        index = int(np.argmin(costs))
        return index, float(costs[index]), None
    best, tied = winner(final)
    return best.index, statistics.median(best.seconds), [finalist.index for finalist in tied]


def winner(final: Final) -> tuple[Finalist, tuple[Finalist, ...]]:
    """Return the finalist with the lowest median, and the other finalists within its noise.

    A finalist is outside this noise if the winner was faster in all rounds, except for at most :data:`LOST_ROUNDS`.
    """

    best = min(final.finalists, key=lambda finalist: statistics.median(finalist.seconds))
    tied = []
    for rival in final.finalists:
        lost_rounds = sum(a >= b for a, b in zip(best.seconds, rival.seconds, strict=True))
        if rival is not best and lost_rounds > LOST_ROUNDS:
            tied.append(rival)
    return best, tuple(tied)


def sentinel_trial(trials: Sequence[Trial]) -> Trial | None:
    """Return the first successful trial, whose program is timed again throughout a run."""
    return next((trial for trial in trials if math.isfinite(trial.cost)), None)


def drift(log: Log | Columns) -> list[float]:
    """Return each reading of the sentinel divided by its time as a trial. On a steady machine, ratios are near 1."""
    readings = log.sentinels[~np.isnan(log.sentinels)]
    works = np.flatnonzero(np.isfinite(log.costs))
    ratios: list[float] = (readings / log.costs[works[0]]).tolist() if len(works) and len(readings) else []
    return ratios


def largest_drift(log: Log | Columns) -> float | None:
    """Return the :func:`drift` ratio farthest from 1, or None if the sentinel was not timed."""
    return max(drift(log), key=lambda ratio: abs(math.log(ratio)), default=None)


def disagreement(log: Log) -> str:
    """Return a warning if the best trial's time differed when it was measured again, or "" if it did not."""
    if log.final is None:
        return ""
    best, _ = winner(log.final)
    seconds, retimed_seconds = float(log.costs[best.index]), statistics.median(best.seconds)
    if 1 / DISAGREES <= retimed_seconds / seconds <= DISAGREES:
        return ""
    return (
        f"trial {best.index}, the best, took {1e3 * seconds:.4g} ms during the search but "
        f"{1e3 * retimed_seconds:.4g} ms when it was measured again at the end: the machine was busy or unsteady, so "
        f"neither time is reliable; repeat the run on an idle machine, with a new log"
    )


def describe_reliability(log: Log) -> list[str]:
    """Return sentences that describe the reliability of the best trial's times."""
    texts = []
    if log.final is not None:
        best, tied = winner(log.final)
        rivals = len(log.final.finalists) - 1
        retiming = f"measured again {len(best.seconds)} times"
        if not rivals:
            texts.append(f"{retiming}; no other trial was within {100 * (MARGIN - 1):.0f} % of it")
        elif tied:
            names = ", ".join(str(finalist.index) for finalist in tied)
            texts.append(f"{retiming} in turn with {rivals} others; equally fast within the noise: trials {names}")
        else:
            texts.append(
                f"{retiming} in turn with {rivals} others, and faster than each of them by more than the noise"
            )
    if doubt := disagreement(log):
        texts.append(doubt)
    if (spread := noise(log)) is not None:
        texts.append(f"the repeats of a trial spread by {100 * spread:.1f} % (median)")
    if readings := drift(log):
        extremes = sorted({f"{ratio:.2f}" for ratio in (min(readings), max(readings))}, key=float)
        count = "1 reading" if len(readings) == 1 else f"{len(readings)} readings"
        texts.append(f"the machine drifted: its first program took {' to '.join(extremes)} times as long ({count})")
    return texts


_LEFT = ' style="text-align: left"'


def html_table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table, with all text escaped. The first column is aligned as text, the others as numbers."""

    def row(tag: str, values: Sequence[object]) -> str:
        cells = (f"<{tag}{'' if column else _LEFT}>{escape(str(value))}</{tag}>" for column, value in enumerate(values))
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(row("td", values) for values in rows)
    return f"<table>{_caption(caption)}<thead>{row('th', columns)}</thead><tbody>{body}</tbody></table>"


def html_facts(facts: Mapping[str, object], caption: str = "") -> str:
    """Return an HTML table of names and values."""
    rows = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th><td{_LEFT}>{escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    return f"<table>{_caption(caption)}<tbody>{rows}</tbody></table>"


def html_paragraphs(sentences: Iterable[object]) -> str:
    return "".join(f"<p>{escape(str(sentence))}</p>" for sentence in sentences)


def _caption(text: str) -> str:
    return f"<caption{_LEFT}>{escape(text)}</caption>" if text else ""
