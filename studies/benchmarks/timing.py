"""Helpers for the benchmarks in this folder: searching, timing calls, and running each row in separate processes.

Libraries read the number of threads from the environment when they are loaded. Each row of a table is therefore
measured in separate processes, without settings that would change the choice of kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from searchlab.measure.code import compile_program, device_of, pack_inputs
from searchlab.space import SPACES, Config
from searchlab.target import Target
from searchlab.workload import Workload, packed_arguments, parse_workload, preset_names

if TYPE_CHECKING:
    import tvm

SpaceSpec = str | Mapping[str, Any]
"""A space's name, or its name and options, as for searchlab.tune."""

SLICE = 0.05  # seconds per side and round
REST = 0.1  # seconds between sides: longer than either side's worker threads spin
BUSY = 10.0  # the percentage of CPU time above which other processes prolong a rest
PATIENCE = 1.0  # the maximum rest in seconds

THREADS = ("TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
FOREIGN = ("OPENBLAS_", "MKL_", "BLIS_", "ONEDNN_", "DNNL_", "ATEN_", "OMP_", "GOMP_", "KMP_")
"""Prefixes of the environment variables to remove, such as OPENBLAS_CORETYPE."""

ISAS = {
    "avx2": (
        "haswell",
        {"OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    )
}
"""The CPU for which LLVM builds, and the settings that make libraries use their kernels for that instruction set."""

KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""The settings with which glibc keeps freed memory. A library that allocates its result in each call otherwise waits
for new pages.

In that case, PyTorch's convolution for ResNet-50's conv1 would take 2.5 times as long with one thread.
"""


def leave_folder() -> None:
    """Remove this folder from ``sys.path``, where ``cuda.py`` would shadow NVIDIA's package of the same name."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != folder]


def common_options(description: str | None, trials: int = 32) -> argparse.ArgumentParser:
    """Return a parser with the common options; ``trials`` is the default of ``--trials``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=trials, help=f"number of trials per search ({trials})")
    parser.add_argument(
        "--rounds", type=int, default=21, help="number of rounds in which all sides are timed in turn (21)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for the search (0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the rows are also written")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


def resnet50(op: str) -> list[str]:
    """Return the distinct layers of ResNet-50 v1.5 as ``"conv"`` or ``"gemm"`` workloads, each under its first name."""
    names: dict[Workload, str] = {}
    for name in preset_names():
        if f"/{op}" in name:
            names.setdefault(parse_workload(name), name)
    return list(names.values())


def build(
    space: SpaceSpec, workload: Workload, target: Target, config: Config, operands: Sequence[tvm.runtime.Tensor]
) -> tuple[tvm.runtime.Module, list[tvm.runtime.Tensor]]:
    """Return the compiled and loaded program of ``config``, and ``operands``, packed where the program requires it."""
    plugin, _ = SPACES.resolve(space)
    module = SPACES.make(plugin, workload, target).schedule(config).mod
    program = compile_program(module, target).jit()
    arguments = pack_inputs(program, packed_arguments(module), dict(zip(workload.shapes, operands, strict=True)))
    return program, [array for arrays in arguments.values() for array in arrays]


def arguments(workload: Workload, target: Target) -> list[tvm.runtime.Tensor]:
    """Return the workload's operands and a result filled with NaN (0 for integers), on the device of ``target``."""
    import tvm

    *_, shape = workload.shapes.values()
    result = np.full(shape, np.nan if workload.out_dtype.startswith("float") else 0, workload.out_dtype)
    return [tvm.runtime.tensor(array, device_of(target.kind)) for array in [*workload.inputs().values(), result]]


def search(space: SpaceSpec, workload: Workload, target: Target, trials: int, seed: int) -> dict[str, Any]:
    """Search ``space`` with the policy xgb, and return the fastest ``config`` and the search's times.

    ``search_seconds`` is the wall time; ``build_seconds`` is the sum over all programs, some of which are built in
    parallel.

    Raises:
        SearchlabError: If none of the programs runs.
    """
    import searchlab

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = searchlab.tune(
            workload,
            space=space,
            policy="xgb",
            trials=trials,
            seed=seed,
            target=target,
            measure={"kind": "local", "repeat": 5, "min_repeat_ms": 20},
            log=Path(folder, "log.jsonl"),
        )
    times = {
        "search_seconds": round(time.perf_counter() - start, 1),
        "build_seconds": round(sum(trial.measurement.build_seconds or 0 for trial in result.trials), 1),
    }
    successes = [trial for trial in result.trials if not trial.measurement.failure] or [result.best.trial]
    front = [trial.config for trial in sorted(successes, key=lambda trial: trial.cost)[:16]]
    args = arguments(workload, target)
    programs = [build(space, workload, target, config, args) for config in front]
    timers = [
        program.time_evaluator("main", device_of(target.kind), number=1, repeat=1, min_repeat_ms=20)
        for program, _ in programs
    ]
    # Clock drift exceeds the differences between programs, and other processes can slow a trial by half. The fastest
    # program may therefore be far from the first, so up to sixteen are timed again, in turn.
    medians = np.median(
        [
            [timer(*program_args).mean for timer, (_, program_args) in zip(timers, programs, strict=True)]
            for _ in range(21)
        ],
        axis=0,
    )
    return {"config": front[int(np.argmin(medians))].to_json(), **times}


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Return a call's median and minimum time, after a rest and a warm-up that wakes the worker threads."""
    rested = time.perf_counter() + PATIENCE
    while psutil.cpu_percent(REST) > BUSY and time.perf_counter() < rested:
        pass
    warm = time.perf_counter() + SLICE / 2
    while time.perf_counter() < warm:
        run()
    times: list[float] = []
    while sum(times) < SLICE:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), min(times)


def environment(threads: int, isa: str | None = None) -> dict[str, str]:
    """Return the environment of a process whose libraries use ``threads`` threads and choose their kernels themselves.

    With ``isa``, they use kernels for this instruction set. Freed memory stays with the process.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    forced = ISAS[isa][1] if isa else {}
    return {**inherited, **forced, **KEPT_MEMORY, **dict.fromkeys(THREADS, str(threads))}


def run_worker(script: str, task: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
    """Return the last line of JSON that ``script --worker task`` prints, in a process with ``task["threads"]`` threads.

    With ``task["isa"]``, libraries use kernels for this instruction set.

    Raises:
        subprocess.SubprocessError: If the process fails or takes more than ``timeout`` seconds.
    """
    run = subprocess.run(
        [sys.executable, script, "--worker", json.dumps(task)],
        env=environment(task["threads"], task.get("isa")),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout,
    )
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer
