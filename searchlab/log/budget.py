"""The budget of a run: where it ends, by what its log holds."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TypeVar

import msgspec
import numpy as np

from .columns import Columns
from .format import GAIN, Ended, Log

AnyLog = TypeVar("AnyLog", Log, Columns)

UNLIMITED = sys.maxsize
"""The number of trials of a run that only other parts of its budget end, or its policy."""


class Budget(msgspec.Struct, frozen=True):
    """A run ends where the first part of its budget is spent.

    trials: the most trials. seconds: charged time, as :attr:`~searchlab.log.format.Log.elapsed` has it: proposing,
    training, building and running; None for no limit. stop_after: so many trials in which the best throughput rose by
    at most 1 % (:data:`~searchlab.log.format.GAIN`), failures included; None to go on without a gain.

    Seconds and gains are judged after whole batches. So where a run ends follows from its log alone, and the log of a
    smaller budget is the beginning of the log of a larger one: that is why a budget is no part of a run's identity.
    """

    trials: int = UNLIMITED
    seconds: float | None = None
    stop_after: int | None = None

    def ends(self, log: Log, trials: int | None = None) -> Ended | None:
        """Why a run ends after the first ``trials`` of ``log`` (all by default), whole batches; None if it goes on.

        The number of trials is not judged, as it needs no line.
        """
        if trials is not None:
            log = replace(log, records=log.records[:trials])
        return self._ends(log, len(log.records)) if log.records else None

    def complete(self, log: Log) -> bool:
        """Whether ``log`` says that a run with this budget has nothing to add to it.

        If it does not say so, only the policy knows where the last batch ends.
        """
        by_line = log.ended is not None and (log.ended.by_policy or self.ends(log) is not None)
        return by_line or len(log.records) >= self.trials

    def cut(self, log: AnyLog) -> AnyLog:
        """The part of ``log`` within this budget; ``log`` itself if that is all of it."""
        whole, line = len(log.costs), log.ended
        spent = (self.seconds, None), (None, self.stop_after)  # as a line says that one of them ended the run
        judged = self.seconds is not None or self.stop_after is not None
        if judged and not (line and not line.by_policy and (line.seconds, line.stop_after) in spent):
            for end in log.starts[1:]:  # of each batch but the last, which may not be whole
                if end < min(whole, self.trials) and (ended := self._ends(log, end)):
                    return log.first(end, ended)
        return log if whole <= self.trials else log.first(self.trials)

    def _ends(self, log: Log | Columns, at: int) -> Ended | None:
        if self.seconds is not None and log.elapsed[at - 1] >= self.seconds:
            return Ended(trials=at, seconds=self.seconds)
        if self.stop_after is not None and at >= self.stop_after:
            before = np.min(log.costs[: at - self.stop_after], initial=math.inf)
            now = np.min(log.costs[:at])
            if before <= now * (1 + GAIN):
                return Ended(trials=at, stop_after=self.stop_after)
        return None
