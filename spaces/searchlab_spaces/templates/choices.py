"""A knob's choices under AutoTVM's policies, in AutoTVM's order.

Source: ``tvm.autotvm.task.space`` (TVM 0.17). Loops are identified by their positions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from ..tiles import Tile, list_divisors, list_powers_of_two

SPLIT_POLICIES: dict[str, Callable[[int], list[int]]] = {
    "factors": list_divisors,
    "power2": list_powers_of_two,
    # AutoTVM iterates over a set, whose order is undefined; here, the order is ascending.
    "verbose": lambda extent: sorted({*list_divisors(extent), *list_powers_of_two(extent)}),
}
"""The values of each part of a tile except the outermost, by policy; ``"candidate"`` lists complete tiles instead."""

REORDER_POLICIES = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")

GPU_LEVELS = {
    "bind_gpu": ("blockIdx", "threadIdx"),
    "bind_gpu_virtual": ("blockIdx", "vthread", "threadIdx"),
}
"""The levels to which loops are bound, outermost first, by annotate policy."""

MARKS = ("none", "unroll", "vec")
"""The words from which the other annotate policies are composed, joined by ``_``; ``try`` is a synonym of ``none``."""


def list_splits(
    extent: int,
    num_outputs: int,
    policy: str = "factors",
    *,
    max_factor: int | None = None,
    no_tail: bool | None = None,
) -> list[Tile]:
    """Return all splits of a loop into nested loops, outermost first, in AutoTVM's order.

    The innermost part varies slowest, in ascending order; the outermost part covers the rest.

    Args:
        extent: The extent of the loop.
        num_outputs: The number of nested loops.
        policy: The policy that determines the parts.
        max_factor: The maximum of all parts except the outermost.
        no_tail: Whether the parts must divide the loop; by default, only for ``"factors"``. Otherwise, a tile may
            extend past the end of the loop, where the schedule guards it.
    """
    must_divide = policy == "factors" if no_tail is None else no_tail
    return list(_list_splits(extent, num_outputs, policy, max_factor, must_divide))


@lru_cache(1024)  # a template defines the same splits for every config
def _list_splits(
    extent: int, num_outputs: int, policy: str, max_factor: int | None, must_divide: bool
) -> tuple[Tile, ...]:
    candidates = [f for f in SPLIT_POLICIES[policy](extent) if max_factor is None or f <= max_factor]

    def grow(inner: Tile, size: int) -> Iterator[Tile]:
        if len(inner) == num_outputs - 1:
            yield (math.ceil(extent / size), *inner)
            return
        for factor in candidates:
            if (extent % (size * factor) == 0) if must_divide else (size * factor <= extent):
                yield from grow((factor, *inner), size * factor)

    return tuple(grow((), 1))


def list_interval_orders(count: int, begin: int, end: int) -> list[Tile]:
    """Return all orders of ``count`` loops that permute only the positions from ``begin`` up to ``end``."""
    before, after = tuple(range(begin)), tuple(range(end, count))
    return [(*before, *inner, *after) for inner in itertools.permutations(range(begin, end))]


def interleave(spatial: Sequence[Tile], reduce: Sequence[Tile], *, cuda: bool) -> Tile:
    """Return the single order of ``"interleave"``.

    The chains of spatial loops are merged, except for each chain's last loop. These last loops are merged with the
    chains of reduction loops or, for ``"interleave_cuda"``, follow them.
    """
    outer = merge([chain[:-1] for chain in spatial])
    last_loops = [chain[-1:] for chain in spatial]
    inner = (*merge(reduce), *itertools.chain(*last_loops)) if cuda else merge([*last_loops, *reduce])
    return (*outer, *inner)


def merge(chains: Sequence[Tile]) -> Tile:
    """Merge chains by repeatedly taking the next element of the longest remaining one (AutoTVM's ``_merge_chain``)."""
    remainders = [list(chain) for chain in chains]
    order = []
    while any(remainders):
        order.append(max(remainders, key=len).pop(0))
    return tuple(order)


def list_gpu_bindings(count: int, policy: str) -> list[str]:
    """Return the bindings of ``count`` loops, outermost first: up to three per level, x innermost; others are fused."""
    levels = GPU_LEVELS[policy]
    axes = "zyx"[-min(3, count // len(levels)) :] if count >= len(levels) else ""
    bindings = [level if level == "vthread" else f"{level}.{axis}" for level in levels for axis in axes]
    return ["fuse"] * (count - len(bindings)) + bindings


def list_annotations(count: int, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all assignments of ``words`` to ``count`` loops in which at most one loop is vectorised."""
    return [marks for marks in itertools.product(words, repeat=count) if marks.count("vec") <= 1]
