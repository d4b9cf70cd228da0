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
from .foreign import GUESS, ForeignLine, ForeignTask, ForeignTrial, Reader, listed_space, read_records, value_of

Seconds = Annotated[float, msgspec.Meta(ge=0)]

MeasureResult = tuple[list[Any], int, Seconds, Seconds]
"""The times, the MeasureErrorNo, the seconds that measuring took, and the seconds since 1970."""

ERRORS: dict[int, tuple[str, Failure]] = {
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


def _trial(line: ForeignLine, config: dict[str, Any], source: Any, result: MeasureResult) -> ForeignTrial:
    times, error, run_seconds, time = result
    seconds: tuple[float, ...] = ()
    failure: Failure | None = None
    message = ""
    if error == 0:
        seconds = line.seconds(times)
    elif error in ERRORS:
        name, failure = ERRORS[error]
        texts = [text for text in times if isinstance(text, str)]  # AutoTVM stores 1e9 or a message instead of times
        message = ": ".join([f"MeasureErrorNo.{name}", *texts])
    else:
        line.fail(f"{error} is not a known MeasureErrorNo")
    record = Record(
        index=0, config=config, seconds=seconds, failure=failure, message=message, run_seconds=run_seconds, time=time
    )
    return ForeignTrial(line.number, record, source)


# --- AutoTVM ----------------------------------------------------------------------------------------------------------

Entity = list[tuple[str, str, Any]]


class _Config(msgspec.Struct):
    entity: Entity


class _OldConfig(msgspec.Struct):
    e: Entity


class _AutotvmRecord(msgspec.Struct):
    """An AutoTVM record. ``input`` and ``i`` begin with the target, task name, arguments and keyword arguments."""

    input: list[Any] = []
    config: _Config | None = None
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
    for line in read_records(path):
        if not line.text.lstrip().startswith(b"{"):
            line.fail(
                "it is not JSON; AutoTVM's pickled logs are rejected, because reading one could run arbitrary code"
            )
        record = line.decode(decoder)
        if record.config is not None and record.result is not None:
            task, result, entity = record.input, record.result, record.config.entity
        elif record.i and record.r is not None:
            try:
                task, result, entity = record.i, record.r, msgspec.convert(record.i[-1], _OldConfig).e
            except msgspec.ValidationError as error:
                line.fail(error)
        else:
            line.fail("it is not an AutoTVM record, version 0.1 or 0.2")
        if len(task) < 4 or not isinstance(task[1], str) or not isinstance(task[2], list):
            line.fail("its task is not (target, name, arguments, keyword arguments)")
        if not isinstance(task[0], str | dict):
            line.fail(f"its target must be a string or an object, not {task[0]!r}")
        target, name, args = line.target(task[0]), task[1], task[2]
        key = msgspec.json.encode([target, name, args])
        if key not in tasks:
            workload, why = workload_of(name, args)
            versions = {"apache-tvm": record.tvm_version} if record.tvm_version else {}
            title = f"{name} {msgspec.json.encode(args).decode()}"
            tasks[key] = ForeignTask("autotvm", title, workload, why, target, [], versions, template=name)
        config = {knob: value_of(value) for knob, _, value in entity}
        tasks[key].trials.append(_trial(line, config, entity, result))
    return list(tasks.values())


def _autotvm_config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    if not isinstance(space, EntitySpace):
        raise SearchlabError(
            "an AutoTVM config belongs to a template; import it into the knob-template space with that template "
            "(--option template=NAME), or omit --space if you only want to analyse it"
        )
    try:
        return space.from_entity({"entity": trial.source})
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidConfig(f"the entity is not in this space: {error}") from None


AUTOTVM = Reader(
    "config indices, template hashes, the tuner and its batches; AutoTVM's single time for building and running counts "
    "as running",
    _read_autotvm,
    _autotvm_config_in,
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
    for line in read_records(path):
        record = line.decode(decoder)
        task, (_, steps) = record.i
        if len(task) < 2 or not isinstance(task[0], str) or not isinstance(task[1], str):
            line.fail("its task is not (workload key, target, ...)")
        key = (task[0], task[1])
        if key not in tasks:
            workload, why = _ansor_workload(line, task[0])
            tasks[key] = ForeignTask("ansor", task[0], workload, why, line.target(task[1]), [])
        config: dict[str, Value] = {}
        for position, step in enumerate(steps):
            if not step or not isinstance(step[0], str):
                line.fail(f"its transform step {position} has no kind")
            config[f"step{position}_{step[0]}"] = msgspec.json.encode(step[1:]).decode()
        tasks[key].trials.append(_trial(line, config, None, record.r))
    return [replace(task, steps=_steps_of(task.trials)) for task in tasks.values()]


def _steps_of(trials: Sequence[ForeignTrial]) -> Plugin:
    """Return the space that consists of the trials' steps, with "" for a step that a record does not have."""
    values: dict[str, dict[Any, None]] = {}
    for trial in trials:
        for name, value in trial.record.config.items():
            values.setdefault(name, {"": None})[value] = None
    names = sorted(values, key=lambda name: int(name.partition("_")[0].removeprefix("step")))
    configs = [_with_all_steps(trial, names) for trial in trials]
    return listed_space({name: list(values[name]) for name in names}, configs, schedule=APPLY_STEPS)


def _with_all_steps(trial: ForeignTrial, names: Iterable[str]) -> Config:
    return Config({name: trial.record.config.get(name, "") for name in names})


def _ansor_workload(line: ForeignLine, key: str) -> tuple[Workload | None, str]:
    """Return the workload for a key (a function's name or a hash, with arguments), or None and the reason."""
    try:
        name, *args = msgspec.json.decode(key, type=list[Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        line.fail(f"its workload key {key!r} is not a JSON list: {error}")
    if not isinstance(name, str):
        line.fail(f"its workload key {key!r} does not start with a name")
    if len(name) == 32 and all(c in "0123456789abcdef" for c in name):
        return None, f"Ansor identifies the task only by its computation's hash, {name}; {GUESS}"
    return workload_of(name, args)


def _ansor_config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    assert task.steps is not None
    config = _with_all_steps(trial, task.steps.options["parameters"])
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
    _ansor_config_in,
)


# --- the workload of a task -------------------------------------------------------------------------------------------


def workload_of(name: str, args: Sequence[Any]) -> tuple[Workload | None, str]:
    """Return the workload for a task's name and arguments in the file, or None and the reason.

    The known tasks are those in TVM's tutorials for AutoTVM and Ansor; TOPI's conv2d in NCHW, also depthwise, and
    dense, of which TopHub publishes logs; and functions called ``gemm`` or ``matmul``, in any namespace. The latter
    must have three equal sizes, because the order of the sizes varies.
    """
    plain = name.rpartition("/")[2]
    topi = re.sub(r"^topi_(nn|x86)_", "", plain)  # as in format 0.1
    try:
        if plain in ("conv2d_no_batching", "conv2d_layer"):
            return _conv2d(args, fused=plain == "conv2d_layer"), ""
        dense = topi.removeprefix("depthwise_")
        if dense == "conv2d" or dense.startswith(("conv2d_nchw", "conv2d_NCHWc", "conv2d_packed.")):
            return _topi_conv2d(args, depthwise=dense != topi), ""
        if topi == "dense" or topi.startswith("dense_"):
            return _topi_dense(args), ""
        if name.startswith("tutorial/matmul"):
            (m, k, n), dtype = _sizes(args, 3)
            return gemm(m, n, k, dtype), ""
        if plain in ("gemm", "matmul"):
            sizes, dtype = _sizes(args, 3)
            if len(set(sizes)) == 1:
                return gemm(sizes[0], sizes[0], sizes[0], dtype), ""
            return None, f"the file does not say which of the sizes {sizes} of {name!r} are m, n and k; {GUESS}"
    except (SearchlabError, ValueError, TypeError, IndexError, KeyError) as error:
        return None, f"searchlab has no workload for the arguments of {name!r} ({error}); {GUESS}"
    return None, f"searchlab does not recognise the task {name!r}; {GUESS}"


def _sizes(args: Sequence[Any], count: int) -> tuple[list[int], str]:
    """Return ``count`` integers and a dtype (float32 by default). Raises ValueError for anything else."""
    sizes, rest = list(args[:count]), list(args[count:])
    if len(sizes) < count or not all(type(size) is int for size in sizes):
        raise ValueError(f"expected {count} sizes, not {sizes}")
    if rest and (len(rest) > 1 or rest[0] not in ACCUMULATED_IN):
        raise ValueError(f"expected a dtype, not {rest}")
    return sizes, rest[0] if rest else "float32"


def _pair(value: Any) -> tuple[int, int]:
    """Return (height, width) from one or two integers."""
    numbers = [value, value] if type(value) is int else list(value)
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise ValueError(f"expected (height, width), not {value}")
    return numbers[0], numbers[1]


def _conv2d(args: Sequence[Any], fused: bool) -> Workload:
    """Parse (N, H, W, CO, CI, KH, KW, stride, padding), as in the tutorials; ``fused`` adds a bias and a ReLU."""
    if len(args) != 9:
        raise ValueError(f"expected 9 arguments, not {len(args)}")
    sizes, _ = _sizes(args[:7], 7)
    n, h, w, co, ci, kh, kw = sizes
    return conv2d(n, h, w, co, ci, kh, kw, _pair(args[7]), _pair(args[8]), bias=fused, relu=fused)


def _topi_conv2d(args: Sequence[Any], depthwise: bool) -> Workload:
    """Parse (data, weight, strides, padding[, dilation][, layouts...], out_dtype), as in TOPI.

    A depthwise weight has the shape (input channels, filters for each, height, width). Logs in format 0.1 lack the
    dilation; those for x86 have the number of filters and the kernel's size after the weight. VTA's tensors are
    packed: for example, ``NCHW1n16c`` has an inner batch of 1 and 16 inner channels.
    """
    data, weight, *rest, out_dtype = args
    layouts = [value for value in rest if isinstance(value, str)]
    numbers = [value for value in rest if not isinstance(value, str)]
    strides, padding, *dilation = numbers[2:] if len(numbers) > 3 else numbers
    if len(dilation) > 1 or not all(re.fullmatch(r"NCHW(\d+n\d+c)?", layout) for layout in layouts):
        raise ValueError(f"unsupported layouts {layouts} or arguments {dilation[1:]}")
    (n, ci, h, w), dtype = _tensor(data)
    (co, inner, kh, kw), weight_dtype = _tensor(weight)
    groups = 1
    if depthwise:
        groups, co, inner = co, co * inner, 1
    if inner * groups != ci or weight_dtype != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("unsupported groups or dtypes")
    dilation_pair = _pair(dilation[0]) if dilation else (1, 1)
    sides: Any = _pair(padding) if type(padding) is int or len(padding) != 4 else tuple(padding)
    return conv2d(n, h, w, co, ci, kh, kw, _pair(strides), sides, dilation_pair, dtype, groups=groups)


def _topi_dense(args: Sequence[Any]) -> Workload:
    """Parse (data, weight, bias or None, out_dtype), as in TOPI. The weight has the shape (n, k)."""
    data, weight, bias, out_dtype = args
    (m, k), dtype = _tensor(data, 2)
    (n, inner), weight_dtype = _tensor(weight, 2)
    if inner != k or weight_dtype != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("unsupported shapes or dtypes")
    return gemm(m, n, k, dtype, nt=True, bias=bias is not None)


def _tensor(value: Any, axes: int = 4) -> tuple[list[int], str]:
    """Return the shape, in which inner axes are merged with the outer ones, and the dtype."""
    tag, shape, dtype = value
    if tag != "TENSOR" or dtype not in ACCUMULATED_IN:
        raise ValueError(f"expected a tensor, not {value}")
    if axes == 4 and len(shape) == 6:
        first, second, height, width, inner_first, inner_second = shape
        shape = [first * inner_first, second * inner_second, height, width]
    if len(shape) != axes:
        raise ValueError(f"expected a tensor with {axes} axes, not {value}")
    return list(shape), dtype
