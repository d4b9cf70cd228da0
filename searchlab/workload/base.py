"""The contract of a workload. TVM is imported only when a workload's PrimFunc is created.

Workloads are registered in the entry-point group ``searchlab.workloads``, under the first word of their names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import ml_dtypes  # registers bfloat16 with numpy
import numpy as np

from ..arrays import Array
from ..errors import SearchlabError
from ..plugins import PluginKind

if TYPE_CHECKING:
    import tvm

UNKNOWN_FLOPS = 10**9

MAX_ELEMENTS = 2**31 - 1
"""The largest extent, and number of elements of an array, as programs index with int32."""

PACK = "pack_"
"""The prefix of the names of functions that pack an argument; see :func:`packed_arguments`."""


class Argument(NamedTuple):
    """An argument of a workload's function: a dense array."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        return np.issubdtype(np.dtype(self.dtype), np.floating) or self.dtype == "bfloat16"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * np.dtype(self.dtype).itemsize

    def unwritten(self) -> Array:
        """Return an array filled with NaN or the smallest integer, which reveals unwritten elements."""
        if self.is_float:
            value: float = math.nan
        else:
            value = 0 if self.dtype == "bool" else int(np.iinfo(self.dtype).min)
        return np.full(self.shape, value).astype(self.dtype)


@dataclass(frozen=True)
class Workload(ABC):
    """A computation with a fixed shape and type, such as a GEMM.

    Subclasses are frozen dataclasses that implement :meth:`parse`, :attr:`spelling`, :attr:`flops`, :meth:`prim_func`,
    :meth:`reference` and :meth:`tolerance`. A workload must be picklable, because worker processes receive a copy, and
    ``parse_workload(str(workload))`` must return an equal workload.

    Raises:
        SearchlabError: If a size is too small or a value is unknown.

    Example:
        >>> import searchlab
        >>> workload = searchlab.parse_workload("gemm:64x32x16")
        >>> workload.op, workload.dtype, workload.flops
        ('gemm', 'float32', 65536)
        >>> list(workload.shapes.values())
        [(64, 16), (16, 32), (64, 32)]
    """

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Return the workload whose :attr:`spelling` is ``text``.

        Raises:
            SearchlabError: If ``text`` is not a valid spelling; the message shows a valid one.
        """

    @property
    @abstractmethod
    def spelling(self) -> str:
        """The part of the workload's name after the kind, such as ``"64x32x16:relu"`` in ``"gemm:64x32x16:relu"``.

        It completely determines the computation: workloads with the same spelling are equal.
        """

    @property
    @abstractmethod
    def flops(self) -> int:
        """The number of floating-point operations per execution, two per multiply-add, without bias and ReLU.

        If unknown, it is 10^9, in which case a throughput in GFLOPS equals the number of executions per second.
        """

    @abstractmethod
    def prim_func(self) -> tvm.tirx.PrimFunc:
        """Return the TVM computation, with fixed shapes. Its results are its last arguments."""

    @abstractmethod
    def reference(self, inputs: dict[str, Array]) -> Array | tuple[Array, ...]:
        """Compute the result with NumPy.

        Args:
            inputs: The operands by name, as returned by :meth:`inputs`. They must not be modified.

        Returns:
            The result, or a tuple if there are several, in the order of the last arguments of :meth:`prim_func`.
        """

    @abstractmethod
    def tolerance(self) -> tuple[float, float]:
        """Return (rtol, atol) for comparing a result with :meth:`reference`; any order of summation must be allowed.

        :func:`rounding` computes it from the number of terms that are summed.
        """

    # --- derived; subclasses may override these --------------------------------------------------------

    @property
    def op(self) -> str:
        """The name by which spaces recognise the computations that they support; by default, the kind."""
        return WORKLOADS.name_of(type(self))

    @property
    def unit(self) -> str:
        """The unit of throughput: ``"GFLOPS"``, or ``"runs/s"`` if :attr:`flops` is unknown."""
        return "GFLOPS"

    @property
    def cluster(self) -> str:
        """The name of a group of similar workloads, such as one kernel on several devices; may be empty."""
        return ""

    @property
    def result_count(self) -> int:
        """The number of results, which are the last arguments."""
        return 1

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments of :meth:`prim_func`, in order; the results come last."""
        return list_arguments(self.prim_func())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of :meth:`prim_func`'s arguments by name, in order; the results come last."""
        return {argument.name: argument.shape for argument in self.arguments}

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Return random operands by name.

        Floating-point numbers are standard normal. Integers of 8 and 16 bits are extreme, as far as sums of products
        fit into 32 bits, so that a sum in 16 bits overflows. All other integers are 0 or 1, because they may be
        indices.
        """
        rng = np.random.default_rng(seed)
        return {
            argument.name: (
                rng.standard_normal(argument.shape, dtype=np.float32).astype(argument.dtype)
                if argument.is_float
                else self.integers(rng, argument)
            )
            for argument in self.arguments[: -self.result_count]
        }

    def integers(self, rng: np.random.Generator, argument: Argument) -> Array:
        """Draw integers for :meth:`inputs`: half of the small ones are the smallest or largest possible number."""
        small_types = ("int8", "uint8", "int16", "uint16")
        if argument.dtype not in small_types:
            return rng.integers(0, 2, size=argument.shape).astype(argument.dtype)
        if any(result.dtype in small_types for result in self.arguments[-self.result_count :]):
            low, high = (-8, 7) if argument.dtype in ("int8", "int16") else (0, 1)
        else:
            type_limits = np.iinfo(argument.dtype)
            terms = max(
                1, self.flops // (2 * min(math.prod(result.shape) for result in self.arguments[-self.result_count :]))
            )
            max_magnitude = math.isqrt((2**31 - 1) // terms)
            low, high = max(int(type_limits.min), -max_magnitude), min(int(type_limits.max), max_magnitude)
        values = rng.integers(low, high, size=argument.shape, endpoint=True)
        extremes = rng.choice([low, high], size=argument.shape)
        return np.where(rng.random(argument.shape) < 0.5, extremes, values).astype(argument.dtype)

    def exact_inputs(self, seed: int = 0) -> dict[str, Array] | None:
        """Return inputs whose results are whole numbers, so that a program that omits even one summand is found.

        Each floating-point operand consists of 1 and -1. The partial sums of n such numbers in any fixed order stay
        below ``8 sqrt(n)`` except with a probability of about 1e-13 (the reflection principle and Hoeffding's
        inequality). If the results' type cannot represent so large numbers exactly, some operands are 0.

        Returns:
            The inputs, or None if the results are not whole numbers, or are integers in any case.
        """
        operands = self.arguments[: -self.result_count]
        result_types = [
            np.dtype(argument.dtype) for argument in self.arguments[-self.result_count :] if argument.is_float
        ]
        if not result_types or not any(argument.is_float for argument in operands):
            return None
        max_exact = min(2.0 ** (ml_dtypes.finfo(dtype).nmant + 1) for dtype in result_types)  # type: ignore[no-untyped-call]
        has_few_results = min(math.prod(argument.shape) for argument in self.arguments[-self.result_count :]) < 64
        best_attempt: tuple[int, dict[str, Array]] | None = None
        for attempt in range(8 if has_few_results else 1):  # a few results may all be 0, for example because of a ReLU
            inputs = self._signs(np.random.default_rng([seed, attempt]), 1.0)
            density = 1.0
            while max_exact < 1 << 20 and density > 1e-6:
                results = compute_results(self, {name: np.abs(value) for name, value in inputs.items()})
                largest = max(float(np.abs(result.astype(np.float64)).max()) for result in results)
                if 8 * math.sqrt(largest) <= max_exact:
                    break
                density /= 2
                inputs = self._signs(np.random.default_rng([seed, attempt]), density)
            results = compute_results(self, inputs)
            if not all(map(_is_whole, results)):
                return None
            nonzero = sum(int(np.count_nonzero(result)) for result in results)
            if best_attempt is None or nonzero > best_attempt[0]:
                best_attempt = nonzero, inputs
        assert best_attempt is not None
        return best_attempt[1]

    def _signs(self, rng: np.random.Generator, density: float) -> dict[str, Array]:
        """Return operands of 1 and -1, a fraction of which, ``1 - density``, is replaced with 0."""
        operands: dict[str, Array] = {}
        for argument in self.arguments[: -self.result_count]:
            if argument.is_float:
                values = 2.0 * rng.integers(0, 2, size=argument.shape) - 1
                operands[argument.name] = np.where(rng.random(argument.shape) < density, values, 0).astype(
                    argument.dtype
                )
            else:
                operands[argument.name] = self.integers(rng, argument)
        return operands

    @cached_property
    def module(self) -> tvm.IRModule:
        """A module with :meth:`prim_func` as its function ``main``."""
        import tvm

        return tvm.IRModule({"main": self.prim_func().with_attr("global_symbol", "main")})

    def content(self) -> str:
        """Return the text, empty by default, that :meth:`from_log` needs in addition to the spelling."""
        return ""

    @classmethod
    def from_log(cls, spelling: str, content: str) -> Self:
        """Return the workload recorded in a log. The log may be untrusted, so nothing in it may be executed.

        Args:
            spelling: The workload's :attr:`spelling`.
            content: The text that :meth:`content` returned.

        Raises:
            SearchlabError: If either argument is damaged.
        """
        return cls.parse(spelling)

    def __str__(self) -> str:
        return f"{WORKLOADS.name_of(type(self))}:{self.spelling}"

    def check_sizes(self, *names: str, least: int = 1) -> None:
        """Raise SearchlabError if any of the fields ``names`` is below ``least`` or above MAX_ELEMENTS."""
        for name in names:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number < least:
                    raise SearchlabError(f"{self.op}: {name} must be at least {least}, not {number}")
                if number > MAX_ELEMENTS:
                    raise SearchlabError(f"{self.op}: {name} must be at most {MAX_ELEMENTS:,}, not {number}")

    def __getstate__(self) -> dict[str, object]:
        # This omits cached properties such as the module, which another process creates itself.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def compute_results(workload: Workload, inputs: dict[str, Array]) -> tuple[Array, ...]:
    """Return the results of :meth:`Workload.reference` as a tuple, even if there is only one."""
    results = workload.reference(inputs)
    return results if isinstance(results, tuple) else (results,)


def _is_whole(array: Array) -> bool:
    values = array.astype(np.float64)
    return bool(np.isfinite(values).all() and (values == np.rint(values)).all())


def rounding(dtype: str, terms: int) -> tuple[float, float]:
    """Return the tolerance (rtol, atol) for sums of ``terms`` products of standard normal numbers.

    The partial sums of standard normal products grow as sqrt(i), so the rounding errors in a sequential sum of k terms
    add up to about eps k / 2 (rms). The absolute tolerance is eight times this, which no correct result exceeds.

    Args:
        dtype: The type of the accumulator. For integers, the tolerance is 0.
        terms: The number of terms.
    """
    dtype_ = np.dtype(dtype)
    if np.issubdtype(dtype_, np.integer) or dtype_ == np.bool_:
        return 0.0, 0.0
    eps = float(ml_dtypes.finfo(dtype_).eps)  # type: ignore[no-untyped-call]
    return 4 * eps, 4 * eps * terms


def list_arguments(func: tvm.tirx.PrimFunc) -> tuple[Argument, ...]:
    """Return a function's arguments. Raises SearchlabError if one is not a dense array of fixed shape."""
    from tvm.tirx import IntImm

    arguments = []
    for parameter in func.params:
        shape = getattr(parameter.ty, "shape", None)
        if shape is None:
            raise SearchlabError(f"argument {parameter.name} must be an array, not {parameter.ty}")
        if not all(isinstance(extent, IntImm) for extent in shape):
            raise SearchlabError(f"argument {parameter.name} must have a fixed shape, not {list(shape)}")
        if len(parameter.ty.strides):
            raise SearchlabError(f"argument {parameter.name} has strides; only dense arrays are supported")
        extents = tuple(int(extent) for extent in shape)
        if not math.prod(extents):
            raise SearchlabError(f"argument {parameter.name} must not be empty, but its shape is {list(extents)}")
        arguments.append(Argument(str(parameter.name), extents, str(parameter.ty.dtype.dtype)))
    return tuple(arguments)


Packed = Mapping[str, tuple[Argument, ...]]
"""A mapping from the name of each argument that a program accepts in packed form to the arrays that replace it."""


def packed_arguments(module: tvm.IRModule) -> dict[str, tuple[Argument, ...]]:
    """Return a mapping from each argument that a program accepts in packed form to the arrays that replace it.

    For each such argument, the module contains a function ``pack_NAME`` in addition to ``main``. Its first argument is
    the workload's argument NAME; its other arguments are the arrays that it writes, which replace NAME in ``main``.

    Args:
        module: A scheduled module.

    Example:
        >>> import searchlab
        >>> searchlab.workload.packed_arguments(searchlab.gemm(8, 8, 8).module)
        {}
    """
    functions = {variable.name_hint: function for variable, function in module.functions.items()}
    pack_functions = {
        name.removeprefix(PACK): function for name, function in functions.items() if name.startswith(PACK)
    }
    return {name: list_arguments(function)[1:] for name, function in sorted(pack_functions.items())}


WORKLOADS = PluginKind("workload", "searchlab.workloads", Workload, positional=0)  # type: ignore[type-abstract]
