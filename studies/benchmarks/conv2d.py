"""Compares the best guided-conv2d program of a short search with oneDNN, called through PyTorch.

    python studies/benchmarks/conv2d.py [WORKLOAD ...] [--peer onednn onednn-blocked] [--threads 1 2] [--batch 1 8]
        [--dtype float32 int8 bfloat16] [--weights packed] [--isa avx2] [--trials 32] [--rounds 21] [--json FILE]
        [--markdown]

By default, the workloads are all distinct convolutions of ResNet-50 v1.5. The search may use Winograd programs and, for
int8 and bfloat16, the CPU's dot-product instructions, if available. With the peer ``onednn``, both sides are passed
NCHW images and OIHW weights and return NCHW results, so layout changes are part of their time. The peer
``onednn-blocked`` is passed weights and images in the layout that oneDNN chooses, and reorders nothing; it is the only
peer that supports int8. With ``--weights packed``, searchlab's programs take weights that are packed beforehand, too;
the images remain NCHW. All sides are timed in turn, each in its own process. With ``--isa avx2``, no side uses
AVX-512.

Rows are added to FILE, so a table can be measured in several runs; rows with the same workload and number of threads
are replaced. ``--markdown`` prints the table in FILE.
"""

from __future__ import annotations

from collections.abc import Sequence

from peers import CONV2D, require_dtype
from timing import SpaceSpec
from versus import Benchmark, Weights

from searchlab.errors import SearchlabError
from searchlab.target import Target
from searchlab.workload import Conv2d, Workload
from searchlab_spaces.guided.words import explain_missing_instruction


def space(workload: Workload, target: Target, weights: Weights) -> SpaceSpec:
    options = {"winograd": True} if explain_missing_instruction(workload.dtype, target) else {"dot": True}
    return {"name": "guided-conv2d", "options": {**options, "weights": weights}}


def check(workload: Workload, peers: Sequence[str]) -> None:
    if not isinstance(workload, Conv2d):
        raise SearchlabError(f"this benchmark compares conv2d, not {workload}; use kernels.py for gemm")
    require_dtype(workload, peers)


BENCHMARK = Benchmark(
    script=__file__,
    description=__doc__ or "",
    space=space,
    layers="conv",
    others={},
    peers=CONV2D,
    default=("onednn", "onednn-blocked"),
    check=check,
    dtypes=("float32", "int8", "bfloat16"),
)

if __name__ == "__main__":
    BENCHMARK.main()
