"""What has been measured of a workload, by whichever study: by target, machine, space and program."""

from .store import Store as Store
