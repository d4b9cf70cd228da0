"""Reading logs into a comparison, in which runs are grouped by workload, strategy and seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path

from ..errors import SearchlabError, encodable, warn
from ..files import find_files
from ..log.budget import UNLIMITED, Budget
from ..log.cache import read_logs
from ..log.columns import LogColumns
from ..log.format import workload_name
from ..log.lease import is_locked
from ..log.plan import PLAN_FILE_NAME, Claim, read_plan
from ..log.read import LOG_SUFFIXES, find_logs
from .notes import MEASUREMENT, describe_measurement_difference, find_header_difference
from .runs import ComparedRuns, CurveAxis, LoggedRun, WorkloadRuns
from .words import counted

REPORT_DIR = "report"
"""The name of a report's directory, next to its logs. Logs in such a directory are read only if passed explicitly."""

_STRATEGY_FIELDS = ("space", "fingerprint", "policy", "cost_model", "features", "batch", "warm_start", *MEASUREMENT)
"""The fields of the header that are the same in all runs of a strategy on a workload."""


def read_runs(*where: Path, everything: bool = False, by: CurveAxis | None = None) -> ComparedRuns:
    """Read logs, including all logs in directories, as runs to compare.

    In a study's directory, only the runs and trials that are currently part of the study are read. Other logs and
    trials there are skipped with a SearchlabWarning. Logs may be compressed (``*.jsonl.gz``). Each table in a suite is
    a separate workload. A log that is passed twice is read once. If a directory contains many logs, a cache is created
    there; see :mod:`searchlab.log.cache`.

    Args:
        *where: Logs and directories. If this is a single directory, the names of logs are relative to it.
        everything: Whether to read all logs and trials in a study's directory.
        by: Whether strategies are compared over trials or seconds. By default, over seconds if these limit all runs,
            and at least one run has reached the limit or there is no limit of trials.

    Raises:
        SearchlabError: If there are no logs, if a log is unreadable, or if logs are not comparable: two logs of one
            run, or two strategies with the same name.

    Warns:
        SearchlabWarning: If strategies were measured in different ways on a workload. They are not tested.
    """
    logs_by_real_path: dict[str, tuple[Path, Budget]] = {}
    not_started_count = 0
    for source in where:
        source_logs, source_not_started_count = _find_logs(source, everything)
        not_started_count += source_not_started_count
        for path, budget in source_logs:
            logs_by_real_path.setdefault(os.path.realpath(path), (path, budget))
    budget_by_path = dict(logs_by_real_path.values())
    if not budget_by_path:
        raise SearchlabError("nothing to report on: pass a directory of logs, or a log (*.jsonl)")
    directory = where[0] if len(where) == 1 and where[0].is_dir() else None
    running_paths = {path for path in budget_by_path if is_locked(path)}  # before reading, as runs may end meanwhile
    logs = read_logs(directory, list(budget_by_path), required=where)
    planned_logs = [budget_by_path[log.path].truncate(log) for log in logs]
    longer_paths = [log.path for log, planned_log in zip(logs, planned_logs, strict=True) if planned_log is not log]
    if longer_paths:
        _warn_of_skipped(
            longer_paths, "some logs contain more trials than are now part of the study, which are skipped"
        )
    log_names = [encodable((log.path.relative_to(directory) if directory else log.path).as_posix()) for log in logs]
    if by is None and _is_limited_by_seconds(planned_logs, budget_by_path.values()):
        by = "seconds"
    return group_runs(
        zip(planned_logs, log_names, strict=True),
        {log_name for log, log_name in zip(logs, log_names, strict=True) if log.path in running_paths},
        by,
        not_started_count,
    )


def _is_limited_by_seconds(logs: Iterable[LogColumns], budgets: Collection[Budget]) -> bool:
    """Return whether seconds limit all runs.

    Where trials are limited, too, a limit in seconds that no run has reached says nothing about time.
    """
    has_trial_limits = all(budget.trials < UNLIMITED for budget in budgets)
    has_reached_seconds = any(log.run_end and log.run_end.seconds for log in logs)
    return all(budget.seconds is not None for budget in budgets) and (has_reached_seconds or not has_trial_limits)


def read_planned_claims(*where: Path) -> list[Claim]:
    """Return the claims of all studies whose plans are in the directories in ``where``."""
    plans = (
        read_plan(path.parent)
        for directory in where
        if directory.is_dir()
        for path in find_files(directory, (PLAN_FILE_NAME,))
    )
    return [claim for plan in plans if plan for claim in plan.claims]


def group_runs(
    named_logs: Iterable[tuple[LogColumns, str]],
    running: Collection[str] = (),
    by: CurveAxis | None = None,
    not_started_count: int = 0,
) -> ComparedRuns:
    """Group logs by workload, strategy and seed, as runs to compare.

    Args:
        named_logs: The logs, each with its name in reports.
        running: The names of logs whose runs were in progress when the logs were read.
        by: As in :func:`read_runs`.
        not_started_count: The number of runs of the study that have not started.

    Raises:
        SearchlabError: If the logs are not comparable; see :func:`read_runs`.
    """
    labelled_logs = [(_name_workload(log), log, log_name) for log, log_name in named_logs]
    if by is None:
        is_limited = [log.run_end is not None and log.run_end.seconds is not None for _, log, _ in labelled_logs]
        by = "seconds" if is_limited and all(is_limited) else "trials"
    name_strategy = _make_strategy_namer([(workload, log) for workload, log, _ in labelled_logs])
    all_runs = [
        LoggedRun(workload, name_strategy(log), log, log_name, log_name in running)
        for workload, log, log_name in labelled_logs
    ]
    runs_by_workload: dict[str, dict[str, list[LoggedRun]]] = {}
    for run in sorted(all_runs, key=attrgetter("workload", "strategy")):
        runs_by_workload.setdefault(run.workload, {}).setdefault(run.strategy, []).append(run)
    for strategies in runs_by_workload.values():
        for strategy, runs in strategies.items():
            _check_strategy(runs)
            strategies[strategy] = _drop_repeated_seeds(runs)
        if difference := describe_measurement_difference([run for runs in strategies.values() for run in runs]):
            warn(difference)
    return {
        workload: WorkloadRuns(workload, strategies, by=by, not_started_count=not_started_count)
        for workload, strategies in runs_by_workload.items()
    }


def _make_strategy_namer(labelled_logs: Sequence[tuple[str, LogColumns]]) -> Callable[[LogColumns], str]:
    """Return a function that names the strategy of a log.

    The name contains the policy if two policies have the same name, and the space if a workload has several spaces.
    """
    spaces: dict[str, set[str]] = {}
    policies: dict[str, set[str]] = {}
    for workload, log in labelled_logs:
        spaces.setdefault(workload, set()).add(log.header.space_name)
        policies.setdefault(log.header.name, set()).add(log.header.policy.name)
    has_several_spaces = any(len(space_names) > 1 for space_names in spaces.values())

    def name_strategy(log: LogColumns) -> str:
        is_ambiguous = not log.header.label and len(policies[log.header.name]) > 1
        name = log.header.policy.name if is_ambiguous else log.header.name
        return f"{log.header.space_name} / {name}" if has_several_spaces else name

    return name_strategy


def _find_logs(source: Path, everything: bool) -> tuple[list[tuple[Path, Budget]], int]:
    """Return the logs at ``source``, each with its budget, and the number of planned runs that have no log."""
    if source.is_dir():
        paths = [path for path in find_logs(source) if REPORT_DIR not in path.relative_to(source).parts[:-1]]
        if not paths:
            raise SearchlabError(
                f"{source} contains no logs (*.jsonl); run a study there first, or pass another directory"
            )
        return ([(path, Budget()) for path in paths], 0) if everything else _find_study_logs(source, paths)
    if not source.exists():
        raise SearchlabError(f"cannot report on {source}: there is no such directory or log; check the path")
    if not source.name.endswith(LOG_SUFFIXES):
        raise SearchlabError(f"{source} is not a log: log names end in {', '.join(LOG_SUFFIXES)}")
    return [(source, Budget())], 0


def _find_study_logs(root: Path, paths: Sequence[Path]) -> tuple[list[tuple[Path, Budget]], int]:
    """Return the ``paths`` that are in the plan of their study, or do not belong to a study, with their budgets.

    Also returns the number of planned runs that have no log.
    """
    plans_by_dir = {
        path.parent: plan.runs_by_log
        for path in find_files(root, (PLAN_FILE_NAME,))
        if (plan := read_plan(path.parent))
    }
    logs: list[tuple[Path, Budget]] = []
    started_runs: set[tuple[Path, str]] = set()
    unplanned_paths: list[Path] = []

    @cache
    def find_study(folder: Path) -> Path | None:
        return next((directory for directory in (folder, *folder.parents) if directory in plans_by_dir), None)

    for path in paths:
        if (study_dir := find_study(path.parent)) is None:
            logs.append((path, Budget()))
        elif run := plans_by_dir[study_dir].get(path.relative_to(study_dir).as_posix().removesuffix(".gz")):
            logs.append((path, run.budget))
            started_runs.add((study_dir, run.log))
        else:
            unplanned_paths.append(path)
    if unplanned_paths and not logs:
        raise SearchlabError(
            f"{root} contains no logs that are currently part of its study; run the study, or report on all logs "
            f"there (--all or, in Python, everything=True)"
        )
    if unplanned_paths:
        _warn_of_skipped(unplanned_paths, "logs of runs that are no longer part of the study are skipped")
    return logs, sum(map(len, plans_by_dir.values())) - len(started_runs)


def _warn_of_skipped(paths: Sequence[Path], reason: str) -> None:
    logs = f"{counted(len(paths), 'log')}, such as {paths[0]}"
    warn(f"{reason}: {logs} (use --all to report on everything there)")


def _name_workload(log: LogColumns) -> str:
    """Return the canonical name of the log's workload, or of its suite table."""
    try:
        workload = workload_name(log.header)
        return log.header.table or workload
    except SearchlabError as error:
        raise SearchlabError(f"{log.path} is damaged: {error}") from None


def _check_strategy(runs: Sequence[LoggedRun]) -> None:
    if difference := find_header_difference(runs, _STRATEGY_FIELDS):
        field, run, first, second = difference
        raise SearchlabError(
            f"{runs[0].log_name} and {run.log_name} are both called {run.strategy!r}, but their {field} differs "
            f"({first} and {second}); give each its own label"
        )


def _drop_repeated_seeds(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """Return ``runs`` in the order of their seeds. Of several logs with the same seed, only the first one counts.

    The others are left out with a SearchlabWarning, since a copy in a directory must not take all other logs with it.
    """
    by_seed: dict[int, LoggedRun] = {}
    for run in runs:
        first = by_seed.setdefault(run.seed, run)
        if first is not run:
            warn(
                f"skipped: {run.log_name} and {first.log_name} are logs of the same run: {run.strategy!r} on "
                f"{run.workload} with seed {run.seed}; only {first.log_name} counts"
            )
    return [by_seed[seed] for seed in sorted(by_seed)]
