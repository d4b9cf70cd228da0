"""Records from TVM's earlier tuners, AutoTVM and Ansor (``tvm.auto_scheduler``), stored as lines of JSON.

AutoTVM's format versions are 0.1 (``i``, ``r``, ``v``) and 0.2 (``input``, ``config``, ``result``). Its older, pickled
logs are rejected, because reading one would execute its contents. Ansor's format version is v0.6. A config contains
each transform step as a string. In the space ``parameters``, the steps are applied as a schedule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidConfig, SearchlabError
from ..log.format import Record
from ..plugins import Plugin
from ..records import Failure
from ..space import PARAMETERS, Config, Space, Value
from ..survival import find_crash
from ..workload import ACCUMULATED_IN, Workload, conv2d, gemm
from .foreign import (
    WORKLOAD_HINT,
    ForeignLine,
    ForeignTask,
    ForeignTrial,
    Reader,
    make_listed_space,
    read_json_lines,
    to_config_value,
)

Seconds = Annotated[float, msgspec.Meta(ge=0)]

MeasureResult = tuple[list[Any], int, Seconds, Seconds]
"""The times, the MeasureErrorNo, the seconds that measuring took, and the seconds since 1970."""

MEASURE_ERRORS: dict[int, tuple[str, Failure]] = {
    1: ("INSTANTIATION_ERROR", "invalid"),
    2: ("COMPILE_HOST", "build_error"),
    3: ("COMPILE_DEVICE", "build_error"),
    4: ("RUNTIME_DEVICE", "run_error"),
    5: ("WRONG_ANSWER", "wrong_answer"),
    6: ("BUILD_TIMEOUT", "build_timeout"),
    7: ("RUN_TIMEOUT", "run_timeout"),
    8: ("UNKNOWN_ERROR", "crash"),
}
"""Both tuners' ``MeasureErrorNo`` values (TVM 0.17), with the corresponding failures."""


def _make_trial(line: ForeignLine, config: dict[str, Any], config_data: Any, result: MeasureResult) -> ForeignTrial:
    times, error_number, run_seconds, timestamp = result
    seconds: tuple[float, ...] = ()
    failure: Failure | None = None
    message = ""
    if error_number == 0:
        seconds = line.parse_times(times)
    elif error_number in MEASURE_ERRORS:
        error_name, failure = MEASURE_ERRORS[error_number]
        # AutoTVM stores 1e9 or a message instead of times.
        message_texts = [text for text in times if isinstance(text, str)]
        message = ": ".join([f"MeasureErrorNo.{error_name}", *message_texts])
    else:
        line.fail(f"{error_number} is not a known MeasureErrorNo")
    record = Record(
        index=0,
        config=config,
        seconds=seconds,
        failure=failure,
        message=message,
        run_seconds=run_seconds,
        recorded_at=timestamp,
    )
    return ForeignTrial(line.number, record, config_data)


# --- AutoTVM ----------------------------------------------------------------------------------------------------------

ConfigEntity = list[tuple[str, str, Any]]


class _AutotvmConfig(msgspec.Struct):
    entity: ConfigEntity


class _OldAutotvmConfig(msgspec.Struct):
    e: ConfigEntity


class _AutotvmRecord(msgspec.Struct):
    """An AutoTVM record. ``input`` and ``i`` begin with the target, task name, arguments and keyword arguments."""

    input: list[Any] = []
    config: _AutotvmConfig | None = None
    result: MeasureResult | None = None
    tvm_version: str = ""
    i: list[Any] = []
    r: MeasureResult | None = None


@runtime_checkable
class EntitySpace(Protocol):
    """A space that contains AutoTVM's configs."""

    def from_entity(self, entity: dict[str, Any]) -> Config:
        """Return the config for an entity in an AutoTVM log. Raises InvalidConfig if it is not in the space."""


def _read_autotvm(path: Path) -> list[ForeignTask]:
    decoder = msgspec.json.Decoder(_AutotvmRecord)
    tasks: dict[bytes, ForeignTask] = {}
    for line in read_json_lines(path):
        if not line.content.lstrip().startswith(b"{"):
            line.fail(
                "it is not JSON; AutoTVM's pickled logs are rejected, because reading one could run arbitrary code"
            )
        record = line.decode(decoder)
        if record.config is not None and record.result is not None:
            task_fields, result, entity = record.input, record.result, record.config.entity
        elif record.i and record.r is not None:
            try:
                task_fields, result, entity = record.i, record.r, msgspec.convert(record.i[-1], _OldAutotvmConfig).e
            except msgspec.ValidationError as error:
                line.fail(error)
        else:
            line.fail("it is not an AutoTVM record, version 0.1 or 0.2")
        if len(task_fields) < 4 or not isinstance(task_fields[1], str) or not isinstance(task_fields[2], list):
            line.fail("its task is not (target, name, arguments, keyword arguments)")
        if not isinstance(task_fields[0], str | dict):
            line.fail(f"its target must be a string or an object, not {task_fields[0]!r}")
        target, task_name, arguments = line.parse_target(task_fields[0]), task_fields[1], task_fields[2]
        task_key = msgspec.json.encode([target, task_name, arguments])
        if task_key not in tasks:
            workload, unknown_reason = recognise_workload(task_name, arguments)
            versions = {"apache-tvm": record.tvm_version} if record.tvm_version else {}
            task_title = f"{task_name} {msgspec.json.encode(arguments).decode()}"
            tasks[task_key] = ForeignTask(
                "autotvm", task_title, workload, unknown_reason, target, [], versions, template_name=task_name
            )
        config = {knob: to_config_value(value) for knob, _, value in entity}
        tasks[task_key].trials.append(_make_trial(line, config, entity, result))
    return list(tasks.values())


def _find_autotvm_config(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    if not isinstance(space, EntitySpace):
        raise SearchlabError(
            "an AutoTVM config belongs to a template; import it into the knob-template space with that template "
            "(--option template=NAME), or omit --space if you only want to analyse it"
        )
    try:
        return space.from_entity({"entity": trial.config_data})
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidConfig(f"the entity is not in this space: {error}") from None


AUTOTVM = Reader(
    "config indices, template hashes, the tuner and its batches; AutoTVM's single time for building and running counts "
    "as running",
    _read_autotvm,
    _find_autotvm_config,
)


# --- Ansor ------------------------------------------------------------------------------------------------------------

APPLY_STEPS = "searchlab_spaces.ansor_steps:apply_steps"


class _AnsorRecord(msgspec.Struct):
    i: tuple[list[Any], tuple[list[Any], list[list[Any]]]]  # the task; stages and transform steps
    r: MeasureResult
    v: str


def _read_ansor(path: Path) -> list[ForeignTask]:
    decoder = msgspec.json.Decoder(_AnsorRecord)
    tasks: dict[tuple[str, str], ForeignTask] = {}
    for line in read_json_lines(path):
        record = line.decode(decoder)
        task_fields, (_, steps) = record.i
        if len(task_fields) < 2 or not isinstance(task_fields[0], str) or not isinstance(task_fields[1], str):
            line.fail("its task is not (workload key, target, ...)")
        task_key = (task_fields[0], task_fields[1])
        if task_key not in tasks:
            workload, unknown_reason = _parse_workload_key(line, task_fields[0])
            target = line.parse_target(task_fields[1])
            tasks[task_key] = ForeignTask("ansor", task_fields[0], workload, unknown_reason, target, [])
        config: dict[str, Value] = {}
        for step_number, step in enumerate(steps):
            if not step or not isinstance(step[0], str):
                line.fail(f"its transform step {step_number} has no kind")
            config[f"step{step_number}_{step[0]}"] = msgspec.json.encode(step[1:]).decode()
        tasks[task_key].trials.append(_make_trial(line, config, None, record.r))
    return [replace(task, steps_space=_make_steps_space(task.trials)) for task in tasks.values()]


def _make_steps_space(trials: Sequence[ForeignTrial]) -> Plugin:
    """Return the space that consists of the trials' steps, with "" for a step that a record does not have."""
    values_by_step: dict[str, dict[Any, None]] = {}
    for trial in trials:
        for name, value in trial.record.config.items():
            values_by_step.setdefault(name, {"": None})[value] = None
    step_names = sorted(values_by_step, key=lambda name: int(name.partition("_")[0].removeprefix("step")))
    configs = [_fill_in_steps(trial, step_names) for trial in trials]
    return make_listed_space({name: list(values_by_step[name]) for name in step_names}, configs, schedule=APPLY_STEPS)


def _fill_in_steps(trial: ForeignTrial, step_names: Iterable[str]) -> Config:
    return Config({name: trial.record.config.get(name, "") for name in step_names})


def _parse_workload_key(line: ForeignLine, key: str) -> tuple[Workload | None, str]:
    """Return the workload for a key (a function's name or a hash, with arguments), or None and the reason."""
    try:
        name, *args = msgspec.json.decode(key, type=list[Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        line.fail(f"its workload key {key!r} is not a JSON list: {error}")
    if not isinstance(name, str):
        line.fail(f"its workload key {key!r} does not start with a name")
    if len(name) == 32 and all(c in "0123456789abcdef" for c in name):
        return None, f"Ansor identifies the task only by its computation's hash, {name}; {WORKLOAD_HINT}"
    return recognise_workload(name, args)


def _find_ansor_config(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    assert task.steps_space is not None
    config = _fill_in_steps(trial, task.steps_space.options["parameters"])
    if config not in space:
        raise SearchlabError(
            f"an Ansor record's transform steps are not a config of this space; pass --space {PARAMETERS} to apply "
            "them as a schedule, or omit --space if you only want to analyse the record"
        )
    if crash := find_crash(lambda: space.schedule(config)):
        raise InvalidConfig(f"its transform steps cannot be applied by TVM: {crash}")
    space.schedule(config)
    return config


ANSOR = Reader(
    "hardware parameters, layout rewrites and the host's target; Ansor's single time for building and running counts "
    "as running",
    _read_ansor,
    _find_ansor_config,
)


# --- the workload of a task -------------------------------------------------------------------------------------------


def recognise_workload(name: str, args: Sequence[Any]) -> tuple[Workload | None, str]:
    """Return the workload for a task's name and arguments in the file, or None and the reason.

    The known tasks are those in TVM's tutorials for AutoTVM and Ansor; TOPI's conv2d in NCHW, also depthwise, and
    dense, of which TopHub publishes logs; and functions called ``gemm`` or ``matmul``, in any namespace. The latter
    must have three equal sizes, because the order of the sizes varies.
    """
    short_name = name.rpartition("/")[2]
    topi_name = re.sub(r"^topi_(nn|x86)_", "", short_name)  # as in format 0.1
    try:
        if short_name in ("conv2d_no_batching", "conv2d_layer"):
            return _parse_conv2d(args, is_fused=short_name == "conv2d_layer"), ""
        operator_name = topi_name.removeprefix("depthwise_")
        if operator_name == "conv2d" or operator_name.startswith(("conv2d_nchw", "conv2d_NCHWc", "conv2d_packed.")):
            return _parse_topi_conv2d(args, is_depthwise=operator_name != topi_name), ""
        if topi_name == "dense" or topi_name.startswith("dense_"):
            return _parse_topi_dense(args), ""
        if name.startswith("tutorial/matmul"):
            (m, k, n), dtype = _parse_sizes(args, 3)
            return gemm(m, n, k, dtype), ""
        if short_name in ("gemm", "matmul"):
            sizes, dtype = _parse_sizes(args, 3)
            if len(set(sizes)) == 1:
                return gemm(sizes[0], sizes[0], sizes[0], dtype), ""
            return None, f"the file does not say which of the sizes {sizes} of {name!r} are m, n and k; {WORKLOAD_HINT}"
    except (SearchlabError, ValueError, TypeError, IndexError, KeyError) as error:
        return None, f"searchlab has no workload for the arguments of {name!r} ({error}); {WORKLOAD_HINT}"
    return None, f"searchlab does not recognise the task {name!r}; {WORKLOAD_HINT}"


def _parse_sizes(args: Sequence[Any], count: int) -> tuple[list[int], str]:
    """Return ``count`` integers and a dtype (float32 by default). Raises ValueError for anything else."""
    sizes, dtypes = list(args[:count]), list(args[count:])
    if len(sizes) < count or not all(type(size) is int for size in sizes):
        raise ValueError(f"expected {count} sizes, not {sizes}")
    if dtypes and (len(dtypes) > 1 or dtypes[0] not in ACCUMULATED_IN):
        raise ValueError(f"expected a dtype, not {dtypes}")
    return sizes, dtypes[0] if dtypes else "float32"


def _parse_pair(value: Any) -> tuple[int, int]:
    """Return (height, width) from one or two integers."""
    numbers = [value, value] if type(value) is int else list(value)
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise ValueError(f"expected (height, width), not {value}")
    return numbers[0], numbers[1]


def _parse_conv2d(args: Sequence[Any], is_fused: bool) -> Workload:
    """Parse (N, H, W, CO, CI, KH, KW, stride, padding), as in the tutorials; ``is_fused`` adds a bias and a ReLU."""
    if len(args) != 9:
        raise ValueError(f"expected 9 arguments, not {len(args)}")
    sizes, _ = _parse_sizes(args[:7], 7)
    n, h, w, co, ci, kh, kw = sizes
    return conv2d(n, h, w, co, ci, kh, kw, _parse_pair(args[7]), _parse_pair(args[8]), bias=is_fused, relu=is_fused)


def _parse_topi_conv2d(args: Sequence[Any], is_depthwise: bool) -> Workload:
    """Parse (data, weight, strides, padding[, dilation][, layouts...], out_dtype), as in TOPI.

    A depthwise weight has the shape (input channels, filters for each, height, width). Logs in format 0.1 lack the
    dilation; those for x86 have the number of filters and the kernel's size after the weight. VTA's tensors are
    packed: for example, ``NCHW1n16c`` has an inner batch of 1 and 16 inner channels.
    """
    data, weight, *rest, out_dtype = args
    layouts = [value for value in rest if isinstance(value, str)]
    attributes = [value for value in rest if not isinstance(value, str)]
    strides, padding, *dilation = attributes[2:] if len(attributes) > 3 else attributes
    if len(dilation) > 1 or not all(re.fullmatch(r"NCHW(\d+n\d+c)?", layout) for layout in layouts):
        raise ValueError(f"unsupported layouts {layouts} or arguments {dilation[1:]}")
    (n, ci, h, w), dtype = _parse_tensor(data)
    (co, inner, kh, kw), weight_dtype = _parse_tensor(weight)
    groups = 1
    if is_depthwise:
        groups, co, inner = co, co * inner, 1
    if inner * groups != ci or weight_dtype != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("unsupported groups or dtypes")
    dilation_pair = _parse_pair(dilation[0]) if dilation else (1, 1)
    paddings: Any = _parse_pair(padding) if type(padding) is int or len(padding) != 4 else tuple(padding)
    return conv2d(n, h, w, co, ci, kh, kw, _parse_pair(strides), paddings, dilation_pair, dtype, groups=groups)


def _parse_topi_dense(args: Sequence[Any]) -> Workload:
    """Parse (data, weight, bias or None, out_dtype), as in TOPI. The weight has the shape (n, k)."""
    data, weight, bias, out_dtype = args
    (m, k), dtype = _parse_tensor(data, 2)
    (n, inner), weight_dtype = _parse_tensor(weight, 2)
    if inner != k or weight_dtype != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("unsupported shapes or dtypes")
    return gemm(m, n, k, dtype, nt=True, bias=bias is not None)


def _parse_tensor(value: Any, axis_count: int = 4) -> tuple[list[int], str]:
    """Return the shape, in which inner axes are merged with the outer ones, and the dtype."""
    tag, shape, dtype = value
    if tag != "TENSOR" or dtype not in ACCUMULATED_IN:
        raise ValueError(f"expected a tensor, not {value}")
    if axis_count == 4 and len(shape) == 6:
        first, second, height, width, inner_first, inner_second = shape
        shape = [first * inner_first, second * inner_second, height, width]
    if len(shape) != axis_count:
        raise ValueError(f"expected a tensor with {axis_count} axes, not {value}")
    return list(shape), dtype
