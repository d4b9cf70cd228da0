"""The choices behind TVM's sampling instructions: which are legal, what to call them, how they are written as decisions.

A sampling instruction draws from a set that TVM keeps to itself. Here that set is an explicit list, so that any policy
can choose from it: the probabilistic programs of Shao et al., "Tensor Program Optimization with Probabilistic
Programs" (NeurIPS 2022), without their probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from searchlab.space import Knob, Value

from .knobs import Tile, factors

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

PERFECT_TILE, PARTITIONED_TILE = "SamplePerfectTile", "SamplePartitionedTile"
CATEGORICAL, COMPUTE_LOCATION = "SampleCategorical", "SampleComputeLocation"
SAMPLING = (PERFECT_TILE, PARTITIONED_TILE, CATEGORICAL, COMPUTE_LOCATION)
"""TVM's names of the instructions that sample."""

INLINE, ROOT = -2, -1
"""The compute locations that are no loop; a loop is its position above the block's first consumer, outermost 0."""


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


def sampling_knob(sch: Schedule, kind: str, inputs: Sequence[Any], attrs: Sequence[Any]) -> Knob | None:
    """The choice that an instruction of this kind would leave open on ``sch`` as it now is, under a plain name.

    inputs: the loop or block sampled for. attrs: the instruction's attributes, in TVM's order. None where nothing is
    open: a loop whose extent is no constant is not tiled. Raises ValueError where nothing is legal.
    """
    if kind == CATEGORICAL:
        candidates, probabilities = attrs
        pairs = zip(candidates, probabilities, strict=True)
        return _knob("pick", Choices(dict.fromkeys(int(candidate) for candidate, p in pairs if float(p) > 0)))
    if kind == COMPUTE_LOCATION:
        (block,) = inputs
        return _knob(f"location_{sch.get(block).name_hint}", compute_locations(sch, block))
    (loop,) = (sch.get(variable) for variable in inputs)
    extent = getattr(loop.extent, "value", None)
    if extent is None:
        return None
    if kind == PERFECT_TILE:
        return _knob(f"tile_{loop.loop_var.name}", perfect_tiles(extent, *map(int, attrs)))
    return _knob(f"tile_{loop.loop_var.name}", partitioned_tiles(extent, *map(int, attrs)))


def _knob(name: str, choices: Choices) -> Knob:
    if not choices:
        raise ValueError(f"{name} has no legal choice")
    return Knob(name, choices)


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

    The last factor is at most ``max_innermost``, or any where that is not positive.
    """
    return Choices(tile for tile in _tiles(extent, parts) if not 0 < max_innermost < tile[-1])


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
    asked = 1 << 16  # deeper than any nest
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
