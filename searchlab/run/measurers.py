"""The measurers of runs, and the measurements that runs share: a program that was measured is not measured again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..measure.contract import Conditions, MeasurementsByProgram, Measurer, encode_conditions
from ..measure.settings import Settings
from ..target import Target
from .plan import Run

MeasurementsByConditions = dict[Conditions, MeasurementsByProgram]
"""The programs that are not measured again, by the conditions under which they were measured."""


class MeasurerCache:
    """Creates the measurer for each run in turn. Consecutive runs with the same settings and target share a measurer.

    Attributes:
        measurements: The measurements of programs that are not measured again. Each run uses only those under its own
            conditions.
    """

    def __init__(self) -> None:
        self.measurements: MeasurementsByConditions = {}
        self._settings_and_target: tuple[Settings, Target | None] | None = None
        self._measurer: Measurer | None = None

    def for_run(self, run: Run) -> Measurer:
        """Return the measurer for ``run``, and close the previous one if it is a different one."""
        settings_and_target = run.settings, None if run.settings.replays else run.space.target
        if self._measurer is None or settings_and_target != self._settings_and_target:
            self.close()
            measurements = {} if run.settings.replays else self.measurements.setdefault(run.conditions, {})
            self._measurer = run.settings.make(run.space.target, measurements, run.base_dir)
            self._settings_and_target = settings_and_target
        return self._measurer

    def add_logged_measurements(self, run: Run) -> None:
        """Add the measurements in the run's log, unless a table supplied them."""
        if run.existing_log is None or run.settings.replays:
            return
        header = run.existing_log.header
        log_conditions = encode_conditions(header.host, header.target, header.measure)
        measurements = self.measurements.setdefault(log_conditions, {})
        for record in run.existing_log.records:
            if record.program and (record.program not in measurements or measurements[record.program].pruned):
                measurements[record.program] = replace(record.measurement, reused=False)

    def replace_measurements(self, measurements_by_conditions: Mapping[Conditions, MeasurementsByProgram]) -> None:
        """Replace all measurements, including those that the current measurer uses."""
        for measurements in self.measurements.values():
            measurements.clear()
        for run_conditions, measurements in measurements_by_conditions.items():
            self.measurements.setdefault(run_conditions, {}).update(measurements)

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None
