"""Import of other tuners' files as logs, either into a searchlab space or for analysis only.

A Kernel Tuner file lists the configs of a space, so its log is a table in the space ``parameters``. A log for analysis
keeps every record, with configs spelled as in the file. Its space is named after the format, and its fingerprint
identifies the task. Reports, figures and statistics accept it like any other log. A log in a searchlab space has that
space's fingerprint, so it can serve as a table and as a warm start; records that are not in the space are omitted.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidConfig, SearchlabError, did_you_mean
from ..files import read_bytes, write_file
from ..log.format import Header, Log, Record, computation_of, workload_name, workload_of
from ..log.read import LOG_SUFFIXES, decode_log
from ..log.writer import encode_log
from ..plugins import USER, Plugin, list_entry_points, names_from
from ..schema import UNREADABLE
from ..space import SPACES, Space
from ..target import Target, resolve_target
from ..workload import Workload, parse_workload
from . import kernel_tuner, legacy, metaschedule
from .foreign import ForeignTask, Reader, drop_repeated_configs, read_json_lines

READERS = {
    "autotvm": legacy.AUTOTVM,
    "ansor": legacy.ANSOR,
    "metaschedule": metaschedule.READER,
    kernel_tuner.T4_FORMAT: kernel_tuner.READER,
    kernel_tuner.CACHE_FORMAT: kernel_tuner.READER,
}

IMPORTED_MEASURE = {"kind": "imported"}
"""The measuring protocol in an imported log's header; how the other tuner measured is unknown."""

PROGRAM_ATTRIBUTES = ("kind", "mtriple", "mcpu", "mattr", "num-cores", "vector-width", "arch")
"""The target attributes that determine which programs exist; all others only inform MetaSchedule."""


@dataclass(frozen=True)
class ImportOptions:
    """Options for importing a file.

    Attributes:
        workload: Overrides the workload in the file.
        target: Overrides the target in the file.
        seed: The run's seed in a comparison.
        label: The run's label in a comparison.
    """

    workload: str | None = None
    space: Plugin | None = None
    target: str | Mapping[str, Any] | None = None
    seed: int = 0
    label: str = ""


@dataclass(frozen=True)
class ImportedLog:
    """A log to write.

    Attributes:
        omitted_records: The line of each omitted record, and the reason.
    """

    path: Path
    header: Header
    records: list[Record]
    omitted_records: list[tuple[int, str]] = field(default_factory=list)
    is_for_analysis: bool = False


def detect_format(path: Path) -> str:
    """Detect a file's format from its name and first line. Raises SearchlabError if the format is unknown."""
    if path.is_dir() or path.name in (metaschedule.WORKLOADS_FILE, metaschedule.RECORDS_FILE):
        return "metaschedule"
    if kernel_tuner_format := kernel_tuner.detect_format(path):
        return kernel_tuner_format
    first_line = next(read_json_lines(path))
    line_title, formats_text = f"{path}, line {first_line.number}", ", ".join(READERS)
    try:
        fields = msgspec.json.decode(first_line.content)
    except UNREADABLE as error:
        raise SearchlabError(
            f"{line_title} is not JSON, which all known formats ({formats_text}) use: {error}"
        ) from None
    if isinstance(fields, dict) and isinstance(fields.get("v"), str):
        return "ansor"
    if isinstance(fields, dict) and ("input" in fields or "v" in fields):
        return "autotvm"
    raise SearchlabError(f"{line_title} does not look like a record of {formats_text}; if it is one, pass --format")


def import_file(
    path: Path, out_path: Path, options: ImportOptions, format: str | None = None
) -> tuple[list[ImportedLog], list[str]]:
    """Write the tasks in another tuner's file as logs.

    Args:
        path: The file, or the directory of a MetaSchedule database.
        out_path: The log to write for a single task (``*.jsonl``, ``*.jsonl.gz`` or ``*.parquet``), or a directory in
            which each task gets a log.
        options: How to import the file.
        format: One of :data:`READERS`; detected by default.

    Returns:
        The logs, and a sentence for each omitted part of the file.

    Raises:
        SearchlabError: If no task can be imported. In this case, nothing is written.
    """
    format = format or detect_format(path)
    if format not in READERS:
        raise SearchlabError(f"unknown format {format!r}{did_you_mean(format, READERS)}")
    reader = READERS[format]
    with names_from(path):
        tasks = [task if task.original_header else drop_repeated_configs(task) for task in reader.read(path)]
    is_single_file = out_path.name.endswith(LOG_SUFFIXES)
    if is_single_file and len(tasks) > 1:
        task_names = ", ".join(task.name for task in tasks[:4]) + (", ..." if len(tasks) > 4 else "")
        raise SearchlabError(f"{path} contains {len(tasks)} tasks ({task_names}); pass a directory as --out")
    logs: list[ImportedLog] = []
    omissions: list[str] = []
    for number, task in enumerate(tasks):
        try:
            with names_from(path):
                log_path = out_path if is_single_file else out_path / f"{format}-{number}.jsonl"
                logs.append(_import_task(reader, task, log_path, options))
        except SearchlabError as error:
            if len(tasks) == 1:
                raise
            omissions.append(f"{task.name}: {error}")
    if not logs:
        raise SearchlabError(f"no task in {path} can be imported: {'; '.join(omissions)}")
    log_bytes_by_path = {log.path: encode_log(log.path, Log(log.path, log.header, tuple(log.records))) for log in logs}
    for log_path, log_bytes in log_bytes_by_path.items():  # an import that was interrupted can be repeated
        try:
            decode_log(log_path, gzip.decompress(log_bytes) if log_path.suffix == ".gz" else log_bytes)
        except SearchlabError as error:
            raise SearchlabError(f"{path} cannot be imported: its log could not be read again: {error}") from None
        if log_path.exists() and read_bytes(log_path) != log_bytes:
            raise SearchlabError(f"{log_path} already exists; choose a different --out, or remove it")
    for log_path, log_bytes in log_bytes_by_path.items():
        write_file(log_path, log_bytes, durable=True)
    return logs, omissions + [omission for task in tasks for omission in task.omissions]


def _import_task(reader: Reader, task: ForeignTask, path: Path, options: ImportOptions) -> ImportedLog:
    plugin = task.space if options.space is None else _add_options_in_file(options.space, task)
    records = [trial.record for trial in task.trials]
    if task.original_header is not None and plugin is None:
        return _restore_log(task, task.original_header, path, options)
    workload = _choose_workload(task, options)
    header_fields: dict[str, Any] = {
        "workload": str(workload),
        "policy": Plugin(task.format),
        "features": "",
        "seed": options.seed,
        "batch": 1,
        "measure": IMPORTED_MEASURE
        if task.statistic == "median"
        else {**IMPORTED_MEASURE, "statistic": task.statistic},
        "label": options.label,
        "versions": task.versions,
        "host": task.host,
        "created_at": min((record.recorded_at for record in records if record.recorded_at > 0), default=0.0),
    }
    if plugin is None:
        target = task.target if options.target is None else resolve_target(options.target).to_json()
        space_name = Plugin(task.format, {"task": task.name})
        header = Header(space=space_name, fingerprint=task.fingerprint, target=target, **header_fields)
        return ImportedLog(path, header, _renumber(records), is_for_analysis=True)

    with nullcontext() if options.space is None else names_from(USER):
        space = SPACES.make(plugin, workload, _choose_target(task, options))
    records, omitted_records = _translate_records(reader, task, space)
    if not records:
        line_number, reason = omitted_records[0]
        raise SearchlabError(
            f"none of the {len(omitted_records)} records is a config of {plugin.name} for {workload} on this target "
            f"(line {line_number}: {reason}); omit --space if you only want to analyse them"
        )
    header = Header(
        space=plugin.to_spec(),
        space_size=space.size() if plugin is task.space and not task.is_partial else None,
        fingerprint=space.fingerprint,
        target=space.target.to_json(),
        **header_fields,
    )
    return ImportedLog(path, header, _renumber(records), omitted_records)


def _restore_log(task: ForeignTask, header: Header, path: Path, options: ImportOptions) -> ImportedLog:
    """Return the log of searchlab that another tuner's file contains, with its original ``header``."""
    if options.target is not None:
        raise SearchlabError(f"{task.name} comes from a searchlab log, which records its target; omit --target")
    computation_of(header)  # raises an error if the header is damaged; nothing that it names is imported
    if options.workload is not None:
        _check_same_workload(header, parse_workload(options.workload), task.name)
    if options.label:
        header = msgspec.structs.replace(header, label=options.label)
    records = sorted((trial.record for trial in task.trials), key=lambda record: record.index)
    return ImportedLog(path, header, _renumber(records))


def _translate_records(reader: Reader, task: ForeignTask, space: Space) -> tuple[list[Record], list[tuple[int, str]]]:
    """Return the records whose configs are in ``space``, and the line of each other one with the reason."""
    records: list[Record] = []
    omitted_records: list[tuple[int, str]] = []
    for trial in task.trials:
        try:
            config = reader.find_config(space, task, trial).to_json()
        except InvalidConfig as error:
            omitted_records.append((trial.line_number, str(error)))
        else:
            records.append(msgspec.structs.replace(trial.record, config=config))
    return records, omitted_records


def _add_options_in_file(space: Plugin, task: ForeignTask) -> Plugin:
    """Return ``space`` with the options in the file: the transform steps, or the template if it is installed."""
    if task.steps_space is not None and space == Plugin(task.steps_space.name):
        return task.steps_space
    installed_templates = {point.name for point in list_entry_points("searchlab.templates")}
    if "template" in space.options or task.template_name not in installed_templates:
        return space
    if "template" not in SPACES.options_of(SPACES.resolve(space)[1]):
        return space
    return Plugin(space.name, {**space.options, "template": task.template_name})


def _choose_workload(task: ForeignTask, options: ImportOptions) -> Workload:
    if task.original_header is not None and options.workload is None:
        return workload_of(task.original_header, Path(task.name))
    if options.workload is None:
        if task.workload is None:
            raise SearchlabError(task.unknown_reason)
        return parse_workload(task.workload)
    with names_from(USER):
        workload = parse_workload(options.workload)
    if task.original_header is not None:
        _check_same_workload(task.original_header, workload, task.name)
    elif task.workload is not None and parse_workload(task.workload) != workload and task.space is None:
        raise SearchlabError(f"{task.name} is {task.workload}, not {workload}; omit --workload")
    return workload


def _check_same_workload(header: Header, workload: Workload, name: str) -> None:
    """Raise SearchlabError if the log with this ``header`` is not for the workload ``workload``."""
    if workload_name(header) != str(workload):
        raise SearchlabError(f"{name} is {header.workload}, not {workload}; omit --workload")


def _choose_target(task: ForeignTask, options: ImportOptions) -> Target:
    """Return the space's target: the user's, or else the file's, reduced to the attributes that affect programs."""
    if options.target is not None:
        return resolve_target(options.target)
    try:
        return resolve_target({name: value for name, value in task.target.items() if name in PROGRAM_ATTRIBUTES})
    except SearchlabError as error:
        raise SearchlabError(f"the target of {task.name} cannot be used here ({error}); pass --target") from None


def _renumber(records: list[Record]) -> list[Record]:
    """Number ``records`` from 0. Batches are kept only if all records have one and they are ascending."""
    batch_numbers = [record.batch_number for record in records if record.batch_number is not None]
    keeps_batches = len(batch_numbers) == len(records) and batch_numbers == sorted(batch_numbers)
    return [
        msgspec.structs.replace(record, index=index, batch_number=record.batch_number if keeps_batches else None)
        for index, record in enumerate(records)
    ]
