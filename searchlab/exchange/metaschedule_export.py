"""Logs as one of MetaSchedule's JSON databases, written by TVM itself.

The best of each log is in it once more for every form in which Relax has its workload, so that
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
    """Write ``logs`` to a new database in the directory ``out``; what is not in it, a sentence a log.

    A record has one time, the median of its repeats (they are in its :class:`~.metaschedule.Note`): TVM goes by the
    mean. So ``compile_tir`` gives the program that is the best of the log. Schedules every config, which imports the
    log's plug-in and TVM. Raises SearchlabError if there is a database already, or a space is not there any more.
    """
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    for path in files_of(out):
        if path.exists():
            raise SearchlabError(f"{path} is there already; choose another directory as --out")
    results = [Result(log) for log in logs]
    spaces = [result.space for result in results]
    out.mkdir(parents=True, exist_ok=True)
    for path in files_of(out):
        path.touch()  # where it cannot be written, this says why
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
        # What is equally fast is found in the order it was written in.
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
            notes.append(f"{log.path}: {left_out} trials of which no program was measured are left out")
    return notes


def _schedule(result: Result, record: Record) -> Schedule | None:
    """The schedule of what was measured; None where that is no program. Raises SearchlabError if it fails now."""
    # What hung or crashed before there was a program would do so here too.
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
    """The trial ``best`` as records of the forms that Relax has the workload in; why it is not, a sentence a form."""
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
                f"{log.path}: the best program is there, but not for Relax, as its trace fails: {first_line(error)}"
            )
            continue
        _noted(schedule, Note(log.header, record))
        workload, arguments = database.commit_workload(form), ArgInfo.from_prim_func(form["main"])
        target = space.target.tvm
        database.commit_tuning_record(TuningRecord(schedule.trace, workload, [seconds], target, arguments))
    return notes


def _times(log: Log) -> dict[int, float]:
    """Seconds of each trial that succeeded, by its index.

    Where the fastest were measured again, each of them has the time that the winner had as a trial, times what it took
    in proportion to the winner then: only side by side can they be told apart. What was as fast as them by luck, as a
    copy of a finalist may have been, has no less than the winner.
    """
    times = {record.index: record.measurement.cost for record in log.records if record.failure is None}
    if log.final is None:
        return times
    again = {one.index: statistics.median(one.seconds) for one in log.final.finalists}
    winner = Result(log).best.trial.index
    least = times[winner]
    scaled = {index: least * seconds / again[winner] for index, seconds in again.items()}
    return {index: max(least, seconds) for index, seconds in times.items()} | scaled
