"""Exporting logs to a JSON database of MetaSchedule, which TVM itself writes.

The best trial of each log has one more record for every form of its workload in Relax, so that
``relax.transform.MetaScheduleApplyDatabase`` puts it into a model: see :mod:`.relax_forms`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SearchlabError, first_line
from ..log.format import Log, Record
from ..log.result import Result
from ..measure.replay import why_not_replayed
from ..space import Space
from .metaschedule import FAILED, NOTE, Note, files_of

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule.database import JSONDatabase


def export(logs: Sequence[Log], out: Path) -> list[str]:
    """Write ``logs`` to a new database in the directory ``out``. Gives a sentence for each log with trials left out.

    A record has one time, the cost of its trial, since TVM uses the mean; :class:`~.metaschedule.Note` has all
    repeats. So ``compile_tir`` gives the best program of the log. Every config is scheduled, which imports the plug-in
    of the log and TVM. Raises SearchlabError if a database exists already, or a space cannot be made any more.
    """
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    for path in files_of(out):
        if path.exists():
            raise SearchlabError(f"{path} already exists; choose another directory as --out")
    results = [Result(log) for log in logs]
    spaces = [result.space for result in results]
    out.mkdir(parents=True, exist_ok=True)
    for path in files_of(out):
        path.touch()  # if it cannot be written, the error says why
    try:
        return _fill(JSONDatabase(work_dir=str(out)), results, spaces)
    except BaseException:
        for path in files_of(out):
            path.unlink()
        raise


def _fill(database: JSONDatabase, results: Sequence[Result], spaces: Sequence[Space]) -> list[str]:
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord

    notes = []
    for result, space in zip(results, spaces, strict=True):
        log = result.log
        module, target = space.workload.module, space.target.tvm
        workload = database.commit_workload(module)
        arguments = ArgInfo.from_prim_func(module["main"])
        times = _times(log)
        own = [index for index in times if not log.records[index].nearest]
        best = min(own, key=lambda index: times[index], default=-1)
        left_out = 0
        # Of equally fast records, TVM takes the one that was written first.
        for record in sorted(log.records, key=lambda record: record.index != best):
            if (schedule := _schedule(result, record)) is None:
                left_out += 1
                continue
            seconds = times.get(record.index, FAILED)
            _noted(schedule, Note(log.header, record))
            database.commit_tuning_record(TuningRecord(schedule.trace, workload, [seconds], target, arguments))
            if record.index == best:
                notes += _commit_for_relax(database, log, space, best, seconds)
        if left_out:
            notes.append(f"{log.path}: {left_out} trials without a measured program are left out")
    return notes


def _schedule(result: Result, record: Record) -> Schedule | None:
    """The schedule of a measured program; None if there is none. Raises SearchlabError if it fails now."""
    # A schedule that hung or crashed would do so here too.
    ended = record.failure in ("build_timeout", "crash") and not record.program
    if record.nearest or record.failure == "invalid" or ended:
        return None
    try:
        schedule = result.schedule(record.trial)
    except SearchlabError as error:
        if record.failure is None:
            raise SearchlabError(f"{result.log.path}, trial {record.index}: {error}") from None
        return None
    if why := why_not_replayed(schedule, result.space.workload):
        raise SearchlabError(f"{result.log.path}, trial {record.index} cannot be in a database of traces: {why}")
    return schedule


def _noted(schedule: Any, note: Note) -> None:
    root = schedule.get_sblock("root")
    schedule.annotate(root, NOTE, note.encoded())
    schedule.unannotate(root, NOTE)


def _commit_for_relax(database: Any, log: Log, space: Space, best: int, seconds: float) -> list[str]:
    """Add records of the trial ``best`` for each form of its workload in Relax; a sentence for each that fails."""
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord

    from .relax_forms import relax_forms, replayed

    record = log.records[best]
    trace = space.schedule(record.trial.config).trace
    notes = []
    for form in relax_forms(space.workload):
        try:
            schedule = replayed(trace, form)
        except (RuntimeError, ValueError, TypeError, LookupError) as error:
            notes.append(
                f"{log.path}: the best program is exported, but not for Relax: its trace fails, {first_line(error)}"
            )
            continue
        _noted(schedule, Note(log.header, record))
        workload, arguments = database.commit_workload(form), ArgInfo.from_prim_func(form["main"])
        target = space.target.tvm
        database.commit_tuning_record(TuningRecord(schedule.trace, workload, [seconds], target, arguments))
    return notes


def _times(log: Log) -> dict[int, float]:
    """Seconds of each trial that succeeded, by its index.

    If finalists were measured again, the winner keeps its time as a trial, and the other finalists get that time times
    their ratio to the winner at the end, since only side by side can they be compared. Any other trial gets at least
    the time of the winner: it was faster by luck.
    """
    times = {record.index: record.measurement.cost for record in log.records if record.failure is None}
    if log.final is None:
        return times
    again = {finalist.index: statistics.median(finalist.seconds) for finalist in log.final.finalists}
    winner = Result(log).best.trial.index
    least = times[winner]
    scaled = {index: least * seconds / again[winner] for index, seconds in again.items()}
    return {index: max(least, seconds) for index, seconds in times.items()} | scaled
