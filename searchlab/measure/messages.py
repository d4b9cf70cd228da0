"""The messages that a measurer exchanges with its worker processes, which handle them in ``worker.py``.

Workers receive pickles but answer in msgpack. Nothing that a worker sends is ever unpickled, because the candidates
that run in the worker can write to its connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from ..errors import MAX_TEXT_LENGTH
from ..records import ExecutionSeconds, Failure, Measurement, Statistic, StepSeconds
from ..space import Config
from ..target import Target
from ..workload import Workload
from .code import Code
from .contract import RunSettings
from .fleet import Address

Text = Annotated[str, msgspec.Meta(max_length=2 * MAX_TEXT_LENGTH)]


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class for messages from a worker."""


class Fork(NamedTuple):
    """A request to the fork server to fork a worker, sent with the worker's connection and standard error.

    The answer is the worker's process ID, or an error message.

    Attributes:
        sys_path: The value of ``sys.path``.
        working_dir: The working directory.
        environment_changes: Differences from the fork server's environment; None removes a variable.
    """

    thread_count: int
    memory_limit_mb: int
    sys_path: list[str]
    working_dir: str
    environment_changes: dict[str, str | None]


class CheckExit(NamedTuple):
    """A request to the fork server to check a worker. The answer is an Exit, or None if the worker is alive."""

    pid: int


class Exit(NamedTuple):
    """The exit code and the resource usage of a worker that has ended.

    Attributes:
        peak_memory_mb: The peak memory, in MB.
    """

    exit_code: int
    peak_memory_mb: int = 0


@dataclass(frozen=True)
class _SetUpObject:
    """Prepare to use a pickled object. The answer to a set-up message is Ready or Broken."""

    pickled: bytes
    title: str

    def __str__(self) -> str:
        return self.title


class SetUpBuilder(_SetUpObject):
    """Prepare to build programs from a space."""


class SetUpFunction(_SetUpObject):
    """Prepare to call a function."""


class FleetSettings(NamedTuple):
    """The settings for running programs on a fleet.

    Attributes:
        connect_timeout: The time limit for connecting to a device and sending a program's inputs, in seconds.
        compiler: The compiler that links programs, or "" for the local one.
    """

    connect_timeout: float
    compiler: str


class SetUpRunner(NamedTuple):
    """Prepare to run programs for a workload.

    Attributes:
        error_factor: See searchlab.space.Space.
        fleet: The settings for running on a fleet, or None to run on this machine.
        seed: The seed for drawing the inputs.
    """

    workload: Workload
    settings: RunSettings
    target: Target
    error_factor: float
    fleet: FleetSettings | None = None
    seed: int = 0

    def __str__(self) -> str:
        return str(self.workload)


class Started(_Answer, frozen=True):
    """A new worker's first message: it has finished its imports."""


class Ready(_Answer, frozen=True):
    """The worker is set up."""


class Broken(_Answer, frozen=True):
    """The worker cannot be set up."""

    text: Text


class Failed(_Answer, frozen=True):
    """The program failed. This may answer any message except a set-up message.

    Attributes:
        seconds: The time spent on building or running it.
    """

    failure: Failure
    message: Text
    seconds: StepSeconds = 0.0


class Build(NamedTuple):
    """Build a program. The worker answers Scheduled, receives Continue, and answers Built or Skipped."""

    config: Config


class Scheduled(_Answer, frozen=True):
    """A config was scheduled.

    Attributes:
        program_hash: The program's hash.
    """

    program_hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class Continue(NamedTuple):
    """Compile the scheduled program or, if ``compile`` is false, drop it."""

    compile: bool


class Built(_Answer, frozen=True):
    """A program was built.

    Attributes:
        cpu_seconds: The CPU time for scheduling and compiling.
    """

    code: Code
    cpu_seconds: StepSeconds


class Skipped(_Answer, frozen=True):
    """The scheduled program was dropped."""


class Extract(NamedTuple):
    """Extract features from the configs' programs. The answer is Extracted.

    Attributes:
        features: The name of the features.
    """

    features: str
    configs: list[Config]


class Extracted(_Answer, frozen=True):
    """Features were extracted.

    Attributes:
        rows: The features of each config as 64-bit floats, shape (d,); empty if it has no program.
        cpu_seconds: The CPU time for all rows.
    """

    rows: list[bytes]
    cpu_seconds: StepSeconds


class RunProgram(NamedTuple):
    """Check and time a program on this machine. The answer is Ran.

    Attributes:
        best_cost: The time that the run's fastest program so far takes, in seconds.
    """

    code: Code
    best_cost: float


class Ran(_Answer, frozen=True):
    """A program ran and was timed.

    Attributes:
        readings: The times of the repeats, in seconds.
        pruned: Whether repeats were skipped because the program is slow.
        run_seconds: The time spent on checking and timing.
        check_seconds: The part of it until the first timing.
    """

    readings: Annotated[tuple[ExecutionSeconds, ...], msgspec.Meta(min_length=1)]
    pruned: bool
    run_seconds: StepSeconds
    check_seconds: StepSeconds = 0.0


class InputsReceived(_Answer, frozen=True):
    """The inputs are on the device, and the program's clock starts."""


class Call(NamedTuple):
    """Call the function with a config ``repeat`` times. The answer is Ran."""

    config: Config
    repeat: int


class Remeasure(NamedTuple):
    """Time all programs once per round, in turn. The answer is Remeasured."""

    codes: list[Code]
    rounds: int


class Remeasured(_Answer, frozen=True):
    """Programs were timed in turn.

    Attributes:
        program_readings: The times of each program in seconds, one per round.
    """

    program_readings: list[tuple[ExecutionSeconds, ...]]


class RunOn(NamedTuple):
    """Run a program on a fleet device. The answers are InputsReceived and then Ran, or else DeviceLost or DeviceUnfit.

    Attributes:
        best_cost: The time that the run's fastest program so far takes, in seconds.
    """

    address: Address
    code: Code
    best_cost: float


class DeviceLost(_Answer, frozen=True):
    """The device has vanished, or its session has ended."""

    text: Text


class DeviceUnfit(_Answer, frozen=True):
    """The device cannot run programs for the target."""

    text: Text


SetUp = SetUpBuilder | SetUpRunner | SetUpFunction
Work = Build | Extract | RunProgram | Call | Remeasure | RunOn

Done = Ready | Broken | Failed | Built | Skipped | Extracted | Ran | Remeasured | DeviceLost | DeviceUnfit
"""The last answer to a message."""

Answer = Started | Scheduled | InputsReceived | Done


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A frame from a worker.

    A frame that cannot be parsed counts as a failure of the candidate. A candidate that knows this format can forge a
    valid answer; this cannot be prevented.

    Attributes:
        number: The number of the message that it answers, counted from 1.
        changed_state: The parts of the worker's state that the candidate has changed; see isolation.describe_changes.
    """

    number: int
    answer: Answer
    changed_state: Text = ""


def measurement_of(answer: Ran | Failed, statistic: Statistic) -> Measurement:
    """Return the measurement of a program or function that has run or failed, without the time for building it."""
    if isinstance(answer, Failed):
        return Measurement((), answer.failure, answer.message, run_seconds=answer.seconds)
    return Measurement(
        answer.readings,
        run_seconds=answer.run_seconds,
        pruned=answer.pruned,
        statistic=statistic,
        check_seconds=answer.check_seconds,
    )
