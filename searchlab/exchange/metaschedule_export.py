"""Export of logs to a MetaSchedule JSON database, which TVM itself writes.

``relax.transform.MetaScheduleApplyDatabase`` finds a record for a function only if everything except names is equal. A
Relax model's functions differ from the tuned workload: they have 64-bit indices, a conv2d's bias is [1, co, 1, 1], an
input without padding is copied, and a function that was not fused has an ``op_pattern``. Each log's best trial
therefore gets an additional record for each form that its workload has in Relax.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Var
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.s_tir.schedule.trace import Trace
from tvm_ffi import Map, structural_equal, structural_map

from ..errors import SearchlabError, first_line, last_line
from ..log.format import Log, Record
from ..log.programs import ChangedProgram
from ..log.result import Result
from ..space import Space
from ..workload import Conv2d, Fused, Gemm, Workload, program_hash
from .metaschedule import FAILED_SECONDS, TRIAL_ANNOTATION, TrialNote, get_database_paths

COPY_BLOCK = "copy"
"""The name of the block that copies a conv2d's input if there is no padding."""


def export(logs: Sequence[Log], database_dir: Path) -> list[str]:
    """Write logs to a new database.

    Each record contains a single time, the trial's cost, because TVM compares means; ``compile_tir`` therefore returns
    the log's best program. All repeats are kept in the :class:`~.metaschedule.TrialNote`. Every config is scheduled,
    which imports the log's plug-in.

    Args:
        logs: The logs.
        database_dir: The database's directory.

    Returns:
        A sentence for each omission from the database.

    Raises:
        SearchlabError: If the database already exists, or if a space or schedule cannot be rebuilt.
    """
    for path in get_database_paths(database_dir):
        if path.exists():
            raise SearchlabError(f"{path} already exists; choose a different directory as --out")
    results = [Result(log) for log in logs]
    for result in results:
        _ = result.space  # raises before anything is written
    database_dir.mkdir(parents=True, exist_ok=True)
    for path in get_database_paths(database_dir):
        path.touch()  # raises a clear error if it cannot be written
    try:
        database = JSONDatabase(work_dir=str(database_dir))
        omissions = [omission for result in results for omission in _commit_log(database, result)]
        if _count_records(database_dir) != len(database):  # TVM does not report that the disk is full
            raise SearchlabError(
                f"cannot write {database_dir}: its files are incomplete; free some space or check the disk, then run "
                f"the command again"
            )
        return omissions
    except BaseException:
        for path in get_database_paths(database_dir):
            path.unlink()
        raise


def _count_records(database_dir: Path) -> int:
    """Return the number of records in the database, or -1 if it cannot be read."""
    try:
        return len(JSONDatabase(work_dir=str(database_dir)))
    except Exception:  # TVM raises errors of many types
        return -1


def _commit_log(database: JSONDatabase, result: Result) -> list[str]:
    log, space = result.log, result.space
    module = space.workload.module
    seconds_by_index = _compute_times(log)
    measured_indices = [index for index in seconds_by_index if not log.records[index].nearest]
    best_index = min(measured_indices, key=lambda index: seconds_by_index[index], default=-1)
    omitted_count = 0
    omissions = []
    # Among equally fast records, TVM uses the one that was written first.
    for record in sorted(log.records, key=lambda record: record.index != best_index):
        if (schedule := _rebuild_schedule(result, record)) is None:
            omitted_count += 1
            continue
        seconds = seconds_by_index.get(record.index, FAILED_SECONDS)
        _commit(database, log, space, record, module, schedule, seconds)
        if record.index != best_index:
            continue
        trace = space.schedule(record.trial.config).trace
        for form in _build_relax_forms(space.workload):
            try:
                form_schedule = _replay_trace(trace, form)
            except (RuntimeError, ValueError, TypeError, LookupError) as error:
                omissions.append(
                    f"{log.path}: the best program was exported, but not for Relax, where its trace fails: "
                    f"{first_line(error)}"
                )
            else:
                _commit(database, log, space, record, form, form_schedule, seconds)
    if omitted_count:
        omissions.append(f"{log.path}: {omitted_count} trials without a measured program were omitted")
    return omissions


def _commit(
    database: JSONDatabase, log: Log, space: Space, record: Record, module: tvm.IRModule, schedule: Any, seconds: float
) -> None:
    """Add a record with a note for ``schedule``, which transforms ``module``."""
    root = schedule.get_sblock("root")
    schedule.annotate(root, TRIAL_ANNOTATION, TrialNote(log.header, record).encode())
    schedule.unannotate(root, TRIAL_ANNOTATION)
    workload, arguments = database.commit_workload(module), ArgInfo.from_prim_func(module["main"])
    database.commit_tuning_record(TuningRecord(schedule.trace, workload, [seconds], space.target.tvm, arguments))


def _rebuild_schedule(result: Result, record: Record) -> Schedule | None:
    """Return a measured program's schedule, or None if the record has no program.

    Raises SearchlabError if a schedule that succeeded before fails now.
    """
    # A schedule that hung or crashed before would do so again here.
    is_killed = record.failure in ("build_timeout", "crash") and not record.program
    if record.nearest or record.failure == "invalid" or is_killed:
        return None
    try:
        schedule = result.schedule(record.trial)
    except ChangedProgram:
        raise
    except SearchlabError as error:
        if record.failure is None:
            raise SearchlabError(f"{result.log.path}, trial {record.index}: {error}") from None
        return None
    if reason := _explain_replay_failure(schedule, result.space.workload):
        raise SearchlabError(
            f"{result.log.path}, trial {record.index} cannot be stored in a database of traces: {reason}"
        )
    return schedule


def _explain_replay_failure(schedule: Schedule, workload: Workload) -> str:
    """Return why replaying the trace of ``schedule`` does not reproduce the scheduled module, or "" if it does.

    The trace is replayed on the workload's module. Databases of traces require that the modules are the same.
    """
    if schedule.trace is None:
        return "it was created without a trace"
    instructions = list(schedule.trace.insts)
    # TVM records annotations whose values are maps, but does not replay them.
    replayable = [
        instruction
        for instruction in instructions
        if not (instruction.kind.name == "Annotate" and isinstance(instruction.inputs[1], Map))
    ]
    replayed_schedule = Schedule(workload.module)
    try:
        Trace(replayable, schedule.trace.decisions).apply_to_schedule(replayed_schedule, remove_postproc=False)
    except Exception as error:  # the trace belongs to another module
        return f"its trace cannot be replayed on the module for {workload} ({last_line(error)})"
    if len(replayable) == len(instructions) and program_hash(replayed_schedule.mod) != program_hash(schedule.mod):
        return f"replaying its trace on the module for {workload} yields a different program"
    return ""


def _compute_times(log: Log) -> dict[int, float]:
    """Return the time of each successful trial, in seconds, by index.

    If finalists were measured again, the winner keeps the time from its trial. Each other finalist's time is the
    winner's time multiplied by the ratio of their final measurements, since only side-by-side measurements are
    comparable. Any other trial gets at least the winner's time, because a shorter time must be due to noise.
    """
    seconds_by_index = {record.index: record.cost for record in log.records if record.failure is None}
    if log.finalist_times is None:
        return seconds_by_index
    medians = {finalist.index: statistics.median(finalist.seconds) for finalist in log.finalist_times.finalists}
    winner_index = Result(log).best.trial.index
    winner_seconds = seconds_by_index[winner_index]
    finalist_seconds = {index: winner_seconds * seconds / medians[winner_index] for index, seconds in medians.items()}
    return {index: max(winner_seconds, seconds) for index, seconds in seconds_by_index.items()} | finalist_seconds


# --- the forms of a workload in Relax ---------------------------------------------------------------------------------


def _build_relax_forms(workload: Workload) -> list[tvm.IRModule]:
    """Return a workload's forms in Relax: after LegalizeOps alone, and after FuseOps and FuseTIR.

    Each form is a module with one function ``main`` whose blocks are named as in the workload's module. Only GEMM and
    conv2d have such forms, unless they are followed by operations that the workload does not name.
    """
    if not isinstance(workload, Gemm | Conv2d) or isinstance(workload, Fused):
        return []
    passes = [relax.transform.FuseTransposeMatmul(), relax.transform.LegalizeOps()]
    legal_module = tvm.ir.transform.Sequential(passes)(_build_relax_module(workload))
    fused_module = tvm.ir.transform.Sequential(
        [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()]
    )(legal_module)
    forms: list[tvm.IRModule] = []
    for module in (legal_module, fused_module):
        functions = [function for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc)]
        if len(functions) > 1:
            continue  # the epilogue is in other functions, which are not workloads
        form = tvm.IRModule({"main": _rename_to_match(functions[0], workload).with_attr("global_symbol", "main")})
        if not any(structural_equal(form, earlier_form) for earlier_form in forms):
            forms.append(form)
    return forms


def _replay_trace(trace: Any, form: tvm.IRModule) -> Schedule:
    """Return the schedule that results from applying a workload's trace to ``form``."""
    schedule = Schedule(form)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    if COPY_BLOCK in [schedule.get(block).name_hint for block in blocks]:
        schedule.compute_inline(schedule.get_sblock(COPY_BLOCK))
    trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule


def _build_relax_module(workload: Gemm | Conv2d) -> tvm.IRModule:
    """Return a Relax module whose function ``main`` computes the workload."""
    builder = relax.BlockBuilder()
    shapes = {name: list(shape) for name, shape in list(workload.shapes.items())[:-1]}
    if isinstance(workload, Conv2d) and workload.bias:
        shapes["bias"] = [1, workload.co, 1, 1]
    operands = [
        relax.Var(argument.name, relax.TensorType(shapes[argument.name], argument.dtype))
        for argument in workload.arguments[:-1]
    ]
    first, second, *addends = operands
    with builder.function("main", operands):
        with builder.dataflow():
            if isinstance(workload, Conv2d):
                result = relax.op.nn.conv2d(
                    first,
                    second,
                    workload.stride,
                    workload.all_padding,
                    workload.dilation,
                    workload.groups,
                    out_dtype=workload.out_dtype,
                )
            else:
                if workload.nt:
                    second = builder.emit(relax.op.permute_dims(second))
                result = relax.op.matmul(first, second, workload.out_dtype)
            for operand in addends:
                result = relax.op.add(builder.emit(result), operand)
            if workload.relu:
                result = relax.op.nn.relu(builder.emit(result))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def _rename_to_match(function: Any, workload: Workload) -> Any:
    """Rename the blocks and buffers in ``function`` to match the workload's, which are in the same order.

    A trace finds blocks by name, and a block that packs or pads a buffer is named after the buffer.
    """
    blocks, buffers = _list_blocks_and_buffers(function)
    own_blocks, own_buffers = _list_blocks_and_buffers(workload.prim_func())
    input_count = len(function.params)
    new_block_names = [COPY_BLOCK] * (len(blocks) - len(own_blocks)) + own_blocks
    block_names_by_old_name = dict(zip(blocks, new_block_names, strict=True))
    own_names = [buffer.name for buffer in own_buffers]
    copy_names = [COPY_BLOCK] * (len(buffers) - len(own_buffers))
    new_buffer_names = [*own_names[:input_count], *copy_names, *own_names[input_count:]]
    variables_by_buffer = {buffer: Var(name, buffer.ty) for buffer, name in zip(buffers, new_buffer_names, strict=True)}

    def rename(block: Any) -> Any:
        if block.name_hint not in block_names_by_old_name:
            return block
        return SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block_names_by_old_name[block.name_hint],
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    return structural_map(
        function, [(SBlock, rename), (Var, lambda variable: variables_by_buffer.get(variable, variable))]
    )


def _list_blocks_and_buffers(function: Any) -> tuple[list[str], list[Any]]:
    """Return a function's block names, in order, and its buffers: first the parameters, then the allocated buffers."""
    schedule = Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    blocks = [str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    return blocks, [*function.params, *function.body.block.alloc_buffers]
