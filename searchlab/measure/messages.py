"""The messages between a measurer and its worker processes; ``worker.py`` handles them.

A worker receives pickles. It answers with msgpack, and nothing that it sends is unpickled: it runs candidates, which
can write to its connection.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from ..errors import LONGEST_TEXT
from ..records import Failure
from ..space import Config
from ..target import Target
from ..workload import Workload
from .code import Objects
from .contract import RunSettings
from .fleet import Address

Text = Annotated[str, msgspec.Meta(max_length=2 * LONGEST_TEXT)]
Taken = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
"""Seconds that an operation took."""
Seconds = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)]
"""Seconds of one run of a program."""


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message from a worker."""


class Fork(NamedTuple):
    """To the fork server, numbered: fork a worker. Its connection and its standard error come with the message.

    The answer is its process number, or a text if there is none.
    """

    threads: int
    memory_limit_mb: int
    path: list[str]  # sys.path
    folder: str  # the working directory
    environment: dict[str, str | None]  # differences from the fork server's environment; None removes a variable


class HasEnded(NamedTuple):
    """To the fork server, numbered. The answer is an End, or None if the worker is alive."""

    pid: int


class End(NamedTuple):
    """How a worker has ended."""

    code: int
    megabytes: int = 0  # peak memory
    cpu_seconds: float = 0.0


class SetUpBuilder(NamedTuple):
    """Prepare to build programs of a space. The answer to this and the other set-up messages is Ready or Broken."""

    space: bytes  # a pickle
    name: str = "the space"

    def __str__(self) -> str:
        return self.name


class SetUpRunner(NamedTuple):
    """Prepare to run programs of a workload."""

    workload: Workload
    settings: RunSettings
    target: Target
    error_factor: float  # see searchlab.space.Space
    fleet: tuple[float, str] | None = None  # connect_timeout and cc: see RpcSettings; None: run on this machine

    def __str__(self) -> str:
        return str(self.workload)


class Started(_Answer, frozen=True):
    """The first message of a new worker: it has done its imports."""


class Ready(_Answer, frozen=True):
    """The worker is set up."""


class Broken(_Answer, frozen=True):
    """The worker cannot be set up."""

    text: Text


class Failed(_Answer, frozen=True):
    """The program failed. This may answer any message that is not a set-up."""

    failure: Failure
    message: Text
    seconds: Taken = 0.0  # of building or of running it


class Build(NamedTuple):
    """Build a program. The worker answers Scheduled, is sent Continue, and answers Built or Skipped."""

    config: Config


class Scheduled(_Answer, frozen=True):
    program: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]  # its hash


class Continue(NamedTuple):
    """Compile the scheduled program, or drop it."""

    compile: bool


class Built(_Answer, frozen=True):
    objects: Objects
    seconds: Taken  # CPU time of scheduling and compiling


class Skipped(_Answer, frozen=True):
    """The scheduled program was dropped."""


class Extract(NamedTuple):
    """Extract features of the programs of configs. The answer is Extracted."""

    features: str  # their name
    configs: list[Config]


class Extracted(_Answer, frozen=True):
    rows: list[bytes]  # 64-bit floats, shape (d,), per config; empty for a config that has no program
    seconds: Taken  # CPU time of all rows


class RunProgram(NamedTuple):
    """Check and time a program on this machine. The answer is Ran."""

    objects: Objects
    best: float  # seconds of the run's fastest program so far


class Ran(_Answer, frozen=True):
    seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(min_length=1)]  # of each repeat
    pruned: bool  # whether it was not repeated because it is slow
    run_seconds: Taken  # of checking and timing


class CheckProgram(NamedTuple):
    """Run a program on other inputs. The worker answers Begun, and then Right."""

    objects: Objects
    seed: int  # of the inputs


class Begun(_Answer, frozen=True):
    """The inputs are ready, on the device if it is remote, and the program's time starts."""


class Right(_Answer, frozen=True):
    """The result is right."""


class Remeasure(NamedTuple):
    """Time the programs once more in each round, in turn. The answer is Remeasured."""

    programs: list[Objects]
    rounds: int


class Remeasured(_Answer, frozen=True):
    seconds: list[tuple[Seconds, ...]]  # per program and round


class RunOn(NamedTuple):
    """Run a program on a device of a fleet. The worker answers Begun, and then Ran; or Lost, or Unfit."""

    address: Address
    objects: Objects
    best: float  # seconds of the run's fastest program so far


class Lost(_Answer, frozen=True):
    """The device, or the session on it, is gone."""

    text: Text


class Unfit(_Answer, frozen=True):
    """The device cannot run programs for the target."""

    text: Text


SetUp = SetUpBuilder | SetUpRunner
Work = Build | Extract | RunProgram | CheckProgram | Remeasure | RunOn
Done = Ready | Broken | Failed | Built | Skipped | Extracted | Ran | Right | Remeasured | Lost | Unfit
"""The last answer to a message."""
Answer = Started | Scheduled | Begun | Done


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """A frame from a worker.

    A frame that does not parse is the failure of the candidate. A candidate that knows this format can forge an answer
    that parses: a process cannot be kept from lying about its own work.
    """

    number: int  # of the message that it answers, counted from 1
    answer: Answer
    changed: Text = ""  # what the candidate has changed in the worker, which then runs no other candidate
