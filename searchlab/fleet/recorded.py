"""The times of trials that logs hold, by the kind of run that they are of."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..log.format import Ended, Header, Log, Record, read_header, read_log
from ..log.plan import UNLIMITED
from ..run.plan import Run
from .simulate import TrialTimes

Kind = bytes
"""What runs from different seeds have in common: see :func:`kind_of`."""

MOST = 10
"""How many logs of a kind of run are read: more of them say little more, and a study may have thousands."""


def kind_of(run: Header | Run) -> Kind:
    """The workload, the space and the strategy of a run, with all options."""
    if isinstance(run, Header):
        parts = (run.space, run.policy, run.cost_model, run.features)
    else:
        chosen, model = run.strategy, run.strategy.cost_model
        policy, features = chosen.policy.spelled(), chosen.features
        parts = (run.searched.plugin.spelled(), policy, model.spelled() if model else None, features)
    return msgspec.json.encode((run.workload, *parts), order="sorted")


@dataclass(frozen=True)
class RecordedRun:
    """The header of a log, the times of its trials, and why its run ended before its number of trials, if it did."""

    header: Header
    trials: tuple[TrialTimes, ...]
    ended: Ended | None

    @classmethod
    def of(cls, log: Log) -> RecordedRun:
        return cls(log.header, tuple(_times(record) for record in log.records), log.ended)

    def has_ended(self, run: Run) -> bool:
        """Whether its last trial would be the last of ``run``, too."""
        ended = self.ended
        return ended is not None and (
            ended.by_policy or (ended.stop_after is not None and ended.stop_after == run.stop_after)
        )


def _times(record: Record) -> TrialTimes:
    proposing = record.propose_seconds + record.train_seconds
    if record.reused:  # it was only scheduled, which takes a few per cent of the time of a build
        return TrialTimes(proposing, 0.0)
    return TrialTimes(proposing, record.build_seconds, record.connect_seconds, record.run_seconds)


@dataclass(frozen=True)
class Recorded:
    """What logs hold of one kind of run."""

    runs: Sequence[RecordedRun]

    @cached_property
    def later(self) -> list[TrialTimes]:
        """The trials of the later half of each log, when policies have learned and programs have come before."""
        return [trial for run in self.runs for trial in run.trials[len(run.trials) // 2 :]]

    @cached_property
    def proposing(self) -> list[float]:
        """Seconds of proposing the first, the second, ... trial: means over the logs. The last is of all later trials.

        In this, logs differ far more from each other than in the times of their programs: one may fill a cache that the
        others find.
        """
        longest = max(len(run.trials) for run in self.runs)
        at_index = ([run.trials[i].propose for run in self.runs if i < len(run.trials)] for i in range(longest))
        return [*map(fmean, at_index), fmean(trial.propose for trial in self.later)]

    def draw(self, run: Run, batch: int, builders: int, rng: np.random.Generator) -> list[list[TrialTimes]]:
        """The batches of ``run`` as they might come: the programs of one log, drawn at random.

        Trials after the end of that log are drawn one by one from all logs, from the later half of each. So the time to
        build a program and the time to run it are always of the same program.
        Raises SearchlabError if nothing says where the run ends.
        """
        model = self.runs[int(rng.integers(len(self.runs)))]
        limit = len(model.trials) if model.has_ended(run) else run.trials
        limit = min(limit, run.trials)
        if limit == UNLIMITED and (run.seconds is None or not self._charged(self.later, 1)):
            raise SearchlabError(
                f"nothing says how many trials {run.log} will have: give the study a number of trials, or run it for a "
                f"while"
            )
        made: list[list[TrialTimes]] = []
        trials, charged = 0, 0.0
        while trials < limit and charged < (math.inf if run.seconds is None else run.seconds):
            size = min(batch, limit - trials)
            own = model.trials[trials : trials + size]
            drawn = (self.later[i] for i in rng.integers(len(self.later), size=size - len(own)))
            proposing = (self.proposing[min(i, len(self.proposing) - 1)] for i in range(trials, trials + size))
            made.append([replace(one, propose=each) for one, each in zip([*own, *drawn], proposing, strict=True)])
            trials += size
            charged += self._charged(made[-1], builders)
        return made

    @staticmethod
    def _charged(batch: Sequence[TrialTimes], builders: int) -> float:
        """Seconds charged for a batch: see :attr:`~searchlab.log.format.Log.charged`."""
        shared = min(builders, len(batch))
        return sum(trial.propose + trial.build / shared + trial.run for trial in batch)


def recorded(paths: Iterable[Path], kinds: Collection[Kind]) -> dict[Kind, Recorded]:
    """What the logs at ``paths`` hold of these ``kinds`` of runs, of the first ``MOST`` logs of each.

    Tables and logs without a trial are left out. Raises SearchlabError if a log is unreadable, foreign or damaged.
    """
    runs: dict[Kind, list[RecordedRun]] = {}
    for path in paths:
        header = read_header(path)
        kind = kind_of(header)
        if header.is_table or kind not in kinds or len(runs.get(kind, ())) == MOST:
            continue
        log = read_log(path)
        if log.records:
            runs.setdefault(kind, []).append(RecordedRun.of(log))
    return {kind: Recorded(of_kind) for kind, of_kind in runs.items()}
