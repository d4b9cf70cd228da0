"""Measure what this machine can resolve: a program is timed again and again, alone and next to a busy core."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import psutil

from ..errors import SearchlabError
from ..machine.host import available_cores, cpu_model
from ..machine.noise import MachineCheck, Noise
from ..records import Trial
from ..space import Config, Knob, ProductSpace
from ..target import resolve_target
from ..workload import parse_workload
from .contract import CannotMeasure
from .local import LocalMeasurer, LocalSettings

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

CHECK_WORKLOAD = "gemm:64x64x64"
"""The workload that is timed. It takes about 0.1 ms, and its arguments fit into the L2 cache."""

ROUNDS = 5
"""The number of readings of each program between two looks at the clock."""

BUSY_TIME_SHARE = 0.25
"""The share of the time during which another core is kept busy."""


class RowProduct(ProductSpace):
    """A product whose rows are computed by one thread, or by a thread on each core."""

    def schedule(self, config: Config) -> Schedule:
        from tvm.s_tir import Schedule

        schedule = Schedule(self.workload.module)
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        if config["threads"] != 1:
            schedule.parallel(schedule.get_loops(block)[0])
        return schedule


def check_machine(seconds: float) -> MachineCheck:
    """Time a program for about ``seconds``, and return the noise of its times.

    Raises:
        SearchlabError: If the program cannot be measured, or ``seconds`` are too few for two readings.
    """
    target = resolve_target("native")
    thread_counts = sorted({1, target.cores})
    space = RowProduct(parse_workload(CHECK_WORKLOAD), target, [Knob("threads", thread_counts)])
    settings = LocalSettings(sentinel=0, finalists=len(thread_counts), check=False)
    clock_frequencies: list[float] = []
    with LocalMeasurer(settings, target, {}, 1) as measurer:
        configs = [Config({"threads": thread_count}) for thread_count in thread_counts]
        trials = list(map(Trial, count(), configs, measurer.measure(space, configs)))

        def collect_readings(trials: Sequence[Trial], seconds: float) -> list[list[float]]:
            readings: list[list[float]] = [[] for _ in trials]
            end_time = time.monotonic() + seconds
            while time.monotonic() < end_time or len(readings[0]) < 2:
                new_readings = measurer.remeasure(space, trials, ROUNDS)
                readings = [old + list(new) for old, new in zip(readings, new_readings, strict=True)]
                if clock_frequency := psutil.cpu_freq():
                    clock_frequencies.append(clock_frequency.current)
            return readings

        try:
            idle_readings = collect_readings(trials, seconds * (1 - BUSY_TIME_SHARE))
            busy_core_slowdown = None
            if available_cores() > 1:
                with keep_core_busy():
                    (busy_readings,) = collect_readings(trials[:1], seconds * BUSY_TIME_SHARE)
                busy_core_slowdown = statistics.median(busy_readings) / statistics.median(idle_readings[0])
        except CannotMeasure as error:
            raise SearchlabError(f"cannot time {CHECK_WORKLOAD} on this machine: {error}") from None
    return MachineCheck(
        time.time(),
        cpu_model(),
        available_cores(),
        tuple(map(Noise.from_readings, thread_counts, idle_readings)),
        busy_core_slowdown,
        (min(clock_frequencies), max(clock_frequencies)) if clock_frequencies else None,
    )


@contextmanager
def keep_core_busy() -> Iterator[None]:
    """Keep a core busy within this context."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
