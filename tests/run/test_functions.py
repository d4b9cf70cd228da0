"""Runs that call a Python function for each config."""

from __future__ import annotations

import ctypes
import functools
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import searchlab
from searchlab.errors import InvalidConfig, SearchlabError, SearchlabWarning
from searchlab.log.read import read_log
from searchlab.log.writer import OtherRun
from searchlab.measure.settings import FunctionSettings, LocalSettings
from searchlab.records import Trial
from searchlab.run.study import Study
from searchlab.run.tune import tune
from tests.support.cli import searchlab as run_command

SPACE = {"x": [1, 2, 3, 4], "y": [1, 2]}
QUICK = {"kind": "function", "run_timeout": 1.0}


def cost(config: dict[str, Any]) -> float:
    return float(config["x"] + config["y"])


def misbehave(config: dict[str, Any]) -> Any:
    match config["how"]:
        case "works":
            return 1.0
        case "exits":
            os._exit(3)
        case "crashes":
            ctypes.string_at(0)
        case "hangs":
            time.sleep(60)
        case "raises":
            raise ZeroDivisionError("no way")
        case "refuses":
            raise InvalidConfig("x is too large")
        case "quits":
            sys.exit("no compiler")
    return {
        "nan": math.nan,
        "infinite": math.inf,
        "negative": -1.0,
        "zero": 0.0,
        "nothing": None,
        "text": "1.0",
        "true": True,
        "a mapping without seconds": {"time": 1.0},
        "no repeats": [],
        "a mapping": {"seconds": 2.0, "energy": 3.0},
        "repeats": [2.0, 3.0, 10.0],
        "numpy": {"seconds": np.array([2.0, 4.0])},
    }[config["how"]]


LINE = misbehave.__code__.co_firstlineno + 11  # on which it raises an exception
FAILURES = {
    "exits": ("crash", "the running process ended with exit code 3"),
    "crashes": ("crash", "the running process died of SIGSEGV"),
    "hangs": ("run_timeout", "took longer than 1 s"),
    "raises": ("run_error", f"ZeroDivisionError: no way ({__file__}:{LINE})"),
    "refuses": ("invalid", "x is too large"),
    "quits": ("run_error", "SystemExit: no compiler"),
    "nan": ("run_error", "the function returned nan; costs must be positive and finite"),
    "infinite": ("run_error", "the function returned inf; costs must be positive and finite"),
    "negative": ("run_error", "the function returned -1.0; costs must be positive and finite"),
    "zero": ("run_error", "the function returned 0.0; costs must be positive and finite"),
    "nothing": ("run_error", "the function returned None; it must return seconds"),
    "text": ("run_error", "the function returned '1.0'; it must return seconds"),
    "true": ("run_error", "the function returned True; it must return seconds"),
    "a mapping without seconds": ("run_error", "the function returned {'time': 1.0}; it must return seconds"),
    "no repeats": ("run_error", "the function returned []; it must return seconds"),
}
COSTS = {"works": 1.0, "a mapping": 2.0, "repeats": 3.0, "numpy": 3.0}


def test_progress_of_a_run_that_seconds_limit(tmp_path: Path) -> None:
    """Once, neither the time left nor the trials in the log of a continued run were shown."""
    output = io.StringIO()
    options: dict[str, Any] = {"space": SPACE, "policy": "grid", "batch": 1, "log": tmp_path / "a.jsonl"}
    tune(cost, **options, trials=2, progress=False)
    tune(cost, **options, seconds=60, progress=Console(file=output, force_terminal=True, color_system=None, width=200))
    assert f"{tmp_path / 'a.jsonl'} continues after 2 trials\n" in output.getvalue()
    assert " 0/60 s " in output.getvalue() and " s trial 7, 2.000 s" in output.getvalue(), output.getvalue()


def test_the_first_config_without_a_cost_is_named(tmp_path: Path) -> None:
    """Once, a loss that reached zero failed silently, and the worst config won."""
    with pytest.warns(SearchlabWarning, match=r"trial 2 of .* failed: the function returned 0; costs must be positive"):
        tune(lambda config: (config["x"] - 2) ** 2, space={"x": [0, 1, 2, 3]}, policy="grid", log=tmp_path / "a.jsonl")


def test_a_failed_assertion_is_a_wrong_answer(tmp_path: Path) -> None:
    def check(config: dict[str, Any]) -> float:
        np.testing.assert_allclose(config["x"], 1)
        return 1.0

    result = tune(check, space={"x": [1, 2]}, policy="grid", log=tmp_path / "a.jsonl", progress=False)
    assert [trial.measurement.failure for trial in result.trials] == [None, "wrong_answer"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_fails_as_a_program_would(workers: int, tmp_path: Path) -> None:
    space = {"how": [*FAILURES, *COSTS]}
    measure = {**QUICK, "workers": workers}
    result = tune(misbehave, space=space, policy="grid", log=tmp_path / "a.jsonl", measure=measure, progress=False)
    trials = {trial.config["how"]: trial.measurement for trial in result.trials}
    assert {how: trial.cost for how, trial in trials.items() if trial.failure is None} == COSTS
    for how, (failure, message) in FAILURES.items():
        assert trials[how].failure == failure and message in trials[how].message, trials[how]


def test_only_a_function_and_a_space_are_required() -> None:
    """Values may be NumPy's, and ranges. Without a log, the run leaves no file."""
    space = {"x": range(1, 5), "y": np.linspace(0, 1, 3), "z": np.geomspace(1, 100, 3), "w": np.arange(2)}
    result = tune(lambda config: sum(config.values()), space)
    assert len(result.trials) == 64 and result.log.header.policy.name == "gp-prior"
    assert not result.log.path.parent.exists() and len(searchlab.compare(result).trials_frame()) == 64
    assert dict(result.best.config) == {"x": 1, "y": 0.0, "z": 1.0, "w": 0} and result.best.value == 2
    assert [type(value) for value in result.best.config.values()] == [int, float, float, int]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y,
        lambda y, x, power=1: (x + y) ** power,
        functools.partial(lambda y, scale, x: scale * (x + y), scale=1),
        lambda *configs: sum(configs[0].values()),
        lambda config, scale=1: scale * sum(config.values()),
    ],
)
def test_a_function_receives_knobs_or_the_config(function: Callable[..., float]) -> None:
    result = tune(function, {"x": [1, 2], "y": [3, 4]}, policy="grid", progress=False)
    assert [trial.cost for trial in result.trials] == [4, 5, 5, 6]


def test_a_parameter_that_is_not_a_knob_is_named() -> None:
    with pytest.warns(SearchlabWarning, match=r"has the parameters x, z; they must be names of knobs \(x, y\)"):
        tune(lambda x, z: x + z, SPACE, policy="grid", trials=1)


def test_memory_is_limited(tmp_path: Path) -> None:
    def fill(config: dict[str, Any]) -> float:
        return float(np.ones(config["mb"] << 17).sum())

    measure = {"kind": "function", "memory_limit_mb": 500}
    result = tune(fill, space={"mb": [1, 4000]}, policy="grid", log=tmp_path / "a.jsonl", measure=measure)
    assert [trial.measurement.failure for trial in result.trials] == [None, "run_error"]
    assert "memory_limit_mb" in result.trials[1].measurement.message


def test_an_interrupted_run_ends_with_the_same_log(tmp_path: Path) -> None:
    def search(log: Path, on_trial: Callable[[Trial, bool], None] | None = None) -> list[tuple[Any, ...]]:
        result = tune(cost, space=SPACE, policy="evolutionary", trials=8, batch=2, log=log, on_trial=on_trial)
        return [(trial.index, trial.config, trial.cost) for trial in result.trials]

    def interrupt(trial: Trial, replayed: bool) -> None:
        if trial.index == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "a.jsonl", interrupt)
    assert len(read_log(tmp_path / "a.jsonl").records) == 5
    assert search(tmp_path / "a.jsonl") == search(tmp_path / "b.jsonl")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write a function ``f`` with the given expression to ``objective.py``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(expression: str) -> None:
        sys.modules.pop("objective", None)
        importlib.invalidate_caches()
        (tmp_path / "objective.py").write_text(f"# {expression}\ndef f(config):\n    return {expression}\n")

    yield write
    sys.modules.pop("objective", None)


def test_an_edited_function_does_not_continue_a_log(module: Callable[[str], None], tmp_path: Path) -> None:
    def run(trials: int, **options: Any) -> list[float]:
        log = tmp_path / "a.jsonl"
        result = tune("python:objective:f", space=SPACE, policy="grid", trials=trials, log=log, **options)
        return [trial.cost for trial in result.trials]

    module("config['x'] + 1")
    assert run(2) == [2, 3]
    module("config['x'] + 100")
    for trials in (2, 3):  # the log is complete, or is to be extended
        with pytest.raises(OtherRun, match="since these have changed: the code of the workload; restore"):
            run(trials)
    assert run(2, discard=True) == [101, 102]


def test_a_function_of_a_script_is_called(tmp_path: Path) -> None:
    text = """import searchlab
import functools
SCALE = 2
@functools.cache
def load():
    return SCALE
def f(config):
    return load() * config["x"]
result = searchlab.tune(f, space={"x": [1, 2, 3]}, policy="grid", log="a.jsonl")
print([trial.cost for trial in result.trials])
"""
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert result.stdout == "[2.0, 4.0, 6.0]\n", result.stderr


def test_closures_lambdas_and_partial_functions_are_called(tmp_path: Path) -> None:
    def scaled(factor: float, config: dict[str, Any]) -> float:
        return factor * config["x"]

    def costs(function: Callable[..., Any], log: str) -> list[float]:
        result = tune(function, space={"x": [1, 2]}, policy="grid", log=tmp_path / log)
        return [trial.cost for trial in result.trials]

    assert costs(lambda config: scaled(3, config), "lambda.jsonl") == [3, 6]
    assert costs(functools.partial(scaled, 2), "partial.jsonl") == [2, 4]
    with pytest.raises(OtherRun, match="the code of the workload"):
        costs(functools.partial(scaled, 5), "partial.jsonl")


def test_a_function_keeps_its_state_between_calls(tmp_path: Path) -> None:
    calls: list[Any] = []

    def count(config: dict[str, Any]) -> float:
        calls.append(config)
        return float(len(calls))

    measure = {"kind": "function", "repeat": 2, "statistic": "mean"}
    result = tune(count, space={"x": [1, 2]}, policy="grid", log=tmp_path / "a.jsonl", measure=measure)
    assert [trial.measurement.seconds for trial in result.trials] == [(1, 2), (3, 4)] and calls == []


def test_reading_a_log_imports_no_function(module: Callable[[str], None], tmp_path: Path) -> None:
    module("config['x']")
    tune("python:objective:f", space=SPACE, policy="random", trials=2, log=tmp_path / "a.jsonl")
    del sys.modules["objective"]
    (tmp_path / "objective.py").write_text("raise SystemExit('imported')")
    result = searchlab.load_log(tmp_path / "a.jsonl")
    assert str(result.workload) == "python:objective:f" and result.space.size() == 8
    assert result.best.seconds == min(trial.config["x"] for trial in result.trials)
    assert "objective" not in sys.modules


def test_a_study_file_names_functions(module: Callable[[str], None], tmp_path: Path) -> None:
    module("config['x'] * config['y'] + 1")
    (tmp_path / "study.toml").write_text("""
        workloads = ["python:objective:f"]
        policies = ["random", "tpe"]
        seeds = 2
        trials = 5
        [[spaces]]
        name = "parameters"
        options.parameters = { x = [1, 2, 3, 4], y = [1, 2, 4] }
        options.restrictions = ["x * y <= 8"]
    """)
    results = Study.load(tmp_path / "study.toml").run(tmp_path / "out", progress=False)
    assert len(results) == 4 and all(len(result.trials) == 5 for result in results)
    frame = searchlab.compare(tmp_path / "out").runs_frame()
    assert sorted(frame["strategy"]) == ["random", "random", "tpe", "tpe"]
    assert set(frame["workload"]) == {"python:objective:f"}
    knobs = 'workloads = ["python:objective:f"]\npolicies = ["random"]\nspaces = [{ x = [1, 2, 3], y = [1, 2] }]\n'
    (tmp_path / "knobs.toml").write_text(knobs)
    (run,), _ = Study.load(tmp_path / "knobs.toml").plan()
    assert run.space.size() == 6


@pytest.mark.parametrize(
    ("workload", "options", "message"),
    [
        (cost, {"space": {}}, "the space has no knobs"),
        (cost, {"space": {"x": [1, 2], "restrictions": ["x > 1"]}}, "restrictions would be a knob of the space"),
        (cost, {"space": {"x": [1, 1]}}, "'x' contains 1 twice"),
        (cost, {"space": {"x": [1, math.nan]}}, "'x' contains nan"),
        (cost, {"space": {"x": [None]}}, "'x' contains None"),
        (cost, {"space": {"x": [{"a": 1}]}}, "'x' contains {'a': 1}"),
        (cost, {"space": {"x": 3}}, "'x' must be a list of at least one value, not 3"),
        (cost, {"space": {"x": (0.0, 1.0)}}, "'x' is (0.0, 1.0), which may be meant as a range; list all values"),
        (cost, {"space": {"name": "parameters", "options": {"parameters": "x"}}}, "must be a mapping from names to"),
        ("tests.run.test_functions:cost", {}, "to tune a function, write 'python:tests.run.test_functions:cost'"),
        (cost, {"space": {1: [3]}}, "the name of a parameter must be a string, not 1"),
        (cost, {"restrictions": ["z <= 3"]}, "'z' is not a knob; known: x, y"),
        (cost, {"restrictions": ["x < 9", "x > 9"]}, "'x > 9' excludes all configs that the other restrictions allow"),
        (cost, {"space": "parameters", "restrictions": ["x"]}, "restrictions can only be passed if the space"),
        (cost, {"space": "parameters"}, "specify its parameters"),
        (cost, {"space": "sketch"}, "is a Python function and has no program; search it in the space 'parameters'"),
        (cost, {"schedule": print}, "is a Python function and has no program"),
        (cost, {"measure": {"kind": "local", "repeat": 1}}, 'use measure.kind = "function" instead of "local"'),
        ("gemm:8x8x8", {"space": "sketch", "measure": {"kind": "function"}}, "is not a function"),
        ("python:nowhere:f", {}, "No module named 'nowhere'"),
        ("python:math:nothing", {}, "math does not define it"),
        ("python:math:pi", {}, "must be a function, not 3.14"),
        ("python:math", {}, "must be python:MODULE:NAME"),
        (128, {}, "does not accept workload = 128"),
    ],
)
def test_wrong_arguments_are_explained(workload: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"space": SPACE, "policy": "random", "trials": 2, **options}
    with pytest.raises(SearchlabError) as caught:
        tune(workload, log=tmp_path / "a.jsonl", **arguments)
    assert message in str(caught.value) and not (tmp_path / "a.jsonl").exists()


def test_a_function_that_no_process_can_receive(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(SearchlabError, match="cannot be sent to a worker process"):
        tune(lambda config: lock.locked() + 1, space=SPACE, policy="random", trials=2, log=tmp_path / "a.jsonl")


def unroll(sch: Any, config: dict[str, Any]) -> None:
    loop, *_ = sch.get_loops(sch.get_sblock("gemm"))
    sch.annotate(loop, "pragma_auto_unroll_max_step", config["unroll"])


@pytest.mark.usefixtures("trusting")
def test_a_function_schedules_a_workload(tmp_path: Path) -> None:
    quick = {"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0}
    arguments: dict[str, Any] = {"space": {"unroll": [0, 16, 64]}, "schedule": unroll, "policy": "grid"}
    tune("gemm:8x8x8", **arguments, log=tmp_path / "a.jsonl", measure=quick, progress=False)
    result = searchlab.load_log(tmp_path / "a.jsonl")
    assert [trial.measurement.failure for trial in result.trials] == [None] * 3
    assert len({trial.measurement.program for trial in result.trials}) == 3
    step = result.best.config["unroll"]
    assert result.space.has_programs and f'pragma_auto_unroll_max_step": {step}' in result.best.schedule().mod.script()


def test_a_table_of_a_function_is_resumed_and_searched(module: Callable[[str], None], tmp_path: Path) -> None:
    module("config['x'] * 1e-3 + config['y'] * 1e-5")
    arguments: dict[str, Any] = {"restrictions": ["x + y <= 5"], "progress": False}
    path = tmp_path / "cost.parquet"
    part = searchlab.build_table("python:objective:f", SPACE, tmp_path / "part.jsonl", **arguments, limit=3)
    assert len(part.trials) == 3
    table = searchlab.build_table("python:objective:f", SPACE, path, **arguments)
    rebuilt = searchlab.build_table("python:objective:f", SPACE, path, **arguments)
    assert len(table.trials) == table.log.header.space_size == 7
    assert [trial.measurement for trial in rebuilt.trials] == [trial.measurement for trial in table.trials]
    del sys.modules["objective"]
    (tmp_path / "objective.py").write_text("raise SystemExit('imported')")
    measure = {"kind": "table", "path": str(path)}
    result = tune("python:objective:f", space="parameters", policy="grid", log=tmp_path / "a.jsonl", measure=measure)
    assert result.best.config == table.best.config and len(result.trials) == 7
    with pytest.raises(SearchlabError, match=r"cost\.parquet contains python:objective:f, but not python:objective:g"):
        tune("python:objective:g", measure=measure)
    with pytest.raises(SearchlabError, match=r"must end in \.parquet or \.jsonl"):
        searchlab.build_table("python:objective:f", SPACE, tmp_path / "table.csv")


def test_functions_on_the_command_line(module: Callable[[str], None], tmp_path: Path) -> None:
    module("config['x'] * 1e-3 + config['y'] * 1e-5")
    space = '{"x": [1, 2], "y": [1, 2]}'
    result = run_command(
        "tune", "python:objective:f", "--space", space, "--policy", "grid", "--log", "a.jsonl", cwd=tmp_path
    )
    assert "best of 4: 1.010 ms with {'x': 1, 'y': 1}" in result.stdout and "show the program" not in result.stdout
    best = run_command("best", "a.jsonl", cwd=tmp_path)
    assert best.stdout.startswith("python:objective:f: 1.010 ms, trial 0\n  x = 1\n")
    assert "\nimportance of knobs: x 50 % and y 50 %\n" in best.stdout
    refused = run_command("best", "a.jsonl", "--show", "tir", cwd=tmp_path)
    assert refused.returncode == 2 and "has no program" in refused.stderr
    report = run_command("report", "a.jsonl", "--out", "report", cwd=tmp_path)
    assert "python:objective:f: best known 1.010 ms, by grid" in report.stdout
    page = (tmp_path / "report" / "report.html").read_text()
    assert "1.010 ms" in page and "GFLOPS" not in page.partition("<main")[2].partition("<script")[0]
    study = 'workloads = ["python:objective:f"]\npolicies = ["grid"]\nspaces = [{ x = [1, 2], y = [1, 2] }]\n'
    (tmp_path / "study.toml").write_text(study)
    ran = run_command("run", "study.toml", cwd=tmp_path)
    assert "see the results so far in a browser: searchlab watch results/study\n" in ran.stderr
    built = run_command("table", "build", "python:objective:f", "--space", space, "--out", "t.parquet", cwd=tmp_path)
    assert "4 configs" in built.stdout


def test_a_study_in_python_takes_functions_and_knobs(tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": [cost, lambda config: 2.0],
            "spaces": [{"x": np.arange(1, 4), "y": range(2), "name": ["a"]}],
            "policies": ["grid"],
        }
    )
    results = study.run(tmp_path / "out", progress=False)
    assert [len(result.trials) for result in results] == [6, 6]
    assert dict(results[0].best.config) == {"x": 1, "y": 0, "name": "a"} and results[1].best.seconds == 2


def test_the_kind_of_measurement_follows_from_the_workload(module: Callable[[str], None], tmp_path: Path) -> None:
    module("config['x'] + 1")
    measure = {"repeat": 2}
    called = tune(cost, space={"x": [1], "y": [1]}, policy="grid", log=tmp_path / "a.jsonl", measure=measure)
    assert called.log.header.measure["kind"] == "function" and len(called.trials[0].measurement.seconds) == 2
    data = {"policies": ["random"], "measure": measure}
    functions = Study.from_dict({**data, "workloads": ["python:objective:f"], "spaces": [SPACE]})
    programs = Study.from_dict({**data, "workloads": ["gemm:8x8x8"], "spaces": ["knob-template"]})
    assert [study.plan().runs[0].settings for study in (functions, programs)] == [
        FunctionSettings(repeat=2),
        LocalSettings(repeat=2),
    ]


@pytest.mark.parametrize("measure", [{"kind": "local"}, LocalSettings()])
def test_a_function_is_not_measured_as_a_program(measure: Any, tmp_path: Path) -> None:
    with pytest.raises(SearchlabError, match='use measure.kind = "function" instead of "local"'):
        tune(cost, space=SPACE, policy="grid", log=tmp_path / "a.jsonl", measure=measure)


def test_an_error_in_a_restriction_or_a_schedule_has_its_line(tmp_path: Path) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("no way")

    line = f"ZeroDivisionError: no way ({__file__}:{fails.__code__.co_firstlineno + 1})"
    arguments: dict[str, Any] = {"space": {"x": [1]}, "policy": "grid", "trials": 1, "log": tmp_path / "a.jsonl"}
    with pytest.raises(SearchlabError, match=re.escape(line)):
        tune(cost, restrictions=[lambda x: fails()], **arguments)
    with pytest.warns(SearchlabWarning) as warned:
        result = tune("gemm:8x8x8", schedule=fails, **arguments)
    assert result.trials[0].measurement.message == f"schedule: {line}"
    assert {warning.filename for warning in warned} == {__file__}


def test_throughputs_of_functions_are_in_runs_per_second(tmp_path: Path) -> None:
    result = tune(cost, space=SPACE, policy="grid", log=tmp_path / "a.jsonl", progress=False)
    comparison = searchlab.compare(result)
    frames = [result.to_frame(), comparison.trials_frame()]
    for frame in [*frames, comparison.runs_frame(), comparison.programs_frame(), comparison.strategies_frame()]:
        assert set(frame["unit"]) == {"runs/s"}
    assert (frames[0]["gflops"] == 1 / frames[0]["cost"]).all()


def parabola(config: dict[str, Any]) -> float:
    return float(config["x"] ** 2 - 4)  # negative, zero or positive


NUMBERS: dict[str, Any] = {"space": {"x": range(-3, 4)}, "policy": "grid", "progress": False}


def test_any_number_is_minimised_or_maximised(tmp_path: Path) -> None:
    lowest = tune(searchlab.minimize(parabola), log=tmp_path / "a.jsonl", **NUMBERS)
    assert (lowest.best.value, lowest.best.config["x"]) == (-4.0, 0) and "value -4 in trial" in repr(lowest.best)
    name = "python:tests.run.test_functions:parabola:maximize"
    highest = tune(name, log=tmp_path / "b.jsonl", **NUMBERS)
    assert str(searchlab.maximize(parabola)) == name == str(highest.workload)
    assert (highest.best.value, abs(highest.best.config["x"])) == (5.0, 3) and "value 5 in trial" in repr(highest.best)
    frame = searchlab.load_log(tmp_path / "b.jsonl").to_frame()
    assert np.allclose(frame["gflops"], frame["config.x"] ** 2 - 4) and set(frame["unit"]) == {"value"}
    assert "maximize: value 5, trial" in run_command("best", tmp_path / "b.jsonl").stdout


def test_lists_and_mappings_contain_values(tmp_path: Path) -> None:
    def score(config: dict[str, Any]) -> Any:
        return [{"value": np.array([-1.0, 0.25, 3.0])}, {"seconds": 1.0}, math.nan, -1e300][config["x"]]

    with pytest.warns(SearchlabWarning, match=r"trial 1 .*; it must return value: a number, a list of numbers, or"):
        result = tune(searchlab.maximize(score), space={"x": range(4)}, policy="grid", log=tmp_path / "a.jsonl")
    assert result.best.value == 0.25 and [math.isfinite(trial.cost) for trial in result.trials] == [True, *3 * [False]]
    assert "the function returned nan; values must be finite" in result.trials[2].measurement.message


def test_reports_show_values(tmp_path: Path) -> None:
    """Tables, charts and files, but not how much faster programs are."""
    study = Study.from_dict(
        {
            "workloads": [searchlab.maximize(parabola), "python:tests.run.test_functions:parabola:minimize"],
            "spaces": [{"x": range(-20, 20)}],
            "policies": ["random", "evolutionary"],
            "trials": 12,
            "seeds": 3,
        }
    )
    comparison = searchlab.compare(study.run(tmp_path / "out", progress=False))
    runs = comparison.runs_frame().set_index("workload")["best_gflops"]
    trials = comparison.trials_frame().groupby(["workload", "strategy", "seed"], observed=True)["best_gflops"].last()
    assert sorted(runs) == pytest.approx(sorted(trials)) and runs.max() > 100
    minimised = comparison.programs_frame().query("unit == '-value'")
    numbers = [4 - json.loads(config)["x"] ** 2 for config in minimised["config"]]
    assert minimised["gflops"].tolist() == pytest.approx(numbers)
    (name,) = (workload for workload in comparison.workloads if workload.endswith("maximize"))
    spec = comparison.plot_convergence(name).to_dict()
    assert "best value so far" in json.dumps(spec)
    page = comparison.save(tmp_path / "report").read_text("utf-8")
    assert "faster than those" not in page and "best known value " in page
    output = " ".join(run_command("report", tmp_path / "out", "--full").stdout.split())
    assert "best known value " in output, output
