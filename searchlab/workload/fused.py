"""Products followed by any elementwise operations, such as GELU, as in fused functions of models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ..arrays import Array
from ..errors import SearchlabError
from .base import Argument
from .products import BatchMatmul, Conv2d, Gemm, Product
from .tir import Tir

if TYPE_CHECKING:
    import tvm

BLOCK = "epilogue"
"""The name of the block that computes the elementwise operations."""


@dataclass(frozen=True)
class Fused(Product):
    """A product followed by elementwise operations, as in ``fused-gemm:8x24x16:nt:PATH.py:gelu``.

    The operations are a function in TensorIR with a single block, specified as in a ``tir`` workload. Logs contain the
    function, and refer to it as ``NAME@DIGEST``. The tasks of models include such workloads.

    Attributes:
        elementwise: The function that computes the result from the product, its first argument, and other operands.
    """

    elementwise: Tir = field(kw_only=True)
    plain: ClassVar[type[Product]]

    @classmethod
    def from_product(cls, product: Product, elementwise: Tir) -> Self:
        """Return the workload that computes ``elementwise`` of the result of ``product``, which has no epilogue."""
        return cls(**{item.name: getattr(product, item.name) for item in fields(product)}, elementwise=elementwise)

    @classmethod
    def parse(cls, text: str) -> Self:
        match = re.fullmatch(r"([\w:]+?):([^:]+\.(?:py|json)(?::\w+)?)", text)
        if not match:
            raise SearchlabError(
                f"{text!r} must be a product, then PATH.py:NAME or PATH.json[:NAME], a function in TensorIR of the "
                f"product and other operands; workloads from models are in logs, and in searchlab.tasks_of(model)"
            )
        workload = cls.from_product(cls.plain.parse(match[1]), Tir.parse(match[2]))
        try:
            workload.prim_func()
        except (ValueError, LookupError) as error:
            raise SearchlabError(f"{match[2]} is not one elementwise block after a product: {error}") from None
        return workload

    @classmethod
    def from_log(cls, spelling: str, content: str) -> Self:
        product, _, name = spelling.rpartition(":")
        return cls.from_product(cls.plain.parse(product), Tir.from_log(name, content))

    @property
    def op(self) -> str:
        """That of the product."""
        return self.plain(**{item.name: getattr(self, item.name) for item in fields(self.plain)}).op

    def content(self) -> str:
        return self.elementwise.content()

    @property
    def suffix(self) -> str:
        return f"{super().suffix}:{self.elementwise.spelling}"

    def operands(self, result: tuple[int, ...], channels: int) -> dict[str, tuple[int, ...]]:
        product, *operands, out = self.elementwise.arguments
        if not product.shape == out.shape == result or out.dtype != self.out_dtype or self.elementwise.result_count > 1:
            raise SearchlabError(f"the operations of {self} do not apply to a product of the shape {result}")
        return {operand.name: operand.shape for operand in operands}

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        operands = {argument.name: argument for argument in self.elementwise.arguments[1:-1]}
        return tuple(operands.get(argument.name, argument) for argument in super().arguments)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        inputs = super().inputs(seed)
        values = self.elementwise.inputs(seed)  # absolute values if the operations include a square root, for example
        return {name: values.get(name, value) for name, value in inputs.items()}

    def epilogue(self, args: list[Any], result: Any) -> tvm.tirx.PrimFunc:
        from tvm import te

        func = self.elementwise.prim_func()
        operands = [
            te.placeholder(argument.shape, name=argument.name, dtype=argument.dtype)
            for argument in self.elementwise.arguments[1:-1]
        ]
        tensors = dict(zip(func.params, [result, *operands], strict=False))
        return te.create_prim_func(
            [*args, *operands, make_elementwise_tensor(func, tensors, [int(e) for e in result.shape])]
        )

    def numpy_epilogue(self, result: Array, inputs: dict[str, Array]) -> Array:
        product, *operands, _ = self.elementwise.arguments
        values = {product.name: result.astype(product.dtype)} | {name: inputs[name] for name, *_ in operands}
        return self.elementwise.reference(values)[0]

    def tolerance(self) -> tuple[float, float]:
        """Return the tolerance of the product, increased by as much as the operations increase an error."""
        rtol, atol = super().tolerance()
        own_rtol, own_atol = self.elementwise.tolerance()
        inputs = self.elementwise.inputs()
        product = self.elementwise.arguments[0]
        rng = np.random.default_rng(0)
        values = rng.standard_normal(product.shape) * np.sqrt(self.reduction)

        def compute(error: float) -> Array:
            return self.numpy_epilogue((values + error).astype(product.dtype), inputs).astype(np.float64)

        exact = compute(0.0)
        errors = [float(np.nanmax(np.abs(compute(error) - exact), initial=0.0)) for error in (-atol, atol)]
        return max(rtol, own_rtol), max(atol, *errors) + own_atol


@dataclass(frozen=True)
class FusedGemm(Fused, Gemm):
    """A matrix product followed by elementwise operations, as in ``fused-gemm:8x24x16:nt:PATH.py:gelu``."""

    plain = Gemm


@dataclass(frozen=True)
class FusedConv2d(Fused, Conv2d):
    """A convolution followed by elementwise operations, as in ``fused-conv2d:1x7x7x8x8x3x3:p1:PATH.py:silu``."""

    plain = Conv2d


@dataclass(frozen=True)
class FusedBatchMatmul(Fused, BatchMatmul):
    """Batched products followed by elementwise operations, as in ``fused-batch-matmul:12x8x8x4:nt:PATH.py:scaled``."""

    plain = BatchMatmul


def fuse(product: Product, elementwise: Tir) -> Fused:
    """Return the workload that computes ``elementwise`` of the result of ``product``."""
    kind = next(kind for kind in (FusedGemm, FusedConv2d, FusedBatchMatmul) if isinstance(product, kind.plain))
    return kind.from_product(product, elementwise)


def make_elementwise_tensor(func: tvm.tirx.PrimFunc, tensors: Mapping[Any, Any], shape: Sequence[int]) -> tvm.te.Tensor:
    """Return the tensor of the given shape that the last block of ``func`` computes, read from ``tensors``.

    Args:
        func: A function whose last block computes its result element by element.
        tensors: The tensors that take the place of the buffers that the block reads. If a tensor has fewer axes than
            its buffer, those of extent 1 are omitted.
        shape: The shape of the result, which may omit axes of extent 1 as well.

    Raises:
        ValueError: If the block does anything else.
    """
    from tvm import te
    from tvm.ir.expr import TensorLoad
    from tvm.s_tir import SBlock
    from tvm.tirx import BufferStore, IntImm, Var
    from tvm_ffi import structural_map, structural_walk

    blocks: list[Any] = []
    structural_walk(func.body, [(SBlock, lambda block: blocks.append(block))])
    (block,) = (block for block in blocks if block.writes and block.writes[0].source.same_as(func.params[-1]))
    store = block.body
    if not isinstance(store, BufferStore) or any(axis.iter_type == axis.CommReduce for axis in block.iter_vars):
        raise ValueError("the last block reduces")
    extents = [int(axis.dom.extent) for axis in block.iter_vars]
    if [extent for extent in extents if extent > 1] != [extent for extent in shape if extent > 1]:
        raise ValueError("the axes differ")

    def compute(*indices: Any) -> Any:
        long_indices = iter([index for index, extent in zip(indices, shape, strict=True) if extent > 1])
        by_variable = {
            axis.var: next(long_indices) if extent > 1 else IntImm("int32", 0)
            for axis, extent in zip(block.iter_vars, extents, strict=True)
        }

        def load(node: Any) -> Any:
            ((tensor, sizes),) = (
                (tensor, [int(extent) for extent in buffer.shape])
                for buffer, tensor in tensors.items()
                if buffer.same_as(node.source)
            )
            positions = [int(index) if isinstance(index, IntImm) else by_variable[index] for index in node.indices]
            if len(tensor.shape) == len(positions):
                return tensor(*positions)
            long_axes = iter([position for position, size in zip(positions, sizes, strict=True) if size > 1])
            return tensor(*(next(long_axes) if int(extent) > 1 else 0 for extent in tensor.shape))

        replacements = [(TensorLoad, load), (Var, lambda variable: by_variable.get(variable, variable))]
        return structural_map(store.value, replacements, order="pre")

    return te.compute(tuple(shape), compute, name=BLOCK)
