"""GEMM: a matrix product, with optional bias and ReLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm
from ..arrays import Array
from .base import Workload


@dataclass(frozen=True)
class Gemm(Workload):
    """``C[m, n] = A[m, k] B[k, n]``, then optional ``+ bias[n]`` and ReLU."""

    m: int = 1
    n: int = 1
    k: int = 1

    @property
    def op(self) -> str:
        return "gemm"

    def __str__(self) -> str:
        return f"gemm:{self.m}x{self.n}x{self.k}{self.suffix}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def reduction(self) -> int:
        return self.k

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        bias = {"bias": (self.n,)} if self.bias else {}
        return {"A": (self.m, self.k), "B": (self.k, self.n), **bias, "C": (self.m, self.n)}

    def reference(self, inputs: dict[str, Array]) -> Array:
        return self._finished(inputs["A"].astype(self._exact) @ inputs["B"].astype(self._exact), inputs, 1)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te

        a = te.placeholder((self.m, self.k), name="A", dtype=self.dtype)
        b = te.placeholder((self.k, self.n), name="B", dtype=self.dtype)
        p = te.reduce_axis((0, self.k), "p")
        c = te.compute(
            (self.m, self.n),
            lambda i, j: te.sum(a[i, p].astype(self.out_dtype) * b[p, j].astype(self.out_dtype), axis=p),
            name="gemm",
        )
        return self.epilogue([a, b], c, 1)


def gemm(m: int, n: int, k: int, dtype: str = "float32", *, bias: bool = False, relu: bool = False) -> Gemm:
    """The matrix product ``C[m, n] = A[m, k] B[k, n]``.

    Args:
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        dtype: The type of A and B: ``float16``, ``bfloat16``, ``float32``, ``float64`` or ``int8``.
        bias: Add a vector (n,) to every row.
        relu: Replace negative results by 0.

    Raises:
        SearchlabError: If a size is below 1, or ``dtype`` is unknown.

    Example:
        >>> import searchlab
        >>> searchlab.gemm(512, 512, 512, bias=True)
        Gemm(dtype='float32', bias=True, relu=False, m=512, n=512, k=512)
        >>> searchlab.gemm(512, 512, 512).flops
        268435456
    """
    return Gemm(dtype, bias, relu, m, n, k)
