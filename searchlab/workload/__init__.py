"""Workloads: computations with fixed shapes, each with a spelling, a FLOP count, a PrimFunc and a reference result."""

from .base import PACK, WORKLOADS, Argument, Packed, Workload, packed_arguments, rounding
from .function import Function, call_with, list_parameter_knobs, maximize, minimize, pickle_with_code
from .fused import Fused, fuse
from .kernel import Kernel
from .parse import parse_workload, parse_workload_in_file, preset_names, restore_workload, split_workload_name
from .primfunc import find_operation_count, program_hash
from .products import ACCUMULATED_IN, EPILOGUE, BatchMatmul, Conv2d, Gemm, conv2d, find_convolutions, gemm
from .softmax import Softmax
from .tir import Tir, from_primfunc

__all__ = [
    "ACCUMULATED_IN",
    "EPILOGUE",
    "PACK",
    "WORKLOADS",
    "Argument",
    "BatchMatmul",
    "Conv2d",
    "Function",
    "Fused",
    "Gemm",
    "Kernel",
    "Packed",
    "Softmax",
    "Tir",
    "Workload",
    "call_with",
    "conv2d",
    "find_convolutions",
    "find_operation_count",
    "from_primfunc",
    "fuse",
    "gemm",
    "list_parameter_knobs",
    "maximize",
    "minimize",
    "packed_arguments",
    "parse_workload",
    "parse_workload_in_file",
    "pickle_with_code",
    "preset_names",
    "program_hash",
    "restore_workload",
    "rounding",
    "split_workload_name",
]
