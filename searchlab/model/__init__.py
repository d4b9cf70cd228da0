"""Tuning of models: a model's tasks, the schedulers that divide trials among them, and the tuned model."""

from .scheduler import SCHEDULERS, ScheduledTask, Scheduler

__all__ = ["SCHEDULERS", "ScheduledTask", "Scheduler"]
