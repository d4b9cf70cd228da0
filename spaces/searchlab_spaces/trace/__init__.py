"""Stochastic trace functions in the way of MetaSchedule: what a function samples is the space."""

from .space import Trace

__all__ = ["Trace"]
