"""The budget of a run, and where it ends according to the log."""

from __future__ import annotations

import math
import sys

import msgspec
import numpy as np

from .columns import LogColumns
from .format import MIN_GAIN, Log, LoggedTrials, RunEnd

UNLIMITED = sys.maxsize
"""The number of trials in a budget that does not limit the trials."""


class Budget(msgspec.Struct, frozen=True):
    """A run's budget. The run ends when the first of its limits is reached.

    ``seconds`` and ``stop_after`` are checked only after complete batches. Therefore a run's log alone determines where
    the run ends, and the log for a smaller budget is the beginning of the log for a larger one. This is why the budget
    is not part of a run's identity.

    Attributes:
        trials: The maximum number of trials.
        seconds: The maximum of :attr:`~searchlab.log.format.Log.elapsed_seconds`, or None for no limit.
        stop_after: The number of trials, including failures, after which the run ends if the best throughput has not
            risen by more than :data:`~searchlab.log.format.MIN_GAIN`, or None for no limit.
    """

    trials: int = UNLIMITED
    seconds: float | None = None
    stop_after: int | None = None

    def reason_to_end(self, log: LoggedTrials, trial_count: int) -> RunEnd | None:
        """Return why a run ends after the batch that ends after ``trial_count`` trials, or None if it continues.

        The maximum number of trials is ignored, because no line in the log records that it was reached.
        """
        if self.seconds is not None and trial_count and log.elapsed_seconds[trial_count - 1] >= self.seconds:
            return RunEnd(trial_count=trial_count, seconds=self.seconds)
        if self.stop_after is not None and trial_count >= self.stop_after:
            before = np.min(log.costs[: trial_count - self.stop_after], initial=math.inf)
            if before <= np.min(log.costs[:trial_count]) * (1 + MIN_GAIN):
                return RunEnd(trial_count=trial_count, stop_after=self.stop_after)
        return None

    def is_complete(self, log: Log) -> bool:
        """Return whether ``log`` shows that a run with this budget is complete.

        Even if it does not, the run may be complete, because only the policy knows where the last batch ends.
        """
        trial_count = len(log.records)
        if log.run_end and (log.run_end.by_policy or self.reason_to_end(log, trial_count)):
            return True
        return trial_count >= self.trials

    def find_end(self, log: LoggedTrials) -> tuple[int, RunEnd | None]:
        """Return the number of trials in ``log`` that are within this budget, and the reason if others follow them."""
        for end in log.batch_starts[1:]:  # the end of each batch except the last, which may be incomplete
            if end < self.trials and (ended := self.reason_to_end(log, end)):
                return end, ended
        return min(len(log.costs), self.trials), None

    def truncate(self, log: LogColumns) -> LogColumns:
        """Return the part of ``log`` that is within this budget, or ``log`` itself if all of it is."""
        trial_count, run_end = self.find_end(log)
        return log if trial_count == log.trial_count else log.truncate(trial_count, run_end)
