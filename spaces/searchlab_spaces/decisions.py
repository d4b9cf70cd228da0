"""The choices of TVM's sampling instructions: the legal values, the knobs, and the conversion to TVM's decisions.

TVM does not expose the set from which a sampling instruction draws. This module lists it, so any policy can choose from
it. The result corresponds to the probabilistic programs of Shao et al., "Tensor Program Optimization with Probabilistic
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
"""TVM's names for the sampling instructions."""

ANY = -1
"""The limit on a tile's last factor that means no limit. With any other limit below 1, TVM would never find a tile."""

INLINE, ROOT, DEEPEST = -2, -1, 1 << 16
"""Compute locations other than the position of a loop above the block's first consumer; the last exceeds any depth."""


class Choices(tuple[Value, ...]):
    """A knob's choices, with fast membership tests, because a long loop has tens of thousands of tiles."""

    @cached_property
    def _members(self) -> frozenset[Value]:
        return frozenset(self)

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def __reduce__(self) -> tuple[Any, ...]:  # omits the set of members, which is rebuilt on demand
        return Choices, (tuple(self),)


class Names:
    """Makes knob names unique within a config: the second ``pick`` becomes ``pick_2``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return name if count == 1 else self(f"{name}_{count}")


def knob_name(sch: Schedule, kind: str, inputs: Sequence[Any]) -> str:
    """Return the name of the knob for an instruction of this kind, whose first input is its loop or block."""
    if kind == CATEGORICAL:
        return "pick"
    subject = sch.get(inputs[0])
    return f"location_{subject.name_hint}" if kind == COMPUTE_LOCATION else f"tile_{subject.loop_var.name}"


def role_of(kind: str, use: str = "") -> str:
    """Return the role of the knob for an instruction of this kind.

    Cooperative fetching counts as a tile, as in MetaSchedule's ``mutate_tile_size.cc``.

    Args:
        kind: The instruction.
        use: What a sampled number is used for; see :func:`.sketch.design.use_of`.
    """
    if kind == CATEGORICAL:
        return {"unroll_explicit": "unroll", "unroll_implicit": "unroll", "cooperative_fetch": "tile"}.get(use, "")
    return "location" if kind == COMPUTE_LOCATION else "tile"


def legal_choices(sch: Schedule, kind: str, inputs: Sequence[Any], attrs: Sequence[Any]) -> Choices | None:
    """Return the values that an instruction may draw in the current state of ``sch``.

    Args:
        sch: The schedule.
        kind: The instruction.
        inputs: Its inputs, in TVM's order.
        attrs: Its attributes, in TVM's order.

    Returns:
        The values, or None if there is nothing to choose because the loop's extent is not constant.

    Raises:
        ValueError: If no value is legal.
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
        raise ValueError(f"{kind} has no legal value to choose from")
    return choices


def as_decision(kind: str, attrs: Sequence[Any], value: Value) -> Any:
    """Return the decision with which an instruction of this kind draws ``value``."""
    if kind == CATEGORICAL:
        return [int(candidate) for candidate in attrs[0]].index(int(value))  # type: ignore[arg-type]
    return list(value) if isinstance(value, tuple) else value


def as_value(kind: str, attrs: Sequence[Any], decision: Any) -> Value:
    """Invert :func:`as_decision`."""
    if kind == CATEGORICAL:
        return int(attrs[0][int(decision)])
    return int(decision) if kind == COMPUTE_LOCATION else tuple(int(factor) for factor in decision)


@lru_cache(maxsize=256)
def perfect_tiles(extent: int, parts: int, max_innermost: int) -> Choices:
    """Return the tiles of SamplePerfectTile: ``parts`` factors whose product is ``extent``, outermost first.

    The last factor is at most ``max_innermost``, unless that is :data:`ANY`.
    """
    return Choices(tile for tile in _tiles(extent, parts) if max_innermost == ANY or tile[-1] <= max_innermost)


@lru_cache(maxsize=256)
def partitioned_tiles(extent: int, parts: int, position: int, inner: int) -> Choices:
    """Return the tiles of SamplePartitionedTile, in the same form as :func:`perfect_tiles`.

    The product of the factors from ``position`` on is a multiple of ``inner``. If ``inner`` does not divide ``extent``,
    no tile exists.
    """
    return Choices(tile for tile in _tiles(extent, parts) if math.prod(tile[position:]) % inner == 0)


def _tiles(extent: int, parts: int) -> Iterator[Tile]:
    if parts == 1:
        yield (extent,)
        return
    for factor in factors(extent):
        for rest in _tiles(extent // factor, parts - 1):
            yield (factor, *rest)


def compute_locations(sch: Schedule, block: SBlockRV) -> Choices:
    """Return the values of SampleComputeLocation for ``block`` in the current state of ``sch``, in ascending order.

    TVM does not list them, but maps an illegal decision to the nearest legal one below it, or to ROOT if none exists.
    The values are therefore found by starting at the deepest loop.
    """
    locations: list[int] = []
    requested = DEEPEST
    while requested >= INLINE:
        sch.sample_compute_location(block, decision=requested)
        trace = sch.trace
        actual = int(trace.get_decision(trace.insts[-1]))
        trace.pop()  # the schedule itself is unchanged
        if actual > requested:  # INLINE was requested, but is illegal
            break
        locations.append(actual)
        requested = actual - 1
    return Choices(reversed(locations))
