"""Workloads: computations of fixed shape, each with its spelling, FLOP count, PrimFunc and numpy reference."""

from .base import ACCUMULATED_IN, Workload
from .operators import Conv2d, Gemm, Kernel, conv2d, gemm, kernel
from .parse import parse_workload, preset_names

__all__ = [
    "ACCUMULATED_IN", "Conv2d", "Gemm", "Kernel", "Workload", "conv2d", "gemm", "kernel", "parse_workload",
    "preset_names",
]  # fmt: skip
