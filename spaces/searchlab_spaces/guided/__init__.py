"""Guided spaces: hand-written programs with few open choices; all others are computed from the machine."""

from .conv2d import GuidedConv2d
from .gemm import GuidedGemm

__all__ = ["GuidedConv2d", "GuidedGemm"]
