"""Sketches, as in Ansor, derived from the computation alone."""

from .space import Sketch

__all__ = ["Sketch"]
