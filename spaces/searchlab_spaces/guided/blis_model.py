"""The cache block sizes of a BLIS-style GEMM, computed from the dimensions of the caches alone.

Source: T. M. Low, F. D. Igual, T. M. Smith, E. S. Quintana-Ortí, "Analytical Modeling Is Enough for High-Performance
BLIS", ACM Transactions on Mathematical Software 43(2), 2016, section 4. The notation is the paper's: an L_i cache has W
ways, each consisting of N sets with C bytes per line; ``C_X`` is the number of ways that operand X may
fill; S is the size of an element in bytes. A_r and B_r are the micro-panels (mr x kc, kc x nr), A_c and B_c the packed
blocks (mc x kc, kc x nc). One way of each cache is reserved for C and for streaming data.

This module differs from the paper in two ways. First, if C is resident, kc is by default all of k, provided that
micro-panels of this depth fit in L2 rather than L1 (see :data:`KC`). Second, in that case, the loop over blocks of k is
by default inside the loop over blocks of y, so X (B in the paper) is packed in its full depth at once. Its block in L3
is k x nc instead of kc x nc, and nc is sized accordingly.

The paper's algorithm is B3A2C0. The other five follow by symmetry: with X in the L3 cache, Y in the L2 cache and Z in
registers, Y takes the role of A, X that of B, and Z that of C. Likewise, x takes the role of n, y that of m, and s that
of k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from searchlab.target import Cache, Target
from searchlab.workload import BatchMatmul, Gemm

from .gemm_algorithms import Algorithm, get_extents
from .gemm_words import Words

KC = Literal["whole", "paper"]
"""How to choose kc if C is resident: all of k if the micro-panels fit in L2, or always by the paper's formula."""


def compute_way_bytes(cache: Cache) -> int:
    """Return the number of bytes in one way of ``cache``, N_Li C_Li."""
    return cache.size // cache.ways


def kc_for(l1: Cache, mr: int, nr: int, itemsize: int) -> int:
    """Return the depth kc >= 1 at which A_r and B_r both stay in ``l1`` (section 4.2.1).

    C_Ar <= floor((W_L1 - 1) / (1 + nr / mr)) and mr kc S = C_Ar N_L1 C_L1.
    """
    c_ar = (l1.ways - 1) * mr // (mr + nr)
    if c_ar == 0:  # in a very flat tile, A_r does not fill a complete way, so the capacity is divided by bytes instead
        return max(1, (l1.ways - 1) * compute_way_bytes(l1) // ((mr + nr) * itemsize))
    return max(1, c_ar * compute_way_bytes(l1) // (mr * itemsize))


def mc_for(l2: Cache, mr: int, nr: int, kc: int, itemsize: int) -> int:
    """Return the height mc, a multiple of mr, at which A_c stays in ``l2`` while B_r streams (section 4.2.2).

    C_Br = ceil(nr kc S / (N_L2 C_L2)) and mc kc S <= (W_L2 - 1 - C_Br) N_L2 C_L2.
    """
    c_br = ceil(nr * kc * itemsize / compute_way_bytes(l2))
    c_ac = max(1, l2.ways - 1 - c_br)
    return max(1, c_ac * compute_way_bytes(l2) // (kc * itemsize) // mr) * mr


def nc_for(l3: Cache, nr: int, kc: int, mc: int, itemsize: int, packed: int = 0) -> int:
    """Return the width nc, a multiple of nr, at which B_c stays in ``l3`` while A_c streams (section 4.2.3).

    C_Ac = ceil(mc kc S / (N_L3 C_L3)) and kc nc S <= (W_L3 - 1 - C_Ac) N_L3 C_L3. ``packed`` is the depth of B_c if it
    differs from kc.
    """
    c_ac = ceil(mc * kc * itemsize / compute_way_bytes(l3))
    c_bc = max(1, l3.ways - 1 - c_ac)
    return max(1, c_bc * compute_way_bytes(l3) // ((packed or kc) * itemsize) // nr) * nr


@dataclass(frozen=True)
class Blocking:
    """The sizes of a GEMM's cache blocks in elements; each is a multiple of the micro-tile's size in that index.

    If tasks compute complete sums, x is split once more, inside the loop over y: each task computes a block of y by
    ``share`` of x. Otherwise, ``share`` is the complete block of x.
    """

    mc: int
    nc: int
    kc: int
    share: int

    def size_of(self, index: str) -> int:
        """Return the block size for index i, j or p."""
        return {"i": self.mc, "j": self.nc, "p": self.kc}[index]


def balance_blocks(total: int, max_size: int) -> int:
    """Return the size of the blocks that split ``total`` about equally, with as few blocks as ``max_size`` allows."""
    return ceil(total / ceil(total / max_size))


def compute_blocking(
    workload: Gemm | BatchMatmul | Words,
    target: Target,
    algorithm: Algorithm,
    tile: Mapping[str, int],
    cores: int,
    split_index: str = "",
    kc: str | int = "whole",
) -> Blocking:
    """Compute the paper's mc, nc and kc for the caches of ``target``, balanced over the problem and ``cores``.

    Args:
        workload: The GEMM.
        target: The target.
        algorithm: The algorithm.
        tile: The micro-tile's size by index.
        cores: The number of cores.
        split_index: The index to split so that each core gets a block. If empty and tasks compute complete sums, the
            work is split into tasks (see :class:`Blocking`).
        kc: One of the values of KC, or a number.
    """
    x, y, s = algorithm.x, algorithm.y, algorithm.s
    l1, l2, *outer_caches = target.caches
    extents = get_extents(workload)
    # The formulas are applied to sizes in bytes, because C's elements may be larger than those of A and B.
    item_bytes = {name: np.dtype(workload.out_dtype if name == "C" else workload.dtype).itemsize for name in "ABC"}
    width, height = item_bytes[algorithm.operands[0]] * tile[x], item_bytes[algorithm.operands[1]] * tile[y]

    depth = balance_blocks(extents[s], kc_for(l1, height, width, 1))
    # If a micro-tile of C accumulates over all of k in registers, C is written once, with bias and ReLU. This is faster
    # than the optimum for L1 as long as complete micro-panels fit in L2, from which they are prefetched in time.
    if kc == "whole" and algorithm.resident == "C" and extents[s] <= kc_for(l2, height, width, 1):
        depth = extents[s]
    if isinstance(kc, int):
        depth = kc
    depth = ceil(depth / tile[s])
    rows, columns = ceil(extents[y] / tile[y]), ceil(extents[x] / tile[x])  # in micro-panels of Y and of X
    max_rows = mc_for(l2, height, width, depth * tile[s], 1) // height
    max_columns = columns
    if outer_caches:  # without an L3, X streams from memory anyway
        block_depth = depth * tile[s]
        packed_depth = ceil(extents[s] / block_depth) * block_depth if algorithm.sums_in_tasks else block_depth
        max_columns = nc_for(outer_caches[0], width, block_depth, max_rows * height, 1, packed_depth) // width
    block_sizes = {s: depth, y: balance_blocks(rows, max_rows), x: balance_blocks(columns, max_columns)}
    share = block_sizes[x]
    if split_index:
        tile_count = ceil(extents[split_index] / tile[split_index])
        block_sizes[split_index] = balance_blocks(tile_count, min(block_sizes[split_index], ceil(tile_count / cores)))
        share = block_sizes[x]
    elif algorithm.sums_in_tasks:
        block_sizes[y], share = _choose_task_size(rows, max_rows, block_sizes[x], cores)
        block_sizes[x] = ceil(block_sizes[x] / share) * share
    return Blocking(
        block_sizes["i"] * tile["i"], block_sizes["j"] * tile["j"], block_sizes["p"] * tile["p"], share * tile[x]
    )


def _choose_task_size(rows: int, max_rows: int, columns: int, cores: int) -> tuple[int, int]:
    """Return the height and width, in micro-tiles, of the tasks that minimise the time for a block of x."""

    def estimate_time(task: tuple[int, int]) -> int:
        # The time is the number of rounds of tasks times the time of a task; the +1 accounts for fetching the panels.
        height, width = task
        return ceil(ceil(rows / height) * ceil(columns / width) / cores) * (height + 1) * (width + 1)

    heights = range(min(rows, max_rows), 0, -1)
    widths = sorted({ceil(columns / part_count) for part_count in range(1, cores + 1)}, reverse=True)
    return min(((h, w) for w in widths for h in heights), key=estimate_time)
