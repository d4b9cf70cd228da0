"""The libraries with which the guided spaces are compared, each called the way its users call it.

All operands are row-major and aligned to 64 bytes. A library chooses its kernels according to the CPU; a side's facts
include the chosen kernels.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from turns import Side

from searchlab.arrays import Array
from searchlab.errors import SearchlabError
from searchlab.workload import Conv2d, Gemm, Workload

if TYPE_CHECKING:
    import torch

LINE = 64  # bytes of a cache line

MAPS = Path("/proc/self/maps")
"""The files mapped into this process, including libraries (on Linux)."""


def require(names: Iterable[str], threads: Iterable[int] = (1,)) -> None:
    """Raise SearchlabError if a peer is missing, or does not support these numbers of threads."""
    for name in names:
        package = {"openblas": "numpy"}.get(name, name if name in ("mkl", "blis", "onnxruntime") else "torch")
        libraries: Mapping[str, Callable[[], object]] = {"mkl": mkl_file, "blis": _blis}
        if (libraries[name]() if name in libraries else importlib.util.find_spec(package)) is None:
            raise SearchlabError(
                f"the peer {name!r} requires the package {package!r}, which is not installed; run "
                "pip install '.[peers]'"
            )
    if "openblas" in names and (blas := _numpy_blas()[0]) != "openblas":
        raise SearchlabError(f"the peer 'openblas' is numpy's BLAS, which is {blas} here; use a different peer")
    if "blis" in names and max(threads) > 1 and not (library := _blis()).bli_info_get_enable_threading():
        raise SearchlabError(
            f"BLIS {_blis_version(library)} was built for one thread, so it cannot use {max(threads)}; pass "
            "--threads 1, or install a threaded BLIS, such as Debian's package libblis4-pthread"
        )


COMPUTED: Mapping[type[Workload], Mapping[str, tuple[str, ...]]] = {
    Gemm: {
        "openblas": ("float32", "float64"),
        "mkl": ("float32", "float64", "bfloat16"),
        "blis": ("float32", "float64"),
        "onednn": ("float32", "int8", "bfloat16"),
    },
    Conv2d: {"onednn": ("float32", "bfloat16"), "onednn-blocked": ("float32", "int8", "bfloat16")},
}
"""The dtypes that each peer supports here."""


def require_dtype(workload: Workload, names: Iterable[str]) -> None:
    """Raise SearchlabError if one of the peers does not support the dtype of the workload."""
    for name in names:
        if workload.dtype not in (dtypes := COMPUTED[type(workload)][name]):
            raise SearchlabError(f"{name} computes {workload.op} only in {' or '.join(dtypes)}, not {workload}")


def openblas(workload: Gemm) -> Side:
    """Return numpy's matmul, which calls gemm, or gemv for a single row or column."""
    from threadpoolctl import threadpool_info

    a, b, c = _operands(workload)
    infos = [info for info in threadpool_info() if info["internal_api"] == "openblas"]
    facts = {"version": _numpy_blas()[1], "kernels": str(infos[0]["architecture"]) if infos else ""}
    return Side(lambda: np.matmul(a, b, out=c), lambda: c, facts)


def mkl(workload: Gemm) -> Side:
    """Return MKL's cblas_gemm, or cblas_gemv for a single row or column; for bfloat16, the result is float32."""
    path = mkl_file()
    assert path is not None
    library = ctypes.CDLL(str(path))
    a, b, c = _operands(workload)
    real = ctypes.c_double if workload.dtype == "float64" else ctypes.c_float
    letter = {"float32": "s", "float64": "d", "bfloat16": ""}[workload.dtype]
    m, n, k = (ctypes.c_int(size) for size in (workload.m, workload.n, workload.k))
    alpha, beta = real(1), real(0)
    row_major, as_is, transposed, stride = (ctypes.c_int(code) for code in (101, 111, 112, 1))
    at = {name: array.ctypes.data_as(ctypes.c_void_p) for name, array in (("A", a), ("B", b), ("C", c))}
    arguments: tuple[Any, ...]
    if letter and 1 in (workload.m, workload.n):
        # y = op(X) x, where X is B, transposed, or A.
        rows, columns, matrix, vector = (k, n, "B", "A") if workload.m == 1 else (m, k, "A", "B")
        function = getattr(library, f"cblas_{letter}gemv")
        form = transposed if matrix == "B" else as_is
        arguments = (
            row_major,
            form,
            rows,
            columns,
            alpha,
            at[matrix],
            columns,
            at[vector],
            stride,
            beta,
            at["C"],
            stride,
        )
    else:
        function = getattr(library, f"cblas_{letter}gemm" if letter else "cblas_gemm_bf16bf16f32")
        arguments = (row_major, as_is, as_is, m, n, k, alpha, at["A"], k, at["B"], n, beta, at["C"], n)
    function(*arguments)
    # MKL loads the CPU's kernels when it is first called; "def" also includes those for AMD's CPUs.
    loaded = sorted(set(re.findall(r"libmkl_(def|mc\d?|avx\w*)\.so", MAPS.read_text()))) if MAPS.exists() else []
    return Side(
        lambda: function(*arguments), lambda: c, {"version": distribution("mkl").version, "kernels": " ".join(loaded)}
    )


def blis(workload: Gemm) -> Side:
    """Return BLIS's gemm, or its gemv for a single row or column."""
    library = _blis()
    a, b, c = _operands(workload)
    letter, real = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}[workload.dtype]
    integer = ctypes.c_int64 if library.bli_info_get_int_type_size() == 64 else ctypes.c_int32
    library.bli_thread_set_num_threads(integer(int(os.environ["OMP_NUM_THREADS"])))
    m, n, k, stride = (integer(size) for size in (workload.m, workload.n, workload.k, 1))
    alpha, beta = (ctypes.byref(real(value)) for value in (1, 0))
    as_is = ctypes.c_int(0)
    at = {name: array.ctypes.data_as(ctypes.c_void_p) for name, array in (("A", a), ("B", b), ("C", c))}
    # Each matrix is followed by the strides of its rows and columns. The row A is a column for the transposed B.
    arguments: tuple[Any, ...]
    if workload.m == 1:
        arguments = (as_is, as_is, n, k, alpha, at["B"], stride, n, at["A"], stride, beta, at["C"], stride)
    elif workload.n == 1:
        arguments = (as_is, as_is, m, k, alpha, at["A"], k, stride, at["B"], stride, beta, at["C"], stride)
    else:
        operands = (at["A"], k, stride, at["B"], n, stride)
        arguments = (as_is, as_is, m, n, k, alpha, *operands, beta, at["C"], n, stride)
    kernels, context = _blis_kernels(library)
    function = getattr(library, f"bli_{letter}{'gemv' if 1 in (workload.m, workload.n) else 'gemm'}_ex")
    function.restype = None
    arguments += (context, None)
    return Side(lambda: function(*arguments), lambda: c, {"version": _blis_version(library), "kernels": kernels})


def onednn_linear(workload: Gemm) -> Side:
    """Return torch.nn.functional.linear on oneDNN tensors: its inner product, with weights n x k as in torch.

    On torch's own tensors, torch would call MKL instead of oneDNN. For int8, this is torch._int_mm, which is oneDNN's
    GEMM in int32. For bfloat16, the result is bfloat16, whereas the workload's is float32.
    """
    import torch

    a, b, c = _operands(workload)
    if workload.dtype == "int8":
        operands, result = (torch.from_numpy(a), torch.from_numpy(b)), torch.from_numpy(c)
        return _onednn(lambda: torch._int_mm(*operands, out=result), lambda product: product)
    data, weight = (_tensor(x).to_mkldnn() for x in (a, _aligned(b.T)))
    side = _onednn(lambda: torch.nn.functional.linear(data, weight), lambda result: result.to_dense())
    return _with_rounding(side, workload)


def onednn_conv2d(workload: Conv2d) -> Side:
    """Return torch.nn.functional.conv2d on NCHW images and OIHW weights, reordered in every call, followed by ReLU.

    For bfloat16, the result is bfloat16, whereas the workload's is float32.
    """
    import torch

    data, weight, bias = _images(workload)
    geometry = (workload.stride, workload.padding, workload.dilation)

    def run() -> torch.Tensor:
        result = torch.nn.functional.conv2d(data, weight, bias, *geometry)
        return result.relu_() if workload.relu else result

    return _with_rounding(_onednn(run, lambda result: result), workload)


def onednn_blocked(workload: Conv2d) -> Side:
    """Return oneDNN's convolution in the layout that it chooses for inference, without reorders, as in torch.compile.

    Weights are in its blocked layout, images are channels-last, and bias and ReLU are part of the convolution. For
    int8, the image is made unsigned beforehand, as is usual in models, and the result is float32. For bfloat16, the
    result is bfloat16.
    """
    import torch

    data, weight, bias = _images(workload)
    stride, padding, dilation = ([*pair] for pair in (workload.stride, workload.padding, workload.dilation))
    epilogue: tuple[str, list[float], str] = ("relu" if workload.relu else "none", [], "")
    if workload.dtype == "int8":
        scales, zeros = torch.ones(workload.co), torch.zeros(workload.co, dtype=torch.int32)
        unsigned = (data.to(torch.int16) + 128).to(torch.uint8).contiguous(memory_format=torch.channels_last)
        shifts = None if bias is None else bias.float()
        geometry: Any = (stride, padding, dilation, 1)
        packed = torch.ops.onednn.qconv_prepack(weight, scales, 1.0, 128, *geometry, list(data.shape))
        return _onednn(
            lambda: torch.ops.onednn.qconv2d_pointwise(
                unsigned, 1.0, 128, packed, scales, zeros, shifts, *geometry, 1.0, 0, torch.float32, *epilogue
            ),
            lambda result: result.contiguous(),
        )
    geometry = (padding, stride, dilation, 1)
    blocked = torch.ops.mkldnn._reorder_convolution_weight(weight, *geometry, list(data.shape))
    last = data.contiguous(memory_format=torch.channels_last)
    side = _onednn(
        lambda: torch.ops.mkldnn._convolution_pointwise(last, blocked, bias, *geometry, *epilogue),
        lambda result: result.contiguous(),
    )
    return _with_rounding(side, workload)


GEMM: Mapping[str, Callable[[Gemm], Side]] = {
    "openblas": openblas,
    "mkl": mkl,
    "blis": blis,
    "onednn": onednn_linear,
}
CONV2D: Mapping[str, Callable[[Conv2d], Side]] = {"onednn": onednn_conv2d, "onednn-blocked": onednn_blocked}
"""The peers by name."""


def _aligned(array: Array) -> Array:
    """Return a row-major copy aligned to LINE bytes."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def _operands(workload: Workload) -> list[Array]:
    *_, shape = workload.shapes.values()
    return [_aligned(array) for array in [*workload.inputs().values(), np.zeros(shape, workload.out_dtype)]]


def _images(workload: Conv2d) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the image, the weights, and the bias, if any."""
    data, weight, *bias = map(_tensor, _operands(workload)[:-1])
    return data, weight, bias[0] if bias else None


def _tensor(array: Array) -> torch.Tensor:
    """Return a torch tensor that shares an array's memory (torch does not support numpy's bfloat16)."""
    import torch

    if array.dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _with_rounding(side: Side, workload: Workload) -> Side:
    """Return the side for a peer that rounds bfloat16 workloads' results to bfloat16."""
    return replace(side, rounding=2**-8) if workload.dtype == "bfloat16" else side


def _onednn(run: Callable[[], torch.Tensor], dense: Callable[[torch.Tensor], torch.Tensor]) -> Side:
    """Return the side for oneDNN; ``dense`` converts the output of ``run`` to the workload's result."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    version = re.search(r"MKL-DNN v([\d.]+)|oneDNN v([\d.]+)", torch.__config__.show())
    facts = {
        "version": next(filter(None, version.groups())) if version else f"of torch {torch.__version__}",
        "kernels": ", ".join(_primitives(run)) or "PyTorch's own",  # which PyTorch prefers for a small convolution
    }
    return Side(
        run, lambda: (tensor.float() if (tensor := dense(run())).dtype == torch.bfloat16 else tensor).numpy(), facts
    )


def _primitives(run: Callable[[], object]) -> list[str]:
    """Return the operations and implementations that oneDNN reports for a call."""
    import torch

    run()  # the first call creates the primitives
    stdout, libc = os.dup(1), ctypes.CDLL(None)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                run()
            libc.fflush(None)
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        lines = [line.split(",") for line in file]
    return [f"{line[5]} {line[6]}" for line in lines if line[2:4] == ["primitive", "exec"] and len(line) > 6]


def mkl_file() -> Path | None:
    """Return the library from the package mkl, or None if it is not installed."""
    return _library("mkl", r"libmkl_rt\.so")


def _blis() -> Any:
    """Return the system's BLIS or else that of the package blis, which uses one thread, or None if there is neither."""
    with suppress(OSError):
        return ctypes.CDLL("libblis.so.4")
    file = _library("blis", r"cy\..*so$")
    return None if file is None else ctypes.CDLL(str(file))


def blis_file() -> Path | None:
    """Return the library that the peer ``blis`` calls, or None if it is not installed."""
    if _blis() is None:
        return None
    loaded = re.search(r"/\S*(libblis\.so\S*|/blis/cy\.\S*so)", MAPS.read_text())
    return Path(loaded[0]) if loaded else None


def _library(package: str, pattern: str) -> Path | None:
    """Return the first file of a package whose name matches ``pattern``, or None if it is not installed."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if re.match(pattern, file.name)), None)


def _blis_kernels(library: Any) -> tuple[str, ctypes.c_void_p]:
    """Return the name of the fastest kernels of BLIS for this CPU, and the context that selects them.

    BLIS selects kernels without vector instructions for CPUs that are newer than itself.
    """
    library.bli_arch_string.restype = ctypes.c_char_p
    library.bli_gks_lookup_nat_cntx.restype = ctypes.c_void_p
    names = [library.bli_arch_string(index).decode() for index in range(library.bli_arch_query_id() + 1)]
    name = names[-1]
    if name == "generic":
        features = set(Path("/proc/cpuinfo").read_text().split())
        needed = {"skx": {"avx512f", "avx512dq", "avx512bw", "avx512vl"}, "haswell": {"avx2", "fma"}}
        name = next((kernels for kernels, flags in needed.items() if kernels in names and flags <= features), name)
    return name, ctypes.c_void_p(library.bli_gks_lookup_nat_cntx(names.index(name)))


def _blis_version(library: Any) -> str:
    library.bli_info_get_version_str.restype = ctypes.c_char_p
    return str(library.bli_info_get_version_str().decode())


def _numpy_blas() -> tuple[str, str]:
    """Return the name and version of numpy's BLAS."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return blas["name"].removeprefix("scipy-"), blas["version"]
