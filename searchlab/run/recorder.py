"""Measuring the configs of a run, and logging each trial as soon as it is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import msgspec

from ..log.format import Ended, Record
from ..log.noise import sentinel
from ..log.writer import LogWriter
from ..measure.contract import Measurer, Remeasurer
from ..records import Trial
from ..space import Config
from .finalists import time_sentinel
from .plan import OnTrial, Run
from .searcher import Searcher


class Recorder:
    """Measures configs, appends their trials to the log, and forces each batch to the disk."""

    def __init__(self, run: Run, log: LogWriter, measurer: Measurer, searcher: Searcher, on_trial: OnTrial) -> None:
        self._space = run.space
        self._log = log
        self._measurer = measurer
        self._searcher = searcher
        self._on_trial = on_trial
        self._best: float | None = None

    def measure(self, configs: Sequence[Config], batch: Sequence[Trial], done: Sequence[Trial]) -> list[Trial]:
        """A trial of each config. batch: the trials of its batch that the log held; done: those of earlier batches."""
        if not configs:
            return []
        if self._best is None:
            self._best = min((trial.cost for trial in (*done, *batch)), default=math.inf)
        searcher, share = self._searcher, self._searcher.share
        reading = None if batch else self._sentinel(done)
        trials: list[Trial] = []
        for config, measurement in zip(configs, self._measurer.measure(self._space, configs, self._best), strict=True):
            trial = Trial(len(done) + len(batch) + len(trials), config, measurement)
            trials.append(trial)
            whole = len(batch) + len(trials) == searcher.batch_size
            quality = searcher.quality([*batch, *trials]) if whole else None
            self._log.append(
                Record.of(
                    trial,
                    searcher.propose_seconds * share,
                    searcher.train_seconds * share,
                    quality,
                    reading,
                    searcher.batches - 1,
                )
            )
            reading = None
            self._best = min(self._best, trial.cost)
            self._on_trial(trial, False)
        self._log.sync()
        return trials

    def end(self, ended: Ended) -> None:
        """Log why the run ended."""
        self._log.append(msgspec.structs.replace(ended, time=round(time.time(), 3)))
        self._log.sync()

    def _sentinel(self, done: Sequence[Trial]) -> float | None:
        """Seconds that the first program of the run takes now; None if it is not timed before this batch."""
        measurer = self._measurer
        if not isinstance(measurer, Remeasurer) or not measurer.sentinel:
            return None
        first = sentinel(done) if (self._searcher.batches - 1) % measurer.sentinel == 0 else None
        return time_sentinel(measurer, self._space, first) if first else None
