"""The workload of a task of another tuner, by the name and the arguments in its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import SearchlabError
from ..workload import ACCUMULATED_IN, Workload, conv2d, gemm

GUESS = "if it is a workload of searchlab, name it with --workload"


def workload_of(name: str, args: Sequence[Any]) -> tuple[Workload | None, str]:
    """The workload; or None, and why there is none.

    The known tasks are those of TVM's tutorials for AutoTVM and Ansor, TOPI's conv2d in NCHW, and functions called
    ``gemm`` or ``matmul``, in any namespace, with three equal sizes: authors give the sizes in different orders.
    """
    plain = name.rpartition("/")[2]
    try:
        if plain == "conv2d_no_batching":
            return _conv2d(args), ""
        if plain == "conv2d_layer":
            return _conv2d(args, bias=True, relu=True), ""
        if plain.startswith(("conv2d_nchw", "conv2d_NCHWc")):
            return _topi_conv2d(args), ""
        if name.startswith("tutorial/matmul"):
            (m, k, n), dtype = _sizes(args, 3)
            return gemm(m, n, k, dtype), ""
        if plain in ("gemm", "matmul"):
            sizes, dtype = _sizes(args, 3)
            if len(set(sizes)) == 1:
                return gemm(sizes[0], sizes[0], sizes[0], dtype), ""
            return None, f"the file does not say which of the sizes {sizes} of {name!r} are m, n and k; {GUESS}"
    except (SearchlabError, ValueError, TypeError, IndexError, KeyError) as error:
        return None, f"searchlab has no workload for the arguments of {name!r} ({error}); {GUESS}"
    return None, f"searchlab does not know the task {name!r}; {GUESS}"


def _sizes(args: Sequence[Any], count: int) -> tuple[list[int], str]:
    """``count`` whole numbers and a dtype, by default float32. Raises ValueError for anything else."""
    sizes, rest = list(args[:count]), list(args[count:])
    if len(sizes) < count or not all(type(size) is int for size in sizes):
        raise ValueError(f"not {count} sizes: {sizes}")
    if rest and (len(rest) > 1 or rest[0] not in ACCUMULATED_IN):
        raise ValueError(f"not a dtype: {rest}")
    return sizes, rest[0] if rest else "float32"


def _pair(given: Any) -> tuple[int, int]:
    """(height, width), from one number, two numbers, or (top, left, bottom, right) with equal opposites."""
    numbers = [given, given] if type(given) is int else list(given)
    if len(numbers) == 4 and numbers[:2] == numbers[2:]:
        numbers = numbers[:2]
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise ValueError(f"not a (height, width): {given}")
    return numbers[0], numbers[1]


def _conv2d(args: Sequence[Any], bias: bool = False, relu: bool = False) -> Workload:
    """(N, H, W, CO, CI, KH, KW, stride, padding), as in the tutorials."""
    if len(args) != 9:
        raise ValueError(f"{len(args)} arguments, not 9")
    sizes, _ = _sizes(args[:7], 7)
    n, h, w, co, ci, kh, kw = sizes
    return conv2d(n, h, w, co, ci, kh, kw, _pair(args[7]), _pair(args[8]), bias=bias, relu=relu)


def _topi_conv2d(args: Sequence[Any]) -> Workload:
    """(data, weight, strides, padding, dilation[, layout, out_layout], out_dtype), as in TOPI."""
    data, weight, strides, padding, dilation, *layouts, out_dtype = args
    shapes = [_tensor(tensor) for tensor in (data, weight)]
    if any(layout != "NCHW" for layout in layouts):
        raise ValueError(f"layouts {layouts}")
    (n, ci, h, w), dtype = shapes[0]
    (co, inner, kh, kw), _ = shapes[1]
    if inner != ci or shapes[1][1] != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("groups, or other dtypes")
    return conv2d(n, h, w, co, ci, kh, kw, _pair(strides), _pair(padding), _pair(dilation), dtype)


def _tensor(given: Any) -> tuple[list[int], str]:
    tag, shape, dtype = given
    if tag != "TENSOR" or len(shape) != 4 or dtype not in ACCUMULATED_IN:
        raise ValueError(f"not a tensor of four axes: {given}")
    return list(shape), dtype
