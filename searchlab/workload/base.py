"""A computation of fixed shape: its spelling, PrimFunc and numpy reference. TVM is imported only to build."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401  numpy then knows bfloat16
import numpy as np

from ..arrays import Array
from ..errors import SearchlabError, did_you_mean

if TYPE_CHECKING:
    import tvm

ACCUMULATED_IN = {
    "bfloat16": "float32",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
}
"""dtype of the operands -> dtype of the sum and of the result."""


@dataclass(frozen=True)
class Workload(ABC):
    """A computation of fixed shape. ``parse_workload(str(w)) == w``.

    Attributes:
        op: The operator: ``"gemm"``, ``"conv2d"`` or ``"kernel"``.
        dtype: The type of the inputs.
        bias: Whether a bias is added.
        relu: Whether negative results are replaced by 0.

    Example:
        >>> import searchlab
        >>> workload = searchlab.parse_workload("gemm:64x32x16")
        >>> workload.op, workload.dtype, workload.flops
        ('gemm', 'float32', 65536)
        >>> list(workload.shapes.values())
        [(64, 16), (16, 32), (64, 32)]
    """

    @property
    @abstractmethod
    def op(self) -> str:
        """``"gemm"``, ``"conv2d"`` or ``"kernel"``; also the name of the reduction's block in :meth:`prim_func`."""

    dtype: str
    bias: bool
    relu: bool

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations of one run: two per multiply-add; bias and ReLU are not counted.

        Where they are not known this is 10^9: a throughput in GFLOPS is then the number of runs a second.
        """

    @property
    def unit(self) -> str:
        """The unit of throughputs: ``"GFLOPS"``, or ``"runs/s"`` where :attr:`flops` are not known."""
        return "GFLOPS"

    @property
    @abstractmethod
    def reduction(self) -> int:
        """The number of products in the sum of one element of the result."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every argument of :meth:`prim_func`, by name, in order; the last is the result."""

    @abstractmethod
    def reference(self, inputs: dict[str, Array]) -> Array:
        """The result that numpy computes."""

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """The computation for TVM; its blocks are named ``pad`` (where padded), :attr:`op`, ``bias``, ``relu``."""

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
        parts = ([] if self.dtype == "float32" else [self.dtype]) + ["bias"] * self.bias + ["relu"] * self.relu
        return "".join(f":{part}" for part in parts)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Random operands by name, the same for the same seed: standard normal, or in [-8, 8) for int8."""
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
        """(rtol, atol) within which a correct result lies, for any order of its sum.

        Standard normal products: partial sums grow as sqrt(i), so the rounding errors of a sequential sum of
        k terms add up to about eps k / 2 (rms); eight times that is beyond any element of any result here.
        """
        if self.dtype == "int8":
            return 0.0, 0.0
        eps = float(np.finfo(self.out_dtype).eps)
        return 4 * eps, 4 * eps * self.reduction

    @cached_property
    def module(self) -> tvm.IRModule:
        """:meth:`prim_func` as the ``main`` function of a module."""
        import tvm

        return tvm.IRModule({"main": self.prim_func().with_attr("global_symbol", "main")})

    def epilogue(self, args: list[Any], result: Any, channel: int) -> tvm.tirx.PrimFunc:
        """``args -> relu(result + bias)``, each if this workload has it; ``channel`` is the axis of the bias."""
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

    def _finished(self, result: Array, inputs: dict[str, Array], channel: int) -> Array:
        """The numpy twin of :meth:`epilogue`."""
        if self.bias:
            shape = [1] * result.ndim
            shape[channel] = -1
            result = result + inputs["bias"].reshape(shape)
        if self.relu:
            result = np.maximum(result, 0)
        return result.astype(self.out_dtype, copy=False)

    @property
    def _exact(self) -> str:
        """The dtype of numpy's sums; the error of the reference is then far below the tolerance."""
        return {"int8": "int32", "bfloat16": "float32", "float16": "float32"}.get(self.dtype, self.dtype)
