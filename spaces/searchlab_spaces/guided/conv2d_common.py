"""Helpers for conv2d's lowerings: the register budget, the division of work among cores, and padding."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from searchlab.target import Target
from searchlab.workload import Conv2d

from ..tiles import list_divisors
from .common import EDGE_ANNOTATION, MIN_PARALLEL_FLOPS, count_registers

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

MIN_EVENNESS = 0.9
"""The minimum core utilisation at which a division of the work counts as even."""


def accumulator_range(target: Target, has_block_knobs: bool = False) -> range:
    """Return the range of a register tile's size in vectors: enough to hide a multiply-add's latency without spilling.

    If ``has_block_knobs`` is true, the range extends beyond both limits.
    """
    register_count = count_registers(target)
    if has_block_knobs:
        return range(register_count // 8, register_count * 5 // 4 + 1)
    return range(register_count * 3 // 8, register_count * 3 // 4 + 1)


def vector_counts(lanes: int, extent: int) -> range:
    """Return the possible tile widths in vectors: one to four, but no more than ``extent`` can fill."""
    return range(1, min(4, ceil(extent / lanes)) + 1)


def is_worth_parallelizing(workload: Conv2d, target: Target) -> bool:
    """Return whether there is enough work for more than one thread."""
    return target.cores > 1 and workload.flops >= MIN_PARALLEL_FLOPS


def compute_evenness(tasks: int, cores: int) -> float:
    """Return the mean core utilisation, in (0, 1], when the cores share equal tasks."""
    return tasks / (cores * ceil(tasks / cores))


def is_balanced(tasks: int, cores: int) -> bool:
    """Return whether the cores have about the same amount of work."""
    return compute_evenness(tasks, cores) >= MIN_EVENNESS


def choose_even_shares(tasks: int, tiles: int, cores: int) -> int:
    """Return the number of equal shares into which to split each task of ``tiles`` tiles in order to balance the cores.

    This is the smallest divisor of ``tiles`` that balances the cores well enough, or else the one that does so best.
    """
    share_counts = list_divisors(tiles)
    return next(
        (share_count for share_count in share_counts if is_balanced(tasks * share_count, cores)),
        max(share_counts, key=lambda share_count: compute_evenness(tasks * share_count, cores)),
    )


def schedule_padding(sch: Schedule, workload: Conv2d, in_parallel: bool, block: str = "pad") -> None:
    """Schedule the padded copy of the image, if any: channels in parallel, and rows without bound checks."""
    if block == "pad" and not workload.is_padded:
        return
    image, channel, _, column = sch.get_loops(block)[-4:]
    sch.annotate(column, EDGE_ANNOTATION, 1)
    if in_parallel:
        sch.parallel(sch.fuse(image, channel))
