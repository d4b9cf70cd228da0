"""The parts that both lowerings share: the budget of registers, the shares of the cores, the stages around."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from searchlab.target import Target
from searchlab.workload import Conv2d

from .common import EDGE, FORK, registers

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import SBlockRV

BALANCED = 0.9
"""The share of the cores' time that a division of the work must put to use to be taken as even."""


def accumulators(target: Target, searched: bool = False) -> range:
    """How many vectors a register tile may have: enough to hide a multiply-add's latency, few enough not to spill.

    Where they are ``searched``, tiles that are too small for the one and too large for the other are among them.
    """
    count = registers(target)
    return range(count // 8, count * 5 // 4 + 1) if searched else range(count * 3 // 8, count * 3 // 4 + 1)


def divisors(number: int) -> tuple[int, ...]:
    """The divisors of ``number``, rising."""
    return tuple(part for part in range(1, number + 1) if number % part == 0)


def vectors(lanes: int, extent: int) -> range:
    """How many vectors a tile may be wide: one to four, and no more than ``extent`` fills."""
    return range(1, min(4, ceil(extent / lanes)) + 1)


def parallel(workload: Conv2d, target: Target) -> bool:
    """Whether the work is worth more than one thread."""
    return target.cores > 1 and workload.flops >= FORK


def evenness(tasks: int, cores: int) -> float:
    """The part of its time that a core works, in the mean, while the cores share out equal tasks: at most 1."""
    return tasks / (cores * ceil(tasks / cores))


def even(tasks: int, cores: int) -> bool:
    """Whether the cores have about as much to do of equal tasks."""
    return evenness(tasks, cores) >= BALANCED


def even_shares(tasks: int, tiles: int, cores: int) -> int:
    """Into how many equal shares to cut each task of ``tiles`` tiles, for the cores to have about as much to do.

    The smallest divisor of ``tiles`` that is even enough, or else the most even.
    """
    parts = divisors(tiles)
    return next(
        (share for share in parts if even(tasks * share, cores)),
        max(parts, key=lambda share: evenness(tasks * share, cores)),
    )


def pad(sch: Schedule, workload: Conv2d, in_parallel: bool, block: str = "pad") -> None:
    """Schedule the copy of the image, where there is one: channels in parallel, rows without bound checks."""
    if block == "pad" and workload.padding == (0, 0):
        return
    image, channel, _, column = sch.get_loops(block)
    sch.annotate(column, EDGE, 1)
    if in_parallel:
        sch.parallel(sch.fuse(image, channel))


def finish(sch: Schedule, conv: SBlockRV) -> SBlockRV:
    """The one block that writes the result, into which cropping and bias are inlined; ``conv`` must have consumers."""
    consumers = sch.get_consumers(conv)
    while following := sch.get_consumers(consumers[0]):
        sch.compute_inline(consumers[0])
        consumers = following
    return consumers[0]
