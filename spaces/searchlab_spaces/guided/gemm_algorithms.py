"""The family of blocked GEMM algorithms: the placement of operands, and the resulting loop orders.

Source: G. Alaejos, A. Castelló, P. Alonso-Jordá, F. D. Igual, H. Martínez, E. S. Quintana-Ortí, "Algorithm 1039:
Automatic Generators for a Family of Matrix Multiplication Routines with Apache TVM", ACM Transactions on Mathematical
Software 50(1), 2024 (arXiv 2310.20347), after J. A. Gunnels et al., "A Family of High-Performance Matrix Multiplication
Algorithms", PARA 2004. In the name XnYmZ0, a block of operand X stays in the L3 cache, one of Y in the L2 cache, and a
micro-tile of Z in registers. B3A2C0 is the algorithm of GotoBLAS and BLIS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from searchlab.workload import BatchMatmul, Gemm

from .gemm_words import Words

OPERAND_INDICES = {"A": "ip", "B": "pj", "C": "ij"}
"""The indices of each operand: ``C[i, j] += A[i, p] * B[p, j]``."""

EXTENT_LETTERS = {"i": "m", "j": "n", "p": "k"}
"""The letter for each index's extent. It also names the cache block (mc, nc, kc) and micro-tile (mr, nr, kr)."""


def get_extents(workload: Gemm | BatchMatmul | Words) -> dict[str, int]:
    """Return the extent of each index."""
    return {"i": workload.m, "j": workload.n, "p": workload.k}


@dataclass(frozen=True)
class Algorithm:
    """One of the six algorithms, with one of two orders of its loops.

    Each of the three indices is absent from one operand, which determines its role: ``x`` indexes X and Z, ``y``
    indexes Y and Z, and ``s`` indexes X and Y. The five loops around the micro-kernel iterate over blocks of x, s and
    y, then over micro-panels of x and of y. The micro-kernel iterates along s; at every step it updates the same
    micro-tile of Z, or updates C with it. The micro-tile has ``u`` scalars by ``v`` elements in vectors: v is the row
    index of A if A is resident (as in the paper). Otherwise, it is j, along which B and C are contiguous.

    Attributes:
        uses_published_order: Whether the loops are in the order of the authors' programs; see :meth:`loop_order`.
    """

    name: str
    uses_published_order: bool = False

    @property
    def operands(self) -> tuple[str, str, str]:
        """The operands X, Y and Z."""
        return self.name[0], self.name[2], self.name[4]

    @property
    def resident(self) -> str:
        """The operand Z, which stays in registers."""
        return self.name[4]

    @property
    def x(self) -> str:
        return _find_absent_index(self.operands[1])

    @property
    def y(self) -> str:
        return _find_absent_index(self.operands[0])

    @property
    def s(self) -> str:
        return _find_absent_index(self.resident)

    @property
    def u(self) -> str:
        return {"A": "p", "B": "p", "C": "i"}[self.resident]

    @property
    def v(self) -> str:
        return {"A": "i", "B": "j", "C": "j"}[self.resident]

    @property
    def sums_in_tasks(self) -> bool:
        """Whether a task of the parallel loop computes complete sums, in all passes over C."""
        return self.resident == "C" and not self.uses_published_order

    def loop_order(self, is_single_pass: bool) -> tuple[str, ...]:
        """Return the loops around the micro-kernel, outermost first.

        The loops ic, jc and pc are over blocks; ir, jr and pr are over micro-panels. If C is resident, s is p. In the
        authors' programs, GEMM Flavours (Universitat Politècnica de València, 2021), the order is jc, pc, ic for B3A2C0
        and for B3C2A0: s is inside x if C is resident, and outside x otherwise. By default, however, s is also inside
        the loop over blocks of y if C is resident, so that one task computes the complete sum, and inside x otherwise,
        so that each block of Z is packed once. If C is resident, and all of k is ``is_single_pass``, s is innermost.
        """
        x, s, y, panels = f"{self.x}c", f"{self.s}c", f"{self.y}c", (f"{self.x}r", f"{self.y}r")
        if self.resident != "C":
            return (s, x, y, *panels) if self.uses_published_order else (x, s, y, *panels)
        if is_single_pass:
            return x, y, *panels, s
        return (x, s, y, *panels) if self.uses_published_order else (x, y, s, *panels)


def _find_absent_index(operand: str) -> str:
    return next(index for index in "ijp" if index not in OPERAND_INDICES[operand])


AlgorithmName = Literal["B3A2C0", "A3B2C0", "C3A2B0", "A3C2B0", "C3B2A0", "B3C2A0"]
ALGORITHMS = {name: Algorithm(name) for name in get_args(AlgorithmName)}
