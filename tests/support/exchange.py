"""Logs to export: random configs of a real space with synthetic times, some of which failed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from searchlab.log.format import BUILTIN_WORKLOAD_KINDS, Computation, Finalist, FinalistTimes, Header, Log, Record
from searchlab.log.read import read_log
from searchlab.log.writer import LogWriter
from searchlab.plugins import Plugin
from searchlab.records import Measurement, Trial
from searchlab.space import SPACES
from searchlab.target import resolve_target
from searchlab.workload import Workload, parse_workload

DATA = Path(__file__).parents[1] / "exchange" / "data"
TARGET = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}


def write_log(
    path: Path,
    space: str = "sketch",
    workload: str | Workload = "gemm:64x64x64",
    trials: int = 6,
    seed: int = 0,
    again: tuple[int, ...] = (),
) -> Log:
    """Write a log in which trial 1 is invalid, trial 2 timed out, and each of the others is faster than the last.

    again: trials that were measured again at the end, in order of decreasing time.
    """
    plugin, target = Plugin(space), resolve_target(TARGET)
    log_space = SPACES.make(plugin, parse_workload(workload), target)
    is_builtin = log_space.workload.op in BUILTIN_WORKLOAD_KINDS
    computation = None if is_builtin else Computation.from_workload(log_space.workload)
    header = Header(
        workload=str(log_space.workload),
        space=plugin,
        fingerprint=log_space.fingerprint,
        policy=Plugin("random"),
        seed=seed,
        batch=2,
        target=target.to_json(),
        measure={"kind": "local", "repeat": 3},
        host={"cpu": "made up"},
        workers=2,
        created_at=1.7e9,
        computation=computation,
    )
    writer = LogWriter(path, header, durable=False)
    for index, config in enumerate(log_space.sample_new(np.random.default_rng(seed), trials, ())):
        seconds = 1e-3 / (index + 1)
        # The median is not the mean: one of the repeats was disturbed, most in the fastest trial.
        measured = Measurement(
            (seconds, seconds * 1.01, seconds * 2 * (index + 1)), build_seconds=0.5, run_seconds=0.25
        )
        if index == 1:
            measured = Measurement(failure="invalid", message="no program")
        if index == 2:
            measured = Measurement(failure="run_timeout", message="10 s", build_seconds=0.5, run_seconds=10)
        writer.append(Record.from_trial(Trial(index, config, measured), propose_seconds=0.125))
    if again:
        finalists = [Finalist(record, (2e-3 / rank,) * 3) for rank, record in enumerate(again, 1)]
        writer.append(FinalistTimes(trial_count=trials, finalists=tuple(finalists)))
    writer.close()
    return read_log(path)
