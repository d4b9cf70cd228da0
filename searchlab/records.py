"""The frozen records that pass between space, policy, measurer and log."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from .errors import cut, encodable
from .space import Config

Failure = Literal["invalid", "build_error", "build_timeout", "run_error", "run_timeout", "crash", "wrong_answer"]
FAILURES: tuple[Failure, ...] = get_args(Failure)

Statistic = Literal["median", "mean"]
"""What of its repeats is the cost of a trial; an outlier moves the mean."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one config: all its repeats, or one failure.

    seconds: time of one run of the program, a value for each repeat; empty if it failed.
    failure, message: one of :data:`FAILURES` and its text, or None and "".
    build_seconds: of the CPU, for scheduling and compiling; by the clock, if building ran out of time or crashed.
    run_seconds: by the clock, for checking and timing.
    program: structural hash of the scheduled module, or "" without a module.
    reused: whether it is an earlier measurement of the same program.
    nearest: whether it is the measurement of another config, the nearest in a table that does not hold this one.
    pruned: whether it was not repeated, since its first reading was much slower than the best of its run.
    statistic: which statistic of ``seconds`` is the cost: a setting of the run, under ``measure`` in its header.
    connect_seconds: by the clock, until a device of a fleet had taken the connection and the inputs; not charged.
    """

    seconds: tuple[float, ...] = ()
    failure: Failure | None = None
    message: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    program: str = ""
    reused: bool = False
    nearest: bool = False
    pruned: bool = False
    statistic: Statistic = "median"
    connect_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.message:  # of a plug-in, a compiler or a candidate
            object.__setattr__(self, "message", encodable(cut(self.message)))

    @cached_property
    def cost(self) -> float:
        """The ``statistic`` of the repeats in seconds; infinity if it failed."""
        return cost_of(self.seconds, self.failure, self.statistic)


def cost_of(seconds: Sequence[float], failure: Failure | None, statistic: Statistic) -> float:
    """The ``statistic`` of ``seconds``; infinity without any, or for a failure."""
    if not seconds or failure is not None:
        return math.inf
    return statistics.median(seconds) if statistic == "median" else statistics.fmean(seconds)


@dataclass(frozen=True)
class Trial:
    """The ``index``-th config of a run (from 0) with its measurement."""

    index: int
    config: Config
    measurement: Measurement

    @property
    def cost(self) -> float:
        return self.measurement.cost
