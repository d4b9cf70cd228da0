"""The workload ``softmax``, which is not a product: it computes maxima, exponentials and sums over rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean
from .base import Workload
from .products import parse_sizes

if TYPE_CHECKING:
    import tvm

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Softmax(Workload):
    """``exp(x[i, j] - max_j x[i, j])``, divided by its sum over ``j``.

    Attributes:
        rows: The number of rows.
        columns: The number of columns, over which the result sums to 1.
        dtype: ``float32`` or ``float64``.
    """

    rows: int
    columns: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        self.check_sizes("rows", "columns")
        if self.dtype not in DTYPES:
            raise SearchlabError(f"softmax: the dtype must be {' or '.join(DTYPES)}, not {self.dtype!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        (rows, columns), options = parse_sizes(text, 2, "softmax:ROWSxCOLUMNS, for example softmax:128x1000:float64")
        for option in options:
            if option not in DTYPES or len(options) > 1:
                raise SearchlabError(
                    f"workload 'softmax:{text}': unknown option {option!r}{did_you_mean(option, DTYPES)}"
                )
        return cls(rows, columns, *options)

    @property
    def spelling(self) -> str:
        return f"{self.rows}x{self.columns}" + ("" if self.dtype == "float32" else f":{self.dtype}")

    @property
    def flops(self) -> int:
        """The number of operations, five per element: maximum, difference, exponential, sum and quotient."""
        return 5 * self.rows * self.columns

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from tvm import te, topi

        x = te.placeholder((self.rows, self.columns), name="x", dtype=self.dtype)
        return te.create_prim_func([x, topi.nn.softmax(x, axis=1)])

    def reference(self, inputs: dict[str, Array]) -> Array:
        x = inputs["x"].astype(np.float64)
        exponentials = np.exp(x - x.max(axis=1, keepdims=True))
        result: Array = (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(self.dtype)
        return result

    def tolerance(self) -> tuple[float, float]:
        """Return (rtol, atol). Since all summands are positive, the error is relative; it grows with their number."""
        info = np.finfo(self.dtype)
        return float(info.eps) * (16 + self.columns), float(info.tiny)
