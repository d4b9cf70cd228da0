"""Executing runs: one after the other in this process, or on an executor. A run that fails does not end the others."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from ..errors import RunsFailed, SearchlabError, SearchlabWarning
from ..executors.contract import RunExecutor
from ..log.format import Log, read_held
from ..log.noise import disagreement
from ..log.writer import check_identity
from ..machine.host import busy_cores, busy_warning
from ..measure.contract import KnownPrograms
from ..records import Trial
from .dispatch import Dispatch, Failed, Unfinished
from .loop import search
from .plan import OnRun, Run
from .task import Measurers
from .warm_start import check_apart


def execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Run, Log]]:
    """Execute ``runs``, and yield each run with its log as soon as the log is complete.

    Either all runs have one target and one kind of measurement, or each is answered from a table. First, each existing
    log is checked against its run; programs that it holds are not measured again. base: the directory from which a
    table's relative path starts. executor: where the runs are made. They share only the measurements that the logs held
    before, so that the results do not depend on which of the runs are quick. By default they are made here, one after
    the other, and share all. ready: called once all logs that exist were found to be those of the runs.
    Raises RunsFailed at the end, if a run failed.
    """
    reasons: dict[Path, str] = {}
    first: Exception | None = None
    for run, log in _execute(runs, base, on_run, executor, ready):
        if isinstance(log, Failed):
            first = first or log.error
            reasons[run.log] = log.reason
        else:
            yield run, log
    if reasons:
        in_order = {run.log: reasons[run.log] for run in runs if run.log in reasons}
        raise RunsFailed(in_order, len(runs)) from first


def execute_one(run: Run, base: Path, on_run: OnRun) -> Log:
    """Execute ``run`` here, and give its log. Raises the SearchlabError that ends it."""
    ((_, log),) = _execute([run], base, on_run, None)
    if isinstance(log, Failed):
        raise log.error
    return log


def warn_of_more(runs: Sequence[Run], logs: Mapping[Path, Log]) -> None:
    """Warn if logs hold more trials than their runs are to have: nothing is taken from a log."""
    within = {run.log: len(run.budget.cut(logs[run.log]).records) for run in runs}
    more = [run.log for run in runs if within[run.log] < len(logs[run.log].records)]
    if more:
        first, others = more[0], f", and {len(more) - 1} other logs hold more as well" if len(more) > 1 else ""
        warnings.warn(
            f"{first} holds {len(logs[first].records)} trials, more than the {within[first]} that were asked "
            f"for{others}; the result is of all that a log holds",
            SearchlabWarning,
            stacklevel=3,
        )


def warn_of_a_busy_machine(runs: Sequence[Run]) -> None:
    """Warn if this machine is about to be measured, and other processes keep it busy."""
    if not any(run.settings.exclusive for run in runs):
        return
    if text := busy_warning(busy_cores(), os.getloadavg()[0], os.cpu_count() or 1):
        warnings.warn(text, SearchlabWarning, stacklevel=3)


def warn_of_disagreement(logs: Iterable[Log]) -> None:
    """Warn of runs whose best took another time when it was measured again."""
    doubts = [(log.path, text) for log in logs if (text := disagreement(log))]
    if doubts:
        others = f"; so did the best of {len(doubts) - 1} other runs" if len(doubts) > 1 else ""
        warnings.warn(f"{doubts[0][0]}: {doubts[0][1]}{others}", SearchlabWarning, stacklevel=3)


def _execute(
    runs: Sequence[Run],
    base: Path,
    on_run: OnRun,
    executor: RunExecutor | None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Run, Log | Failed]]:
    check_apart([run.warm_start for run in runs], [run.log for run in runs])
    known: KnownPrograms = {}
    with Measurers(known, base) as measurers:
        if executor is None or not runs[0].settings.exclusive:  # elsewhere there may be another machine
            measurers.of(runs[0])  # says what is wrong with the settings before any log is looked at
        held = [_recall(run, known, here=executor is None) for run in runs]
        ready()
        if executor is not None:
            measurers.close()
            unfinished = [Unfinished(run, log) for run, log in zip(runs, held, strict=True)]
            yield from Dispatch(executor, unfinished, base, known, on_run).outcomes()
            return
        for number, run in enumerate(runs, 1):
            log, held[number - 1] = held[number - 1], None
            on_trial = on_run(run, number, len(runs), 0) or _ignore
            try:
                complete: Log | Failed = search(run, measurers.of(run), on_trial, log)
            except SearchlabError as error:
                complete = Failed(str(error), error)
            yield run, complete


def _ignore(trial: Trial, replayed: bool) -> None:
    pass


def _recall(run: Run, known: KnownPrograms, here: bool) -> Log | None:
    """The existing log of ``run``, or None; its measurements are added to ``known``.

    here: whether this machine is measured, if any is. Raises SearchlabError if the log is damaged, or of another run.
    """
    log = read_held(run.log)
    if log is None:
        return None
    header = run.header(log.header.workers)
    check_identity(run.log, log.header, header if here else msgspec.structs.replace(header, host=log.header.host))
    for record in () if run.settings.replays else log.records:  # a table answers at once
        if record.program and (record.program not in known or known[record.program].pruned):
            known[record.program] = replace(record.measurement, reused=False)
    return log
