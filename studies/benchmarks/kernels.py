"""Compares the best guided-gemm program of a short search with libraries of linear algebra.

    python studies/benchmarks/kernels.py [WORKLOAD ...] [--peer openblas mkl onednn] [--threads 1 2] [--batch 1 8]
        [--dtype float32 int8 bfloat16] [--isa avx2] [--trials 32] [--rounds 21] [--json FILE] [--markdown]

Without workloads: three nearly square GEMMs, and of ResNet-50 v1.5 every distinct GEMM that im2row makes of a
convolution (output pixels x output channels x products), and the fully connected layer, which at batch 1 is a product
of a row and a matrix. A is read in place; the search chooses the micro-tile, where B is packed, and kc. With int8 and
bfloat16 it takes the CPU's instructions for sums of products, if there are; A is packed then if its rows end within a
word of 32 bits.

The peers: ``openblas``, the BLAS of numpy's wheels (the default); ``mkl``, from Intel's wheel; ``onednn``, called by
PyTorch: its inner product, or for int8, which no other has, its GEMM. OpenBLAS has no bfloat16. The last two are in the
extra ``peers``. All sides are timed in turn, each in a process of its own. A library chooses its kernels by the CPU:
any setting that changes the choice, for example OPENBLAS_CORETYPE, is dropped, and the chosen kernels are in the rows.
On an AMD CPU MKL takes other kernels than on an Intel one. With ``--isa avx2`` no side takes AVX-512; on an AMD CPU MKL
chooses as it would without.

FILE keeps its other rows, so a table can be made in several runs; rows of the same workload and threads are replaced.
``--markdown`` prints the table of FILE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peers import GEMM, require_dtype
from timing import SpaceSpec
from versus import Benchmark

from searchlab.errors import SearchlabError
from searchlab.target import Target
from searchlab.workload import Gemm, Workload
from searchlab_spaces.guided.gemm_words import Words
from searchlab_spaces.guided.words import lacks


def space(workload: Workload, target: Target) -> SpaceSpec:
    options: dict[str, Any] = {"pack_a": False, "pack_b": "places", "kc": "knob", "tiles": "fitting"}
    if isinstance(workload, Gemm) and not lacks(workload.dtype, target):
        options |= {"dot": True, "pack_a": not Words(workload).a_is_words}
    return {"name": "guided-gemm", "options": options}


def check(workload: Workload, peers: Sequence[str]) -> None:
    if not isinstance(workload, Gemm) or workload.bias or workload.relu:
        raise SearchlabError(
            f"this benchmark compares gemm without bias and ReLU, not {workload}; conv2d.py is for conv2d"
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
