"""Kernel Tuner's cache files, and results in the T4 format, as tables in the space ``parameters``.

Such a file is one JSON document about one kernel. The configs that it lists are the space: the restrictions that left
out others are in neither format, and would be code. Times are in milliseconds, as Kernel Tuner has them, unless a T4
file names another unit.

What is lost: other measurements than the time (the FLOPs are kept where a rate in GFLOP/s gives them), the default
config, and which configs a restriction left out.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from ..errors import SearchlabError
from ..log.format import read_bytes
from ..plugins import Plugin
from ..records import Failure, Statistic
from ..space import SPACES, Config, Space, Value
from ..target import RECORDED
from ..workload import Workload, kernel, parse_workload
from .foreign import ForeignTask, ForeignTrial, value_of

SPACE = "parameters"
CACHE, T4 = "kernel-tuner-cache", "kernel-tuner"
"""The two formats, by the names that exports have."""

FAILED: dict[str, Failure] = {
    "InvalidConfig": "invalid", "CompilationFailedConfig": "build_error", "RuntimeFailedConfig": "run_error",
    "constraints": "invalid", "compile": "build_error", "runtime": "run_error", "timeout": "run_timeout",
    "correctness": "wrong_answer",
}  # fmt: skip
"""The words of a failure in a cache file (the first three) and in T4. Any other word is a run_error."""

ERROR_VALUE = 1e20
"""The time of a config that failed, in Kernel Tuner before version 1."""

UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "miliseconds": 1e-3, "s": 1.0, "seconds": 1.0, "us": 1e-6,
         "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9}  # fmt: skip
RATES = ("gflop/s", "gflops", "gflops/s")
CLOSE = 1e-6


class ListsConfigs(Protocol):
    """What the class of the space has besides its contract: how a list of configs is spelled as options."""

    @classmethod
    def options_for(
        cls, parameters: Mapping[str, Sequence[Value]], configs: Sequence[Mapping[str, Value]]
    ) -> dict[str, Any]: ...


@dataclass
class _File:
    """A file, while it is read. What its methods refuse, they refuse with SearchlabError, naming the record."""

    path: Path
    format: str
    unit: float
    parameters: dict[str, list[Value]]
    trials: list[ForeignTrial] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)  # as the file has them, NaN where a trial failed
    flops: list[float] = field(default_factory=list)
    twice: int = 0

    def damaged(self, number: int, why: object) -> NoReturn:
        raise SearchlabError(f"{self.path}, record {number} is damaged: {why}") from None

    def seconds(self, number: int, what: str, given: Any, unit: float | None = None) -> float:
        """A number of the file as seconds, at least 0."""
        if given is None:
            return 0.0
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
            self.damaged(number, f"its {what} is {given!r}, no time")
        try:
            return float(given) * (self.unit if unit is None else unit)
        except OverflowError:
            self.damaged(number, f"its {what} is too large for a time")

    def repeats(self, number: int, given: Any) -> tuple[float, ...]:
        if given is None:
            return ()
        if not isinstance(given, list):
            self.damaged(number, f"its times are {given!r}, no list")
        return tuple(self.seconds(number, "time", one) for one in given)

    def add(self, trial: ForeignTrial, cost: float, rates: Iterable[tuple[str, Any]]) -> None:
        """Keep ``trial``, unless its config was there before: the first measurement counts."""
        key = Config(trial.config)
        if key in self._seen:
            self.twice += 1
            return
        self._seen.add(key)
        self.trials.append(trial)
        self.costs.append(cost)
        if trial.failure is None:
            numbers = (value for name, value in rates if str(name).lower() in RATES and _is_number(value))
            given = [value for value in numbers if abs(value) < 1e300]  # an integer may be more than a float can be
            self.flops.append(given[0] * 1e9 * cost if len(given) == 1 else math.nan)

    def __post_init__(self) -> None:
        self._seen: set[Config] = set()


def read(path: Path) -> list[ForeignTask]:
    """The one task of the file at ``path``. Raises SearchlabError, naming the record."""
    content, left_out = _content(path)
    return [_cache(path, content, left_out) if "tune_params_keys" in content else _t4(path, content, left_out)]


def format_of(path: Path) -> str | None:
    """Which of the two formats the file at ``path`` looks like; None for neither."""
    data = read_bytes(path)
    if b'"tune_params_keys"' in data:
        return CACHE
    return T4 if b'"results"' in data and b'"configuration"' in data else None


def config_in(space: Space, task: ForeignTask, trial: ForeignTrial) -> Config:
    """See :meth:`.foreign.Reader.config_in`."""
    config = Config(trial.config)
    space.knobs(config)
    return config


# --- the document -----------------------------------------------------------------------------------------------------


def _content(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The document at ``path``, and what is cut off at its end, in words.

    Kernel Tuner closes a cache file only when it reads it again, and a run that was killed leaves half a record.
    """
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise SearchlabError(f"{path} is not text in UTF-8: {error}") from None
    if not text.strip():
        raise SearchlabError(f"{path} is empty; it holds no record to import")
    whole = text.rstrip().rstrip(",")
    before, _, _ = whole.rpartition("\n")
    for attempt, left_out in (
        (text, []),
        (whole + "}}", []),
        (before.rstrip().rstrip(",") + "}}", ["the last record, which is cut off"]),
    ):
        try:
            content = json.loads(attempt, object_pairs_hook=_first)
        except (ValueError, RecursionError) as error:  # ValueError also for a whole number of thousands of digits
            if attempt is text:
                problem = str(error)
            continue
        if isinstance(content, dict):
            return content, left_out
    raise SearchlabError(
        f"{path} is neither a Kernel Tuner cache file nor a T4 file: it is not one JSON object ({problem})"
    )


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, in which the first of two equal names counts."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        content.setdefault(name, value)
    return content


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(given: Any) -> Value | None:
    """A choice; None where ``given`` cannot be one."""
    if given is None or (isinstance(given, float) and not math.isfinite(given)) or isinstance(given, dict):
        return None
    return value_of(given)


# --- cache files ------------------------------------------------------------------------------------------------------


def _cache(path: Path, content: dict[str, Any], left_out: list[str]) -> ForeignTask:
    names, values, entries = content["tune_params_keys"], content.get("tune_params"), content.get("cache")
    if not isinstance(names, list) or not isinstance(values, dict) or not isinstance(entries, dict):
        raise SearchlabError(f"{path} is not a Kernel Tuner cache file: tune_params or cache is missing or no object")
    file = _File(path, CACHE, 1e-3, _parameters(path, names, values))
    _check_objective(path, content.get("objective"))
    positions = {name: {value: value for value in given} for name, given in file.parameters.items()}
    for number, entry in enumerate(entries.values(), 1):
        if not isinstance(entry, dict):
            file.damaged(number, f"it is {entry!r}, no object")
        config: dict[str, Value] = {}
        for name, known in positions.items():
            value = _value(entry.get(name))
            if value is None or value not in known:
                file.damaged(number, f"its {name} is {entry.get(name)!r}, which is none of the values in tune_params")
            config[name] = known[value]  # 1 and 1.0 and true are one value
        trial = ForeignTrial(
            line=number, config=config, source=None, time=_moment(entry.get("timestamp")),
            build_seconds=file.seconds(number, "compile_time", entry.get("compile_time")),
            propose_seconds=file.seconds(number, "strategy_time", entry.get("strategy_time")),
            train_seconds=file.seconds(number, "framework_time", entry.get("framework_time")),
        )  # fmt: skip
        repeats = file.repeats(number, entry.get("times"))
        ran = file.seconds(number, "benchmark_time", entry.get("benchmark_time")) or math.fsum(repeats)
        checked = file.seconds(number, "verification_time", entry.get("verification_time"))
        error = entry.get("__error__")
        _finish(
            file, replace(trial, run_seconds=ran + checked), error if isinstance(error, str) else entry.get("time"),
            1e-3, repeats, entry.items(),
        )  # fmt: skip
    size = content.get("problem_size")
    shape = size if isinstance(size, list) else [size]
    sizes = "x".join(map(str, shape)) if all(type(one) is int for one in shape) else ""
    device = str(content.get("device_name") or "")
    name = _word(str(content.get("kernel_name") or path.name.partition(".")[0])) + (f"-{sizes}" if sizes else "")
    spelled = name + (f"@{_word(device)}" if _word(device) else "")
    return _task(file, spelled, {"device": device} if device else {}, left_out)


def _parameters(path: Path, names: list[Any], values: dict[str, Any]) -> dict[str, list[Value]]:
    parameters: dict[str, list[Value]] = {}
    for name in names:
        given = values.get(name) if isinstance(name, str) else None
        choices = [_value(value) for value in given] if isinstance(given, list) else []
        if not choices or None in choices:
            raise SearchlabError(
                f"{path}: the parameter {name!r} must have a list of values in tune_params, not {given!r}"
            )
        parameters[name] = list(dict.fromkeys(cast("list[Value]", choices)))
    if not parameters:
        raise SearchlabError(f"{path} has no tuning parameter, so there is nothing to search")
    return parameters


# --- T4 ---------------------------------------------------------------------------------------------------------------


def _t4(path: Path, content: dict[str, Any], left_out: list[str]) -> ForeignTask:
    results, metadata = content.get("results"), content.get("metadata")
    if not isinstance(results, list):
        raise SearchlabError(f"{path} is neither a Kernel Tuner cache file nor a T4 file: it has no list of results")
    metadata = metadata if isinstance(metadata, dict) else {}
    file = _File(path, T4, _unit(path, metadata.get("timeunit", "milliseconds")), {})
    for number, result in enumerate(results, 1):
        configuration = result.get("configuration") if isinstance(result, dict) else None
        times = result.get("times", {}) if isinstance(result, dict) else None
        measurements = result.get("measurements", []) if isinstance(result, dict) else None
        if not isinstance(configuration, dict) or not isinstance(times, dict) or not isinstance(measurements, list):
            file.damaged(number, "it has no configuration, or its times or measurements are of a wrong type")
        config = {name: _value(value) for name, value in configuration.items()}
        if not config or None in config.values() or (file.trials and config.keys() != file.trials[0].config.keys()):
            file.damaged(number, f"its configuration is {configuration!r}, which has other parameters, or no values")
        _check_objective(path, result.get("objectives"))
        measured = {str(one.get("name")): one for one in measurements if isinstance(one, dict)}
        compiled = times.get("compilation", times.get("compilation_time"))
        repeats = file.repeats(number, times.get("runtimes"))
        ran = file.seconds(number, "benchmark", times.get("benchmark")) or math.fsum(repeats)
        trial = ForeignTrial(
            line=number, config=cast("dict[str, Value]", config), source=None, time=_moment(result.get("timestamp")),
            build_seconds=file.seconds(number, "compilation", compiled),
            run_seconds=ran + file.seconds(number, "validation", times.get("validation")),
            propose_seconds=file.seconds(number, "search_algorithm", times.get("search_algorithm")),
            train_seconds=file.seconds(number, "framework", times.get("framework")),
        )  # fmt: skip
        told = measured.get("time", {})
        value = told.get("value", statistics.fmean(repeats) / file.unit if repeats else None)
        if result.get("invalidity", "correct") != "correct" or result.get("correctness", 1) == 0:
            value = str(result.get("invalidity")) if result.get("invalidity") != "correct" else "correctness"
        unit = _unit(path, told["unit"]) if told.get("unit") else file.unit
        _finish(file, trial, value, unit, repeats, ((name, one.get("value")) for name, one in measured.items()))
    file.parameters = _values_of(file.trials)
    own = metadata.get("workload")
    name = f"kernel:{_word(path.name.partition('.')[0])}"
    return _task(file, str(own) if isinstance(own, str) else name.removeprefix("kernel:"), {}, left_out)


def _values_of(trials: Sequence[ForeignTrial]) -> dict[str, list[Value]]:
    """The values of each parameter, numbers in their order, and others in that of the file."""
    parameters: dict[str, list[Value]] = {}
    for name in trials[0].config if trials else ():
        values = list(dict.fromkeys(trial.config[name] for trial in trials))
        numbers = all(_is_number(value) for value in values)
        parameters[name] = sorted(values, key=lambda value: cast(float, value)) if numbers else values
    return parameters


def _unit(path: Path, given: Any) -> float:
    if str(given).lower() not in UNITS:
        raise SearchlabError(f"{path}: the unit of its times is {given!r}; known are {', '.join(UNITS)}")
    return UNITS[str(given).lower()]


# --- both -------------------------------------------------------------------------------------------------------------


def _check_objective(path: Path, given: Any) -> None:
    """Raise SearchlabError unless the objective is the time, or a rate that is highest where the time is lowest."""
    objectives = given if isinstance(given, list) else [given]
    if objectives not in ([None], []) and (len(objectives) > 1 or str(objectives[0]).lower() not in ("time", *RATES)):
        raise SearchlabError(
            f"the objective of {path} is {given!r}, and searchlab compares times; import a file whose objective is time"
        )


def _finish(
    file: _File, trial: ForeignTrial, told: Any, unit: float, repeats: tuple[float, ...],
    rates: Iterable[tuple[str, Any]],
) -> None:  # fmt: skip
    """Add ``trial`` with its time ``told``, or with its failure: a word, no time, or the number of a failure."""
    if (
        isinstance(told, str)
        or told is None
        or (isinstance(told, float) and not math.isfinite(told))
        or told == ERROR_VALUE
    ):
        word = told if isinstance(told, str) and told else f"its time is {told!r}"
        file.add(replace(trial, failure=FAILED.get(word, "run_error"), message=word), math.nan, ())
        return
    cost = file.seconds(trial.line, "time", told, unit)
    if cost <= 0:
        file.damaged(trial.line, f"its time is {told!r}, and a run takes more than 0")
    file.add(replace(trial, seconds=repeats if repeats and min(repeats) > 0 else (cost,)), cost, rates)


def _task(file: _File, name: str, host: dict[str, Any], left_out: list[str]) -> ForeignTask:
    if not file.trials:
        raise SearchlabError(f"{file.path} holds no record to import")
    statistic, trials = _with_statistic(file)
    if file.twice:
        left_out = [*left_out, f"{file.twice} measurements of configs that were measured before; the first counts"]
    cls = cast("type[ListsConfigs]", SPACES.load(SPACE))
    options = cls.options_for(file.parameters, [trial.config for trial in trials])
    return ForeignTask(
        file.format, name, _workload(file, name), "", {"kind": RECORDED}, trials, host=host, statistic=statistic,
        space=Plugin(SPACE, options), left_out=tuple(left_out),
    )  # fmt: skip


def _with_statistic(file: _File) -> tuple[Statistic, list[ForeignTrial]]:
    """The statistic of the repeats that the times of the file are, for most of its trials; and the trials.

    A trial whose time is another number has this one as its only repeat.
    """
    functions: dict[Statistic, Callable[[Sequence[float]], float]] = {
        "mean": statistics.fmean, "median": statistics.median,
    }  # fmt: skip
    pairs = list(zip(file.trials, file.costs, strict=True))
    agree: dict[Statistic, list[bool]] = {
        name: [not t.seconds or math.isclose(function(t.seconds), cost, rel_tol=CLOSE) for t, cost in pairs]
        for name, function in functions.items()
    }
    statistic = max(agree, key=lambda name: sum(agree[name]))
    return statistic, [
        trial if fits else replace(trial, seconds=(cost,))
        for (trial, cost), fits in zip(pairs, agree[statistic], strict=True)
    ]


def _workload(file: _File, name: str) -> Workload:
    """The kernel, or the workload that a file of searchlab names. Its FLOPs are known if all rates give the same."""
    if ":" in name:
        return parse_workload(name)
    known = file.flops and not any(math.isnan(flops) for flops in file.flops)
    middle = statistics.median(file.flops) if known else 0.0
    same = known and all(math.isclose(flops, middle, rel_tol=CLOSE) for flops in file.flops)
    operations = round(middle) if same and math.isfinite(middle) else 0
    return kernel(name, operations or None)


def _word(text: str) -> str:
    """``text`` as the name of a kernel may be."""
    return re.sub(r"[^\w.+-]+", "_", text, flags=re.ASCII).strip("_")


def _moment(given: Any) -> float:
    """Seconds since 1970; 0 where the file has no time of day."""
    if not isinstance(given, str):
        return 0.0
    try:
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
