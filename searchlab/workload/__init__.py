"""Workloads: computations with fixed shapes, each with a spelling, a FLOP count, a PrimFunc and a NumPy reference."""

from .base import ACCUMULATED_IN, Workload
from .operators import Conv2d, Gemm, Kernel, conv2d, gemm, kernel
from .parse import parse_workload, preset_names

__all__ = [
    "ACCUMULATED_IN", "Conv2d", "Gemm", "Kernel", "Workload", "conv2d", "gemm", "kernel", "parse_workload",
    "preset_names",
]  # fmt: skip
