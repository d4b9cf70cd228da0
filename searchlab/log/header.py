"""The first line of a log: the facts about its run."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ..console import one_line
from ..plugins import Plugin

FORMAT = "1.0"
"""The version of the log format: see docs/log-format.md."""

DRAFT = 1
"""The format before 1.0, in which the tables of suite v1 are sealed: its lines have no ``kind`` and no ``batch``."""
TABLE = "table"
"""The label of the runs that measure every config of a table."""


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """How the programs of a table were timed: all of them in each of ``count`` passes, in another random order.

    Times are in seconds, and times of day count from the beginning of the first pass.
    sentinel: for each block of ``block`` programs, when it was timed, and the median seconds of one program that was
        timed between them. again: the number of blocks that were timed again, since the sentinel deviated.
    finalists, rounds: the number of the fastest programs that were timed again, in turn, and of the rounds.
    """

    count: int
    block: int
    sentinel: tuple[tuple[float, float], ...]
    again: int = 0
    finalists: int = 0
    rounds: int = 0


class RandomDraws(msgspec.Struct, frozen=True):
    """What random draws find in a space of which a complete table holds every config, in logarithms of seconds.

    expected: of the lowest latency after 1, 2, ... draws. median: of the configs that work, as often as they are drawn.
    slowest: of the slowest config that works.
    """

    expected: tuple[float, ...]
    median: float
    slowest: float


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """Facts about a run. Those in ``IDENTITY`` must be the same when the run resumes."""

    searchlab_log: str | int = FORMAT
    workload: str
    space: Plugin
    fingerprint: str
    policy: Plugin
    cost_model: Plugin | None = None
    features: str = "knob"
    seed: int
    batch: int
    target: dict[str, Any]
    measure: dict[str, Any]
    host: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    """Other facts about the machine as the run began: see :func:`~searchlab.machine.host.machine`."""
    starts: str = ""
    """What is drawn with the seed, so that the run has a start of its own; empty where all share what a seed draws."""
    warm_start: tuple[str, ...] = ()
    """Digests of the logs that the run started from, in order."""
    label: str = ""
    space_label: str = ""
    space_size: int | None = None  # None if its configs were not counted
    optimum: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The least cost of any config of the space, in seconds, if a complete table answered; None if it is not known."""
    random: RandomDraws | None = None
    """What random search finds in as many trials as the run was to have, if a complete table answered."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """The pairs of strategies, by name, whose comparison the study had registered when the run began."""
    effective: dict[str, Any] = {}
    """Options of the policy whose value it could not use, defaults too, with the values that it used."""
    workers: Annotated[int, msgspec.Meta(ge=1)] = 1
    versions: dict[str, str] = {}
    created: Annotated[float, msgspec.Meta(gt=-6e10, lt=2.5e11)] = 0.0  # a clock may be wrong
    passes: Passes | None = None
    """How a table was timed; None for the log of a run."""

    @property
    def name(self) -> str:
        """The name of this run's strategy in pictures and tables."""
        return one_line(self.label or self.policy.name)

    @property
    def is_table(self) -> bool:
        """Whether `searchlab table build` made the log."""
        return self.label == TABLE or self.passes is not None

    @property
    def table(self) -> str:
        """The name of the table of a suite that answered, without the version of the suite; empty if none did."""
        return str(self.measure.get("name", "")).rpartition("/")[2]

    @property
    def measured_on(self) -> str:
        """The machine that was measured: its CPU, and its GPU; of a fleet the key of its devices; else empty."""
        return one_line(", ".join(map(str, self.host.values())) or str(self.measure.get("key", "")))

    @property
    def space_name(self) -> str:
        """The name of its space there."""
        return one_line(self.space_label or self.space.name)


IDENTITY = (
    "workload", "space", "target", "fingerprint", "policy", "cost_model", "features", "seed", "batch", "measure",
    "host", "warm_start", "starts",
)  # fmt: skip
