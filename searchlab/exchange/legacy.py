"""The records of TVM's earlier tuners, AutoTVM and Ansor (``tvm.auto_scheduler``), which are lines of JSON.

AutoTVM's versions are 0.1 (``i``, ``r``, ``v``) and 0.2 (``input``, ``config``, ``result``). Its older logs of pickled
lines are rejected, because reading one would execute what it contains. Ansor's version is v0.6. Its transform steps
have no ``s_tir`` schedule, so a config has each step as a string, and serves only for analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, runtime_checkable

import msgspec

from ..errors import InvalidConfig, SearchlabError
from ..log.format import Record
from ..records import Failure
from ..space import Config, Space, Value
from ..workload import ACCUMULATED_IN, Workload, conv2d, gemm
from .foreign import GUESS, ForeignTask, ForeignTrial, Line, Reader, lines, value_of

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Measured = tuple[list[Any], int, Seconds, Seconds]  # times, MeasureErrorNo, seconds to measure, seconds since 1970

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
"""``MeasureErrorNo`` of both tuners (TVM 0.17), with the corresponding failures."""


def _trial(line: Line, config: dict[str, Any], source: Any, measured: Measured) -> ForeignTrial:
    times, error, run_seconds, time = measured
    seconds: tuple[float, ...] = ()
    failure: Failure | None = None
    message = ""
    if error == 0:
        seconds = line.seconds(times)
    elif error in ERRORS:
        name, failure = ERRORS[error]
        texts = [text for text in times if isinstance(text, str)]  # AutoTVM has the text of the error there, or 1e9
        message = ": ".join([f"MeasureErrorNo.{name}", *texts])
    else:
        line.damaged(f"there is no MeasureErrorNo {error}")
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
    """``input`` and ``i`` start with the target, the name of the task, its arguments and its keyword arguments."""

    input: list[Any] = []
    config: _Config | None = None
    result: Measured | None = None
    tvm_version: str = ""
    i: list[Any] = []
    r: Measured | None = None


@runtime_checkable
class EntitySpace(Protocol):
    """A space whose configs are those of AutoTVM."""

    def from_entity(self, entity: dict[str, Any]) -> Config:
        """Return the config for an entity in a log of AutoTVM. Raises InvalidConfig if it is not in the space."""


def _read_autotvm(path: Path) -> list[ForeignTask]:
    decoder = msgspec.json.Decoder(_AutotvmRecord)
    tasks: dict[bytes, ForeignTask] = {}
    for line in lines(path):
        if not line.text.lstrip().startswith(b"{"):
            line.damaged("it is not JSON; pickled logs of AutoTVM are rejected, because reading one could run any code")
        record = line.decode(decoder)
        if record.config is not None and record.result is not None:
            task, result, entity = record.input, record.result, record.config.entity
        elif record.i and record.r is not None:
            try:
                task, result, entity = record.i, record.r, msgspec.convert(record.i[-1], _OldConfig).e
            except msgspec.ValidationError as error:
                line.damaged(error)
        else:
            line.damaged("it is not a record of AutoTVM 0.1 or 0.2")
        if len(task) < 4 or not isinstance(task[1], str) or not isinstance(task[2], list):
            line.damaged("its task is not (target, name, arguments, keyword arguments)")
        if not isinstance(task[0], str | dict):
            line.damaged(f"its target is {task[0]!r}")
        target, name, args = line.target(task[0]), task[1], task[2]
        key = msgspec.json.encode([target, name, args])
        if key not in tasks:
            workload, why = workload_of(name, args)
            versions = {"apache-tvm": record.tvm_version} if record.tvm_version else {}
            shown = f"{name} {msgspec.json.encode(args).decode()}"
            tasks[key] = ForeignTask("autotvm", shown, workload, why, target, [], versions)
        config = {knob: value_of(value) for knob, _, value in entity}
        tasks[key].trials.append(_trial(line, config, entity, result))
    return list(tasks.values())


def _autotvm_config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    if not isinstance(space, EntitySpace):
        raise SearchlabError(
            "a config of AutoTVM is an entity of a template; import it into the space knob-template with that template "
            "(--option template=NAME), or without --space, for analysis"
        )
    try:
        return space.from_entity({"entity": trial.source})
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidConfig(f"the entity is not in this space: {error}") from None


AUTOTVM = Reader(
    "the index of a config, the hash of its template, the tuner and its batches; AutoTVM's single time for building "
    "and running counts as running",
    _read_autotvm,
    _autotvm_config_in,
)


# --- Ansor ------------------------------------------------------------------------------------------------------------


class _AnsorRecord(msgspec.Struct):
    i: tuple[list[Any], tuple[list[Any], list[list[Any]]]]  # the task; stages and transform steps
    r: Measured
    v: str


def _read_ansor(path: Path) -> list[ForeignTask]:
    decoder = msgspec.json.Decoder(_AnsorRecord)
    tasks: dict[tuple[str, str], ForeignTask] = {}
    for line in lines(path):
        record = line.decode(decoder)
        task, (_, steps) = record.i
        if len(task) < 2 or not isinstance(task[0], str) or not isinstance(task[1], str):
            line.damaged("its task is not (workload key, target, ...)")
        key = (task[0], task[1])
        if key not in tasks:
            workload, why = _ansor_workload(line, task[0])
            tasks[key] = ForeignTask("ansor", task[0], workload, why, line.target(task[1]), [])
        config: dict[str, Value] = {}
        for position, step in enumerate(steps):
            if not step or not isinstance(step[0], str):
                line.damaged(f"its transform step {position} has no kind")
            config[f"step{position}_{step[0]}"] = msgspec.json.encode(step[1:]).decode()
        tasks[key].trials.append(_trial(line, config, None, record.r))
    return list(tasks.values())


def _ansor_workload(line: Line, key: str) -> tuple[Workload | None, str]:
    """Return the workload of a key, which is the name of a function or a hash, with arguments; or None and why."""
    try:
        name, *args = msgspec.json.decode(key, type=list[Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        line.damaged(f"its workload key {key!r} is not a JSON list: {error}")
    if not isinstance(name, str):
        line.damaged(f"its workload key {key!r} does not start with a name")
    if len(name) == 32 and all(c in "0123456789abcdef" for c in name):
        return None, f"Ansor identifies the task only by the hash {name} of its computation; {GUESS}"
    return workload_of(name, args)


def _ansor_config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> NoReturn:
    raise SearchlabError(
        "the transform steps of an Ansor record have no schedule in today's TVM, so they are not a config of any "
        "space; import it without --space, for analysis"
    )


ANSOR = Reader(
    "the steps as a schedule, since each is a string; hardware parameters, layout rewrites and the target of the host; "
    "Ansor's single time for building and running counts as running",
    _read_ansor,
    _ansor_config_in,
)


# --- the workload of a task -------------------------------------------------------------------------------------------


def workload_of(name: str, args: Sequence[Any]) -> tuple[Workload | None, str]:
    """Return the workload of a task, by its name and arguments in the file; or None and why there is none.

    The known tasks are those of TVM's tutorials for AutoTVM and Ansor, TOPI's conv2d in NCHW, and functions called
    ``gemm`` or ``matmul``, in any namespace, with three equal sizes, since authors order the sizes differently.
    """
    plain = name.rpartition("/")[2]
    try:
        if plain in ("conv2d_no_batching", "conv2d_layer"):
            return _conv2d(args, fused=plain == "conv2d_layer"), ""
        if plain.startswith(("conv2d_nchw", "conv2d_NCHWc")):
            return _topi_conv2d(args), ""
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
    return None, f"searchlab does not know the task {name!r}; {GUESS}"


def _sizes(args: Sequence[Any], count: int) -> tuple[list[int], str]:
    """Return ``count`` integers and a dtype, by default float32. Raises ValueError for anything else."""
    sizes, rest = list(args[:count]), list(args[count:])
    if len(sizes) < count or not all(type(size) is int for size in sizes):
        raise ValueError(f"not {count} sizes: {sizes}")
    if rest and (len(rest) > 1 or rest[0] not in ACCUMULATED_IN):
        raise ValueError(f"not a dtype: {rest}")
    return sizes, rest[0] if rest else "float32"


def _pair(given: Any) -> tuple[int, int]:
    """Return (height, width), from one integer, two, or (top, left, bottom, right) with equal opposites."""
    numbers = [given, given] if type(given) is int else list(given)
    if len(numbers) == 4 and numbers[:2] == numbers[2:]:
        numbers = numbers[:2]
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise ValueError(f"not a (height, width): {given}")
    return numbers[0], numbers[1]


def _conv2d(args: Sequence[Any], fused: bool) -> Workload:
    """Read (N, H, W, CO, CI, KH, KW, stride, padding), as in the tutorials; ``fused`` adds a bias and a ReLU."""
    if len(args) != 9:
        raise ValueError(f"{len(args)} arguments, not 9")
    sizes, _ = _sizes(args[:7], 7)
    n, h, w, co, ci, kh, kw = sizes
    return conv2d(n, h, w, co, ci, kh, kw, _pair(args[7]), _pair(args[8]), bias=fused, relu=fused)


def _topi_conv2d(args: Sequence[Any]) -> Workload:
    """Read (data, weight, strides, padding, dilation[, layout, out_layout], out_dtype), as in TOPI."""
    data, weight, strides, padding, dilation, *layouts, out_dtype = args
    shapes = [_tensor(tensor) for tensor in (data, weight)]
    if any(layout != "NCHW" for layout in layouts):
        raise ValueError(f"layouts {layouts}")
    (n, ci, h, w), dtype = shapes[0]
    (co, inner, kh, kw), _ = shapes[1]
    if inner != ci or shapes[1][1] != dtype or ACCUMULATED_IN[dtype] != out_dtype:
        raise ValueError("groups, or other dtypes")
    return conv2d(n, h, w, co, ci, kh, kw, _pair(strides), _pair(padding), _pair(dilation), dtype)


def _tensor(given: Any) -> tuple[list[int], str]:
    tag, shape, dtype = given
    if tag != "TENSOR" or len(shape) != 4 or dtype not in ACCUMULATED_IN:
        raise ValueError(f"not a tensor of four axes: {given}")
    return list(shape), dtype
