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

from .tiles import Tile, list_divisors

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

PERFECT_TILE, PARTITIONED_TILE = "SamplePerfectTile", "SamplePartitionedTile"
CATEGORICAL, COMPUTE_LOCATION = "SampleCategorical", "SampleComputeLocation"

SAMPLING_INSTRUCTIONS = (PERFECT_TILE, PARTITIONED_TILE, CATEGORICAL, COMPUTE_LOCATION)
"""TVM's names for the sampling instructions."""

NO_LIMIT = -1
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


class UniqueNames:
    """Makes knob names unique within a config: the second ``pick`` becomes ``pick_2``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return name if count == 1 else self(f"{name}_{count}")


def make_knob_name(sch: Schedule, instruction: str, inputs: Sequence[Any]) -> str:
    """Return the name of the knob for an instruction of this kind, whose first input is its loop or block."""
    if instruction == CATEGORICAL:
        return "pick"
    loop_or_block = sch.get(inputs[0])
    return (
        f"location_{loop_or_block.name_hint}"
        if instruction == COMPUTE_LOCATION
        else f"tile_{loop_or_block.loop_var.name}"
    )


def find_role(instruction: str, use: str = "") -> str:
    """Return the role of the knob for an instruction of this kind.

    Cooperative fetching counts as a tile, as in MetaSchedule's ``mutate_tile_size.cc``.

    Args:
        instruction: The instruction.
        use: What a sampled number is used for; see :func:`.sketch.design.find_use`.
    """
    if instruction == CATEGORICAL:
        return {"unroll_explicit": "unroll", "unroll_implicit": "unroll", "cooperative_fetch": "tile"}.get(use, "")
    return "location" if instruction == COMPUTE_LOCATION else "tile"


def list_legal_choices(sch: Schedule, instruction: str, inputs: Sequence[Any], attrs: Sequence[Any]) -> Choices | None:
    """Return the values that an instruction may draw in the current state of ``sch``.

    Args:
        sch: The schedule.
        instruction: The instruction.
        inputs: Its inputs, in TVM's order.
        attrs: Its attributes, in TVM's order.

    Returns:
        The values, or None if there is nothing to choose because the loop's extent is not constant.

    Raises:
        ValueError: If no value is legal.
    """
    if instruction == CATEGORICAL:
        candidates, probabilities = attrs
        weighted_candidates = zip(candidates, probabilities, strict=True)
        choices = Choices(dict.fromkeys(int(candidate) for candidate, p in weighted_candidates if float(p) > 0))
    elif instruction == COMPUTE_LOCATION:
        choices = find_compute_locations(sch, inputs[0])
    elif (extent := getattr(sch.get(inputs[0]).extent, "value", None)) is None:
        return None
    else:
        list_tiles = list_perfect_tiles if instruction == PERFECT_TILE else list_partitioned_tiles
        choices = list_tiles(int(extent), *(int(attr) for attr in attrs))
    if not choices:
        raise ValueError(f"{instruction} has no legal value to choose from")
    return choices


def to_decision(instruction: str, attrs: Sequence[Any], value: Value) -> Any:
    """Return the decision with which an instruction of this kind draws ``value``."""
    if instruction == CATEGORICAL:
        return [int(candidate) for candidate in attrs[0]].index(int(value))  # type: ignore[arg-type]
    return list(value) if isinstance(value, tuple) else value


def to_value(instruction: str, attrs: Sequence[Any], decision: Any) -> Value:
    """Invert :func:`to_decision`."""
    if instruction == CATEGORICAL:
        return int(attrs[0][int(decision)])
    return int(decision) if instruction == COMPUTE_LOCATION else tuple(int(factor) for factor in decision)


@lru_cache(maxsize=256)
def list_perfect_tiles(extent: int, factor_count: int, max_innermost: int) -> Choices:
    """Return the tiles of SamplePerfectTile: ``factor_count`` factors whose product is ``extent``, outermost first.

    The last factor is at most ``max_innermost``, unless that is :data:`NO_LIMIT`.
    """
    return Choices(
        tile for tile in _list_tiles(extent, factor_count) if max_innermost == NO_LIMIT or tile[-1] <= max_innermost
    )


@lru_cache(maxsize=256)
def list_partitioned_tiles(extent: int, factor_count: int, position: int, inner: int) -> Choices:
    """Return the tiles of SamplePartitionedTile, in the same form as :func:`list_perfect_tiles`.

    The product of the factors from ``position`` on is a multiple of ``inner``. If ``inner`` does not divide ``extent``,
    no tile exists.
    """
    return Choices(tile for tile in _list_tiles(extent, factor_count) if math.prod(tile[position:]) % inner == 0)


def _list_tiles(extent: int, factor_count: int) -> Iterator[Tile]:
    if factor_count == 1:
        yield (extent,)
        return
    for factor in list_divisors(extent):
        for rest in _list_tiles(extent // factor, factor_count - 1):
            yield (factor, *rest)


def find_compute_locations(sch: Schedule, block: SBlockRV) -> Choices:
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
