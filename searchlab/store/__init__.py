"""The store: everything a user has measured, across studies, by workload, target, machine, space and program."""

from .store import Store as Store
