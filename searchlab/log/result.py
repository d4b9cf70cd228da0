"""A run's result as presented to users: its trials and the best of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..console import format_speed
from ..errors import SearchlabError, warn
from ..notebook import html_definitions, html_table
from ..options import checks_arguments
from ..plugins import names_from
from ..records import Trial, describe_failures
from ..space import SPACES, Config, Space
from ..target import resolve_target
from ..units import value_of_cost
from ..workload import Workload
from .columns import LogColumns
from .format import Log, workload_of
from .frames import make_study_frame, make_trial_frame
from .programs import check_program, check_sample, get_recorded_program
from .read import read_log
from .reliability import find_best_trial

if TYPE_CHECKING:
    import pandas as pd
    from tvm.s_tir import Schedule


@dataclass(frozen=True)
class Best:
    """The fastest trial in a run or, if the run has finalists, their winner.

    To build or show its program, use :mod:`searchlab.apply`.

    Attributes:
        trial: The trial as the log records it.
        gflops: The latest throughput, in the log's unit, or the inverse cost of a value. If :attr:`retimed`, the trial
            was measured as a finalist.
        seconds: The latest median time of one execution, in seconds.
        tied: The other finalists within the winner's noise, or None if there are no finalists; see
            :func:`~searchlab.log.reliability.find_winner`.
        result: The run that contains it.
    """

    trial: Trial
    gflops: float
    seconds: float
    tied: tuple[Trial, ...] | None
    result: Result = field(repr=False, compare=False)

    def __repr__(self) -> str:
        log = self.result.log
        return (
            f"<Best on {log.header.workload}: {format_speed(self.gflops, log.unit, '.4g')} in trial {self.trial.index}>"
        )

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
        if not self.log.has_success:
            records = self.log.records
            failures = describe_failures((record.failure, record.message) for record in records)
            failures = failures or "it has no trials yet"
            raise SearchlabError(f"{self.log.path} has no successful trial: {failures}")
        index, seconds, tied = find_best_trial(self.log)
        trials = self.log.trials
        tied_trials = None if tied is None else tuple(trials[i] for i in tied)
        return Best(trials[index], self.log.flops / seconds / 1e9, seconds, tied_trials, self)

    @cached_property
    def workload(self) -> Workload:
        """The run's workload. If necessary, it is created from the log, in the same way as :attr:`space`."""
        return workload_of(self.log.header, self.log.path) if self._space is None else self._space.workload

    @cached_property
    def space(self) -> Space:
        """The run's space. If necessary, it is created from the log, which imports its plug-in and TVM.

        Raises SearchlabError if the plug-in is not registered, except within :func:`~searchlab.plugins.trust_plugins`.
        """
        return self.space_of(self.workload) if self._space is None else self._space

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
        if not get_recorded_program(trial) and trial.measurement.failure is None:
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
        return make_trial_frame(LogColumns.from_log(self.log))

    def __repr__(self) -> str:
        log, header = self.log, self.log.header
        best = f", best {format_speed(self.best.gflops, log.unit)}" if log.has_success else ""
        return f"<Result of {header.name} on {header.workload}, seed {header.seed}: {len(log.records)} trials{best}>"

    def _repr_html_(self) -> str:
        log, header = self.log, self.log.header
        trials, failures = len(log.records), _count_failures(log)
        facts: dict[str, object] = {
            "workload": header.workload,
            "space": header.space_name,
            "cost model": f"{header.cost_model.name}, {header.features}" if header.cost_model else "",
            "seed": header.seed,
            "trials": f"{trials}, {failures} failed" if failures else trials,
            "best": "no success yet",
            "seconds charged": f"{log.elapsed_seconds[-1]:.1f}" if log.records else "",
            "log": log.path,
        }
        if log.has_success:
            best = self.best
            retimed = ", timed again at the end" if best.retimed else ""
            facts["best"] = f"{format_speed(best.gflops, log.unit)} in trial {best.trial.index}{retimed}"
        return html_definitions({name: value for name, value in facts.items() if value != ""}, caption=header.name)


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
        return make_study_frame([LogColumns.from_log(result.log) for result in self])

    def _repr_html_(self) -> str:
        """Return an HTML table with a row for each workload, space and strategy."""
        groups: dict[tuple[str, str, str], list[Log]] = {}
        for result in self:
            header = result.log.header
            groups.setdefault((header.workload, header.space_name, header.name), []).append(result.log)
        rows = []
        for (workload, space, strategy), logs in list(groups.items())[:_MAX_ROWS]:
            lowest = min((float(log.costs.min()) for log in logs if log.records), default=np.inf)
            best = format_speed(logs[0].flops / lowest / 1e9, logs[0].unit) if np.isfinite(lowest) else "no success yet"
            trial_count, failure_count = sum(len(log.records) for log in logs), sum(map(_count_failures, logs))
            rows.append((workload, space, strategy, len(logs), trial_count, failure_count, best))
        caption = "1 run" if len(self) == 1 else f"{len(self)} runs"
        if hidden_rows := len(groups) - len(rows):
            caption += f"; {hidden_rows} more rows are not shown; use to_frame()"
        columns = ("workload", "space", "strategy", "runs", "trials", "failed", "best as trial")
        return html_table(columns, rows, caption=caption)


_MAX_ROWS = 50
"""The maximum number of rows that a notebook shows for Results."""


def _count_failures(log: Log) -> int:
    return sum(record.failure is not None for record in log.records)


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
