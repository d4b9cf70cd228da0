"""The messages between a measurer and its worker processes; see ``worker.py`` for what a worker does with each."""

from __future__ import annotations

from typing import NamedTuple

from ..costmodel import Array
from ..records import Failure
from ..space import Config
from ..target import Target
from ..workload import Workload
from .code import Objects
from .contract import RunSettings
from .rpc.tracker import Address

# --- to the fork server, with a number that its answer has too --------------------------------------------------


class Fork(NamedTuple):
    """Fork a worker; its connection and its standard error come with the message. The answer is its process number, or
    why there is none.

    environment: what differs from the environment that the fork server was started with; None: it is not set.
    """

    threads: int
    memory_limit_mb: int
    path: list[str]
    folder: str
    environment: dict[str, str | None]


class HasEnded(NamedTuple):
    """The answer is an End, or None for a worker that goes on."""

    pid: int


class End(NamedTuple):
    """How a worker has ended, the most memory in MB that it held, and the seconds of a core that it took."""

    code: int
    megabytes: int = 0
    cpu_seconds: float = 0.0


# --- set-up, once for many programs: the worker answers Ready or Broken -----------------------------------------


class SetUpBuilder(NamedTuple):
    """Get ready to build programs of a space, which is pickled."""

    space: bytes


class SetUpRunner(NamedTuple):
    """Get ready to run programs of a workload here, on a device for this ``kind`` of target.

    error_factor: of the space, see :class:`~searchlab.space.Space`.
    """

    workload: Workload
    settings: RunSettings
    kind: str
    error_factor: float


class SetUpSessions(NamedTuple):
    """Get ready to run programs of a workload on the devices of a fleet.

    connect_timeout, cc: see ``RpcSettings``. error_factor: of the space, see :class:`~searchlab.space.Space`.
    """

    workload: Workload
    settings: RunSettings
    target: Target
    connect_timeout: float
    cc: str
    error_factor: float


class Started(NamedTuple):
    """The first message of a new worker: it has imported all that it needs."""


class Ready(NamedTuple):
    """The worker is set up."""


class Broken(NamedTuple):
    """The worker could not be set up."""

    text: str


# --- any work may end in this answer ----------------------------------------------------------------------------


class Failed(NamedTuple):
    """The program failed, after so many seconds of building or of running it."""

    failure: Failure
    message: str
    seconds: float = 0.0


# --- building: Build, Scheduled, Compile or Skip, Built or Skipped ------------------------------------------------


class Build(NamedTuple):
    config: Config


class Scheduled(NamedTuple):
    """The program of the config, by its hash; the worker waits to hear whether to go on."""

    program: str


class Compile(NamedTuple):
    """Go on with a program that was scheduled."""


class Skip(NamedTuple):
    """Leave a program that was scheduled."""


class Built(NamedTuple):
    """The code of a program, and the seconds that scheduling and compiling took."""

    objects: Objects
    seconds: float


class Skipped(NamedTuple):
    """The program was left."""


# --- features: Extract, Extracted -----------------------------------------------------------------------------------


class Extract(NamedTuple):
    """Extract the features of this name from the programs of configs."""

    features: str
    configs: list[Config]


class Extracted(NamedTuple):
    """The features (d,) of each config; empty for one that makes no program. seconds: of the CPU, for all of them."""

    rows: list[Array]
    seconds: float


# --- running on this machine --------------------------------------------------------------------------------------


class RunProgram(NamedTuple):
    """Check and time a program. best: seconds of the fastest program of the run so far."""

    objects: Objects
    best: float


class Ran(NamedTuple):
    """Seconds of each repeat; whether it was pruned, which is not repeated for its slowness; seconds in all."""

    seconds: tuple[float, ...]
    pruned: bool
    run_seconds: float


class CheckProgram(NamedTuple):
    """Run a program on inputs drawn from ``seed``. The worker answers Drawn, and then Right."""

    objects: Objects
    seed: int


class Drawn(NamedTuple):
    """The inputs and the reference are there, and the time of the program begins."""


class Right(NamedTuple):
    """The program gave the right result."""


class Remeasure(NamedTuple):
    """Time programs once more in each of ``rounds``, in turn."""

    programs: list[Objects]
    rounds: int


class Remeasured(NamedTuple):
    """Seconds of each program in each round."""

    seconds: list[tuple[float, ...]]


# --- running on a device of a fleet -------------------------------------------------------------------------------


class RunOn(NamedTuple):
    """Run a program on a device. The worker answers Connected, and then Ran; or Lost, or Unfit."""

    address: Address
    objects: Objects
    best: float


class Connected(NamedTuple):
    """The device has the inputs, and the time of the program begins."""


class Lost(NamedTuple):
    """The device, or the session on it, is gone."""

    text: str


class Unfit(NamedTuple):
    """The device cannot run programs for this target."""

    text: str


SetUp = SetUpBuilder | SetUpRunner | SetUpSessions
Work = Build | Extract | RunProgram | CheckProgram | Remeasure | RunOn
Answer = Ready | Broken | Failed | Built | Skipped | Extracted | Ran | Right | Remeasured | Lost | Unfit
"""The last message of a worker about what it was told to do."""
