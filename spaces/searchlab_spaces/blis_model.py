"""Cache block sizes of a BLIS-style GEMM, computed from the caches alone.

T. M. Low, F. D. Igual, T. M. Smith, E. S. Quintana-Ortí, "Analytical Modeling Is Enough for High-Performance
BLIS", ACM Transactions on Mathematical Software 43(2), 2016, section 4. Names are the paper's: an L_i cache has
W ways, each of N sets times C bytes a line (``way`` below); ``C_X`` is how many ways operand X may fill; S is
the size of an element in bytes. A_r, B_r are the micro-panels (mr x kc, kc x nr), A_c, B_c the packed blocks
(mc x kc, kc x nc). One way of every cache is left to C and to whatever streams through.
"""

from __future__ import annotations

from math import ceil

from searchlab.target import Cache


def way(cache: Cache) -> int:
    """Bytes in one way of ``cache``: N_Li C_Li."""
    return cache.size // cache.ways


def kc_for(l1: Cache, mr: int, nr: int, itemsize: int) -> int:
    """The depth at which A_r and B_r stay in ``l1`` together (section 4.2.1), at least 1.

    C_Ar <= floor((W_L1 - 1) / (1 + nr / mr)) and mr kc S = C_Ar N_L1 C_L1.
    """
    c_ar = (l1.ways - 1) * mr // (mr + nr)
    if c_ar == 0:  # so flat a tile that A_r fills no way of its own: share by bytes instead
        return max(1, (l1.ways - 1) * way(l1) // ((mr + nr) * itemsize))
    return max(1, c_ar * way(l1) // (mr * itemsize))


def mc_for(l2: Cache, mr: int, nr: int, kc: int, itemsize: int) -> int:
    """The height at which A_c stays in ``l2`` while B_r streams through (section 4.2.2): a multiple of mr.

    C_Br = ceil(nr kc S / (N_L2 C_L2)) and mc kc S <= (W_L2 - 1 - C_Br) N_L2 C_L2.
    """
    c_br = ceil(nr * kc * itemsize / way(l2))
    c_ac = max(1, l2.ways - 1 - c_br)
    return max(1, c_ac * way(l2) // (kc * itemsize) // mr) * mr


def nc_for(l3: Cache, nr: int, kc: int, mc: int, itemsize: int) -> int:
    """The width at which B_c stays in ``l3`` while A_c streams through (section 4.2.3): a multiple of nr.

    C_Ac = ceil(mc kc S / (N_L3 C_L3)) and kc nc S <= (W_L3 - 1 - C_Ac) N_L3 C_L3.
    """
    c_ac = ceil(mc * kc * itemsize / way(l3))
    c_bc = max(1, l3.ways - 1 - c_ac)
    return max(1, c_bc * way(l3) // (kc * itemsize) // nr) * nr
