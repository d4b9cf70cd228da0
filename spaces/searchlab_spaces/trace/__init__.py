"""Stochastic trace functions, as in MetaSchedule: the samples that a function draws span the space."""

from .space import Trace

__all__ = ["Trace"]
