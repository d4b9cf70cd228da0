"""Stochastic trace functions in the way of MetaSchedule: the samples of a function are the space."""

from .space import Trace

__all__ = ["Trace"]
