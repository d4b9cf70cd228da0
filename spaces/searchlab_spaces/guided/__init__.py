"""Guided spaces: programs by hand with few choices left open, every other choice computed from the machine."""

from .conv2d import GuidedConv2d
from .gemm import GuidedGemm

__all__ = ["GuidedConv2d", "GuidedGemm"]
