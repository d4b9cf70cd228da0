"""Stochastic trace functions, as in MetaSchedule: the samples that a function draws span the space."""

from .space import Trace, last_sample

__all__ = ["Trace", "last_sample"]
