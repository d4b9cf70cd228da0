"""The measurers of runs, and the measurements that runs share: a program that was measured is not measured again."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path

from ..measure.contract import Conditions, MeasurementsByProgram, Measurer, conditions
from ..measure.settings import Settings
from ..target import Target
from .plan import Run

MeasurementsByConditions = MutableMapping[Conditions, MeasurementsByProgram]
"""The programs that are not measured again, by the conditions under which they were measured."""


def add_measurements(run: Run, measurements_by_conditions: MeasurementsByConditions) -> None:
    """Add the measurements in the run's log to ``measurements_by_conditions``, except those from tables."""
    if run.existing_log is None or run.settings.replays:
        return
    header = run.existing_log.header
    measurements = measurements_by_conditions[conditions(header.host, header.target, header.measure)]
    for record in run.existing_log.records:
        if record.program and (record.program not in measurements or measurements[record.program].pruned):
            measurements[record.program] = replace(record.measurement, reused=False)


class MeasurerCache:
    """Creates the measurer for each run in turn. Consecutive runs with the same settings and target share a measurer.

    Args:
        measurements: The measurements of programs that are not measured again. Each run uses only those under its own
            conditions.
        base: The directory that relative paths start from.
    """

    def __init__(self, measurements: MeasurementsByConditions, base: Path) -> None:
        self._measurements = measurements
        self._base = base
        self._purpose: tuple[Settings, Target | None] | None = None
        self._measurer: Measurer | None = None

    def for_run(self, run: Run) -> Measurer:
        purpose = run.settings, None if run.settings.replays else run.space.target
        if self._measurer is None or purpose != self._purpose:
            self.close()
            measurements = {} if run.settings.replays else self._measurements.setdefault(run.conditions, {})
            self._measurer = run.settings.make(run.space.target, measurements, self._base)
            self._purpose = purpose
        return self._measurer

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None
