"""What AutoTVM's policies list for a knob, in AutoTVM's order.

After ``tvm.autotvm.task.space`` (TVM 0.17). Loops are given by their positions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ..tiles import Tile, factors, powers_of_two

SPLIT_POLICIES: dict[str, Callable[[int], list[int]]] = {
    "factors": factors,
    "power2": powers_of_two,
    # AutoTVM takes these in the order of a Python set, which nothing defines: here they rise.
    "verbose": lambda extent: sorted({*factors(extent), *powers_of_two(extent)}),
}
"""What each part of a tile but the outermost may be, by policy; ``"candidate"`` lists whole tiles instead."""

REORDER_POLICIES = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")
GPU_LEVELS = {
    "bind_gpu": ("blockIdx", "threadIdx"),
    "bind_gpu_virtual": ("blockIdx", "vthread", "threadIdx"),
}
"""What the loops are bound to, from the outermost, by annotate policy."""
MARKS = ("none", "unroll", "vec")
"""The words of the other annotate policies, joined by ``_``; ``try`` is another word for ``none``."""


def splits(
    extent: int,
    num_outputs: int,
    policy: str = "factors",
    *,
    max_factor: int | None = None,
    no_tail: bool | None = None,
) -> list[Tile]:
    """Every way to cut a loop of ``extent`` into ``num_outputs`` nested loops, outermost first, in AutoTVM's order.

    The innermost part varies slowest and every part rises; the outermost is what covers the rest. ``max_factor``
    bounds all parts but that. Unless ``no_tail``, which is the default of ``"factors"`` alone, a tile may reach past
    the loop's end, and the schedule then guards it.
    """
    exact = policy == "factors" if no_tail is None else no_tail
    candidates = [f for f in SPLIT_POLICIES[policy](extent) if max_factor is None or f <= max_factor]

    def grow(inner: Tile, size: int) -> Iterator[Tile]:
        if len(inner) == num_outputs - 1:
            yield (math.ceil(extent / size), *inner)
            return
        for factor in candidates:
            if (extent % (size * factor) == 0) if exact else (size * factor <= extent):
                yield from grow((factor, *inner), size * factor)

    return list(grow((), 1))


def intervals(count: int, begin: int, end: int) -> list[Tile]:
    """Every order of ``count`` loops in which only those from ``begin`` up to ``end`` change places."""
    before, after = tuple(range(begin)), tuple(range(end, count))
    return [(*before, *inner, *after) for inner in itertools.permutations(range(begin, end))]


def interleaved(spatial: Sequence[Tile], reduce: Sequence[Tile], *, cuda: bool) -> Tile:
    """The one order that ``"interleave"`` lists: chains of spatial loops merged, but the last of each, then the rest.

    These last ones are merged with the chains of reduction loops, or for ``"interleave_cuda"`` come after them.
    """
    outer = merged([chain[:-1] for chain in spatial])
    last = [chain[-1:] for chain in spatial]
    inner = (*merged(reduce), *itertools.chain(*last)) if cuda else merged([*last, *reduce])
    return (*outer, *inner)


def merged(chains: Sequence[Tile]) -> Tile:
    """Always the next of the chain that has most left, and of the first such: AutoTVM's ``_merge_chain``."""
    left = [list(chain) for chain in chains]
    order = []
    while any(left):
        order.append(max(left, key=len).pop(0))
    return tuple(order)


def gpu_binding(count: int, policy: str) -> list[str]:
    """What ``count`` loops are bound to, outermost first: up to three of each level, x innermost; the rest is fused."""
    levels = GPU_LEVELS[policy]
    axes = "zyx"[-min(3, count // len(levels)) :] if count >= len(levels) else ""
    words = [level if level == "vthread" else f"{level}.{axis}" for level in levels for axis in axes]
    return ["fuse"] * (count - len(words)) + words


def marked(count: int, words: Sequence[str]) -> list[tuple[str, ...]]:
    """Every way to give each of ``count`` loops one of ``words``, of which at most one is vectorised."""
    return [marks for marks in itertools.product(words, repeat=count) if marks.count("vec") <= 1]
