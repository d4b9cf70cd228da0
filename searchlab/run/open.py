"""Open runs: their logs are read once, and compared with the runs before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from ..errors import SearchlabError
from ..files import real_path
from ..log.format import Header
from ..log.read import read_existing_log
from ..log.writer import OtherRun, check_identity, move_aside
from ..workload import Function
from .plan import Run
from .replay import make_reproduction_error


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
            if header := headers_by_directory.get(run.log_path.parent):
                statistic = run.settings.statistic
                warm_start = run.warm_start.restore(header, run.log_path, run.space_choice, run.strategy, statistic)
            else:
                warm_start = run.warm_start.exclude_logs(study_log_paths)
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
    if is_function and log.records and log.code.get("workload") != run.code_digests["workload"]:
        raise make_reproduction_error(run, log, "Its trials were measured by the old function")
