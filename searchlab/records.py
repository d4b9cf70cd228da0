"""The records that are passed between the policy, the measurer and the log."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, get_args

import msgspec

from .console import escape_to_one_line, format_execution_time
from .errors import encodable, shorten_text
from .space import Config

Failure = Literal["invalid", "build_error", "build_timeout", "run_error", "run_timeout", "crash", "wrong_answer"]
FAILURES: tuple[Failure, ...] = get_args(Failure)

Statistic = Literal["median", "mean"]
"""The statistic of the repeats that serves as the cost; the mean is sensitive to outliers."""

ExecutionSeconds = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)]
"""The duration of one execution of a program, in seconds. Times beyond these bounds are implausible."""

StepSeconds = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
"""The duration of any other step of a trial, in seconds."""

SHORTEST = sys.float_info.min
"""The cost, in seconds, that replaces 0 where a logarithm or a ratio is taken; a coarse clock may measure 0."""


@dataclass(frozen=True)
class Measurement:
    """The measurement of one config: either its program's times or a failure.

    Attributes:
        seconds: The time of one execution in seconds, one value per repeat; empty if the program failed.
        failure: One of :data:`FAILURES`, or None.
        message: The failure message, at most 4,000 characters.
        build_seconds: The CPU time for scheduling and compiling, or the elapsed time if building timed out or crashed.
        run_seconds: The elapsed time for checking and timing.
        program: The structural hash of the scheduled module, or "" if scheduling failed, or if the config's own code
            may have made the build fail by changing or ending its process.
        reused: Whether this is a copy of an earlier measurement of the same program.
        nearest: Whether this is the measurement of the nearest config in a table that does not contain this config.
        pruned: Whether the program was timed only once because it was much slower than the run's best program.
        statistic: The statistic of ``seconds`` that serves as the cost.
        connect_seconds: The elapsed time for connecting to a fleet's device and uploading the inputs; not charged.
        check_seconds: The part of ``run_seconds`` until the first timing: loading the program, its first execution, and
            checking the result.

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
    check_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.message:  # from a plug-in, compiler or candidate, so it may have any length and any characters
            object.__setattr__(self, "message", encodable(shorten_text(self.message)))

    @cached_property
    def cost(self) -> float:
        """The ``statistic`` of ``seconds``, or infinity for a failure."""
        return compute_cost(self.seconds, self.failure, self.statistic)


def compute_cost(seconds: Sequence[float], failure: Failure | None, statistic: Statistic) -> float:
    """Return the ``statistic`` of ``seconds``, or infinity if there is a failure or ``seconds`` is empty."""
    if not seconds or failure is not None:
        return math.inf
    return statistics.median(seconds) if statistic == "median" else statistics.fmean(seconds)


def describe_failures(failures: Iterable[tuple[Failure | None, str]]) -> str:
    """Count failures by kind, and quote the most frequent message of the most frequent kind.

    Args:
        failures: The kind and message of each failure. Successful trials, whose kind is None, are ignored.
    """
    actual_failures = [(kind, message) for kind, message in failures if kind is not None]
    if not actual_failures:
        return ""
    kind_counts = Counter(kind for kind, _ in actual_failures).most_common()
    messages = Counter(
        escape_to_one_line(message)[:MAX_QUOTE_LENGTH]
        for kind, message in actual_failures
        if kind == kind_counts[0][0] and message
    )
    quote = f"; most often: {messages.most_common(1)[0][0]}" if messages else ""
    return ", ".join(f"{kind} {count}" for kind, count in kind_counts) + quote


MAX_QUOTE_LENGTH = 300
"""The maximum length of a failure message in another message, in characters."""


@dataclass(frozen=True)
class Trial:
    """A config that a run has measured.

    Attributes:
        index: The trial's position in the run, starting at 0.
        config: The config.
        measurement: The times of the config's program, or the failure.

    Example:
        >>> from searchlab import Config, Measurement, Trial
        >>> Trial(0, Config({"tile": (4, 8)}), Measurement((2e-6,))).cost
        2e-06
    """

    index: int
    config: Config
    measurement: Measurement

    def __repr__(self) -> str:
        return (
            f"<Trial {self.index}: {self.measurement.failure or format_execution_time(self.cost)} with {self.config!r}>"
        )

    @property
    def cost(self) -> float:
        return self.measurement.cost


def select_first_of_each_program(trials: Iterable[Trial]) -> list[Trial]:
    """Return the first successful trial of each program, or of each config if the program is not known."""
    trials_by_key: dict[object, Trial] = {}  # by program or config
    for trial in trials:
        if math.isfinite(trial.cost):
            trials_by_key.setdefault(trial.measurement.program or trial.config, trial)
    return list(trials_by_key.values())
