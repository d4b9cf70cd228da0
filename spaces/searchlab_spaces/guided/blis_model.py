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

from .gemm_algorithms import Algorithm, extents
from .gemm_words import Words

KC = Literal["whole", "paper"]
"""How to choose kc if C is resident: all of k if the micro-panels fit in L2, or always by the paper's formula."""


def way_bytes(cache: Cache) -> int:
    """Return the number of bytes in one way of ``cache``, N_Li C_Li."""
    return cache.size // cache.ways


def kc_for(l1: Cache, mr: int, nr: int, itemsize: int) -> int:
    """Return the depth kc >= 1 at which A_r and B_r both stay in ``l1`` (section 4.2.1).

    C_Ar <= floor((W_L1 - 1) / (1 + nr / mr)) and mr kc S = C_Ar N_L1 C_L1.
    """
    c_ar = (l1.ways - 1) * mr // (mr + nr)
    if c_ar == 0:  # in a very flat tile, A_r does not fill a complete way, so the capacity is divided by bytes instead
        return max(1, (l1.ways - 1) * way_bytes(l1) // ((mr + nr) * itemsize))
    return max(1, c_ar * way_bytes(l1) // (mr * itemsize))


def mc_for(l2: Cache, mr: int, nr: int, kc: int, itemsize: int) -> int:
    """Return the height mc, a multiple of mr, at which A_c stays in ``l2`` while B_r streams (section 4.2.2).

    C_Br = ceil(nr kc S / (N_L2 C_L2)) and mc kc S <= (W_L2 - 1 - C_Br) N_L2 C_L2.
    """
    c_br = ceil(nr * kc * itemsize / way_bytes(l2))
    c_ac = max(1, l2.ways - 1 - c_br)
    return max(1, c_ac * way_bytes(l2) // (kc * itemsize) // mr) * mr


def nc_for(l3: Cache, nr: int, kc: int, mc: int, itemsize: int, packed: int = 0) -> int:
    """Return the width nc, a multiple of nr, at which B_c stays in ``l3`` while A_c streams (section 4.2.3).

    C_Ac = ceil(mc kc S / (N_L3 C_L3)) and kc nc S <= (W_L3 - 1 - C_Ac) N_L3 C_L3. ``packed`` is the depth of B_c if it
    differs from kc.
    """
    c_ac = ceil(mc * kc * itemsize / way_bytes(l3))
    c_bc = max(1, l3.ways - 1 - c_ac)
    return max(1, c_bc * way_bytes(l3) // ((packed or kc) * itemsize) // nr) * nr


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

    def of(self, dim: str) -> int:
        """Return the block size for index i, j or p."""
        return {"i": self.mc, "j": self.nc, "p": self.kc}[dim]


def balance(total: int, limit: int) -> int:
    """Return the size of the blocks that split ``total`` about equally, with as few blocks as ``limit`` allows."""
    return ceil(total / ceil(total / limit))


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
    l1, l2, *rest = target.caches
    extent = extents(workload)
    # The formulas are applied to sizes in bytes, because C's elements may be larger than those of A and B.
    itemsize = {name: np.dtype(workload.out_dtype if name == "C" else workload.dtype).itemsize for name in "ABC"}
    width, height = itemsize[algorithm.operands[0]] * tile[x], itemsize[algorithm.operands[1]] * tile[y]

    depth = balance(extent[s], kc_for(l1, height, width, 1))
    # If a micro-tile of C accumulates over all of k in registers, C is written once, with bias and ReLU. This is faster
    # than the optimum for L1 as long as complete micro-panels fit in L2, from which they are prefetched in time.
    if kc == "whole" and algorithm.resident == "C" and extent[s] <= kc_for(l2, height, width, 1):
        depth = extent[s]
    if isinstance(kc, int):
        depth = kc
    depth = ceil(depth / tile[s])
    rows, columns = ceil(extent[y] / tile[y]), ceil(extent[x] / tile[x])  # in micro-panels of Y and of X
    most_rows = mc_for(l2, height, width, depth * tile[s], 1) // height
    most = columns
    if rest:  # without an L3, X streams from memory anyway
        deep = depth * tile[s]
        packed = ceil(extent[s] / deep) * deep if algorithm.sums_in_tasks else deep
        most = nc_for(rest[0], width, deep, most_rows * height, 1, packed) // width
    block = {s: depth, y: balance(rows, most_rows), x: balance(columns, most)}
    share = block[x]
    if split_index:
        total = ceil(extent[split_index] / tile[split_index])
        block[split_index] = balance(total, min(block[split_index], ceil(total / cores)))
        share = block[x]
    elif algorithm.sums_in_tasks:
        block[y], share = _tasks(rows, most_rows, block[x], cores)
        block[x] = ceil(block[x] / share) * share
    return Blocking(block["i"] * tile["i"], block["j"] * tile["j"], block["p"] * tile["p"], share * tile[x])


def _tasks(rows: int, most_rows: int, columns: int, cores: int) -> tuple[int, int]:
    """Return the height and width, in micro-tiles, of the tasks that minimise the time for a block of x."""

    def time(task: tuple[int, int]) -> int:
        # The time is the number of rounds of tasks times the time of a task; the +1 accounts for fetching the panels.
        height, width = task
        return ceil(ceil(rows / height) * ceil(columns / width) / cores) * (height + 1) * (width + 1)

    heights = range(min(rows, most_rows), 0, -1)
    widths = sorted({ceil(columns / parts) for parts in range(1, cores + 1)}, reverse=True)
    return min(((h, w) for w in widths for h in heights), key=time)
