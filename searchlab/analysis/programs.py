"""The best programs of the runs in a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..log.result import find_best_trial
from .runs import ComparedRuns


class BestProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A run's best program, as in :attr:`searchlab.log.result.Result.best`.

    It is that of the fastest trial or, if the fastest trials were measured again at the end of the run, of the winner.
    """

    workload: str
    strategy: str
    seed: int
    trial: int  # index in the log, from 0
    gflops: float  # from its last measurement
    seconds: float  # from its last measurement
    gflops_as_trial: float  # from its measurement as a trial
    unit: str  # of the throughputs
    tied: list[int] | None  # trials that were equally fast when measured again; None if no trials were
    config: dict[str, Any]
    log: str


def run_programs(comparison: ComparedRuns) -> list[BestProgram]:
    """Return the best program of each run that has one, in the order of the comparison."""
    programs = []
    for run in (run for item in comparison.values() for run in item.runs):
        log = run.log
        if not np.isfinite(log.costs).any():
            continue
        index, seconds, tied = find_best_trial(log.costs, log.final)
        programs.append(
            BestProgram(
                workload=run.workload,
                strategy=run.strategy,
                seed=run.seed,
                trial=index,
                gflops=log.flops / seconds / 1e9,
                seconds=seconds,
                gflops_as_trial=log.flops / float(log.costs[index]) / 1e9,
                unit=log.unit,
                tied=tied,
                config=log.config(index),
                log=run.file,
            )
        )
    return programs


def best_programs(programs: Sequence[BestProgram]) -> list[BestProgram]:
    """Return the fastest program of each strategy on each workload, sorted by workload and throughput.

    If several programs are equally fast, the one with the lowest seed is chosen.
    """
    best: dict[tuple[str, str], BestProgram] = {}
    for program in sorted(programs, key=lambda item: (-item.gflops, item.seed)):
        best.setdefault((program.workload, program.strategy), program)
    return sorted(best.values(), key=lambda item: (item.workload, -item.gflops, item.strategy))
