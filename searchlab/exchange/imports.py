"""Other tuners' files as logs: in a space of searchlab if that is requested and possible, else for analysis.

A file of Kernel Tuner lists the configs of a space: its log is in the space ``parameters``, and is a table. A log for
analysis keeps every record, with configs spelled as in the file, in a space that is named after the format and has a
fingerprint of the task: reports, figures and statistics accept it like any other. A log in a space of searchlab has the
fingerprint of that space, so it can serve as a table and as a warm start; records that are not in the space are left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidConfig, SearchlabError, did_you_mean
from ..log.format import LOGS, Header, Record
from ..log.writer import LogWriter, pack
from ..plugins import Plugin
from ..schema import UNREADABLE
from ..space import SPACES
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from . import kernel_tuner, legacy, metaschedule
from .foreign import ForeignTask, Reader, lines

READERS = {
    "autotvm": legacy.AUTOTVM,
    "ansor": legacy.ANSOR,
    "metaschedule": metaschedule.READER,
    kernel_tuner.T4: kernel_tuner.READER,
    kernel_tuner.CACHE: kernel_tuner.READER,
}

IMPORTED = {"kind": "imported"}
"""The protocol in the header of an imported log: how the other tuner measured is not recorded."""

NAMED = ("kind", "mtriple", "mcpu", "mattr", "num-cores", "vector-width", "arch")
"""The attributes of a target that decide which programs there are; the others only inform MetaSchedule."""


@dataclass(frozen=True)
class As:
    """How to import a file."""

    workload: str | None = None  # instead of that in the file
    space: Plugin | None = None
    target: str | Mapping[str, Any] | None = None  # instead of that in the file
    seed: int = 0  # of the runs in a comparison, as is the label
    label: str = ""


@dataclass(frozen=True)
class Imported:
    """A log to write."""

    path: Path
    header: Header
    records: list[Record]
    left_out: list[tuple[int, str]] = field(default_factory=list)  # lines of the records that are left out, and why
    analysis: bool = False


def detect(path: Path) -> str:
    """Return the format of a file, from its name and first line. Raises SearchlabError if it is unknown."""
    if path.is_dir() or path.name in (metaschedule.WORKLOADS, metaschedule.RECORDS):
        return "metaschedule"
    if looks_like := kernel_tuner.format_of(path):
        return looks_like
    first = next(lines(path))
    where, known = f"{path}, line {first.number}", ", ".join(READERS)
    try:
        record = msgspec.json.decode(first.text)
    except UNREADABLE as error:
        raise SearchlabError(f"{where} is not JSON, as records of {known} are: {error}") from None
    if isinstance(record, dict) and isinstance(record.get("v"), str):
        return "ansor"
    if isinstance(record, dict) and ("input" in record or "v" in record):
        return "autotvm"
    raise SearchlabError(f"{where} is not a record of {known}; name the format if it is one: --format")


def import_file(path: Path, out: Path, wanted: As, format: str | None = None) -> tuple[list[Imported], list[str]]:
    """Write the tasks in another tuner's file as logs.

    Args:
        path: The file, or the directory of a MetaSchedule database.
        out: The log of the only task, ``*.jsonl``, ``*.jsonl.gz`` or ``*.packed``; or a directory for a log of
            each task.
        wanted: How to import it.
        format: One of :data:`READERS`; by default it is detected.

    Returns:
        The logs, and a sentence for each part of the file that is left out.

    Raises:
        SearchlabError: If no task can be imported. Nothing is written then.
    """
    format = format or detect(path)
    if format not in READERS:
        raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, READERS)}")
    reader = READERS[format]
    tasks = reader.read(path)
    single = out.name.endswith(LOGS)
    if single and len(tasks) > 1:
        names = ", ".join(task.name for task in tasks[:4]) + (", ..." if len(tasks) > 4 else "")
        raise SearchlabError(f"{path} holds {len(tasks)} tasks ({names}); give a directory as --out")
    logs: list[Imported] = []
    notes: list[str] = []
    for number, task in enumerate(tasks):
        try:
            logs.append(_imported(reader, task, out if single else out / f"{format}-{number}.jsonl", wanted))
        except SearchlabError as error:
            if single or len(tasks) == 1:
                raise
            notes.append(f"{task.name}: {error}")
    if not logs:
        raise SearchlabError(f"no task of {path} can be imported: {'; '.join(notes)}")
    for one in logs:
        if one.path.exists():
            raise SearchlabError(f"{one.path} already exists; choose another --out, or remove it")
    for one in logs:
        log = one.path.with_suffix("" if one.path.suffix == ".gz" else ".jsonl")  # as long as it is not compressed
        writer = LogWriter(log, one.header, durable=False)
        for record in one.records:
            writer.append(record)
        writer.close()
        if log != one.path:
            pack(log, one.path)
    return logs, notes + [what for task in tasks for what in task.left_out]


def _imported(reader: Reader, task: ForeignTask, path: Path, wanted: As) -> Imported:
    workload = _workload(task, wanted)
    plugin = wanted.space or task.space
    records = [trial.record for trial in task.trials]
    if task.native is not None and plugin is None:
        if wanted.target is not None:
            raise SearchlabError(f"{task.name} comes from a log of searchlab, which has its target; leave out --target")
        header = msgspec.structs.replace(task.native, **({"label": wanted.label} if wanted.label else {}))
        return Imported(path, header, _numbered(sorted(records, key=lambda record: record.index)))
    common: dict[str, Any] = {
        "workload": str(workload), "policy": Plugin(task.format), "features": "", "seed": wanted.seed, "batch": 1,
        "measure": IMPORTED if task.statistic == "median" else {**IMPORTED, "statistic": task.statistic},
        "label": wanted.label, "versions": task.versions, "host": task.host,
        "created": min((record.time for record in records if record.time > 0), default=0.0),
    }  # fmt: skip
    if plugin is None:
        target = task.target if wanted.target is None else resolve_target(wanted.target).to_json()
        header = Header(
            space=Plugin(task.format, {"task": task.name}), fingerprint=task.fingerprint, target=target, **common
        )
        return Imported(path, header, _numbered(records), analysis=True)

    space = SPACES.make(plugin, workload, _target(task, wanted))
    records = []
    left_out: list[tuple[int, str]] = []
    for trial in task.trials:
        try:
            config = reader.config_in(space, task, trial).to_json()
        except InvalidConfig as error:
            left_out.append((trial.line, str(error)))
        else:
            records.append(msgspec.structs.replace(trial.record, config=config))
    if not records:
        line, why = left_out[0]
        raise SearchlabError(
            f"none of the {len(left_out)} records is a config of {plugin.name} for {workload} on this target; "
            f"line {line}: {why}. Without --space they are imported for analysis"
        )
    header = Header(
        space=plugin.spelled(), space_size=space.size() if plugin is task.space and not task.partial else None,
        fingerprint=space.fingerprint, target=space.target.to_json(), **common,
    )  # fmt: skip
    return Imported(path, header, _numbered(records), left_out)


def _workload(task: ForeignTask, wanted: As) -> Workload:
    known = task.native.workload if task.native is not None else task.workload
    if wanted.workload is None:
        if known is None:
            raise SearchlabError(task.why)
        return parse_workload(known)
    given = parse_workload(wanted.workload)
    if known is not None and parse_workload(known) != given and task.space is None:
        raise SearchlabError(f"{task.name} is {known}, not {given}; leave out --workload")
    return given


def _target(task: ForeignTask, wanted: As) -> Target:
    """Return the target of the space: that of the user, else the attributes of the file's that decide on programs."""
    if wanted.target is not None:
        return resolve_target(wanted.target)
    try:
        return resolve_target({name: value for name, value in task.target.items() if name in NAMED})
    except SearchlabError as error:
        raise SearchlabError(f"the target of {task.name} cannot be used here ({error}); give --target") from None


def _numbered(records: list[Record]) -> list[Record]:
    """Return ``records`` with indices from 0. Batches are kept if all records have one, and in ascending order."""
    batches = [record.batch for record in records if record.batch is not None]
    kept = len(batches) == len(records) and batches == sorted(batches)
    return [
        msgspec.structs.replace(record, index=index, batch=record.batch if kept else None)
        for index, record in enumerate(records)
    ]
