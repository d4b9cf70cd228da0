"""A run as a user reads it: its trials, the best trial, and the program of that trial."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import SearchlabError
from ..records import Trial
from ..space import SPACES, Config, Space
from ..target import resolve_target
from ..workload import parse_workload
from .format import Log, read_log
from .noise import winner

if TYPE_CHECKING:
    import pandas as pd
    from tvm.s_tir import Schedule


@dataclass(frozen=True)
class Best:
    """The fastest trial of a run: the winner of its finalists, if it has finalists.

    gflops: its throughput, in the ``unit`` of the log. seconds: median time of one run of the program, as last
    measured. tied: the other finalists that are within the
    noise of the winner; None if the run has no finalists. result: the run. :mod:`searchlab.apply` builds and shows the
    program.
    """

    trial: Trial
    gflops: float
    seconds: float
    tied: tuple[Trial, ...] | None
    result: Result = field(repr=False, compare=False)

    @property
    def config(self) -> Config:
        return self.trial.config

    def schedule(self) -> Schedule:
        """The schedule of this config: its ``.mod`` is the program, its ``.trace`` the steps that made it."""
        return self.result.schedule(self.trial)


@dataclass(frozen=True)
class Result:
    """One run. Everything but :attr:`space` and schedules is read from the log alone."""

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
        trials = self.log.trials
        if self.log.final is None:
            trial = trials[int(np.argmin(self.log.costs))]
            return Best(trial, self.log.flops / trial.cost / 1e9, trial.cost, None, self)
        first, tied = winner(self.log.final)
        seconds = statistics.median(first.seconds)
        others = tuple(trials[finalist.index] for finalist in tied)
        return Best(trials[first.index], self.log.flops / seconds / 1e9, seconds, others, self)

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
                f"{self.log.path} is of another version of the space {header.space.name!r}: its knobs differ"
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
        """A row a trial: its knobs as ``config.<name>``, cost (seconds), gflops, best_gflops, failure, elapsed (s)."""
        import pandas as pd

        log = self.log
        gflops = log.flops / log.costs / 1e9
        columns: dict[str, Any] = {
            "trial": np.arange(len(log.records)),
            "cost": log.costs,
            "gflops": gflops,
            "best_gflops": np.maximum.accumulate(gflops),
            "elapsed": log.elapsed,
            "failure": [record.failure for record in log.records],
            "reused": [record.reused for record in log.records],
        }
        for name in dict.fromkeys(name for record in log.records for name in record.config):
            columns[f"config.{name}"] = [record.config.get(name) for record in log.records]
        return pd.DataFrame(columns)


def load_log(path: str | Path) -> Result:
    """The run in the log at ``path``. Raises SearchlabError if the log is unreadable, foreign or damaged."""
    return Result(read_log(path))
