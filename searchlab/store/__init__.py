"""The store: everything a user has measured in any study, by workload, target, machine, space and program."""

from .store import Store as Store
