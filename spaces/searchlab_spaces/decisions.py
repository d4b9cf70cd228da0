"""The choices behind TVM's sampling instructions: which are legal, how to call them, how to write them as decisions.

A sampling instruction draws from a set that TVM keeps to itself. Here that set is an explicit list, so that any policy
can choose from it: the probabilistic programs of Shao et al., "Tensor Program Optimization with Probabilistic
Programs" (NeurIPS 2022), without their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from searchlab.space import Value

from .tiles import Tile, factors

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

PERFECT_TILE, PARTITIONED_TILE = "SamplePerfectTile", "SamplePartitionedTile"
CATEGORICAL, COMPUTE_LOCATION = "SampleCategorical", "SampleComputeLocation"
SAMPLING = (PERFECT_TILE, PARTITIONED_TILE, CATEGORICAL, COMPUTE_LOCATION)
"""TVM's names of the instructions that sample."""

ANY = -1
"""The limit of a tile's last factor that is none. TVM looks without end for a tile within any other that is below 1."""

INLINE, ROOT, DEEPEST = -2, -1, 1 << 16
"""Compute locations other than a loop's position above the block's first consumer; the last is deeper than any nest."""


class Choices(tuple[Value, ...]):
    """The choices of a knob, tens of thousands where a loop is long: a member is looked up, not searched for."""

    @cached_property
    def _members(self) -> frozenset[Value]:
        return frozenset(self)

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def __reduce__(self) -> tuple[Any, ...]:  # without the members, which are found again where they are needed
        return Choices, (tuple(self),)


class Names:
    """Tells knobs of one config apart: the second ``pick`` is ``pick_2``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return name if count == 1 else self(f"{name}_{count}")


def knob_name(sch: Schedule, kind: str, inputs: Sequence[Any]) -> str:
    """What to call the choice that an instruction of this kind leaves open; inputs: the loop or block it is for."""
    if kind == CATEGORICAL:
        return "pick"
    subject = sch.get(inputs[0])
    return f"location_{subject.name_hint}" if kind == COMPUTE_LOCATION else f"tile_{subject.loop_var.name}"


def role_of(kind: str, use: str = "") -> str:
    """The role of the knob of an instruction of this kind; ``use``: of a sampled number, see ``use_of`` of sketches.

    A number of cooperative fetching is part of a tile, since MetaSchedule's ``mutate_tile_size.cc`` takes it for one.
    """
    if kind == CATEGORICAL:
        return {"unroll_explicit": "unroll", "unroll_implicit": "unroll", "cooperative_fetch": "tile"}.get(use, "")
    return "location" if kind == COMPUTE_LOCATION else "tile"


def legal_choices(sch: Schedule, kind: str, inputs: Sequence[Any], attrs: Sequence[Any]) -> Choices | None:
    """What an instruction of this kind may give on ``sch`` as it now is; its inputs and attributes in TVM's order.

    None where nothing is open: a loop whose extent is no constant is not tiled. Raises ValueError where nothing is
    legal.
    """
    if kind == CATEGORICAL:
        candidates, probabilities = attrs
        pairs = zip(candidates, probabilities, strict=True)
        choices = Choices(dict.fromkeys(int(candidate) for candidate, p in pairs if float(p) > 0))
    elif kind == COMPUTE_LOCATION:
        choices = compute_locations(sch, inputs[0])
    elif (extent := getattr(sch.get(inputs[0]).extent, "value", None)) is None:
        return None
    else:
        tiles = perfect_tiles if kind == PERFECT_TILE else partitioned_tiles
        choices = tiles(int(extent), *(int(attr) for attr in attrs))
    if not choices:
        raise ValueError(f"{kind} has nothing legal to choose from")
    return choices


def as_decision(kind: str, attrs: Sequence[Any], value: Value) -> Any:
    """The decision that makes an instruction of this kind give ``value``."""
    if kind == CATEGORICAL:
        return [int(candidate) for candidate in attrs[0]].index(int(value))  # type: ignore[arg-type]
    return list(value) if isinstance(value, tuple) else value


def as_value(kind: str, attrs: Sequence[Any], decision: Any) -> Value:
    """The inverse of :func:`as_decision`."""
    if kind == CATEGORICAL:
        return int(attrs[0][int(decision)])
    return int(decision) if kind == COMPUTE_LOCATION else tuple(int(factor) for factor in decision)


@lru_cache(maxsize=256)
def perfect_tiles(extent: int, parts: int, max_innermost: int) -> Choices:
    """What SamplePerfectTile draws from: the products of ``parts`` factors that are ``extent``, outermost first.

    The last factor is at most ``max_innermost``, or any where that is :data:`ANY`.
    """
    return Choices(tile for tile in _tiles(extent, parts) if max_innermost == ANY or tile[-1] <= max_innermost)


@lru_cache(maxsize=256)
def partitioned_tiles(extent: int, parts: int, position: int, inner: int) -> Choices:
    """What SamplePartitionedTile draws from: tiles whose factors from ``position`` on multiply to a multiple of
    ``inner``. There are none where ``inner`` does not divide ``extent``."""
    return Choices(tile for tile in _tiles(extent, parts) if math.prod(tile[position:]) % inner == 0)


def _tiles(extent: int, parts: int) -> Iterator[Tile]:
    if parts == 1:
        yield (extent,)
        return
    for factor in factors(extent):
        for rest in _tiles(extent // factor, parts - 1):
            yield (factor, *rest)


def compute_locations(sch: Schedule, block: SBlockRV) -> Choices:
    """What SampleComputeLocation draws from for ``block`` as ``sch`` now is, in rising order.

    TVM does not list them, but maps a decision that is not legal to the nearest legal one below it, and to ROOT
    where there is none: so the legal ones are found from the deepest loop upwards.
    """
    found: list[int] = []
    asked = DEEPEST
    while asked >= INLINE:
        sch.sample_compute_location(block, decision=asked)
        trace = sch.trace
        made = int(trace.get_decision(trace.insts[-1]))
        trace.pop()  # the schedule itself has not changed
        if made > asked:  # INLINE was asked for, and is not legal
            break
        found.append(made)
        asked = made - 1
    return Choices(reversed(found))
