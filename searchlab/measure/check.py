"""Measure what this machine can resolve: a program is timed again and again, alone and next to a busy core."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

WORKLOAD = "gemm:64x64x64"
"""The workload that is timed. It takes about 0.1 ms, and its arguments fit into the L2 cache."""

ROUNDS = 5
"""The number of readings of each program between two looks at the clock."""

BUSY_SHARE = 0.25
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
    threads = sorted({1, target.cores})
    space = RowProduct(parse_workload(WORKLOAD), target, [Knob("threads", threads)])
    settings = LocalSettings(sentinel=0, finalists=len(threads), check=False)
    frequencies: list[float] = []
    with LocalMeasurer(settings, target, {}, 1) as measurer:
        configs = [Config({"threads": count}) for count in threads]
        trials = [Trial(i, *pair) for i, pair in enumerate(zip(configs, measurer.measure(space, configs), strict=True))]

        def read(trials: Sequence[Trial], seconds: float) -> list[list[float]]:
            readings: list[list[float]] = [[] for _ in trials]
            end = time.monotonic() + seconds
            while time.monotonic() < end or len(readings[0]) < 2:
                for times, new_times in zip(readings, measurer.remeasure(space, trials, ROUNDS), strict=True):
                    times += new_times
                if frequency := psutil.cpu_freq():
                    frequencies.append(frequency.current)
            return readings

        try:
            idle_readings = read(trials, seconds * (1 - BUSY_SHARE))
            second_core = None
            if available_cores() > 1:
                with busy_core():
                    (busy_readings,) = read(trials[:1], seconds * BUSY_SHARE)
                second_core = statistics.median(busy_readings) / statistics.median(idle_readings[0])
        except CannotMeasure as error:
            raise SearchlabError(f"cannot time {WORKLOAD} on this machine: {error}") from None
    return MachineCheck(
        time.time(),
        cpu_model(),
        available_cores(),
        tuple(Noise.from_readings(count, times) for count, times in zip(threads, idle_readings, strict=True)),
        second_core,
        (min(frequencies), max(frequencies)) if frequencies else None,
    )


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep a core busy within this context."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
