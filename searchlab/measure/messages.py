"""The messages between a measurer and its worker processes; see ``worker.py`` for what a worker does with each."""

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
from .rpc.tracker import Address

Text = Annotated[str, msgspec.Meta(max_length=2 * LONGEST_TEXT)]
Taken = Annotated[float, msgspec.Meta(ge=0, lt=1e15)]
"""Seconds that something took."""
Seconds = Annotated[float, msgspec.Meta(gt=1e-15, lt=1e15)]
"""Seconds of one run of a program."""


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a worker sends, as msgpack; what it is sent is pickled."""


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
    """Get ready to build programs of a space, which is pickled; ``name`` is how messages call it."""

    space: bytes
    name: str = "the space"

    def __str__(self) -> str:
        return self.name


class SetUpRunner(NamedTuple):
    """Get ready to run programs of a workload here, on a device for this ``kind`` of target.

    error_factor: of the space, see :class:`~searchlab.space.Space`.
    """

    workload: Workload
    settings: RunSettings
    kind: str
    error_factor: float

    def __str__(self) -> str:
        return str(self.workload)


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

    def __str__(self) -> str:
        return str(self.workload)


class Started(_Answer, frozen=True):
    """The first message of a new worker: it has imported all that it needs."""


class Ready(_Answer, frozen=True):
    """The worker is set up."""


class Broken(_Answer, frozen=True):
    """The worker could not be set up."""

    text: Text


# --- any work may end in this answer ----------------------------------------------------------------------------


class Failed(_Answer, frozen=True):
    """The program failed, after so many seconds of building or of running it."""

    failure: Failure
    message: Text
    seconds: Taken = 0.0


# --- building: Build, Scheduled, Compile or Skip, Built or Skipped ------------------------------------------------


class Build(NamedTuple):
    config: Config


class Scheduled(_Answer, frozen=True):
    """The program of the config, by its hash; the worker waits to hear whether to go on."""

    program: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class Compile(NamedTuple):
    """Go on with a program that was scheduled."""


class Skip(NamedTuple):
    """Leave a program that was scheduled."""


class Built(_Answer, frozen=True):
    """The code of a program, and the seconds that scheduling and compiling took."""

    objects: Objects
    seconds: Taken


class Skipped(_Answer, frozen=True):
    """The program was left."""


# --- features: Extract, Extracted -----------------------------------------------------------------------------------


class Extract(NamedTuple):
    """Extract the features of this name from the programs of configs."""

    features: str
    configs: list[Config]


class Extracted(_Answer, frozen=True):
    """The features (d,) of each config, the bytes of 64-bit floats; empty for one that makes no program.

    seconds: of the CPU, for all of them.
    """

    rows: list[bytes]
    seconds: Taken


# --- running on this machine --------------------------------------------------------------------------------------


class RunProgram(NamedTuple):
    """Check and time a program. best: seconds of the fastest program of the run so far."""

    objects: Objects
    best: float


class Ran(_Answer, frozen=True):
    """Seconds of each repeat; whether it was pruned, which is not repeated for its slowness; seconds in all."""

    seconds: Annotated[tuple[Seconds, ...], msgspec.Meta(min_length=1)]
    pruned: bool
    run_seconds: Taken


class CheckProgram(NamedTuple):
    """Run a program on inputs drawn from ``seed``. The worker answers Drawn, and then Right."""

    objects: Objects
    seed: int


class Drawn(_Answer, frozen=True):
    """The inputs and the reference are there, and the time of the program begins."""


class Right(_Answer, frozen=True):
    """The program gave the right result."""


class Remeasure(NamedTuple):
    """Time programs once more in each of ``rounds``, in turn."""

    programs: list[Objects]
    rounds: int


class Remeasured(_Answer, frozen=True):
    """Seconds of each program in each round."""

    seconds: list[tuple[Seconds, ...]]


# --- running on a device of a fleet -------------------------------------------------------------------------------


class RunOn(NamedTuple):
    """Run a program on a device. The worker answers Connected, and then Ran; or Lost, or Unfit."""

    address: Address
    objects: Objects
    best: float


class Connected(_Answer, frozen=True):
    """The device has the inputs, and the time of the program begins."""


class Lost(_Answer, frozen=True):
    """The device, or the session on it, is gone."""

    text: Text


class Unfit(_Answer, frozen=True):
    """The device cannot run programs for this target."""

    text: Text


SetUp = SetUpBuilder | SetUpRunner | SetUpSessions
Work = Build | Extract | RunProgram | CheckProgram | Remeasure | RunOn
Done = Ready | Broken | Failed | Built | Skipped | Extracted | Ran | Right | Remeasured | Lost | Unfit
"""The last message of a worker about what it was told to do."""
Answer = Started | Scheduled | Drawn | Connected | Done
"""Any message of a worker."""


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a worker sends: an answer, to the ``number``-th message that it was sent.

    changed: what the candidate has changed in the worker, which is then not used for another; empty if nothing.

    A worker runs candidates, and a candidate can write to the worker's connection. So nothing that comes from there is
    unpickled, and what does not parse is the failure of that candidate. A candidate that knows this format can still
    forge an answer that parses: no process can be kept from lying about what it has done itself.
    """

    number: int
    answer: Answer
    changed: Text = ""


_REPLIES = msgspec.msgpack.Decoder(Reply)


def encoded(reply: Reply) -> bytes:
    return msgspec.msgpack.encode(reply)


def decoded(frame: bytes) -> Reply:
    """Raises msgspec.MsgspecError or ValueError for anything that is no reply."""
    return _REPLIES.decode(frame)
