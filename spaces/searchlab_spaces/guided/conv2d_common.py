"""Helpers for conv2d's lowerings: the register budget, the division of work among cores, and padding."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from searchlab.target import Target
from searchlab.workload import Conv2d

from ..tiles import factors
from .common import EDGE, FORK, registers

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

BALANCED = 0.9
"""The minimum core utilisation at which a division of the work counts as even."""


def accumulators(target: Target, has_block_knobs: bool = False) -> range:
    """Return the range of a register tile's size in vectors: enough to hide a multiply-add's latency without spilling.

    If ``has_block_knobs`` is true, the range extends beyond both limits.
    """
    count = registers(target)
    return range(count // 8, count * 5 // 4 + 1) if has_block_knobs else range(count * 3 // 8, count * 3 // 4 + 1)


def vectors(lanes: int, extent: int) -> range:
    """Return the possible tile widths in vectors: one to four, but no more than ``extent`` can fill."""
    return range(1, min(4, ceil(extent / lanes)) + 1)


def parallel(workload: Conv2d, target: Target) -> bool:
    """Return whether there is enough work for more than one thread."""
    return target.cores > 1 and workload.flops >= FORK


def evenness(tasks: int, cores: int) -> float:
    """Return the mean core utilisation, in (0, 1], when the cores share equal tasks."""
    return tasks / (cores * ceil(tasks / cores))


def is_balanced(tasks: int, cores: int) -> bool:
    """Return whether the cores have about the same amount of work."""
    return evenness(tasks, cores) >= BALANCED


def even_shares(tasks: int, tiles: int, cores: int) -> int:
    """Return the number of equal shares into which to split each task of ``tiles`` tiles in order to balance the cores.

    This is the smallest divisor of ``tiles`` that balances the cores well enough, or else the one that does so best.
    """
    parts = factors(tiles)
    return next(
        (share for share in parts if is_balanced(tasks * share, cores)),
        max(parts, key=lambda share: evenness(tasks * share, cores)),
    )


def pad(sch: Schedule, workload: Conv2d, in_parallel: bool, block: str = "pad") -> None:
    """Schedule the padded copy of the image, if any: channels in parallel, and rows without bound checks."""
    if block == "pad" and not workload.is_padded:
        return
    image, channel, _, column = sch.get_loops(block)[-4:]
    sch.annotate(column, EDGE, 1)
    if in_parallel:
        sch.parallel(sch.fuse(image, channel))
