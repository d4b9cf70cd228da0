"""Open runs: read their logs once, compare them, and create measurers, which do not repeat what is in the logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..files import real_path
from ..log.format import DEFAULT_CONFIG_MARKER, Header
from ..log.read import read_existing_log
from ..log.writer import OtherRun, check_identity, move_aside
from ..measure.contract import Conditions, MeasurementsByProgram, Measurer, encode_conditions
from ..measure.settings import Settings
from ..target import Target
from ..workload import Function
from .plan import Run
from .replay import make_reproduction_error
from .warm_start import WarmStart, find_earlier_run

MeasurementsByConditions = dict[Conditions, MeasurementsByProgram]
"""The programs that are not measured again, by the conditions under which they were measured."""


def discard_log(run: Run, error: OtherRun) -> None:
    """Move the log of ``run`` aside because of ``error``, which is raised instead unless the run allows this."""
    if not run.discard:
        raise error
    move_aside(run.log_path)


def open_runs(
    runs: Sequence[Run],
    study_runs: Sequence[Run],
    on_this_machine: bool = True,
    on_other_run: Callable[[Run, OtherRun], None] = discard_log,
) -> list[Run]:
    """Return ``runs`` with their existing logs and, if they start from directories of logs, their original warm start.

    In a study, each strategy's logs are in the same directory. The first existing log there determines the warm start
    of all its runs, so that all seeds start from the same trials. The study's own logs are no warm start.

    Args:
        runs: The runs to open, which are executed here.
        study_runs: All runs of the study to which ``runs`` belong.
        on_this_machine: Whether this machine executes the runs. If not, the hosts in the logs may be others.
        on_other_run: Called for each run whose log belongs to a different run, with the error that says why. If it
            returns, the run has no existing log.

    Raises:
        SearchlabError: If an existing log is damaged or also a warm start, or its warm start is no longer in the
            directories.
        OtherRun: If a log belongs to a different run, which must not discard it.
    """
    read_once = cache(read_existing_log)
    headers_by_directory: dict[Path, Header] = {}
    for run in study_runs:
        directory = run.log_path.parent
        needs_header = run.warm_start.directories and directory not in headers_by_directory
        if needs_header and (log := read_once(run.log_path)) is not None:
            headers_by_directory[directory] = log.header
    study_log_paths = {real_path(run.log_path) for run in study_runs}
    opened_runs = []
    for run in runs:
        if run.warm_start.directories:
            header = headers_by_directory.get(run.log_path.parent)
            warm_start = _restore_warm_start(run, header) if header else run.warm_start.exclude_logs(study_log_paths)
            run = replace(run, warm_start=warm_start)
        for earlier_run in run.warm_start.runs:
            if real_path(path := earlier_run.log.path) in study_log_paths:
                raise SearchlabError(f"{path} is a warm start and cannot also be the log; choose a different log file")
        run = replace(run, existing_log=read_once(run.log_path))
        try:
            _check_log(run, on_this_machine)
        except OtherRun as error:
            on_other_run(run, error)
            run = replace(run, existing_log=None)
        opened_runs.append(run)
    return opened_runs


def _restore_warm_start(run: Run, header: Header) -> WarmStart:
    """Return the warm start of an earlier run of the same strategy, whose log has this ``header``.

    Logs that were specified only now are added, and are rejected later, when the run's header is compared. Raises
    SearchlabError if the directories do not contain one of the logs.
    """
    warm_start = run.warm_start
    runs_by_digest = {earlier_run.digest: earlier_run for earlier_run in warm_start.runs}
    digests = [digest for digest in header.warm_start if digest != DEFAULT_CONFIG_MARKER]
    added_runs = [
        earlier_run
        for earlier_run in warm_start.runs
        if not earlier_run.directory and earlier_run.digest not in digests
    ]
    original_runs = [
        runs_by_digest.get(digest)
        or find_earlier_run(warm_start.directories, digest, run.settings.statistic, run.log_path)
        for digest in digests
    ]
    return replace(warm_start, runs=(*original_runs, *added_runs)).select(run.space_choice, run.strategy)


def _check_log(run: Run, on_this_machine: bool) -> None:
    """Raise OtherRun if ``run`` cannot continue its existing log, as far as this is known before the run.

    Other code may turn out not to reproduce the logged trials, unless it is that of a function, whose costs are those
    of the old code in any case.
    """
    if (log := run.existing_log) is None:
        return
    header = run.header if on_this_machine else msgspec.structs.replace(run.header, host=log.header.host)
    check_identity(run.log_path, log.header, header)
    is_function = isinstance(run.space.workload, Function) and not run.settings.replays
    if is_function and log.records and log.code_digests.get("workload") != run.code_digests["workload"]:
        raise make_reproduction_error(run, log, "Its trials were measured by the old function")


class MeasurerCache:
    """Creates the measurer for each run in turn. Consecutive runs with the same settings and target share a measurer.

    Attributes:
        measurements: The measurements of programs that are not measured again. Each run uses only those under its own
            conditions.
    """

    def __init__(self) -> None:
        self.measurements: MeasurementsByConditions = {}
        self._study_id = ""
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

    def begin_run(self, study_id: str, measurements_by_conditions: MeasurementsByConditions) -> None:
        """Replace all measurements, including those that the measurer uses, and close a different study's measurer."""
        if study_id != self._study_id:
            self.close()
            self._study_id = study_id
        for measurements in self.measurements.values():
            measurements.clear()
        for run_conditions, measurements in measurements_by_conditions.items():
            self.measurements.setdefault(run_conditions, {}).update(measurements)

    def close(self) -> None:
        if self._measurer is not None:
            self._measurer.close()
        self._measurer = None
