"""The records that pass between policy, measurer and log."""

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
"""Statistic of the repeats that is used as the cost; the mean is sensitive to outliers."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one config: the times of its program, or one failure.

    Attributes:
        seconds: The time of one execution of the program in seconds, one value per repeat; empty if it failed.
        failure: One of :data:`FAILURES`, or None.
        message: The text of the failure, at most 4,000 characters.
        build_seconds: CPU time of scheduling and compiling, or elapsed time if building timed out or crashed.
        run_seconds: Elapsed time of checking and timing.
        program: The structural hash of the scheduled module, or "" if there is none.
        reused: Whether it repeats an earlier measurement of the same program.
        nearest: Whether a table answered with its nearest config, since it does not contain this one.
        pruned: Whether it was timed only once, because it was much slower than the best of its run.
        statistic: The statistic of ``seconds`` that is used as the cost.
        connect_seconds: Elapsed time of connecting to a device of a fleet and uploading the inputs; not charged.

    Example:
        >>> from searchlab import Measurement
        >>> Measurement(seconds=(3e-6, 1e-6, 2e-6)).cost
        2e-06
        >>> Measurement(failure="crash").cost
        inf
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
        if self.message:  # from a plug-in, a compiler or a candidate: any length, any characters
            object.__setattr__(self, "message", encodable(cut(self.message)))

    @cached_property
    def cost(self) -> float:
        """The ``statistic`` of ``seconds``; infinity for a failure."""
        return cost_of(self.seconds, self.failure, self.statistic)


def cost_of(seconds: Sequence[float], failure: Failure | None, statistic: Statistic) -> float:
    """Return the ``statistic`` of ``seconds``; infinity for a failure, or if there are none."""
    if not seconds or failure is not None:
        return math.inf
    return statistics.median(seconds) if statistic == "median" else statistics.fmean(seconds)


@dataclass(frozen=True)
class Trial:
    """A config that a run has measured.

    Attributes:
        index: Its place in the run, from 0.
        config: The config.
        measurement: Its times, or its failure.

    Example:
        >>> from searchlab import Config, Measurement, Trial
        >>> Trial(0, Config({"tile": (4, 8)}), Measurement((2e-6,))).cost
        2e-06
    """

    index: int
    config: Config
    measurement: Measurement

    @property
    def cost(self) -> float:
        return self.measurement.cost
