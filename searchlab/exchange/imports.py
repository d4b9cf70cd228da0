"""Other tuners' files as logs: in a space of ours where that is asked for and possible, else for analysis.

A file of Kernel Tuner lists the configs of a space itself: its log is in the space ``parameters``, and is a table.
A log for analysis keeps every record, its configs spelled as in the file, in a space that is named after the format and
has a fingerprint of the task there: reports, figures and statistics take it as any other. A log in a space of ours has
its fingerprint, and so serves as a table and to start a search from; records that are no config of it are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec

from ..errors import InvalidConfig, SearchlabError, did_you_mean
from ..log.format import Header, Record
from ..log.writer import LogWriter, pack
from ..plugins import Plugin
from ..space import Config
from ..workload import Workload, parse_workload
from .foreign import NAMED, ForeignTask, ForeignTrial, Reader, lines
from .kernel_tuner_read import format_of as kernel_tuner_format
from .metaschedule import RECORDS, WORKLOADS

_KERNEL_TUNER = (
    "measurements other than the time; the code of the kernel; and the restrictions: the configs that the file lists "
    "are the space, whatever restrictions left out the others"
)
LOST = {
    "autotvm": "the index of a config, the hash of its template, the tuner and its batches; one time of AutoTVM's, of "
    "building and running together, counts as running",
    "ansor": "the steps as a schedule, each being a word here; hardware parameters, layout rewrites and the target of "
    "the host; one time of Ansor's, of building and running together, counts as running",
    "metaschedule": "what MetaSchedule does not record: the time of day, what building and running took, and how a "
    "program failed, which counts as run_error",
    "kernel-tuner": _KERNEL_TUNER,
    "kernel-tuner-cache": _KERNEL_TUNER,
}
"""The parts of each format's records that a log does not hold."""

FORMATS = tuple(LOST)
_READERS = {"kernel-tuner": "kernel_tuner_read", "kernel-tuner-cache": "kernel_tuner_read"}
"""The modules that do not have the name of their format."""

IMPORTED = {"kind": "imported"}
"""The protocol in the header of a log that was imported: how the other tuner measured is not recorded."""


@dataclass(frozen=True)
class As:
    """How to take a file. workload, target: instead of those in the file. seed, label: of the runs in a comparison."""

    workload: str | None = None
    space: Plugin | None = None
    target: str | Mapping[str, Any] | None = None
    seed: int = 0
    label: str = ""


@dataclass(frozen=True)
class Imported:
    """A log to write. left_out: the line and the reason of each record that is not in it."""

    path: Path
    header: Header
    records: list[Record]
    left_out: list[tuple[int, str]]
    analysis: bool


def detect(path: Path) -> str:
    """The format of ``path``, from its name and first line. Raises SearchlabError where it is none that is known."""
    if path.is_dir() or path.name in (WORKLOADS, RECORDS):
        return "metaschedule"
    if looks_like := kernel_tuner_format(path):
        return looks_like
    first = next(lines(path))
    where = f"{path}, line {first.number}"
    try:
        record = msgspec.json.decode(first.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SearchlabError(f"{where} is not JSON, as records of {_known()} are: {error}") from None
    if isinstance(record, dict) and isinstance(record.get("v"), str):
        return "ansor"
    if isinstance(record, dict) and ("input" in record or "v" in record):
        return "autotvm"
    raise SearchlabError(f"{where} is not a record of {_known()}; name the format if it is one: --format")


def _known() -> str:
    return ", ".join(FORMATS)


def import_file(path: Path, out: Path, wanted: As, format: str | None = None) -> tuple[list[Imported], list[str]]:
    """Write the tasks in the file at ``path`` as logs: the only one as ``out`` (``*.jsonl``, ``*.jsonl.gz``), or all of
    them in the directory that it is. Returns them, and what is left out. Raises SearchlabError; then nothing is
    written.
    """
    format = format or detect(path)
    if format not in FORMATS:
        raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, FORMATS)}")
    reader = cast(Reader, import_module(f".{_READERS.get(format, format)}", __package__))
    tasks = reader.read(path)
    single = out.name.endswith((".jsonl", ".jsonl.gz"))
    if single and len(tasks) > 1:
        raise SearchlabError(f"{path} holds {len(tasks)} tasks ({_names(tasks)}); give a directory as --out")
    logs: list[Imported] = []
    notes: list[str] = []
    for number, task in enumerate(tasks):
        try:
            to = out if single else out / f"{format}-{number}.jsonl"
            logs.append(_imported(reader, task, to, wanted))
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
        log = one.path.with_suffix("") if one.path.suffix == ".gz" else one.path
        writer = LogWriter(log, one.header, durable=False)
        for record in one.records:
            writer.append(record)
        writer.close()
        if log != one.path:
            pack(log, one.path)
    return logs, notes + [what for task in tasks for what in task.left_out]


def _names(tasks: list[ForeignTask]) -> str:
    return ", ".join(task.name for task in tasks[:4]) + (", ..." if len(tasks) > 4 else "")


def _imported(reader: Reader, task: ForeignTask, path: Path, wanted: As) -> Imported:
    workload = _workload(task, wanted)
    plugin = wanted.space or task.space
    if task.native is not None and plugin is None:
        if wanted.target is not None:
            raise SearchlabError(f"{task.name} is of a log of searchlab's, which has its target; leave out --target")
        kept = [trial.record for trial in task.trials if trial.record is not None]
        kept.sort(key=lambda record: record.index)
        changes = {"label": wanted.label} if wanted.label else {}
        return Imported(path, msgspec.structs.replace(task.native, **changes), _numbered(kept), [], analysis=False)
    begun = min((trial.time for trial in task.trials if trial.time > 0), default=0.0)
    common: dict[str, Any] = {
        "workload": str(workload), "policy": Plugin(task.format), "features": "", "seed": wanted.seed, "batch": 1,
        "measure": IMPORTED if task.statistic == "median" else {**IMPORTED, "statistic": task.statistic},
        "label": wanted.label, "versions": task.versions, "host": task.host, "created": begun,
    }  # fmt: skip
    if plugin is None:
        target = task.target if wanted.target is None else _target(task, wanted).to_json()
        header = Header(
            space=Plugin(task.format, {"task": task.name}), fingerprint=task.fingerprint, target=target, **common
        )
        return Imported(path, header, _numbered([_record(task, t, t.config) for t in task.trials]), [], analysis=True)

    from ..space import SPACES

    space = SPACES.make(plugin, workload, _target(task, wanted))
    records: list[Record] = []
    left_out: list[tuple[int, str]] = []
    for trial in task.trials:
        try:
            config = reader.config_in(space, task, trial)
        except InvalidConfig as error:
            left_out.append((trial.line, str(error)))
        else:
            records.append(_record(task, trial, config.to_json()))
    if not records:
        line, why = left_out[0]
        raise SearchlabError(
            f"none of the {len(left_out)} records is a config of {plugin.name} for {workload} on this target; "
            f"line {line}: {why}. Without --space they are imported for analysis"
        )
    header = Header(
        space=plugin.spelled(),
        space_size=space.size() if plugin is task.space else None,
        fingerprint=space.fingerprint,
        target=space.target.to_json(),
        **common,
    )
    return Imported(path, header, _numbered(records), left_out, analysis=False)


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


def _target(task: ForeignTask, wanted: As) -> Any:
    """The target of the space: what was asked for, else as much of the file's as decides which programs there are."""
    from ..target import resolve_target

    if wanted.target is not None:
        return resolve_target(wanted.target)
    try:
        return resolve_target({name: value for name, value in task.target.items() if name in NAMED})
    except SearchlabError as error:
        raise SearchlabError(f"the target of {task.name} cannot be used here ({error}); give --target") from None


def _record(task: ForeignTask, trial: ForeignTrial, config: Mapping[str, Any]) -> Record:
    if trial.record is not None:
        return msgspec.structs.replace(trial.record, config=Config(config).to_json())
    return Record(
        index=0, config=dict(config), seconds=trial.seconds, failure=trial.failure, message=trial.message,
        build_seconds=trial.build_seconds, run_seconds=trial.run_seconds, propose_seconds=trial.propose_seconds,
        train_seconds=trial.train_seconds, time=trial.time, statistic=task.statistic,
    )  # fmt: skip


def _numbered(records: list[Record]) -> list[Record]:
    """``records`` with indices from 0. Batches are kept unless the file lacks some or has them in another order."""
    batches = [record.batch for record in records if record.batch is not None]
    kept = len(batches) == len(records) and batches == sorted(batches)
    return [
        msgspec.structs.replace(record, index=index, batch=record.batch if kept else None)
        for index, record in enumerate(records)
    ]
