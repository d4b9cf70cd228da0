"""The settings for each kind of measurement, specified under ``measure`` in a study file.

Every kind has the following members, where ``base`` is the directory that relative paths start from:

- ``identity()``: The settings that determine the measurements, as recorded in log headers.
- ``default_target(base)``: The target to use if none is specified, in a form that
  :func:`~searchlab.target.resolve_target` accepts.
- ``measurable(base)``: The workload and space fingerprint of each run that can be measured, or None if all can.
- ``machine(target, base)``: The name of the measured machine, in the form used by
  :attr:`~searchlab.log.format.Header.measured_on`, or "" if it is unknown.
- ``make(target, programs, base)``: Create the measurer. Programs in ``programs`` are not measured again.
- ``exclusive``: Whether this machine is measured, so that simultaneous runs would disturb each other.
- ``replays``: Whether recorded measurements are returned instead of new ones.
"""

from __future__ import annotations

from .function import FunctionSettings
from .local import LocalSettings
from .rpc import RpcSettings
from .table import TableSettings

__all__ = ["FunctionSettings", "LocalSettings", "RpcSettings", "Settings", "TableSettings"]

Settings = LocalSettings | FunctionSettings | RpcSettings | TableSettings
