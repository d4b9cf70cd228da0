"""Reading logs into a comparison, in which runs are grouped by workload, strategy and seed."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import SearchlabError, encodable, warn
from ..files import find_files
from ..log.budget import UNLIMITED, Budget
from ..log.columns import Columns, Texts, read_logs
from ..log.format import LOGS, Log, find_logs, workload_name
from ..log.lease import is_locked
from ..log.plan import PLAN, Claim, read_plan
from ..log.reliability import largest_drift
from .runs import By, ComparedRuns, LoggedRun, WorkloadRuns
from .words import counted, listed, number_text

REPORT = "report"
"""The name of a report's directory, next to its logs. Logs in such a directory are read only if passed explicitly."""

DRIFT = 0.1  # a report mentions runs during which the sentinel's time changed by more than this fraction

_FOOTING = ("target", "measure")
_STRATEGY = ("space", "fingerprint", "policy", "cost_model", "features", "batch", "warm_start", *_FOOTING)
_NOTED = ("host", "workers", "versions")


def read_runs(*where: Path, everything: bool = False, readings: bool = True, by: By | None = None) -> ComparedRuns:
    """Read logs, including all logs in directories, as runs to compare.

    In a study's directory, only the runs and trials that are currently part of the study are read. Other logs and
    trials there are skipped with a SearchlabWarning. Logs may be compressed (``*.jsonl.gz``). Each table in a suite is
    a separate workload. A log that is passed twice is read once. If a directory contains many logs, a cache is created
    there; see :mod:`searchlab.log.columns`.

    Args:
        *where: Logs and directories. If this is a single directory, the names of logs are relative to it.
        everything: Whether to read all logs and trials in a study's directory.
        readings: Whether the individual readings are needed; see :func:`~searchlab.log.columns.read_logs`.
        by: Whether strategies are compared over trials or seconds. By default, over seconds if these limit all runs,
            and at least one run has reached the limit or there is no limit of trials.

    Raises:
        SearchlabError: If there are no logs, if a log is unreadable, or if logs are not comparable: two logs of one
            run, or two strategies with the same name.

    Warns:
        SearchlabWarning: If strategies were measured in different ways on a workload. They are not tested.
    """
    paths: dict[str, tuple[Path, Budget]] = {}
    missing = 0
    for source in where:
        logs_of_source, missing_of_source = _logs(source, everything)
        missing += missing_of_source
        for path, budget in logs_of_source:
            paths.setdefault(os.path.realpath(path), (path, budget))
    if not paths:
        raise SearchlabError("nothing to report on: pass a directory of logs, or a log (*.jsonl)")
    directory = where[0] if len(where) == 1 and where[0].is_dir() else None
    running = {path for path, _ in paths.values() if is_locked(path)}  # before reading, as runs may end meanwhile
    budgets = dict(paths.values())
    logs = read_logs(directory, list(budgets), {}, readings, required=where)
    within = [budgets[log.path].truncate(log) for log in logs]
    if more := [log.path for log, part in zip(logs, within, strict=True) if part is not log]:
        _warn(more, "some logs contain more trials than are now part of the study, which are skipped")
    names = [encodable((log.path.relative_to(directory) if directory else log.path).as_posix()) for log in within]
    # Where trials are limited, too, a limit in seconds that no run has reached says nothing about time.
    unreached = all(budget.trials < UNLIMITED for budget in budgets.values()) and not any(
        log.ended and log.ended.seconds for log in within
    )
    if by is None and not unreached and all(budget.seconds is not None for budget in budgets.values()):
        by = "seconds"
    return group_runs(
        zip(within, names, strict=True),
        {name for log, name in zip(within, names, strict=True) if log.path in running},
        by,
        missing,
    )


def planned_claims(*where: Path) -> list[Claim]:
    """Return the claims of all studies whose plans are in the directories in ``where``."""
    plans = (
        read_plan(path.parent) for directory in where if directory.is_dir() for path in find_files(directory, (PLAN,))
    )
    return [claim for plan in plans if plan for claim in plan.claims]


def group_runs(
    read: Iterable[tuple[Columns | Log, str]], running: Collection[str] = (), by: By | None = None, missing: int = 0
) -> ComparedRuns:
    """Group logs by workload, strategy and seed, as runs to compare.

    Args:
        read: The logs, each with its name in reports.
        running: The names of logs whose runs were in progress when the logs were read.
        by: As in :func:`read_runs`.
        missing: The number of runs of the study that have not started.

    Raises:
        SearchlabError: If the logs are not comparable; see :func:`read_runs`.
    """
    texts: Texts = {}
    columns = ((Columns.from_log(log, texts) if isinstance(log, Log) else log, file) for log, file in read)
    logs = [(_workload(log), log, file) for log, file in columns]
    if by is None:
        limited = [log.ended is not None and log.ended.seconds is not None for _, log, _ in logs]
        by = "seconds" if limited and all(limited) else "trials"
    spaces: dict[str, set[str]] = {}
    for workload, log, _ in logs:
        spaces.setdefault(workload, set()).add(log.header.space_name)
    several = any(len(names) > 1 for names in spaces.values())
    policies: dict[str, set[str]] = {}
    for _, log, _ in logs:
        policies.setdefault(log.header.name, set()).add(log.header.policy.name)

    def name_strategy(log: Columns) -> str:
        is_ambiguous = not log.header.label and len(policies[log.header.name]) > 1
        name = log.header.policy.name if is_ambiguous else log.header.name
        return f"{log.header.space_name} / {name}" if several else name

    by_workload: dict[str, dict[str, list[LoggedRun]]] = {}
    for workload, log, file in sorted(logs, key=lambda item: (item[0], name_strategy(item[1]))):
        run = LoggedRun(workload, name_strategy(log), log, file, file in running)
        by_workload.setdefault(workload, {}).setdefault(run.strategy, []).append(run)
    for strategies in by_workload.values():
        for strategy, runs in strategies.items():
            _check_strategy(runs)
            strategies[strategy] = _one_log_per_seed(runs)
        if note := _footing_note([run for runs in strategies.values() for run in runs]):
            warn(note)
    return {
        workload: WorkloadRuns(workload, strategies, by=by, missing=missing)
        for workload, strategies in by_workload.items()
    }


def _logs(source: Path, everything: bool) -> tuple[list[tuple[Path, Budget]], int]:
    """Return the logs at ``source``, each with its budget, and the number of planned runs that have no log."""
    if source.is_dir():
        paths = [path for path in find_logs(source) if REPORT not in path.relative_to(source).parts[:-1]]
        if not paths:
            raise SearchlabError(
                f"{source} contains no logs (*.jsonl); run a study there first, or pass another directory"
            )
        return ([(path, Budget()) for path in paths], 0) if everything else _of_studies(source, paths)
    if not source.exists():
        raise SearchlabError(f"cannot report on {source}: there is no such directory or log; check the path")
    if not source.name.endswith(LOGS):
        raise SearchlabError(f"{source} is not a log: log names end in {', '.join(LOGS)}")
    return [(source, Budget())], 0


def _of_studies(root: Path, paths: Sequence[Path]) -> tuple[list[tuple[Path, Budget]], int]:
    """Return the ``paths`` that are in the plan of their study, or do not belong to a study, with their budgets.

    Also returns the number of planned runs that have no log.
    """
    plans = {path.parent: plan.by_log for path in find_files(root, (PLAN,)) if (plan := read_plan(path.parent))}
    logs: list[tuple[Path, Budget]] = []
    started: set[tuple[Path, str]] = set()
    left_out: list[Path] = []

    @cache
    def study_of(folder: Path) -> Path | None:
        return next((directory for directory in (folder, *folder.parents) if directory in plans), None)

    for path in paths:
        if (home := study_of(path.parent)) is None:
            logs.append((path, Budget()))
        elif run := plans[home].get(path.relative_to(home).as_posix().removesuffix(".gz")):
            logs.append((path, run.budget))
            started.add((home, run.log))
        else:
            left_out.append(path)
    if left_out and not logs:
        raise SearchlabError(
            f"{root} contains no logs that are currently part of its study; run the study, or report on all logs "
            f"there (--all or, in Python, everything=True)"
        )
    if left_out:
        _warn(left_out, "logs of runs that are no longer part of the study are skipped")
    return logs, sum(map(len, plans.values())) - len(started)


def _warn(paths: Sequence[Path], what: str) -> None:
    logs = f"{counted(len(paths), 'log')}, such as {paths[0]}"
    warn(f"{what}: {logs} (use --all to report on everything there)")


def _workload(log: Columns) -> str:
    """Return the canonical name of the log's workload, or of its suite table."""
    try:
        workload = workload_name(log.header)
        return log.header.table or workload
    except SearchlabError as error:
        raise SearchlabError(f"{log.path} is damaged: {error}") from None


def _difference(runs: Sequence[LoggedRun], fields: Iterable[str]) -> tuple[str, LoggedRun, Any, Any] | None:
    """Return the first header field in which a run differs from the first run, with that run and both values."""
    for field in fields:
        first = getattr(runs[0].log.header, field)
        for run in runs[1:]:
            if (value := getattr(run.log.header, field)) != first:
                return field, run, msgspec.to_builtins(first), msgspec.to_builtins(value)
    return None


def _footing_note(runs: Sequence[LoggedRun]) -> str:
    """Return a sentence on how two runs of a workload were measured differently, or "" if all were measured alike."""
    header = runs[0].log.header
    for other in runs[1:]:
        differences = [
            f"{field}.{name} is {first!r} in the first and {second!r} in the second"
            for field in _FOOTING
            for name, (first, second) in _differences(getattr(header, field), getattr(other.log.header, field)).items()
        ]
        if differences:
            return (
                f"{runs[0].file} and {other.file} measured {other.workload} in different ways, so strategies measured "
                f"differently are compared, but not tested: {'; '.join(differences[:3])}"
            )
    return ""


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return both values of each key in which two mappings differ. Keys of one alone count only if no others do."""
    keys = dict.fromkeys([*first, *second])
    pairs = {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}
    return {key: pair for key, pair in pairs.items() if key in first and key in second} or pairs


def _check_strategy(runs: Sequence[LoggedRun]) -> None:
    if difference := _difference(runs, _STRATEGY):
        field, other, first, second = difference
        raise SearchlabError(
            f"{runs[0].file} and {other.file} are both called {other.strategy!r}, but their {field} differs ({first} "
            f"and {second}); give each its own label"
        )


def _one_log_per_seed(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """Return ``runs`` in the order of their seeds. Of several logs with the same seed, only the first one counts.

    The others are left out with a SearchlabWarning, since a copy in a directory must not take all other logs with it.
    """
    by_seed: dict[int, LoggedRun] = {}
    for run in runs:
        first = by_seed.setdefault(run.seed, run)
        if first is not run:
            warn(
                f"skipped: {run.file} and {first.file} are logs of the same run: {run.strategy!r} on {run.workload} "
                f"with seed {run.seed}; only {first.file} counts"
            )
    return [by_seed[seed] for seed in sorted(by_seed)]


def footing_notes(runs: Sequence[LoggedRun]) -> list[str]:
    """Return sentences that help readers to interpret a workload's logs.

    They report differences between the logs, machine drift, differences that the machine cannot resolve, whether the
    fastest trials were measured again, and for how many trials a table used the nearest config.
    """
    notes = [f"{note}." for note in [_footing_note(runs)] if note]
    differing = [(field, difference[1]) for field in _NOTED if (difference := _difference(runs, (field,)))]
    if differing:
        fields = listed([field for field, _ in differing])
        notes.append(
            f"The logs differ in their {fields} ({runs[0].file} and {differing[0][1].file}): compare times with care."
        )
    drifts = [(ratio, run) for run in runs if (ratio := largest_drift(run.log)) is not None]
    if drifted := [(ratio, run) for ratio, run in drifts if abs(ratio - 1) > DRIFT]:
        ratio, run = max(drifted, key=lambda pair: abs(math.log(pair[0])))
        most = "" if len(drifted) == 1 else f"{len(drifted)} of {len(drifts)} runs, most of all in "
        notes.append(
            f"The machine drifted during {most}{run.file}, where the first program once took {ratio:.2f} times as "
            "long as in its own trial."
        )
    if note := _resolution_note(runs):
        notes.append(note)
    if retimed := sum(run.log.final is not None for run in runs):
        notes.append(
            f"The fastest trials of {counted(retimed, 'run')} were measured again after the search. The best programs "
            "are shown with these times; the comparison uses the times measured during the search."
        )
    by_strategy: dict[str, list[LoggedRun]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    shares = []
    for strategy, strategy_runs in by_strategy.items():
        near = np.concatenate([run.log.nearest for run in strategy_runs])
        if near.any():
            shares.append(f"{100 * int(near.sum()) / len(near):.1f} % of the trials of {strategy}")
    if shares:
        notes.append(
            f"Some proposed configs are not in the table, so the nearest config in it was used for {', '.join(shares)}."
        )
    return notes


def _resolution_note(runs: Sequence[LoggedRun]) -> str:
    """Return which strategies' best times differ from the fastest by less than the machine resolves, or ""."""
    best: dict[str, list[float]] = {}
    for run in runs:
        best.setdefault(run.strategy, []).append(float(run.log.costs.min(initial=math.inf)))
    medians = {strategy: float(np.median(costs)) for strategy, costs in best.items()}
    first = min(medians, key=lambda strategy: medians[strategy])
    values = [run.log.header.machine.get("resolution") for run in runs]
    resolution = max((value for value in values if isinstance(value, float)), default=0.0)
    close = [strategy for strategy, cost in medians.items() if 1 < cost / medians[first] < 1 + resolution]
    if not close:
        return ""
    return (
        f"Two measurements of the same program may differ by {number_text(100 * resolution)} % on this machine. The "
        f"best times of {listed(close)} (medians over the runs) differ from that of {first} by less."
    )
