"""The settings of every kind of measurement, as a study file spells them under ``measure``.

Each kind answers for itself:

- ``identity()``: the settings that decide the numbers which come out, as the log's header holds them.
- ``default_target(base)``: the target where none is given, as :func:`~searchlab.target.resolve_target` takes it.
- ``measurable(base)``: the workload, and the fingerprint of the space, of every run that it can measure; None where
  it can measure any.
- ``machine(target, base)``: the machine that is measured, as
  :attr:`~searchlab.log.format.Header.measured_on` names it; empty where it is not known.
- ``make(target, known, base)``: the measurer; ``known`` are the programs that need not be measured again.
- ``exclusive``: whether this machine is measured, so that runs beside each other would disturb each other.
- ``replays``: whether it answers from recorded measurements, and measures nothing.

``base`` is the directory that relative paths start from.
"""

from __future__ import annotations

from .local import LocalSettings
from .rpc.measurer import RpcSettings
from .table import TableSettings

__all__ = ["LocalSettings", "RpcSettings", "Settings", "TableSettings"]

Settings = LocalSettings | RpcSettings | TableSettings
