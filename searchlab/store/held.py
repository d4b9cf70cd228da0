"""What a store holds, as it tells it: of which workload, for which target, on which machine, in which space."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..errors import encodable
from ..log.format import Header
from ..target import Target
from ..workload import parse_workload


class Key(msgspec.Struct, frozen=True):
    """What was measured, and where. Programs of different keys are never compared.

    workload: as it is spelled. target: see :func:`spelled_target`. machine: see
    :attr:`~searchlab.log.format.Header.measured_on`. space: the name of its plug-in. fingerprint: of the space.
    """

    workload: str
    target: str
    machine: str
    space: str
    fingerprint: str

    @classmethod
    def of(cls, header: Header) -> Key:
        """Raises SearchlabError for a workload that is not known."""
        texts = header.measured_on, header.space.name, header.fingerprint
        return cls(str(parse_workload(header.workload)), spelled_target(header.target), *map(encodable, texts))


class Held(msgspec.Struct, frozen=True):
    """What a store holds of one :class:`Key`.

    runs, trials: their numbers. programs: the number of different programs that were built. seconds: of one run of the
    fastest program, as :attr:`~searchlab.log.result.Best.seconds`; None if no trial succeeded. strategy, created
    (seconds since 1970), log: of the run that has the fastest program; log is where it lay when it was added.
    """

    key: Key
    runs: int
    trials: int
    programs: int
    seconds: float | None
    strategy: str
    created: float
    log: str

    @property
    def gflops(self) -> float | None:
        """The throughput of the fastest program, in :attr:`unit`."""
        return parse_workload(self.key.workload).flops / self.seconds / 1e9 if self.seconds else None

    @property
    def unit(self) -> str:
        return parse_workload(self.key.workload).unit

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.structs.asdict(self)
        key = msgspec.structs.asdict(facts.pop("key"))
        key["target"] = json.loads(self.key.target)
        return {**key, **facts, "gflops": self.gflops, "unit": self.unit}


def spelled_target(target: Target | Mapping[str, Any]) -> str:
    """A target as JSON in one spelling, without its caches: programs of one target run together, whatever they were."""
    spec = target.spec if isinstance(target, Target) else target
    return json.dumps({name: value for name, value in spec.items() if name != "caches"}, sort_keys=True)


def in_words(target: str, machine: str) -> str:
    """Where programs were measured: ``"llvm mcpu=znver5 num-cores=2 on AMD EPYC 9755"``."""
    spec = json.loads(target)
    options = [f"{name}={value}" for name, value in spec.items() if name != "kind"]
    return f"{' '.join([str(spec.get('kind')), *options])} on {machine or 'an unknown machine'}"


def places(held: Iterable[Held]) -> str:
    """Where ``held`` was measured, with the number of programs: at most four places."""
    counts: dict[tuple[str, str], int] = {}
    for one in held:
        place = one.key.target, one.key.machine
        counts[place] = counts.get(place, 0) + one.programs
    said = [f"{count:,} for {in_words(*place)}" for place, count in counts.items()]
    return "; ".join(said[:4]) + (f"; and {len(said) - 4} other places" if len(said) > 4 else "")
