"""Which workload a function of a model is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

from ..errors import SearchlabError
from ..workload import BatchMatmul, Workload, find_convolutions, from_primfunc, fuse, gemm
from ..workload.fused import make_elementwise_tensor
from ..workload.products import Product
from ..workload.tir import Tir


def recognise(function: Any, name: str = "") -> Workload | None:
    """Return the product that ``function`` computes, or None if it computes something else.

    Candidates are derived from the shapes. A candidate is returned if its loops are the same as those of ``function``.

    Args:
        function: A function in TensorIR with blocks.
        name: The function's name, from which that of the elementwise operations after the product is derived.
    """
    from ..apply.matching import FlatFunction, inline_blocks, match_arguments

    flat_function = FlatFunction(function)
    if flat_function.arguments is None:
        return None
    function = inline_blocks(function)
    reduction_parts = _split_reduction(function)
    if reduction_parts is None:
        return None
    operands, padded_operand, result, other_arguments = reduction_parts
    shapes = [tuple(int(extent) for extent in buffer.ty.shape) for buffer in (*operands, result, padded_operand)]
    dtypes = {str(operand.ty.dtype.dtype) for operand in operands}
    if len(dtypes) != 1 or not all(shapes):
        return None
    for workload in _generate_products(shapes, dtypes.pop()):
        for candidate in _generate_fused_workloads(workload, function, result, other_arguments, name):
            if match_arguments(flat_function, FlatFunction(candidate.prim_func())) is not None:
                return candidate
    return None


def _split_reduction(function: Any) -> tuple[list[Any], Any, Any, list[Any]] | None:
    """Return the two operands of a function's only reduction, the first one with padding, its sums, and the rest.

    The rest are the other arguments. The result is None if the function has no such parts.
    """
    from tvm import IRModule
    from tvm.s_tir import Schedule

    from ..apply.matching import is_reduction

    schedule = Schedule(IRModule({"main": function.with_attr("global_symbol", "main")}))
    blocks = [schedule.get(block) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    reduction_blocks = [block for block in blocks if is_reduction(block)]
    if len(reduction_blocks) != 1:
        return None
    reads_by_buffer = {
        block.writes[0].source: block.reads for block in blocks if not is_reduction(block) and block.writes
    }
    operands = []
    for region in reduction_blocks[0].reads:
        reads = reads_by_buffer.get(region.source)  # the padded image is read from the image
        operands.append(region.source if reads is None or len(reads) != 1 else reads[0].source)
    parameters = list(function.params)
    if len(operands) != 2 or not all(any(map(operand.same_as, parameters)) for operand in operands):
        return None
    other_arguments = [parameter for parameter in parameters[:-1] if not any(map(parameter.same_as, operands))]
    return operands, reduction_blocks[0].reads[0].source, reduction_blocks[0].writes[0].source, other_arguments


def _generate_products(shapes: Sequence[tuple[int, ...]], dtype: str) -> Iterator[Product]:
    """Yield the products without epilogues whose operands, sums and padded first operand have these shapes."""
    first_shape, second_shape, output_shape, padded_shape = shapes
    (*batch, m, k), n = first_shape if len(first_shape) > 1 else (1, *first_shape), output_shape[-1]
    for nt in (False, True):
        with suppress(SearchlabError):  # the dtype is not supported
            if second_shape == ((n, k) if nt else (k, n)):
                yield gemm(math.prod(output_shape[:-1]), n, k, dtype, nt=nt)
            if len(second_shape) > 2 and second_shape == ((*batch, n, k) if nt else (*batch, k, n)):
                yield BatchMatmul(dtype, b=math.prod(batch), m=m, n=n, k=k, nt=nt)
    if len(first_shape) == len(second_shape) == len(output_shape) == 4:
        yield from find_convolutions(first_shape, second_shape, output_shape, dtype, padded_shape)


def _generate_fused_workloads(
    product_workload: Product, function: Any, result: Any, other_arguments: Sequence[Any], name: str
) -> Iterator[Workload]:
    """Yield ``product_workload``, or the workloads that could compute all of ``function`` from its ``result``."""
    if result.same_as(function.params[-1]):
        yield product_workload
        return
    *_, output_shape = product_workload.shapes.values()
    operand_sizes = sorted(math.prod(int(extent) for extent in operand.ty.shape) for operand in other_arguments)
    for bias, add, relu in product((True, False), repeat=3):  # a bias is tried first, as one row could be either
        bias_sizes = [output_shape[product_workload.channel_axis]] if bias else []
        if operand_sizes == sorted([*bias_sizes, *([math.prod(output_shape)] if add else [])]):
            yield replace(product_workload, bias=bias, add=add, relu=relu)
    if (elementwise := _find_elementwise(function, result, other_arguments, output_shape, name)) is not None:
        yield fuse(product_workload, elementwise)


def _find_elementwise(
    function: Any, result: Any, other_arguments: Sequence[Any], shape: tuple[int, ...], name: str
) -> Tir | None:
    """Return the elementwise operations after a product, or None if they are something else."""
    from tvm import te

    product = te.placeholder(shape, name="product", dtype=str(result.ty.dtype.dtype))
    operands = [
        te.placeholder(
            [int(extent) for extent in operand.ty.shape], name=f"operand{number}", dtype=str(operand.ty.dtype.dtype)
        )
        for number, operand in enumerate(other_arguments)
    ]
    try:
        placeholders = dict(zip([result, *other_arguments], [product, *operands], strict=True))
        tensor = make_elementwise_tensor(function, placeholders, shape)
        operation_names = re.sub(r"^.*?(matmul|conv2d)\d*_?|(?<=[a-z])\d+(?=_|$)", "", name)  # fused_matmul1_add2_gelu
        return from_primfunc(te.create_prim_func([product, *operands, tensor]), operation_names or "epilogue")
    except (SearchlabError, ValueError, TypeError, LookupError, RuntimeError):  # TVM may raise the last three
        return None
