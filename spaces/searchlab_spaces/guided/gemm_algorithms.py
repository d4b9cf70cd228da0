"""The family of blocked GEMM algorithms: which operand lives where, and the loop orders that follow from it.

G. Alaejos, A. Castelló, P. Alonso-Jordá, F. D. Igual, H. Martínez, E. S. Quintana-Ortí, "Algorithm 1039: Automatic
Generators for a Family of Matrix Multiplication Routines with Apache TVM", ACM Transactions on Mathematical Software
50(1), 2024 (arXiv 2310.20347), after J. A. Gunnels et al., "A Family of High-Performance Matrix Multiplication
Algorithms", PARA 2004. In the name XnYmZ0 a block of operand X stays in the L3 cache, one of Y in the L2 cache, and a
micro-tile of Z in registers. B3A2C0 is the algorithm of GotoBLAS and BLIS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from searchlab.workload import Gemm

from .gemm_words import Words

UNROLLED = 4
"""Steps of the micro-kernel's loop in one trip of it, and in one chunk of a packed row of its scalar operand."""

DIMS = {"A": "ip", "B": "pj", "C": "ij"}
"""The indices of each operand: ``C[i, j] += A[i, p] * B[p, j]``."""

EXTENT = {"i": "m", "j": "n", "p": "k"}
"""The letter of each index's extent, which also names its cache block (mc, nc, kc) and micro-tile (mr, nr, kr)."""


def extents(workload: Gemm | Words) -> dict[str, int]:
    """How far each index runs."""
    return {"i": workload.m, "j": workload.n, "p": workload.k}


@dataclass(frozen=True)
class Algorithm:
    """One of the six. Each of the three indices is absent from one operand, which gives it its part:

    ``x`` indexes X and Z, ``y`` indexes Y and Z, and ``s`` indexes X and Y. The five loops around the micro-kernel
    are, from the outside, over blocks of x, s and y, then over micro-panels of x and of y; the micro-kernel runs
    along s, updating (or updating C with) the same micro-tile of Z at every step. The micro-tile is ``u`` scalars by
    ``v`` elements in vectors: v is the row index of A where that is resident (as in the paper), else j, in which B
    and C are contiguous.
    """

    name: str

    @property
    def operands(self) -> tuple[str, str, str]:
        """X, Y, Z."""
        return self.name[0], self.name[2], self.name[4]

    @property
    def resident(self) -> str:
        """Z, the operand in registers."""
        return self.name[4]

    @property
    def x(self) -> str:
        return _absent(self.operands[1])

    @property
    def y(self) -> str:
        return _absent(self.operands[0])

    @property
    def s(self) -> str:
        return _absent(self.resident)

    @property
    def u(self) -> str:
        return {"A": "p", "B": "p", "C": "i"}[self.resident]

    @property
    def v(self) -> str:
        return {"A": "i", "B": "j", "C": "j"}[self.resident]

    def order(self, one_pass: bool) -> tuple[str, ...]:
        """The loops around the micro-kernel, outermost first: ic, jc, pc over blocks, ir, jr, pr over micro-panels.

        Where C is resident, s is p, and its loop goes inside that over blocks of y, for one task to do the whole sum;
        and inside them all when, in ``one_pass``, all of k is one block.
        The authors' own programs, GEMM Flavours (Universitat Politècnica de València, 2021), have s outside x where A
        or B is resident, as jc, pc, ic in B3C2A0; x is outside here, for a block of Z to be packed once.
        """
        x, s, y, panels = f"{self.x}c", f"{self.s}c", f"{self.y}c", (f"{self.x}r", f"{self.y}r")
        if self.resident != "C":
            return x, s, y, *panels
        return (x, y, *panels, s) if one_pass else (x, y, s, *panels)


def _absent(operand: str) -> str:
    return next(dim for dim in "ijp" if dim not in DIMS[operand])


AlgorithmName = Literal["B3A2C0", "A3B2C0", "C3A2B0", "A3C2B0", "C3B2A0", "B3C2A0"]
ALGORITHMS = {name: Algorithm(name) for name in get_args(AlgorithmName)}
