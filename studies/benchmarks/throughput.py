"""Measures how many candidates per second searchlab and MetaSchedule's LocalBuilder and LocalRunner build and time.

    python studies/benchmarks/throughput.py [--candidates 64] [--batch 16] [--sides S ...] [--json FILE]

All sides measure the same random configs of a GEMM's sketches, each a different program, in batches, on all cores, with
the same evaluator settings. ``floor`` is the time for the work itself in one warm process: the sum of the build times,
divided by the number of cores, plus the sum of the load and run times. ``equal`` does the same as MetaSchedule, which
does not check results. ``default`` is searchlab's default: each result is checked, and a program much slower than the
best so far is not repeated. ``checked`` checks and repeats all programs. All times except the floor include starting
processes, and all except MetaSchedule's include scheduling the programs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm_ffi import structural_hash

from searchlab.machine.host import available_cores
from searchlab.measure.code import compile_program, device_of, load_objects, to_objects
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.measure.runner import LoadedProgram, Runner
from searchlab.plugins import Plugin
from searchlab.records import Measurement
from searchlab.space import SPACES, Config, Space
from searchlab.target import resolve_target
from searchlab.workload import parse_workload

EQUAL = LocalSettings(number=1, repeat=3, min_repeat_ms=10, check=False, prune_factor=0)
SETTINGS = {
    "equal": EQUAL,
    "checked": LocalSettings(number=1, repeat=3, min_repeat_ms=10, prune_factor=0),
    "default": LocalSettings(number=1, repeat=3, min_repeat_ms=10),
}


def sample_different(space: Space, count: int, seed: int) -> list[Config]:
    """Return ``count`` random configs with different programs."""
    rng = np.random.default_rng(seed)
    config_of: dict[int, Config] = {}
    while len(config_of) < count:
        for config in space.sample_new(rng, count, {}):
            config_of.setdefault(structural_hash(space.schedule(config).mod), config)
    return list(config_of.values())[:count]


def batches(configs: Sequence[Config], size: int) -> Iterator[Sequence[Config]]:
    for start in range(0, len(configs), size):
        yield configs[start : start + size]


def measure_floor(space: Space, configs: Sequence[Config], cores: int) -> dict[str, float]:
    runner = Runner(space.workload, EQUAL, device_of("llvm"))
    inputs = list(runner.timing_inputs.values())
    to_objects(compile_program(space.schedule(configs[0]).mod, space.target))  # warm-up
    start = time.perf_counter()
    built = [to_objects(compile_program(space.schedule(config).mod, space.target)) for config in configs]
    build_seconds = time.perf_counter() - start
    start = time.perf_counter()
    programs = (LoadedProgram(load_objects(objects), inputs, runner.outputs) for objects in built)
    costs = [float(np.median(runner.timer.time(program, EQUAL.repeat))) for program in programs]
    run_seconds = time.perf_counter() - start
    return {
        "seconds": build_seconds / cores + run_seconds,
        "build": build_seconds / cores,
        "run": run_seconds,
        "best": min(costs),
    }


def searchlab_side(
    settings: LocalSettings, space: Space, configs: Sequence[Config], size: int, cores: int
) -> dict[str, float]:
    start = time.perf_counter()
    measurements: list[Measurement] = []
    best = math.inf
    with LocalMeasurer(settings, space.target, {}, cores) as measurer:
        for batch in batches(configs, size):
            measurements += measurer.measure(space, batch, best)
            best = min(best, *(measurement.cost for measurement in measurements))
        seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "build": sum(measurement.build_seconds for measurement in measurements) / cores,
        "run": sum(measurement.run_seconds for measurement in measurements),
        "best": best,
        "failed": sum(measurement.failure is not None for measurement in measurements),
        "pruned": sum(measurement.pruned for measurement in measurements),
    }


def metaschedule(space: Space, configs: Sequence[Config], size: int, cores: int) -> dict[str, float]:
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput, LocalBuilder
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerInput

    modules = [space.schedule(config).mod for config in configs]
    start = time.perf_counter()
    builder = LocalBuilder(max_workers=cores, timeout_sec=120)
    evaluator = EvaluatorConfig(
        number=EQUAL.number, repeat=EQUAL.repeat, min_repeat_ms=EQUAL.min_repeat_ms, enable_cpu_cache_flush=False
    )
    runner = LocalRunner(timeout_sec=120, evaluator_config=evaluator)
    costs: list[float] = []
    build_seconds = 0.0
    failed = 0
    for first in range(0, len(modules), size):
        batch = modules[first : first + size]
        began = time.perf_counter()
        built = builder.build([BuilderInput(module, space.target.tvm) for module in batch])
        build_seconds += time.perf_counter() - began
        inputs = [
            RunnerInput(result.artifact_path, "cpu", ArgInfo.from_entry_func(module, remove_preproc=False))
            for module, result in zip(batch, built, strict=True)
            if result.artifact_path
        ]
        results = [future.result() for future in runner.run(inputs)]
        costs += [float(np.median([float(x) for x in result.run_secs])) for result in results if result.run_secs]
        failed += len(batch) - sum(bool(result.run_secs) for result in results)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "build": build_seconds,
        "run": seconds - build_seconds,
        "best": min(costs, default=math.inf),
        "failed": failed,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="gemm:512x512x512", metavar="W")
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sides", nargs="+", default=["floor", "metaschedule", *SETTINGS], metavar="S")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    options = parser.parse_args(argv)
    cores = available_cores()
    os.environ["TVM_NUM_THREADS"] = str(cores)  # by default, TVM assumes that half of them are hyper-threads
    space = SPACES.make(Plugin("sketch"), parse_workload(options.workload), resolve_target("native"))
    configs = sample_different(space, options.candidates, options.seed)
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "floor": lambda: measure_floor(space, configs, cores),
        **{
            name: lambda settings=settings: searchlab_side(settings, space, configs, options.batch, cores)  # type: ignore[misc]
            for name, settings in SETTINGS.items()
        },
        "metaschedule": lambda: metaschedule(space, configs, options.batch, cores),
    }
    print(
        f"{len(configs)} candidates of {options.workload} in batches of {options.batch}, {cores} cores, "
        f"TVM {tvm.__version__}"
    )
    print(
        f"{'side':13} seconds   build     run  candidates/s  failed   pruned  best ms  floors  x MetaSchedule's speed"
    )
    rows: list[dict[str, Any]] = []
    for name in options.sides:
        rows.append({"side": name, "candidates": len(configs), **sides[name]()})
        row = rows[-1]
        print(
            f"{name:13} {row['seconds']:7.1f} {row['build']:7.1f} {row['run']:7.1f} "
            f"{len(configs) / row['seconds']:13.2f} {row.get('failed', 0):7} {row.get('pruned', 0):8} "
            f"{row['best'] * 1e3:8.3f} {_ratio(row, rows, 'floor'):7.2f} {1 / _ratio(row, rows, 'metaschedule'):10.2f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _ratio(row: dict[str, Any], rows: Sequence[dict[str, Any]], side: str) -> float:
    """Return the ratio of the row's seconds to those of ``side``, or NaN if that side was not run."""
    return next(
        (float(row["seconds"] / peer["seconds"]) for peer in rows if peer["side"] == side),
        math.nan,
    )


if __name__ == "__main__":
    main()
