"""Guided spaces: hand-written programs with few knobs; all other choices are computed for the target machine."""

from .conv2d import GuidedConv2d
from .gemm import GuidedGemm

__all__ = ["GuidedConv2d", "GuidedGemm"]
