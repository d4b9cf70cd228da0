"""Kernel Tuner's files: cache files for its simulation mode, and results in the T4 format.

A file is a single JSON document about one kernel. The configs that it lists form the space ``parameters``; neither
format includes the restrictions that excluded other configs, because these are code. Times are in milliseconds unless a
T4 file specifies a different unit. T4: Tørring et al., "Towards a Benchmarking Suite for Kernel Tuners" (IPDPSW 2023),
schema version 1.0.0 from kernel_tuner 1.5.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..files import write_file
from ..log.format import Log, Record
from ..log.read import read_log_bytes
from ..records import Failure, Statistic
from ..schema import UNREADABLE
from ..space import Config, Space, Value
from ..target import RECORDED
from ..workload import Kernel, Workload, parse_workload
from .foreign import (
    ForeignTask,
    ForeignTrial,
    Reader,
    drop_repeated_configs,
    is_number,
    listed_space,
    to_datetime,
    value_of,
)

VERSION = "1.0.0"
"""The version of the T4 schema."""

CACHE, T4 = "kernel-tuner-cache", "kernel-tuner"

INVALIDITY: dict[Failure, str] = {
    "invalid": "constraints",
    "build_error": "compile",
    "build_timeout": "timeout",
    "run_error": "runtime",
    "run_timeout": "timeout",
    "crash": "runtime",
    "wrong_answer": "correctness",
}
"""A mapping from each failure to the word that T4 uses for it."""

FAILED_CONFIG = {"constraints": "InvalidConfig", "compile": "CompilationFailedConfig"}
"""A mapping from T4's words to those in cache files, which use RuntimeFailedConfig for all other failures."""

FAILED: dict[str, Failure] = {
    "InvalidConfig": "invalid",
    "CompilationFailedConfig": "build_error",
    "RuntimeFailedConfig": "run_error",
    "constraints": "invalid",
    "compile": "build_error",
    "runtime": "run_error",
    "timeout": "run_timeout",
    "correctness": "wrong_answer",
}
"""A mapping from the words in both formats to failures; any other word is a run_error."""

ERROR_VALUE = 1e20
"""The time that Kernel Tuner before version 1 records for a failed config."""

UNITS = {
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "miliseconds": 1e-3,
    "s": 1.0,
    "seconds": 1.0,
    "us": 1e-6,
    "microseconds": 1e-6,
    "ns": 1e-9,
    "nanoseconds": 1e-9,
}
RATES = ("gflop/s", "gflops", "gflops/s")
TOLERANCE = 1e-6

MIN_COMPLETENESS = 0.9
"""The share of the :func:`count_plausible` configs below which a file is assumed to contain only part of a space."""

MAX_LISTED = 1 << 14
"""The number of configs above which legal configs are counted in a random sample."""

MAX_COMBINATIONS = 10_000
"""The maximum number of combinations of parameters; beyond it, only combinations of fewer values are compared."""

MAX_PLAUSIBLE = 1e18

T4_TIMES = {
    "runtimes": "times",
    "compilation": "compile_time",
    "compilation_time": "compile_time",
    "benchmark": "benchmark_time",
    "validation": "verification_time",
    "search_algorithm": "strategy_time",
    "framework": "framework_time",
}
"""A mapping from the times in T4 files to those in cache files."""

Time = Annotated[float, msgspec.Meta(ge=0, le=1e300)] | None
Positive = Annotated[float, msgspec.Meta(ge=1e-300, le=1e300)]


class _Cache(msgspec.Struct):
    tune_params_keys: list[str]
    tune_params: dict[str, Any]
    cache: dict[str, Any]
    objective: Any = None
    problem_size: Any = None
    device_name: Any = None
    kernel_name: Any = None


class _Entry(msgspec.Struct):
    """A config in a cache file, without its parameters."""

    time: Any = None
    error: Any = msgspec.field(name="__error__", default=None)
    times: list[Time] | None = None
    compile_time: Time = None
    benchmark_time: Time = None
    verification_time: Time = None
    strategy_time: Time = None
    framework_time: Time = None
    timestamp: Any = None


class _Measurement(msgspec.Struct):
    name: Any = None
    value: Any = msgspec.UNSET
    unit: Any = None


class _T4Result(msgspec.Struct):
    """A config in a T4 file."""

    configuration: dict[str, Any]
    times: dict[str, Any] = {}
    measurements: list[_Measurement] = []
    invalidity: Any = "correct"
    correctness: Any = 1
    objectives: Any = None
    timestamp: Any = None


class _MeasuredConfig(NamedTuple):
    """A config from a file, with its measurement. Times are in seconds.

    Attributes:
        record: The record, without its times and failure.
        time: The time, or the word for the failure.
        rate: The throughput in GFLOP/s; NaN if unknown.
    """

    line: int
    record: Record
    time: float | str
    repeats: tuple[float, ...]
    rate: float


def read(path: Path) -> list[ForeignTask]:
    """Return the task in the file at ``path``. Raises SearchlabError, which names the record."""
    content, left_out = _read_content(path)
    return [
        _read_cache(path, content, left_out) if "tune_params_keys" in content else _read_t4(path, content, left_out)
    ]


def format_of(path: Path) -> str | None:
    """Return the format that the file at ``path`` seems to have, or None if it seems to have neither."""
    data = read_log_bytes(path)
    if b'"tune_params_keys"' in data:
        return CACHE
    return T4 if b'"results"' in data and b'"configuration"' in data else None


def _config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    config = Config(trial.record.config)
    space.knobs(config)
    return config


READER = Reader(
    "measurements other than the time; the kernel's code; and the restrictions: the configs that the file lists form "
    "the space, whatever restrictions excluded others",
    read,
    _config_in,
)


def _read_content(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the document at ``path``, and a description of the part at its end that is cut off, if any.

    Kernel Tuner closes a cache file's JSON only when it next reads it, and a killed run leaves an incomplete record.
    """
    try:
        text = read_log_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise SearchlabError(f"{path} is not UTF-8 text: {error}") from None
    if not text.strip():
        raise SearchlabError(f"{path} is empty, so there is nothing to import")
    complete = text.rstrip().rstrip(",")
    before = complete.rpartition("\n")[0].rstrip().rstrip(",")
    problem = ""
    for candidate in (text, complete + "}}", before + "}}"):
        try:
            content = json.loads(candidate, object_pairs_hook=_keep_first)
        except (ValueError, RecursionError) as error:  # an integer with thousands of digits also raises ValueError
            problem = problem or str(error)
            continue
        if isinstance(content, dict):
            return content, ["the last record, which is cut off"] if candidate == before + "}}" else []
    raise SearchlabError(
        f"{path} is neither a Kernel Tuner cache file nor a T4 file: it is not a single JSON object ({problem})"
    )


def _keep_first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of name-value pairs; of several pairs with the same name, the first is used."""
    return {**dict(pairs), **dict(reversed(pairs))}


def _convert(data: Any, kind: type[Any], problem: str) -> Any:
    try:
        return msgspec.convert(data, kind)
    except UNREADABLE as error:
        raise SearchlabError(f"{problem}: {error}") from None


def _value(value: Any) -> Value | None:
    """Return a parameter's value, or None if ``value`` cannot be one."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or isinstance(value, dict):
        return None
    return value_of(value)


def _read_cache(path: Path, content: dict[str, Any], left_out: list[str]) -> ForeignTask:
    file = _convert(content, _Cache, f"{path} is not a Kernel Tuner cache file")
    _check_objective(path, file.objective)
    parameters: dict[str, list[Value]] = {}
    for name in file.tune_params_keys:
        values = file.tune_params.get(name)
        choices = [_value(value) for value in values] if isinstance(values, list) else []
        if not choices or None in choices:
            raise SearchlabError(
                f"{path}: the parameter {name!r} must have a list of values in tune_params, not {values!r}"
            )
        parameters[name] = list(dict.fromkeys(cast("list[Value]", choices)))
    if not parameters:
        raise SearchlabError(f"{path} has no tuning parameters, so there is nothing to search")
    # 1, 1.0 and true are the same value.
    choices_by_name = {name: {value: value for value in values} for name, values in parameters.items()}
    rows = []
    for number, item in enumerate(file.cache.values(), 1):
        problem = f"{path}, record {number} is damaged"
        entry = _convert(item, _Entry, problem)
        config: dict[str, Any] = {}
        for name, choices_by_value in choices_by_name.items():
            value = _value(item.get(name))
            if value is None or value not in choices_by_value:
                raise SearchlabError(
                    f"{problem}: its {name} is {item.get(name)!r}, which is not among the values in tune_params"
                )
            config[name] = choices_by_value[value]
        time = _time(entry.error if isinstance(entry.error, str) else entry.time, UNITS["ms"], problem)
        rows.append(_make_row(number, config, entry, UNITS["ms"], time, item.items()))
    shape = file.problem_size if isinstance(file.problem_size, list) else [file.problem_size]
    sizes = "-" + "x".join(map(str, shape)) if all(type(extent) is int for extent in shape) and shape else ""
    device = str(file.device_name or "")
    name = _word(str(file.kernel_name or path.name.partition(".")[0])) + sizes
    name += f"@{_word(device)}" if _word(device) else ""
    return _task(path, CACHE, name, {"device": device} if device else {}, parameters, rows, left_out)


def _read_t4(path: Path, content: dict[str, Any], left_out: list[str]) -> ForeignTask:
    results, metadata = content.get("results"), content.get("metadata")
    if not isinstance(results, list):
        raise SearchlabError(f"{path} is neither a Kernel Tuner cache file nor a T4 file: it lacks a list of results")
    metadata = metadata if isinstance(metadata, dict) else {}
    default_unit = metadata.get("timeunit", "milliseconds")
    unit = _unit(path, default_unit)
    rows: list[_MeasuredConfig] = []
    for number, item in enumerate(results, 1):
        problem = f"{path}, record {number} is damaged"
        result = _convert(item, _T4Result, problem)
        config: dict[str, Any] = {name: _value(value) for name, value in result.configuration.items()}
        if not config or None in config.values() or (rows and config.keys() != rows[0].record.config.keys()):
            raise SearchlabError(
                f"{problem}: its configuration {result.configuration!r} has different parameters or invalid values"
            )
        _check_objective(path, result.objectives)
        times = {T4_TIMES[name]: time for name, time in result.times.items() if name in T4_TIMES}
        entry = _convert({**times, "timestamp": result.timestamp}, _Entry, problem)
        measurements = {str(measurement.name): measurement for measurement in result.measurements}
        time: Any = statistics.fmean(runtime or 0.0 for runtime in entry.times) if entry.times else None
        time_unit = unit
        if "time" in measurements and measurements["time"].value is not msgspec.UNSET:
            time = measurements["time"].value
            time_unit = _unit(path, measurements["time"].unit or default_unit)
        if result.invalidity != "correct":
            time = str(result.invalidity)
        elif result.correctness == 0:
            time = "correctness"
        pairs = [(name, measurement.value) for name, measurement in measurements.items()]
        rows.append(_make_row(number, config, entry, unit, _time(time, time_unit, problem), pairs))
    parameters: dict[str, list[Any]] = {}
    for parameter in rows[0].record.config if rows else ():
        values = list(dict.fromkeys(row.record.config[parameter] for row in rows))
        parameters[parameter] = sorted(values) if all(map(is_number, values)) else values
    workload = metadata.get("workload")
    name = workload if isinstance(workload, str) else _word(path.name.partition(".")[0])
    return _task(path, T4, name, {}, parameters, rows, left_out)


def _unit(path: Path, unit: Any) -> float:
    if str(unit).lower() not in UNITS:
        raise SearchlabError(f"{path}: unknown time unit {unit!r}; known units: {', '.join(UNITS)}")
    return UNITS[str(unit).lower()]


def _make_row(
    number: int,
    config: dict[str, Any],
    entry: _Entry,
    unit: float,
    time: float | str,
    measurements: Iterable[tuple[str, Any]],
) -> _MeasuredConfig:
    repeats = tuple(unit * (seconds or 0.0) for seconds in entry.times or ())
    record = Record(
        index=0,
        config=config,
        time=_timestamp(entry.timestamp),
        build_seconds=unit * (entry.compile_time or 0),
        run_seconds=(unit * (entry.benchmark_time or 0) or math.fsum(repeats)) + unit * (entry.verification_time or 0),
        propose_seconds=unit * (entry.strategy_time or 0),
        train_seconds=unit * (entry.framework_time or 0),
    )
    return _MeasuredConfig(number, record, time, repeats, _rate(measurements))


def _time(time: Any, unit: float, problem: str) -> float | str:
    """Return a config's time in seconds, or the word for its failure."""
    if isinstance(time, str) and time:
        return time
    if time in ("", None, ERROR_VALUE) or (isinstance(time, float) and not math.isfinite(time)):
        return f"its time is {time!r}"
    return unit * float(_convert(time, cast("type[Any]", Positive), f"{problem}: its time is {time!r}"))


def _rate(values: Iterable[tuple[str, Any]]) -> float:
    """Return the only rate in GFLOP/s among ``values``, or NaN if there is not exactly one."""
    numbers = [value for name, value in values if str(name).lower() in RATES and is_number(value)]
    rates = [float(value) for value in numbers if abs(value) < 1e300]  # an integer may be larger than any float
    return rates[0] if len(rates) == 1 else math.nan


def _timestamp(text: Any) -> float:
    """Return a timestamp as seconds since 1970, or 0 if it is missing or invalid."""
    if not isinstance(text, str):
        return 0.0
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _word(text: str) -> str:
    """Return ``text`` with underscores for all characters that a kernel's name cannot contain."""
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("_")


def _check_objective(path: Path, objective: Any) -> None:
    """Raise SearchlabError unless the objective is the time, or a rate, which is highest where the time is lowest."""
    objectives = objective if isinstance(objective, list) else [objective]
    if objectives not in ([None], []) and (len(objectives) > 1 or str(objectives[0]).lower() not in ("time", *RATES)):
        raise SearchlabError(
            f"the objective in {path} is {objective!r}, but searchlab compares times; import a file whose objective is "
            "time"
        )


def _task(
    path: Path,
    format: str,
    name: str,
    host: dict[str, Any],
    parameters: dict[str, list[Value]],
    rows: list[_MeasuredConfig],
    left_out: list[str],
) -> ForeignTask:
    if not rows:
        raise SearchlabError(f"{path} contains no records to import")
    statistic = _statistic(rows)
    trials = [ForeignTrial(row.line, _record_with_times(row, statistic)) for row in rows]
    workload, target, notes = _workload(name, rows), {"kind": RECORDED}, tuple(left_out)
    task = ForeignTask(format, name, workload, "", target, trials, host=host, statistic=statistic, left_out=notes)
    task = drop_repeated_configs(task)
    configs = [cast("dict[str, Value]", trial.record.config) for trial in task.trials]
    count, expected = len(configs), count_plausible(parameters, configs)
    if partial := count < MIN_COMPLETENESS * expected:
        note = (
            f"about {expected - count:,} configs: the file lists only {count:,} of the {expected:,} configs whose "
            "values occur together in it, so the file covers only part of the space, and its best config may not be "
            "the optimum"
        )
        task = replace(task, left_out=(*task.left_out, note))
    return replace(task, space=listed_space(parameters, configs), partial=partial)


def count_plausible(parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]) -> int:
    """Estimate the number of legal configs from the combinations of values that occur in ``configs``.

    A kernel's files do not contain its restrictions, but each restriction usually concerns few parameters. A config is
    therefore considered legal if all combinations of up to four of its values occur. If there are very many, the result
    is an estimate from a sample, which is always the same.

    Args:
        parameters: Each parameter's values.
        configs: The configs that a file lists.
    """
    axes = {name: {value: index for index, value in enumerate(values)} for name, values in parameters.items()}
    axes = {name: indices for name, indices in axes.items() if len(indices) > 1}
    rows = np.array([[indices[config[name]] for name, indices in axes.items()] for config in configs])
    sizes, max_arity = [len(indices) for indices in axes.values()], min(4, max(2, len(axes) - 1))
    while max_arity > 1 and sum(math.comb(len(axes), arity) for arity in range(max_arity + 1)) > MAX_COMBINATIONS:
        max_arity -= 1
    legal, factor = np.zeros((1, 0), np.int64), 1.0  # the legal choices of the first axes, or a sample of 1 / factor
    rng = np.random.default_rng(0)
    for axis, indices in enumerate(axes.values()):
        if len(legal) > MAX_LISTED:
            factor *= len(legal) / MAX_LISTED
            legal = legal[rng.choice(len(legal), MAX_LISTED, replace=False)]
        choices = np.tile(np.arange(len(indices)), len(legal))[:, None]
        legal = np.concatenate([np.repeat(legal, len(indices), axis=0), choices], axis=1)
        for arity in range(min(max_arity, axis + 1)):
            for earlier in combinations(range(axis), arity):
                subset = [*earlier, axis]
                occurs = np.zeros([sizes[i] for i in subset], dtype=np.bool_)
                occurs[tuple(rows[:, subset].T)] = True
                if not occurs.all():
                    legal = legal[occurs[tuple(legal[:, subset].T)]]
    return round(min(factor * len(legal), MAX_PLAUSIBLE))


STATISTICS: dict[Statistic, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
}


def _matches_statistic(row: _MeasuredConfig, statistic: Statistic) -> bool:
    """Return whether a row's time is ``statistic`` of its repeats."""
    if isinstance(row.time, str) or not row.repeats or min(row.repeats) <= 0:
        return False
    return math.isclose(STATISTICS[statistic](row.repeats), row.time, rel_tol=TOLERANCE)


def _statistic(rows: list[_MeasuredConfig]) -> Statistic:
    """Return the statistic of the repeats that matches the time in most rows."""
    return max(STATISTICS, key=lambda name: sum(_matches_statistic(row, name) for row in rows))


def _record_with_times(row: _MeasuredConfig, statistic: Statistic) -> Record:
    """Return a row's record with its times or failure; a time that is a different statistic becomes the only repeat."""
    changes: dict[str, Any] = {"statistic": statistic}
    if isinstance(row.time, str):
        changes |= {"failure": FAILED.get(row.time, "run_error"), "message": row.time}
    else:
        changes["seconds"] = row.repeats if _matches_statistic(row, statistic) else (row.time,)
    return msgspec.structs.replace(row.record, **changes)


def _workload(name: str, rows: list[_MeasuredConfig]) -> Workload:
    """Return the workload named in a file from searchlab, or a kernel, with its FLOPs if all rates agree on them."""
    if ":" in name:
        return parse_workload(name)
    flops = [row.rate * 1e9 * row.time for row in rows if isinstance(row.time, float)]
    middle = statistics.median(flops) if flops else math.nan
    is_same = math.isfinite(middle) and all(math.isclose(value, middle, rel_tol=TOLERANCE) for value in flops)
    return Kernel(name, (round(middle) or None) if is_same else None)


# --- writing ----------------------------------------------------------------------------------------------------------


def export(log: Log, out: Path, format: str) -> None:
    """Write a log to a new file, either as results in the T4 format or as a cache file.

    A cache file can be used with ``simulation_mode=True``. Its parameters must be numbers or strings, so tiles become
    strings.

    Raises:
        SearchlabError: If ``out`` exists, or if trials have different knobs, which a cache file cannot represent.
    """
    if out.exists():
        raise SearchlabError(f"{out} already exists; choose a different file as --out")
    content = _t4_of(log) if format == T4 else _cache_of(log)
    write_file(out, json.dumps(content, indent=1) + "\n")


def _t4_of(log: Log) -> dict[str, Any]:
    header = log.header
    metadata = {
        "workload": header.workload,
        "space": header.space.name,
        "policy": header.policy.name,
        "seed": header.seed,
        "target": header.target,
        "host": header.host,
        "objective_unit": "ms",
        "timeunit": "milliseconds",
    }
    return {"schema_version": VERSION, "metadata": metadata, "results": [_result(record) for record in log.records]}


def _result(record: Record) -> dict[str, Any]:
    failed = record.failure is not None
    return {
        "timestamp": to_datetime(record.time).isoformat(),
        "configuration": record.config,
        "times": {
            "compilation_time": 1e3 * record.build_seconds,
            "benchmark": 1e3 * record.run_seconds,
            "framework": 1e3 * record.train_seconds,
            "search_algorithm": 1e3 * record.propose_seconds,
            "validation": 0.0,
            "runtimes": [1e3 * second for second in record.seconds],
        },
        "invalidity": INVALIDITY[record.failure] if record.failure else "correct",
        "correctness": 0 if record.failure == "wrong_answer" else 1,
        "measurements": [] if failed else [{"name": "time", "value": 1e3 * record.cost, "unit": "ms"}],
        "objectives": ["time"],
    }


def _cache_of(log: Log) -> dict[str, Any]:
    names = list(log.records[0].config) if log.records else []
    entries: dict[str, Any] = {}
    params: dict[str, dict[Any, None]] = {name: {} for name in names}
    for record in log.records:
        if set(record.config) != set(names):
            raise SearchlabError(
                f"{log.path}: trials {record.index} and 0 have different knobs, but a Kernel Tuner cache file has only "
                f"one set of parameters; export the log with --to kernel-tuner"
            )
        # Keys are comma-separated values, so a tile is written without commas.
        choice = {
            name: "x".join(map(str, value)) if isinstance(value := record.config[name], list | tuple) else value
            for name in names
        }
        for name, value in choice.items():
            params[name][value] = None
        result = _result(record)
        failed = FAILED_CONFIG.get(result["invalidity"], "RuntimeFailedConfig")
        entry = {
            **choice,
            "time": 1e3 * record.cost if record.failure is None else failed,
            **{T4_TIMES[name]: time for name, time in result["times"].items()},
            "timestamp": result["timestamp"],
        }
        entries.setdefault(",".join(map(str, choice.values())), entry)  # only a config's first measurement is used
    return {
        "device_name": str(log.header.host.get("cpu") or log.header.target.get("mcpu", log.header.target["kind"])),
        "kernel_name": log.header.workload,
        "problem_size": 1,
        "tune_params_keys": names,
        "tune_params": {name: list(values) for name, values in params.items()},
        "objective": "time",
        "cache": entries,
    }
