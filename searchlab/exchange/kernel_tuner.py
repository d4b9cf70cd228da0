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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import numpy as np

from ..arrays import Ints
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
    make_listed_space,
    to_config_value,
    to_datetime,
)

T4_VERSION = "1.0.0"
"""The version of the T4 schema."""

CACHE_FORMAT, T4_FORMAT = "kernel-tuner-cache", "kernel-tuner"

INVALIDITY_BY_FAILURE: dict[Failure, str] = {
    "invalid": "constraints",
    "build_error": "compile",
    "build_timeout": "timeout",
    "run_error": "runtime",
    "run_timeout": "timeout",
    "crash": "runtime",
    "wrong_answer": "correctness",
}
"""A mapping from each failure to the word that T4 uses for it."""

CACHE_WORD_BY_INVALIDITY = {"constraints": "InvalidConfig", "compile": "CompilationFailedConfig"}
"""A mapping from T4's words to those in cache files, which use RuntimeFailedConfig for all other failures."""

FAILURE_BY_WORD: dict[str, Failure] = {
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

FAILED_TIME = 1e20
"""The time that Kernel Tuner before version 1 records for a failed config."""

SECONDS_BY_UNIT = {
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
RATE_NAMES = ("gflop/s", "gflops", "gflops/s")
RELATIVE_TOLERANCE = 1e-6

MIN_COMPLETENESS = 0.9
"""The share of the :func:`count_plausible` configs below which a file is assumed to contain only part of a space."""

MAX_LISTED_CONFIGS = 1 << 14
"""The number of configs above which legal configs are counted in a random sample."""

MAX_COMBINATIONS = 10_000
"""The maximum number of combinations of parameters; beyond it, only combinations of fewer values are compared."""

MAX_PLAUSIBLE_CONFIGS = 1e18

STATISTIC_FUNCTIONS: dict[Statistic, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
}

CACHE_TIMES_BY_T4_TIME = {
    "runtimes": "times",
    "compilation": "compile_time",
    "compilation_time": "compile_time",
    "benchmark": "benchmark_time",
    "validation": "verification_time",
    "search_algorithm": "strategy_time",
    "framework": "framework_time",
}
"""A mapping from the times in T4 files to those in cache files."""

NonNegativeTime = Annotated[float, msgspec.Meta(ge=0, le=1e300)] | None
PositiveTime = Annotated[float, msgspec.Meta(ge=1e-300, le=1e300)]


class _CacheFile(msgspec.Struct):
    tune_params_keys: list[str]
    tune_params: dict[str, Any]
    cache: dict[str, Any]
    objective: Any = None
    problem_size: Any = None
    device_name: Any = None
    kernel_name: Any = None


class _CacheTimes(msgspec.Struct):
    """The times of a config besides its time, as a cache file calls them."""

    times: list[NonNegativeTime] | None = None
    compile_time: NonNegativeTime = None
    benchmark_time: NonNegativeTime = None
    verification_time: NonNegativeTime = None
    strategy_time: NonNegativeTime = None
    framework_time: NonNegativeTime = None
    timestamp: Any = None


class _T4Measurement(msgspec.Struct):
    name: Any = None
    value: Any = msgspec.UNSET
    unit: Any = None


class _T4Result(msgspec.Struct):
    """A config in a T4 file."""

    configuration: dict[str, Any]
    times: dict[str, Any] = {}
    measurements: list[_T4Measurement] = []
    invalidity: Any = "correct"
    correctness: Any = 1
    objectives: Any = None
    timestamp: Any = None


@dataclass(frozen=True)
class _FileConfig:
    """A config from a file in either format.

    Attributes:
        problem: The beginning of an error message about it.
        number: The number of its record, from 1.
        time: Its time, or the word for its failure.
        seconds_per_time_unit: The unit of ``time``, in seconds.
        seconds_per_unit: The unit of its other times, in seconds.
        values_by_name: Values among which its throughput may be.
    """

    problem: str
    number: int
    config: dict[str, Any]
    time: Any
    seconds_per_time_unit: float
    other_times: _CacheTimes
    seconds_per_unit: float
    values_by_name: Mapping[str, Any]

    @cached_property
    def seconds_or_failure(self) -> float | str:
        """The time in seconds, or the word for the failure. Raises SearchlabError if the time is damaged."""
        if isinstance(self.time, str) and self.time:
            return self.time
        if self.time in ("", None, FAILED_TIME) or (isinstance(self.time, float) and not math.isfinite(self.time)):
            return f"its time is {self.time!r}"
        time = _convert(self.time, cast("type[Any]", PositiveTime), f"{self.problem}: its time is {self.time!r}")
        return self.seconds_per_time_unit * float(time)

    @cached_property
    def repeats(self) -> tuple[float, ...]:
        return tuple(self.seconds_per_unit * (repeat or 0.0) for repeat in self.other_times.times or ())

    @property
    def gflops(self) -> float:
        """The only rate in GFLOP/s among its values, or NaN if there is not exactly one."""
        rates = [
            value for name, value in self.values_by_name.items() if name.lower() in RATE_NAMES and is_number(value)
        ]
        rates = [float(rate) for rate in rates if abs(rate) < 1e300]  # an integer may be larger than any float
        return rates[0] if len(rates) == 1 else math.nan

    def matches_statistic(self, statistic: Statistic) -> bool:
        """Return whether the time is ``statistic`` of the repeats."""
        seconds = self.seconds_or_failure
        if isinstance(seconds, str) or not self.repeats or min(self.repeats) <= 0:
            return False
        return math.isclose(STATISTIC_FUNCTIONS[statistic](self.repeats), seconds, rel_tol=RELATIVE_TOLERANCE)

    def to_record(self, statistic: Statistic) -> Record:
        """Return the config's record. A time that is a different statistic of the repeats becomes the only repeat."""
        times, unit = self.other_times, self.seconds_per_unit
        record = Record(
            index=0,
            config=self.config,
            recorded_at=_parse_timestamp(times.timestamp),
            build_seconds=unit * (times.compile_time or 0),
            run_seconds=(unit * (times.benchmark_time or 0) or math.fsum(self.repeats))
            + unit * (times.verification_time or 0),
            propose_seconds=unit * (times.strategy_time or 0),
            train_seconds=unit * (times.framework_time or 0),
            statistic=statistic,
        )
        if isinstance(result := self.seconds_or_failure, str):
            failure = FAILURE_BY_WORD.get(result, "run_error")
            return msgspec.structs.replace(record, failure=failure, message=result)
        seconds = self.repeats if self.matches_statistic(statistic) else (result,)
        return msgspec.structs.replace(record, seconds=seconds)


def read(path: Path) -> list[ForeignTask]:
    """Return the task in the file at ``path``. Raises SearchlabError, which names the record."""
    document, omissions = _read_document(path)
    return [
        _read_cache(path, document, omissions)
        if "tune_params_keys" in document
        else _read_t4(path, document, omissions)
    ]


def detect_format(path: Path) -> str | None:
    """Return the format that the file at ``path`` seems to have, or None if it seems to have neither."""
    content = read_log_bytes(path)
    if b'"tune_params_keys"' in content:
        return CACHE_FORMAT
    return T4_FORMAT if b'"results"' in content and b'"configuration"' in content else None


def _find_config(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    config = Config(trial.record.config)
    space.knobs(config)
    return config


READER = Reader(
    "measurements other than the time; the kernel's code; and the restrictions: the configs that the file lists form "
    "the space, whatever restrictions excluded others",
    read,
    _find_config,
)


def _read_document(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the document at ``path``, and a description of the part at its end that is cut off, if any.

    Kernel Tuner closes a cache file's JSON only when it next reads it, and a killed run leaves an incomplete record.
    """
    try:
        text = read_log_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise SearchlabError(f"{path} is not UTF-8 text: {error}") from None
    if not text.strip():
        raise SearchlabError(f"{path} is empty, so there is nothing to import")
    complete_text = text.rstrip().rstrip(",")
    previous_lines = complete_text.rpartition("\n")[0].rstrip().rstrip(",")
    problem = ""
    for candidate_text in (text, complete_text + "}}", previous_lines + "}}"):
        try:
            document = json.loads(candidate_text, object_pairs_hook=_keep_first)
        except (ValueError, RecursionError) as error:  # an integer with thousands of digits also raises ValueError
            problem = problem or str(error)
            continue
        if isinstance(document, dict):
            return document, ["the last record, which is cut off"] if candidate_text == previous_lines + "}}" else []
    raise SearchlabError(
        f"{path} is neither a Kernel Tuner cache file nor a T4 file: it is not a single JSON object ({problem})"
    )


def _keep_first(named_values: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of name-value pairs; of several pairs with the same name, the first is used."""
    return {**dict(named_values), **dict(reversed(named_values))}


def _convert(value: Any, target_type: type[Any], error_prefix: str) -> Any:
    try:
        return msgspec.convert(value, target_type)
    except UNREADABLE as error:
        raise SearchlabError(f"{error_prefix}: {error}") from None


def _to_parameter_value(value: Any) -> Value | None:
    """Return a parameter's value, or None if ``value`` cannot be one."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or isinstance(value, dict):
        return None
    return to_config_value(value)


def _read_cache(path: Path, document: dict[str, Any], omissions: list[str]) -> ForeignTask:
    cache_file = _convert(document, _CacheFile, f"{path} is not a Kernel Tuner cache file")
    _check_objective(path, cache_file.objective)
    parameters = _read_parameters(path, cache_file)
    configs = [
        _read_cache_record(f"{path}, record {number} is damaged", number, fields, parameters)
        for number, fields in enumerate(cache_file.cache.values(), 1)
    ]
    device = str(cache_file.device_name or "")
    name = _sanitize_name(str(cache_file.kernel_name or path.name.partition(".")[0]))
    extents = cache_file.problem_size if isinstance(cache_file.problem_size, list) else [cache_file.problem_size]
    if extents and all(type(extent) is int for extent in extents):
        name += f"-{'x'.join(map(str, extents))}"
    if _sanitize_name(device):
        name += f"@{_sanitize_name(device)}"
    host = {"device": device} if device else {}
    return _make_task(path, CACHE_FORMAT, name, host, parameters, configs, omissions)


def _read_parameters(path: Path, cache_file: _CacheFile) -> dict[str, list[Value]]:
    """Return each parameter's values. Of equal ones, such as 1, 1.0 and true, only the first is kept."""
    parameters: dict[str, list[Value]] = {}
    for name in cache_file.tune_params_keys:
        values = cache_file.tune_params.get(name)
        choices = [_to_parameter_value(value) for value in values] if isinstance(values, list) else []
        if not choices or None in choices:
            raise SearchlabError(
                f"{path}: the parameter {name!r} must have a list of values in tune_params, not {values!r}"
            )
        parameters[name] = list(dict.fromkeys(cast("list[Value]", choices)))
    if not parameters:
        raise SearchlabError(f"{path} has no tuning parameters, so there is nothing to search")
    return parameters


def _read_cache_record(problem: str, number: int, fields: Any, parameters: dict[str, list[Value]]) -> _FileConfig:
    other_times = _convert(fields, _CacheTimes, problem)
    config: dict[str, Value] = {}
    for name, choices in parameters.items():
        value = _to_parameter_value(fields.get(name))
        if value is None or value not in choices:
            raise SearchlabError(
                f"{problem}: its {name} is {fields.get(name)!r}, which is not among the values in tune_params"
            )
        config[name] = choices[choices.index(value)]
    error, milliseconds = fields.get("__error__"), SECONDS_BY_UNIT["ms"]
    time = error if isinstance(error, str) else fields.get("time")
    return _FileConfig(problem, number, config, time, milliseconds, other_times, milliseconds, fields)


def _read_t4(path: Path, document: dict[str, Any], omissions: list[str]) -> ForeignTask:
    results, metadata = document.get("results"), document.get("metadata")
    if not isinstance(results, list):
        raise SearchlabError(f"{path} is neither a Kernel Tuner cache file nor a T4 file: it lacks a list of results")
    metadata = metadata if isinstance(metadata, dict) else {}
    seconds_per_unit = _seconds_per_unit(path, metadata.get("timeunit", "milliseconds"))
    configs: list[_FileConfig] = []
    for number, fields in enumerate(results, 1):
        problem = f"{path}, record {number} is damaged"
        result = _convert(fields, _T4Result, problem)
        _check_objective(path, result.objectives)
        file_config = _read_t4_result(path, problem, number, result, seconds_per_unit)
        config = file_config.config
        has_other_names = bool(configs) and config.keys() != configs[0].config.keys()
        if not config or None in config.values() or has_other_names:
            raise SearchlabError(
                f"{problem}: its configuration {result.configuration!r} has different parameters or invalid values"
            )
        configs.append(file_config)
    parameters: dict[str, list[Any]] = {}
    for parameter in configs[0].config if configs else ():
        values = list(dict.fromkeys(file_config.config[parameter] for file_config in configs))
        parameters[parameter] = sorted(values) if all(map(is_number, values)) else values
    workload = metadata.get("workload")
    name = workload if isinstance(workload, str) else _sanitize_name(path.name.partition(".")[0])
    return _make_task(path, T4_FORMAT, name, {}, parameters, configs, omissions)


def _read_t4_result(path: Path, problem: str, number: int, result: _T4Result, seconds_per_unit: float) -> _FileConfig:
    config: dict[str, Any] = {name: _to_parameter_value(value) for name, value in result.configuration.items()}
    times_by_name = {
        CACHE_TIMES_BY_T4_TIME[name]: time for name, time in result.times.items() if name in CACHE_TIMES_BY_T4_TIME
    }
    other_times = _convert({**times_by_name, "timestamp": result.timestamp}, _CacheTimes, problem)
    values_by_name = {str(measurement.name): measurement.value for measurement in result.measurements}
    time, time_unit = _find_t4_time(result, other_times.times or ())
    seconds_per_time_unit = _seconds_per_unit(path, time_unit) if time_unit else seconds_per_unit
    return _FileConfig(
        problem, number, config, time, seconds_per_time_unit, other_times, seconds_per_unit, values_by_name
    )


def _find_t4_time(result: _T4Result, runtimes: Sequence[NonNegativeTime]) -> tuple[Any, Any]:
    """Return a config's time or the word for its failure, and the time's unit if it differs from the file's."""
    if result.invalidity != "correct":
        return str(result.invalidity), None
    if result.correctness == 0:
        return "correctness", None
    times = [measurement for measurement in result.measurements if measurement.name == "time"]
    if times and times[-1].value is not msgspec.UNSET:
        return times[-1].value, times[-1].unit
    if runtimes:
        return statistics.fmean(runtime or 0.0 for runtime in runtimes), None
    return None, None


def _seconds_per_unit(path: Path, unit: Any) -> float:
    if str(unit).lower() not in SECONDS_BY_UNIT:
        raise SearchlabError(f"{path}: unknown time unit {unit!r}; known units: {', '.join(SECONDS_BY_UNIT)}")
    return SECONDS_BY_UNIT[str(unit).lower()]


def _parse_timestamp(text: Any) -> float:
    """Return a timestamp as seconds since 1970, or 0 if it is missing or invalid."""
    if not isinstance(text, str):
        return 0.0
    try:
        date = datetime.fromisoformat(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _sanitize_name(text: str) -> str:
    """Return ``text`` with underscores for all characters that a kernel's name cannot contain."""
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("_")


def _check_objective(path: Path, objective: Any) -> None:
    """Raise SearchlabError unless the objective is the time, or a rate, which is highest where the time is lowest."""
    objectives = objective if isinstance(objective, list) else [objective]
    has_objective = objectives not in ([None], [])
    if has_objective and (len(objectives) > 1 or str(objectives[0]).lower() not in ("time", *RATE_NAMES)):
        raise SearchlabError(
            f"the objective in {path} is {objective!r}, but searchlab compares times; import a file whose objective is "
            "time"
        )


def _make_task(
    path: Path,
    format: str,
    name: str,
    host: dict[str, Any],
    parameters: dict[str, list[Value]],
    file_configs: list[_FileConfig],
    omissions_in_file: list[str],
) -> ForeignTask:
    if not file_configs:
        raise SearchlabError(f"{path} contains no records to import")
    statistic = _infer_statistic(file_configs)
    task = ForeignTask(
        format=format,
        name=name,
        workload=_infer_workload(name, file_configs),
        unknown_reason="",
        target={"kind": RECORDED},
        trials=[ForeignTrial(config.number, config.to_record(statistic)) for config in file_configs],
        host=host,
        statistic=statistic,
        omissions=tuple(omissions_in_file),
    )
    task = drop_repeated_configs(task)
    configs = [cast("dict[str, Value]", trial.record.config) for trial in task.trials]
    listed_count, plausible_count = len(configs), count_plausible(parameters, configs)
    if is_partial := listed_count < MIN_COMPLETENESS * plausible_count:
        omission = (
            f"about {plausible_count - listed_count:,} configs: the file lists only {listed_count:,} of the "
            f"{plausible_count:,} configs whose values occur together in it, so the file covers only part of the "
            f"space, and its best config may not be the optimum"
        )
        task = replace(task, omissions=(*task.omissions, omission))
    return replace(task, space=make_listed_space(parameters, configs), is_partial=is_partial)


def count_plausible(parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]) -> int:
    """Estimate the number of legal configs from the combinations of values that occur in ``configs``.

    A kernel's files do not contain its restrictions, but each restriction usually concerns few parameters. A config is
    therefore considered legal if all combinations of up to four of its values occur. If there are very many, the result
    is an estimate from a sample, which is always the same.

    Args:
        parameters: Each parameter's values.
        configs: The configs that a file lists.
    """
    axes = {name: {value: position for position, value in enumerate(values)} for name, values in parameters.items()}
    axes = {name: positions for name, positions in axes.items() if len(positions) > 1}
    listed_rows = np.array([[positions[config[name]] for name, positions in axes.items()] for config in configs])
    axis_sizes = np.array([len(positions) for positions in axes.values()], dtype=np.int64)
    max_arity = _choose_max_arity(len(axis_sizes))
    # The legal choices of the first axes, or a sample of 1 / sampling_factor of them.
    legal_rows, sampling_factor = np.zeros((1, 0), np.int64), 1.0
    rng = np.random.default_rng(0)
    for axis, axis_size in enumerate(axis_sizes):
        if len(legal_rows) > MAX_LISTED_CONFIGS:
            sampling_factor *= len(legal_rows) / MAX_LISTED_CONFIGS
            legal_rows = legal_rows[rng.choice(len(legal_rows), MAX_LISTED_CONFIGS, replace=False)]
        choices = np.tile(np.arange(axis_size), len(legal_rows))[:, None]
        legal_rows = np.concatenate([np.repeat(legal_rows, axis_size, axis=0), choices], axis=1)
        for arity in range(min(max_arity, axis + 1)):
            for earlier_axes in combinations(range(axis), arity):
                legal_rows = _select_occurring(legal_rows, listed_rows, axis_sizes, [*earlier_axes, axis])
    return round(min(sampling_factor * len(legal_rows), MAX_PLAUSIBLE_CONFIGS))


def _choose_max_arity(axis_count: int) -> int:
    """Return how many values a combination may have, so that there are at most :data:`MAX_COMBINATIONS`."""
    max_arity = min(4, max(2, axis_count - 1))
    while max_arity > 1 and sum(math.comb(axis_count, arity) for arity in range(max_arity + 1)) > MAX_COMBINATIONS:
        max_arity -= 1
    return max_arity


def _select_occurring(rows: Ints, listed_rows: Ints, axis_sizes: Ints, axes: list[int]) -> Ints:
    """Return the ``rows`` whose combination of positions on ``axes`` occurs in ``listed_rows``."""
    occurs = np.zeros(axis_sizes[axes], dtype=np.bool_)
    occurs[tuple(listed_rows[:, axes].T)] = True
    return rows if occurs.all() else rows[occurs[tuple(rows[:, axes].T)]]


def _infer_statistic(file_configs: list[_FileConfig]) -> Statistic:
    """Return the statistic of the repeats that matches the time in most rows."""
    return max(STATISTIC_FUNCTIONS, key=lambda name: sum(config.matches_statistic(name) for config in file_configs))


def _infer_workload(name: str, file_configs: list[_FileConfig]) -> Workload:
    """Return the workload named in a file from searchlab, or a kernel, with its FLOPs if all rates agree on them."""
    if ":" in name:
        return parse_workload(name)
    flop_counts = [
        config.gflops * 1e9 * config.seconds_or_failure
        for config in file_configs
        if isinstance(config.seconds_or_failure, float)
    ]
    flops = statistics.median(flop_counts) if flop_counts else math.nan
    is_same = math.isfinite(flops) and all(
        math.isclose(count, flops, rel_tol=RELATIVE_TOLERANCE) for count in flop_counts
    )
    return Kernel(name, (round(flops) or None) if is_same else None)


# --- writing ----------------------------------------------------------------------------------------------------------


def export(logs: Sequence[Log], out_path: Path, format: str) -> list[str]:
    """Write a single log to a new file, either as results in the T4 format or as a cache file.

    A cache file can be used with ``simulation_mode=True``. Its parameters must be numbers or strings, so tiles become
    strings.

    Returns:
        No sentences, because each format always omits the same parts.

    Raises:
        SearchlabError: If there are several logs, if ``out_path`` exists, or if trials have different knobs, which a
            cache file cannot represent.
    """
    if len(logs) > 1:
        raise SearchlabError(
            f"a Kernel Tuner file can contain only one run, but {len(logs)} logs were given; pass a single log"
        )
    if out_path.exists():
        raise SearchlabError(f"{out_path} already exists; choose a different file as --out")
    document = _make_t4(logs[0]) if format == T4_FORMAT else _make_cache(logs[0])
    write_file(out_path, json.dumps(document, indent=1) + "\n")
    return []


def _make_t4(log: Log) -> dict[str, Any]:
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
    results = [_make_t4_result(record) for record in log.records]
    return {"schema_version": T4_VERSION, "metadata": metadata, "results": results}


def _make_t4_result(record: Record) -> dict[str, Any]:
    has_failed = record.failure is not None
    return {
        "timestamp": to_datetime(record.recorded_at).isoformat(),
        "configuration": record.config,
        "times": {
            "compilation_time": 1e3 * record.build_seconds,
            "benchmark": 1e3 * record.run_seconds,
            "framework": 1e3 * record.train_seconds,
            "search_algorithm": 1e3 * record.propose_seconds,
            "validation": 0.0,
            "runtimes": [1e3 * second for second in record.seconds],
        },
        "invalidity": INVALIDITY_BY_FAILURE[record.failure] if record.failure else "correct",
        "correctness": 0 if record.failure == "wrong_answer" else 1,
        "measurements": [] if has_failed else [{"name": "time", "value": 1e3 * record.cost, "unit": "ms"}],
        "objectives": ["time"],
    }


def _make_cache(log: Log) -> dict[str, Any]:
    knob_names = list(log.records[0].config) if log.records else []
    entries_by_key: dict[str, Any] = {}
    values_by_knob: dict[str, dict[Any, None]] = {name: {} for name in knob_names}
    for record in log.records:
        if set(record.config) != set(knob_names):
            raise SearchlabError(
                f"{log.path}: trials {record.index} and 0 have different knobs, but a Kernel Tuner cache file has only "
                f"one set of parameters; export the log with --to kernel-tuner"
            )
        # Keys are comma-separated values, so a tile is written without commas.
        entry_config = {
            name: "x".join(map(str, value)) if isinstance(value := record.config[name], list | tuple) else value
            for name in knob_names
        }
        for name, value in entry_config.items():
            values_by_knob[name][value] = None
        t4_result = _make_t4_result(record)
        failure_word = CACHE_WORD_BY_INVALIDITY.get(t4_result["invalidity"], "RuntimeFailedConfig")
        cache_entry = {
            **entry_config,
            "time": 1e3 * record.cost if record.failure is None else failure_word,
            **{CACHE_TIMES_BY_T4_TIME[name]: time for name, time in t4_result["times"].items()},
            "timestamp": t4_result["timestamp"],
        }
        key = ",".join(map(str, entry_config.values()))
        entries_by_key.setdefault(key, cache_entry)  # only a config's first measurement is used
    return {
        "device_name": str(log.header.host.get("cpu") or log.header.target.get("mcpu", log.header.target["kind"])),
        "kernel_name": log.header.workload,
        "problem_size": 1,
        "tune_params_keys": knob_names,
        "tune_params": {name: list(values) for name, values in values_by_knob.items()},
        "objective": "time",
        "cache": entries_by_key,
    }
