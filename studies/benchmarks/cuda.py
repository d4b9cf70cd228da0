"""Runs searchlab's CUDA programs on one GPU, and compares each space's best program with cuBLAS and cuDNN.

    python studies/benchmarks/cuda.py --all [--minutes 8] [--out results/cuda]
    python studies/benchmarks/cuda.py WORKLOAD ...
    python studies/benchmarks/cuda.py --compile-only

``--all`` runs these parts in order: it describes the machine, runs the tests that need a GPU (one program of each
space, and candidates that crash), and, for each workload, searches each space with 64 trials of xgb. The best programs
are then timed in turn with PyTorch's (float32 without TF32; see cuda_timing.py). Programs are also timed with warm and
with cold caches. In the rest of the time, random configs of GEMM are measured into tables. If workloads are passed,
they replace the default ones, and the other parts are skipped. Without PyTorch, no ratios are computed.

Each part writes a file to ``--out`` when it ends, and each search writes a log. An error in one part does not affect
the others. When the time is up, a table of the results so far is printed and written to table.txt and table.json. Run
the same command again to continue with the remaining parts. To repeat a part, delete its file.

``--compile-only`` needs no GPU: it compiles programs from each space for each workload, and reports failures.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from timing import leave_folder, run_worker

import searchlab
from searchlab.errors import InvalidConfig, SearchlabError, first_line
from searchlab.machine.cuda import COMPILER_VARIABLE, choose_compiler, gpu_arch, gpu_name
from searchlab.machine.host import available_cores
from searchlab.measure.code import compile_program, error_text
from searchlab.measure.settings import LocalSettings
from searchlab.space import SPACES, Config, Space
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

WORKLOADS = (
    "conv2d:1x7x7x512x512x3x3:p1",  # AutoTVM's tutorial
    "conv2d:1x7x7x512x512x3x3:p1:bias:relu",  # Ansor's tutorial
    "gemm:1024x1024x1024",
)
POLICY = "xgb"
FAMILIES = ("knob-template", "sketch", "trace")

CACHES = ("gemm:16x4096x4096", "gemm:1024x1024x1024", "conv2d:1x7x7x512x512x3x3:p1")
"""The workloads of a program that is timed with warm and with cold caches: the first is limited by memory."""

TABLE = "gemm:1024x1024x1024"
CONFIGS = 2000  # random configs per table

AIMS = {"conv2d": ("cuDNN", 1.0), "gemm": ("cuBLAS", 0.9)}
"""By operator: the library, and the minimum ratio of its time to ours that the spaces should reach."""

MEASURE: dict[str, Any] = {"repeat": 5, "min_repeat_ms": 10, "build_timeout": 30, "run_timeout": 5}
BATCH = 16
TIMING_SECONDS = 30.0  # for timing the best programs and the library
TRIES = 1000  # random configs, at least one of which should be valid

Part = Callable[[float], dict[str, Any]]
"""A part, which returns its findings. Its argument is the value of time.monotonic() at which to end."""


class TimeOver(Exception):
    """Raised when the time is up in the middle of a part."""


# --- the parts ------------------------------------------------------------------------------------------------


def parts(workloads: Sequence[str], options: argparse.Namespace) -> Iterator[tuple[str, Part]]:
    """Return the name of each part and its function, in order of importance."""
    if options.all:
        yield "machine", machine
        yield "tests", partial(gpu_tests, out=options.out)
    for workload in workloads:
        yield slug(workload), partial(searches, workload=workload, options=options)
    if options.all:
        for workload in CACHES:
            yield slug(f"caches {workload}"), partial(caches, workload=workload)
        for space in FAMILIES:
            yield f"table-{space}", partial(build_table, space=space, out=options.out)


def machine(end: float) -> dict[str, Any]:
    return run_timing({"kind": "machine"}, end)


def gpu_tests(end: float, out: Path) -> dict[str, Any]:
    """Run the tests that need a GPU and count their outcomes. Their output is written to tests.txt."""
    files = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py")) if "pytest.mark.gpu" in file.read_text()]
    report = out / "tests.xml"
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "--tb=short", "--junitxml", str(report), *files]
    if importlib.util.find_spec("xdist"):
        words += ["-n", "4"]
    with (out / "tests.txt").open("w") as printed:
        try:
            subprocess.run(words, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT, timeout=seconds_left(end))
        except subprocess.TimeoutExpired:
            raise TimeOver from None
    if not report.exists():
        raise SearchlabError(f"pytest failed; see {out / 'tests.txt'}")
    counts: Counter[str] = Counter()
    failed = []
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        counts[outcome] += 1
        if outcome in ("failure", "error"):
            failed.append(f"{outcome}: {case.get('name')}")
    return {"counts": counts, "failed": failed}


def caches(end: float, workload: str) -> dict[str, Any]:
    """Time a program with warm and with cold caches, as searchlab does and with CUDA's events."""
    answer = run_timing({"kind": "caches", "workload": workload}, end)
    config, target = Config(answer.pop("config")), resolve_target("cuda")
    plugin, _ = SPACES.resolve("trace")
    space = SPACES.make(plugin, parse_workload(workload), target)
    for cache in ("warm", "cold"):
        settings = LocalSettings(**{**MEASURE, "cache": cache})
        with settings.make(target, {}) as measurer:
            (measurement,) = measurer.measure(space, [config])
        if measurement.failure:
            raise SearchlabError(f"{measurement.failure}: {measurement.message}")
        answer[f"ms_{cache}_in_searchlab"] = 1e3 * float(np.median(measurement.seconds))
    return {"cached": workload, **answer}


def build_table(end: float, space: str, out: Path) -> dict[str, Any]:
    """Measure random configs of TABLE into a table. Interrupted when the time is up, it continues next time."""
    table = out / f"{slug(TABLE)}-{space}.parquet"
    words = [sys.executable, "-m", "searchlab", "table", "build", TABLE, "--space", space, "--target", "cuda"]
    words += ["--limit", str(CONFIGS), "--passes", "0", "--measure", json.dumps(MEASURE), "--out", str(table)]
    began = time.monotonic()
    with subprocess.Popen(words) as process:
        try:
            status = process.wait(seconds_left(end))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            raise TimeOver from None
    if status:
        raise SearchlabError(f"table build ended with exit code {status}; see above")
    return {"table": table.name, "seconds": time.monotonic() - began}


def searches(end: float, workload: str, options: argparse.Namespace) -> dict[str, Any]:
    """Search each space, and time the best programs and the library in turn, for which each search leaves time."""
    latest = end - TIMING_SECONDS
    seconds_left(latest)
    results = []
    for number, space in enumerate(FAMILIES):
        now = time.monotonic()
        results.append(search(space, workload, options, now + max(0.0, latest - now) / (len(FAMILIES) - number)))
    configs = {result["space"]: result.pop("config") for result in results if result["config"]}
    comparison = run_timing(
        {"kind": "compare", "workload": workload, "configs": configs, "rounds": options.rounds}, end
    )
    return {"workload": workload, "searches": results, **comparison}


def search(space: str, workload: str, options: argparse.Namespace, end: float) -> dict[str, Any]:
    """Run a search until ``end``, and return its best config, if any, and the outcomes of its trials."""

    def on_trial(trial: searchlab.Trial, replayed: bool) -> None:
        if not replayed and time.monotonic() > end:
            raise TimeOver

    log = options.out / "logs" / f"{slug(f'{workload} {space}')}.jsonl"
    try:
        result = searchlab.tune(
            workload,
            space=space,
            policy=POLICY,
            trials=options.trials,
            batch=BATCH,
            seed=options.seed,
            target="cuda",
            measure={"kind": "local", **MEASURE},
            log=log,
            on_trial=on_trial,
        )
    except TimeOver:
        result = searchlab.load_log(log)
    except SearchlabError as error:  # continue with the other spaces
        return {"space": space, "trials": 0, "failures": {}, "messages": {"search": str(error)}, "config": None}
    measured = [trial.measurement for trial in result.trials]
    failures = Counter(measurement.failure for measurement in measured if measurement.failure)
    messages = {
        measurement.failure: measurement.message.splitlines()[0][:300]
        for measurement in reversed(measured)
        if measurement.failure
    }
    row = {"space": space, "trials": len(measured), "failures": dict(failures), "messages": messages}
    if sum(failures.values()) == len(measured):
        return {**row, "config": None}
    return {**row, "config": result.best.config.to_json(), "ms_in_search": result.best.seconds * 1e3}


def run_timing(task: dict[str, Any], end: float) -> dict[str, Any]:
    """Return cuda_timing.py's result for ``task``. It runs in a separate process, because a kernel may crash it."""
    try:
        return run_worker(str(HERE / "cuda_timing.py"), {**task, "threads": available_cores()}, seconds_left(end))
    except subprocess.TimeoutExpired:
        raise TimeOver from None
    except subprocess.CalledProcessError as error:
        raise SearchlabError(f"cuda_timing.py ended with exit code {error.returncode}; see above") from None


def seconds_left(end: float) -> float:
    """Return the seconds left until ``end``. Raises TimeOver if the time is up."""
    if (seconds := end - time.monotonic()) <= 0:
        raise TimeOver
    return seconds


def slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def run_parts(parts: Sequence[tuple[str, Part]], out: Path, end: float) -> tuple[dict[str, Any], list[str]]:
    """Return the parts' results by name, including those of earlier calls, and the names of the incomplete parts."""
    results, missing = {}, []
    for name, part in parts:
        file = out / f"{name}.json"
        if not file.exists():
            try:
                seconds_left(end)
                print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
                answer = part(end)
            except TimeOver:
                missing.append(name)
                continue
            except SearchlabError as error:
                print(f"{name}: {first_line(error)}", file=sys.stderr, flush=True)
                missing.append(name)
                continue
            except Exception:  # a defect of one part, which should not cost the time on the GPU for the others
                traceback.print_exc()
                missing.append(name)
                continue
            new = file.with_suffix(".new")
            new.write_text(json.dumps(answer, indent=1) + "\n")
            new.replace(file)
        results[name] = json.loads(file.read_text())
    return results, missing


# --- the table ------------------------------------------------------------------------------------------------


def table(results: dict[str, Any], missing: Sequence[str]) -> str:
    """Return all results as text."""
    lines = []
    if facts := results.get("machine"):
        lines += [f"{name}: {value}" for name, value in facts.items()]
    if tests := results.get("tests"):
        counted = ", ".join(f"{count} {kind}" for kind, count in tests["counts"].items())
        lines += [f"tests that need a GPU: {counted}", *tests["failed"]]
    for result in results.values():
        if "cached" in result:
            lines.append(", ".join(f"{name} {value}" for name, value in result.items()))
    comparisons = [result for result in results.values() if "searches" in result]
    if comparisons:
        heads = ("workload", "side", "ms (quartiles)", "GFLOPS", "ratio", "aim", "failures")
        lines += ["", "ratio: time of the library / time of the side", ""]
        lines += align([heads, *(row for result in comparisons for row in rows(result))])
    for result in comparisons:
        problems = {**result["problems"]}
        for outcome in result["searches"]:
            problems |= {f"{outcome['space']}, {kind}": message for kind, message in outcome["messages"].items()}
        lines += [f"{result['workload']}, {side}: {message}" for side, message in problems.items()]
    if missing:
        lines += ["", f"incomplete: {', '.join(missing)}; run the same command again to continue"]
    return "\n".join(lines) + "\n"


def rows(result: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Return the rows for one workload: the spaces and the library."""
    library, least = AIMS[parse_workload(result["workload"]).op]
    rows_by_side = {row["side"]: row for row in result["rows"]}
    outcomes = {outcome["space"]: outcome for outcome in result["searches"]}
    for side in [*outcomes, *(side for side in rows_by_side if side not in outcomes)]:
        outcome, row = outcomes.get(side), rows_by_side.get(side)
        ms = gflops = ratio = aim = "-"
        if row:
            low, high = row["ms_quartiles"]
            ms, gflops = f"{row['ms']:.4f} ({low:.4f}..{high:.4f})", f"{row['gflops']:.0f}"
        if row and row["ratio"] is not None:
            ratio = f"{row['ratio']:.3f}"
            verdict = "met" if row["ratio"] >= least else "missed"
            aim = f"{least:g} of {library}: {verdict}" if outcome else "-"
        failed = ", ".join(f"{kind} {count}" for kind, count in outcome["failures"].items()) if outcome else ""
        yield result["workload"], side, ms, gflops, ratio, aim, failed or "-"


def align(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


# --- compiling alone ------------------------------------------------------------------------------------------


def compile_only(workloads: Sequence[str], arch: str, programs: int, seed: int) -> list[dict[str, Any]]:
    """Return a row for each space and workload: the number of random configs without a program, and compiler errors."""
    os.environ.setdefault(COMPILER_VARIABLE, choose_compiler())
    target = Target({"kind": "cuda", "arch": arch})
    results = []
    for workload in workloads:
        for name in FAMILIES:
            plugin, _ = SPACES.resolve(name)
            row = compile_random(SPACES.make(plugin, parse_workload(workload), target), programs, seed)
            results.append({"workload": workload, "space": name, **row})
            print(f"{workload:40} {name:14} {row['programs']} compiled, {row['invalid']} configs invalid", flush=True)
            for text in row["failures"]:
                print(f"  {text}", flush=True)
    return results


def compile_random(space: Space, programs: int, seed: int) -> dict[str, Any]:
    """Compile ``programs`` random configs of ``space`` that can be scheduled."""
    rng = np.random.default_rng(seed)
    failures: list[str] = []
    fine = invalid = 0
    for config in (space.sample(rng) for _ in range(TRIES)):
        if fine + len(failures) == programs:
            break
        try:
            module = space.schedule(config).mod
        except InvalidConfig:
            invalid += 1
            continue
        try:
            compile_kernels(module, space.target)
            fine += 1
        except Exception as error:  # TVM and the compiler may raise anything
            failures.append(f"{error_text(error)[:2000]}: {config.to_json()}")
    if fine + len(failures) < programs:
        failures.append(f"of {TRIES} random configs, {invalid} are invalid")
    return {"programs": fine, "invalid": invalid, "failures": failures}


def compile_kernels(module: Any, target: Target) -> None:
    """Compile a scheduled module to machine code. Raises whatever TVM or the compiler raises."""
    import tvm

    program = compile_program(module, target)
    if tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is None:  # it still contains CUDA C++
        with target.tvm:
            tvm.get_global_func("tvm_callback_cuda_compile")(program.mod.imports[0].inspect_source())


# --- the command ----------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="in float32")
    parser.add_argument("--all", action="store_true", help="run all parts: the machine, the tests and all workloads")
    parser.add_argument("--minutes", type=float, default=8, help="time limit in minutes (8)")
    parser.add_argument("--out", type=Path, default=Path("results", "cuda"), help="output directory (results/cuda)")
    parser.add_argument("--trials", type=int, default=64, help="number of trials per search (64)")
    parser.add_argument(
        "--rounds", type=int, default=11, help="number of rounds in which all sides are timed in turn (11)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for the searches (0)")
    parser.add_argument("--compile-only", action="store_true", help="only compile programs, which requires no GPU")
    parser.add_argument("--programs", type=int, default=1, help="with --compile-only: number of programs per space (1)")
    parser.add_argument("--arch", default="sm_90", help="with --compile-only: the GPU architecture (sm_90)")
    options = parser.parse_args(argv)
    leave_folder()
    end = time.monotonic() + 60 * options.minutes
    workloads = options.workloads or WORKLOADS
    try:
        for name in workloads:
            if parse_workload(name).dtype != "float32":
                raise SearchlabError(f"{name} is not float32, which the comparison requires")
        if options.compile_only:
            return int(
                any(row["failures"] for row in compile_only(workloads, options.arch, options.programs, options.seed))
            )
        if not (options.all or options.workloads):
            raise SearchlabError("pass workloads, --all or --compile-only")
        if gpu_arch() is None:
            raise SearchlabError("no CUDA device was found; use a machine with an NVIDIA GPU, or pass --compile-only")
        (options.out / "logs").mkdir(parents=True, exist_ok=True)
        print(f"{gpu_name()}, {options.trials} trials a search, {options.minutes:g} minutes", flush=True)
        results, missing = run_parts(list(parts(workloads, options)), options.out, end)
    except SearchlabError as error:
        print(error, file=sys.stderr)
        return 2
    text = table(results, missing)
    (options.out / "table.txt").write_text(text)
    (options.out / "table.json").write_text(json.dumps({"results": results, "missing": missing}, indent=1) + "\n")
    print(text)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
