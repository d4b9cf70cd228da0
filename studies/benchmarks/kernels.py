"""Compares the best guided-gemm program of a short search with linear algebra libraries.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--peer openblas mkl blis onednn] [--threads 1 2] [--batch 1 8]
        [--dtype float32 int8 bfloat16] [--weights packed] [--isa avx2] [--trials 32] [--rounds 21] [--json FILE]
        [--markdown]

By default, the workloads are three nearly square GEMMs and two kinds from ResNet-50 v1.5: every distinct GEMM into
which im2row converts a convolution (output pixels x output channels x products), and the fully connected layer, which
is a vector-matrix product at batch 1. A is read in place; the search chooses the micro-tile, how B is packed, and kc.
For int8 and bfloat16, it uses the CPU's dot-product instructions, if available; A is then packed if its rows are not a
multiple of 32 bits. With ``--weights packed``, B is packed beforehand, which is not timed.

The peers are ``openblas``, the BLAS in numpy's wheels (the default); ``mkl``, from Intel's wheel; ``blis``; and
``onednn``, called through PyTorch: its inner product or, for int8, which no other peer supports, its GEMM. OpenBLAS and
BLIS do not support bfloat16. The extra ``peers`` installs the last three. Its BLIS is version 0.7, for one thread; if
the system has a ``libblis.so.4``, such as Debian's libblis4-pthread, this newer one is used. All sides are timed in
turn, each in its own process. A library chooses its kernels according to the CPU. Settings that change this choice,
such as OPENBLAS_CORETYPE, are removed, and the rows record the chosen kernels. MKL uses different kernels on AMD CPUs
than on Intel CPUs, and BLIS uses those for AVX2 on CPUs that it does not know. With ``--isa avx2``, no side uses
AVX-512; this does not affect BLIS or, on AMD CPUs, MKL.

Rows are added to FILE, so a table can be measured in several runs; rows with the same workload and number of threads
are replaced. ``--markdown`` prints the table in FILE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peers import GEMM, require_dtype
from timing import SpaceSpec
from versus import Benchmark, Weights

from searchlab.errors import SearchlabError
from searchlab.target import Target
from searchlab.workload import Gemm, Workload
from searchlab_spaces.guided.gemm_words import Words
from searchlab_spaces.guided.words import explain_missing_instruction


def space(workload: Workload, target: Target, weights: Weights) -> SpaceSpec:
    options: dict[str, Any] = {"pack_a": False, "kc": "knob", "tiles": "fitting"}
    options |= {"pack_b": "places"} if weights == "plain" else {"weights": weights}
    if isinstance(workload, Gemm) and not explain_missing_instruction(workload.dtype, target):
        options |= {"dot": True, "pack_a": not Words(workload).a_is_words}
    return {"name": "guided-gemm", "options": options}


def check(workload: Workload, peers: Sequence[str]) -> None:
    if not isinstance(workload, Gemm) or workload.bias or workload.relu:
        raise SearchlabError(
            f"this benchmark compares gemm without bias and ReLU, not {workload}; use conv2d.py for conv2d"
        )
    require_dtype(workload, peers)


BENCHMARK = Benchmark(
    script=__file__,
    description=__doc__ or "",
    space=space,
    layers="gemm",
    others={
        0: ("gemm:512x512x512", "gemm:1024x1024x1024", "gemm:1000x1003x997"),
        1: ("gemm:1x1000x2048",),
        8: ("gemm:8x1000x2048",),
    },
    peers=GEMM,
    default=("openblas",),
    check=check,
    dtypes=("float32", "int8", "bfloat16"),
)

if __name__ == "__main__":
    BENCHMARK.main()
