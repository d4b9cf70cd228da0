"""The settings of each kind of measurement, which a study file gives under ``measure``.

Each kind has these members; ``base`` is the directory from which relative paths start:

- ``identity()``: the settings that determine the measurements, as the header of a log records them.
- ``default_target(base)``: the target if none is given, as :func:`~searchlab.target.resolve_target` accepts it.
- ``measurable(base)``: the workload and the fingerprint of the space of each run that can be measured; None for any.
- ``machine(target, base)``: the machine that is measured, as :attr:`~searchlab.log.format.Header.measured_on` names
  it; "" if it is not known.
- ``make(target, known, base)``: the measurer; the programs in ``known`` are not measured again.
- ``exclusive``: whether this machine is measured, so that simultaneous runs would disturb each other.
- ``replays``: whether recorded measurements are returned and nothing is measured.
"""

from __future__ import annotations

from .local import LocalSettings
from .rpc import RpcSettings
from .table import TableSettings

__all__ = ["LocalSettings", "RpcSettings", "Settings", "TableSettings"]

Settings = LocalSettings | RpcSettings | TableSettings
