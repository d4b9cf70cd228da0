"""Workloads: computations of fixed shape, each with its spelling, FLOP count, PrimFunc and numpy reference."""

from .base import ACCUMULATED_IN, Workload
from .conv2d import Conv2d, conv2d
from .gemm import Gemm, gemm
from .kernel import Kernel, kernel
from .parse import parse_workload

__all__ = ["ACCUMULATED_IN", "Conv2d", "Gemm", "Kernel", "Workload", "conv2d", "gemm", "kernel", "parse_workload"]
