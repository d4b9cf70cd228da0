"""MetaSchedule's JSON databases: directories with one file of workloads and one of tuning records.

A tuning record contains a trace, times, a target and the argument shapes. searchlab adds a :class:`TrialNote` to the
trace, as an annotation that the next instruction removes. The program is therefore unchanged, TVM reads the record as
usual, and the note survives when a database is copied, merged or pruned.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidConfig, SearchlabError, first_line
from ..log.format import Header, Record, parse_minor_version
from ..metaschedule import TracedSpace
from ..schema import UNREADABLE, drop_unknown_keys
from ..space import Config, Space
from ..survival import find_crash
from ..workload import ACCUMULATED_IN, Workload, find_convolutions, gemm
from .foreign import WORKLOAD_HINT, ForeignLine, ForeignTask, ForeignTrial, Reader, read_lines, to_config_value

WORKLOADS_FILE, RECORDS_FILE = "database_workload.json", "database_tuning_record.json"
TRIAL_ANNOTATION = "searchlab.trial"

FAILED_SECONDS = 1e10
"""The time that MetaSchedule writes for a failed program, in seconds."""

Instruction = tuple[str, list[Any], list[Any], list[Any]]
"""The kind, inputs, attributes and outputs."""

Trace = tuple[list[Instruction], list[tuple[int, Any]]]
"""The instructions, and the sampled decisions by position."""


class TrialNote(msgspec.Struct, frozen=True):
    """A log's header and one of its records, which a MetaSchedule database can store only in a trace."""

    header: Header
    record: Record

    def encode(self) -> str:
        """Return the annotation's value, in base64 because TVM does not escape quotes in a trace's JSON."""
        return base64.b64encode(msgspec.json.encode(self)).decode()


class _DatabaseWorkload(msgspec.Struct, array_like=True):
    structural_hash: str
    module: str  # in base64: eight bytes for the length, then the graph of nodes in JSON


class _TuningRecord(msgspec.Struct, array_like=True):
    trace: Trace
    run_secs: list[Any] | None = None
    target: dict[str, Any] | None = None
    args_info: list[tuple[str, str, list[int]]] | None = None


def get_database_paths(path: Path) -> tuple[Path, Path]:
    """Return the workload file and the record file of a database, given its directory or one of its files."""
    database_dir = path if path.is_dir() else path.parent
    return database_dir / WORKLOADS_FILE, database_dir / RECORDS_FILE


def read(path: Path) -> list[ForeignTask]:
    """Return the tasks in the database at ``path``. Raises SearchlabError, which names the line."""
    workloads_path, records_path = get_database_paths(path)
    decoder = msgspec.json.Decoder(_DatabaseWorkload)
    workloads = [line.decode(decoder) for line in read_lines(workloads_path)]
    tasks: dict[tuple[int | None, bytes], ForeignTask] = {}
    seen_trials: set[tuple[bytes, int]] = set()
    record_decoder = msgspec.json.Decoder(tuple[int, _TuningRecord])
    for line in read_lines(records_path):
        index, tuning_record = line.decode(record_decoder)
        if not 0 <= index < len(workloads):
            line.fail(f"it refers to workload {index}, but {workloads_path} contains only {len(workloads)} workloads")
        for position, _ in tuning_record.trace[1]:
            if not 0 <= position < len(tuning_record.trace[0]):
                line.fail(
                    f"its trace has a decision for instruction {position}, but contains only "
                    f"{len(tuning_record.trace[0])} instructions"
                )
        note = _read_note(line, tuning_record.trace)
        identity = note.header if note else tuning_record.target
        task_key = (None if note else index, msgspec.json.encode(identity, order="sorted"))
        if note:  # a run's best trial has an additional record for each form that its workload has in Relax
            trial_key = (task_key[1], note.record.index)
            if trial_key in seen_trials:
                continue
            seen_trials.add(trial_key)
        if task_key not in tasks:
            tasks[task_key] = _make_task(line, workloads[index], tuning_record, note)
        tasks[task_key].trials.append(_make_trial(line, tuning_record, note))
    return list(tasks.values())


def _make_task(
    line: ForeignLine, workload: _DatabaseWorkload, tuning_record: _TuningRecord, note: TrialNote | None
) -> ForeignTask:
    target = line.parse_target(tuning_record.target) if tuning_record.target is not None else {}
    task_name = f"structural hash {workload.structural_hash}"
    recognised_workload = None if note else _recognise(workload.structural_hash, tuning_record.args_info or [])
    problem = f"no GEMM or conv2d known to searchlab has the {task_name}; {WORKLOAD_HINT}"
    return ForeignTask(
        format="metaschedule",
        name=task_name,
        workload=recognised_workload,
        unknown_reason="" if recognised_workload else problem,
        target=target,
        trials=[],
        workload_data=workload.module,
        original_header=note.header if note else None,
    )


def _make_trial(line: ForeignLine, tuning_record: _TuningRecord, note: TrialNote | None) -> ForeignTrial:
    if note is not None:
        return ForeignTrial(line.number, note.record, tuning_record.trace)
    config: dict[str, Any] = {"trace": _digest_sketch(tuning_record.trace)}
    for position, decision in tuning_record.trace[1]:
        config[f"{tuning_record.trace[0][position][0]}_{position}"] = to_config_value(decision)
    times = tuning_record.run_secs or []
    if not times or any(isinstance(seconds, int | float) and seconds >= FAILED_SECONDS for seconds in times):
        message = "MetaSchedule does not record the reason for a failure"
        record = Record(index=0, config=config, failure="run_error", message=message)
    else:
        record = Record(index=0, config=config, seconds=line.parse_times(times))
    return ForeignTrial(line.number, record, tuning_record.trace)


def _digest_sketch(trace: Trace) -> str:
    """Return a digest that identifies a trace's sketch: the instructions before postprocessing, without decisions."""
    kinds = [instruction[0] for instruction in trace[0]]
    sketch_length = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
    return hashlib.sha256(msgspec.json.encode(trace[0][:sketch_length])).hexdigest()[:12]


def _read_note(line: ForeignLine, trace: Trace) -> TrialNote | None:
    for kind, inputs, attributes, _ in trace[0]:
        if kind == "Annotate" and attributes == [TRIAL_ANNOTATION] and len(inputs) == 2:
            try:
                note_bytes = base64.b64decode(str(inputs[1]).strip('"'), validate=True)
                fields, _ = drop_unknown_keys(msgspec.json.decode(note_bytes), TrialNote)
                note = msgspec.convert(fields, TrialNote)
            except (*UNREADABLE, ValueError) as error:
                line.fail(f"its annotation {TRIAL_ANNOTATION!r} was not written by this version of searchlab: {error}")
            if parse_minor_version(note.header.format_version) is None:
                line.fail(
                    f"its log format is {note.header.format_version}; this version of searchlab reads formats 1.x"
                )
            return note
    return None


# --- recognising workloads ----------------------------------------------------------------------------


def _recognise(structural_hash: str, arguments: Sequence[tuple[str, str, list[int]]]) -> Workload | None:
    """Return the GEMM or conv2d with these arguments whose module has this hash; no file contents are passed to TVM."""
    from tvm.s_tir.meta_schedule.database import Workload as TvmWorkload

    dtypes, shapes = [dtype for _, dtype, _ in arguments], [shape for _, _, shape in arguments]
    for candidate in _generate_candidates(dtypes, shapes):
        with suppress(TypeError, ValueError, RuntimeError):  # sizes too large for TVM
            if str(TvmWorkload(candidate.module).as_json()[0]) == structural_hash:
                return candidate
    return None


def _generate_candidates(dtypes: list[str], shapes: list[list[int]]) -> Iterator[Workload]:
    """Yield every workload whose arguments have these shapes, common ones first."""
    if not 3 <= len(shapes) <= 4 or dtypes[0] not in ACCUMULATED_IN:
        return
    has_bias = len(shapes) == 4
    first_shape, second_shape, output_shape = shapes[0], shapes[1], shapes[-1]
    with suppress(SearchlabError):  # sizes below 1
        if [len(first_shape), len(second_shape), len(output_shape)] == [2, 2, 2]:
            for relu in (False, True):
                yield gemm(first_shape[0], second_shape[1], first_shape[1], dtypes[0], bias=has_bias, relu=relu)
        elif [len(first_shape), len(second_shape), len(output_shape)] == [4, 4, 4]:
            for relu in (False, True):
                yield from find_convolutions(
                    first_shape, second_shape, output_shape, dtypes[0], bias=has_bias, relu=relu
                )


# --- finding configs ----------------------------------------------------------------------------------


def find_config(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    """Return the config with a trace's decisions. Raises InvalidConfig if its program is not the measured one.

    The instructions are applied to searchlab's own module, whose blocks may have different names.
    """
    if not isinstance(space, TracedSpace):
        raise SearchlabError(
            "a MetaSchedule record is a trace of sampled decisions; import it into a space of such traces, such as "
            "sketch, or omit --space if you only want to analyse it"
        )
    if crash := find_crash(lambda: _rebuild_config(space, task, trial)):
        raise InvalidConfig(f"its trace cannot be applied by TVM: {crash}")
    return _rebuild_config(space, task, trial)


def _rebuild_config(space: TracedSpace, task: ForeignTask, trial: ForeignTrial) -> Config:
    assert isinstance(space, Space)
    from tvm.s_tir import Schedule
    from tvm.s_tir import Trace as TvmTrace
    from tvm.s_tir.meta_schedule.database import Workload as TvmWorkload
    from tvm_ffi import structural_equal

    module = space.workload.module
    own_names = _read_block_names(str(TvmWorkload(module).as_json()[1]))
    recorded_names = _read_block_names(task.workload_data)
    are_alike = len(recorded_names) == len(own_names)
    own_names_by_recorded_name = dict(zip(recorded_names, own_names, strict=True)) if are_alike else {}
    instructions = [
        [kind, inputs, [own_names_by_recorded_name.get(attributes[0], attributes[0]), *attributes[1:]], outputs]
        if kind == "GetSBlock" and attributes and isinstance(attributes[0], str)
        else [kind, inputs, attributes, outputs]
        for kind, inputs, attributes, outputs in trial.config_data[0]
    ]
    schedule = Schedule(module, seed=1, error_render_level="fast")  # the seed is for samples without a decision
    try:
        TvmTrace.apply_json_to_schedule([instructions, [list(pair) for pair in trial.config_data[1]]], schedule)
    except (RuntimeError, ValueError, TypeError, LookupError) as error:
        raise InvalidConfig(f"its trace cannot be applied: {first_line(error)}") from None
    config = space.config_of(schedule)
    if not structural_equal(space.schedule(config).mod, schedule.mod):
        raise InvalidConfig("the program that the space builds from its decisions differs from the measured program")
    return config


def _read_block_names(module: str) -> list[str]:
    """Return a serialised module's block names, in order, or none if it is damaged. It is only parsed as JSON."""
    try:
        nodes = msgspec.json.decode(base64.b64decode(module, validate=True)[8:])["nodes"]
        return [str(nodes[node["data"]["name_hint"]]["data"]) for node in nodes if node["type"].endswith(".SBlock")]
    except (binascii.Error, msgspec.DecodeError, RecursionError, UnicodeDecodeError, LookupError, TypeError):
        return []


READER = Reader(
    "what MetaSchedule does not record: the time of day, the time for building and running, and the kind of a failure "
    "(every failure counts as run_error)",
    read,
    find_config,
)
