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
from ..workload.products import ProductWithEpilogue
from ..workload.tir import Tir


def recognise(function: Any, name: str = "") -> Workload | None:
    """Return the product that ``function`` computes, or None if it computes something else.

    Candidates are derived from the shapes. A candidate is returned if its loops are the same as those of ``function``.

    Args:
        function: A function in TensorIR with blocks.
        name: The function's name, from which that of the elementwise operations after the product is derived.
    """
    from ..apply.matching import FlatFunction, inline_blocks, match_arguments

    original = FlatFunction(function)
    if original.arguments is None:
        return None
    function = inline_blocks(function)
    parts = _split_reduction(function)
    if parts is None:
        return None
    operands, padded_operand, result, rest = parts
    shapes = [tuple(int(extent) for extent in buffer.ty.shape) for buffer in (*operands, result, padded_operand)]
    dtypes = {str(operand.ty.dtype.dtype) for operand in operands}
    if len(dtypes) != 1 or not all(shapes):
        return None
    for workload in _products(shapes, dtypes.pop()):
        for candidate in _with_epilogue(workload, function, result, rest, name):
            if match_arguments(original, FlatFunction(candidate.prim_func())) is not None:
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
    sums = [block for block in blocks if is_reduction(block)]
    if len(sums) != 1:
        return None
    reads_by_buffer = {
        block.writes[0].source: block.reads for block in blocks if not is_reduction(block) and block.writes
    }
    operands = []
    for region in sums[0].reads:
        reads = reads_by_buffer.get(region.source)  # the padded image is read from the image
        operands.append(region.source if reads is None or len(reads) != 1 else reads[0].source)
    parameters = list(function.params)
    if len(operands) != 2 or not all(any(map(operand.same_as, parameters)) for operand in operands):
        return None
    rest = [parameter for parameter in parameters[:-1] if not any(map(parameter.same_as, operands))]
    return operands, sums[0].reads[0].source, sums[0].writes[0].source, rest


def _products(shapes: Sequence[tuple[int, ...]], dtype: str) -> Iterator[ProductWithEpilogue]:
    """Yield the products without epilogues whose operands, sums and padded first operand have these shapes."""
    first, second, out, padded_shape = shapes
    (*batch, m, k), n = first if len(first) > 1 else (1, *first), out[-1]
    for nt in (False, True):
        with suppress(SearchlabError):  # the dtype is not supported
            if second == ((n, k) if nt else (k, n)):
                yield gemm(math.prod(out[:-1]), n, k, dtype, nt=nt)
            if len(second) > 2 and second == ((*batch, n, k) if nt else (*batch, k, n)):
                yield BatchMatmul(dtype, b=math.prod(batch), m=m, n=n, k=k, nt=nt)
    if len(first) == len(second) == len(out) == 4:
        yield from find_convolutions(first, second, out, dtype, padded_shape)


def _with_epilogue(
    plain: ProductWithEpilogue, function: Any, result: Any, rest: Sequence[Any], name: str
) -> Iterator[Workload]:
    """Yield ``plain``, or the workloads that could compute the ``rest`` of ``function`` from its ``result`` as well."""
    if result.same_as(function.params[-1]):
        yield plain
        return
    *_, out = plain.shapes.values()
    sizes = sorted(math.prod(int(extent) for extent in operand.ty.shape) for operand in rest)
    for bias, add, relu in product((True, False), repeat=3):  # a bias is tried first, as one row could be either
        if sizes == sorted([out[plain.channel_axis]] * bias + [math.prod(out)] * add):
            yield replace(plain, bias=bias, add=add, relu=relu)
    if (elementwise := _elementwise(function, result, rest, out, name)) is not None:
        yield fuse(plain, elementwise)


def _elementwise(function: Any, result: Any, rest: Sequence[Any], shape: tuple[int, ...], name: str) -> Tir | None:
    """Return the elementwise operations after a product, or None if they are something else."""
    from tvm import te

    product = te.placeholder(shape, name="product", dtype=str(result.ty.dtype.dtype))
    operands = [
        te.placeholder(
            [int(extent) for extent in operand.ty.shape], name=f"operand{number}", dtype=str(operand.ty.dtype.dtype)
        )
        for number, operand in enumerate(rest)
    ]
    try:
        tensor = make_elementwise_tensor(function, dict(zip([result, *rest], [product, *operands], strict=True)), shape)
        operations = re.sub(r"^.*?(matmul|conv2d)\d*_?|(?<=[a-z])\d+(?=_|$)", "", name)  # fused_matmul1_add2_gelu
        return from_primfunc(te.create_prim_func([product, *operands, tensor]), operations or "epilogue")
    except (SearchlabError, ValueError, TypeError, LookupError, RuntimeError):  # TVM may raise the last three
        return None
