"""The workload contract. TVM is imported only to build a workload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean

if TYPE_CHECKING:
    import tvm

ACCUMULATED_IN = {
    "bfloat16": "float32", "float16": "float16", "float32": "float32", "float64": "float64", "int8": "int32",
}  # fmt: skip
"""A mapping from the operands' dtype to the dtype of the accumulator and the result."""


@dataclass(frozen=True)
class Workload(ABC):
    """A computation with a fixed shape and type, such as a GEMM.

    Workloads are frozen dataclasses that can be spelled: ``parse_workload(str(workload)) == workload``.

    Attributes:
        dtype: The type of the inputs, one of :data:`ACCUMULATED_IN`.
        bias: Whether a bias is added to the result.
        relu: Whether negative results are replaced with 0, after adding the bias.

    Raises:
        SearchlabError: If the dtype is unknown or a size is too small.

    Example:
        >>> import searchlab
        >>> workload = searchlab.parse_workload("gemm:64x32x16")
        >>> workload.op, workload.dtype, workload.flops
        ('gemm', 'float32', 65536)
        >>> list(workload.shapes.values())
        [(64, 16), (16, 32), (64, 32)]
    """

    dtype: str
    bias: bool
    relu: bool

    @property
    @abstractmethod
    def op(self) -> str:
        """The operator, such as ``"gemm"``; also the name of the reduction block in :meth:`prim_func`."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """The number of floating-point operations per execution, two per multiply-add, without bias and ReLU.

        If unknown, it is 10^9, in which case a throughput in GFLOPS equals the number of executions per second.
        """

    @property
    def unit(self) -> str:
        """The unit of throughput: ``"GFLOPS"``, or ``"runs/s"`` if :attr:`flops` is unknown."""
        return "GFLOPS"

    @property
    def cluster(self) -> str:
        """What this workload shares with similar ones, such as a kernel; empty if it stands alone."""
        return ""

    @property
    @abstractmethod
    def reduction(self) -> int:
        """The number of products summed for each element of the result."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of :meth:`prim_func`'s arguments by name, in order; the result comes last."""

    @abstractmethod
    def reference(self, inputs: dict[str, Array]) -> Array:
        """Compute the result with NumPy.

        Args:
            inputs: The operands by name, as returned by :meth:`inputs`.

        Returns:
            The result, whose shape is the last in :attr:`shapes`.
        """

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """Return the TVM computation, with blocks named ``pad`` (if padded), :attr:`op`, ``bias`` and ``relu``."""

    def __post_init__(self) -> None:
        if self.dtype not in ACCUMULATED_IN:
            raise SearchlabError(f"dtype {self.dtype!r} is not supported{did_you_mean(self.dtype, ACCUMULATED_IN)}")
        for field in fields(self):
            least = 0 if field.name == "padding" else 1
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and not isinstance(number, bool) and number < least:
                    raise SearchlabError(f"{self.op}: {field.name} must be at least {least}, not {number}")

    @property
    def out_dtype(self) -> str:
        return ACCUMULATED_IN[self.dtype]

    @property
    def suffix(self) -> str:
        """The end of the spelling, such as ``":float16:relu"``."""
        parts = ([] if self.dtype == "float32" else [self.dtype]) + ["bias"] * self.bias + ["relu"] * self.relu
        return "".join(f":{part}" for part in parts)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return random operands by name: standard normal numbers, or uniform integers in [-8, 8) for int8."""
        rng = np.random.default_rng(seed)
        operands: dict[str, Array] = {}
        for name, shape in list(self.shapes.items())[:-1]:
            dtype = self.out_dtype if name == "bias" else self.dtype
            if self.dtype == "int8":
                operands[name] = rng.integers(-8, 8, size=shape).astype(dtype)
            else:
                operands[name] = rng.standard_normal(shape, dtype=np.float32).astype(dtype)
        return operands

    def tolerance(self) -> tuple[float, float]:
        """Return (rtol, atol) for comparing a result with :meth:`reference`, regardless of the summation order.

        The partial sums of standard normal products grow as sqrt(i), so the rounding errors in a sequential sum of k
        terms add up to about eps k / 2 (rms). No element of a correct result deviates by eight times as much.
        """
        if self.dtype == "int8":
            return 0.0, 0.0
        eps = float(np.finfo(self.out_dtype).eps)
        return 4 * eps, 4 * eps * self.reduction

    @cached_property
    def module(self) -> tvm.IRModule:
        """A module with :meth:`prim_func` as its function ``main``."""
        import tvm

        return tvm.IRModule({"main": self.prim_func().with_attr("global_symbol", "main")})

    def epilogue(self, args: list[Any], result: Any, channel: int) -> tvm.tirx.PrimFunc:
        """Return the function of ``args`` and ``result`` with bias and ReLU; ``channel`` is the bias's axis."""
        import tvm
        from tvm import te

        if self.bias:
            bias = te.placeholder(self.shapes["bias"], name="bias_in", dtype=self.out_dtype)
            args = [*args, bias]
            conv = result
            result = te.compute(conv.shape, lambda *i: conv(*i) + bias[i[channel]], name="bias")
        if self.relu:
            before = result
            zero = tvm.tirx.const(0, self.out_dtype)
            result = te.compute(before.shape, lambda *i: tvm.tirx.max(before(*i), zero), name="relu")
        return te.create_prim_func([*args, result])

    def numpy_epilogue(self, result: Array, inputs: dict[str, Array]) -> Array:
        """Apply the same operations as :meth:`epilogue` with NumPy; the bias's axis is 1."""
        if self.bias:
            result = result + inputs["bias"].reshape(-1, *[1] * (result.ndim - 2))
        if self.relu:
            result = np.maximum(result, 0)
        return result.astype(self.out_dtype, copy=False)

    @property
    def exact(self) -> str:
        """The dtype in which :meth:`reference` sums to keep its error far below the tolerance."""
        return {"int8": "int32", "bfloat16": "float32", "float16": "float32"}.get(self.dtype, self.dtype)
