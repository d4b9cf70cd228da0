"""What differences between programs this machine can resolve, as `searchlab machine check` last observed it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import SearchlabError
from ..files import read_bytes, write_file
from .host import available_cores, cpu_model
from .lock import lock_path

REPEATS = (1, 3, 10)
"""The numbers of repeats whose resolution is determined."""

MAX_GROUPS = 500
"""The maximum number of groups of repeats, all pairs of which are compared."""

DRIFT_PARTS = 10
"""The number of parts of the readings, whose medians show the drift."""


class Noise(msgspec.Struct, frozen=True):
    """How much the times of one program vary, as fractions.

    Attributes:
        threads: The program's number of threads.
        spread: The interquartile range of its readings, divided by their median.
        drift: The largest deviation of the median in a tenth of the time from the median of all readings.
        resolution: For each number of repeats, the difference that 95 % of pairs of medians do not exceed. A smaller
            difference between two programs cannot be told from noise.
    """

    threads: int
    spread: float
    drift: float
    resolution: dict[int, float]

    @classmethod
    def from_readings(cls, threads: int, readings: Sequence[float]) -> Noise:
        """Summarize readings of one program in seconds, in the order in which they were taken."""
        seconds = np.asarray(readings)
        lower_quartile, median, upper_quartile = np.percentile(seconds, [25, 50, 75])
        part_medians = [np.median(part) for part in np.array_split(seconds, min(DRIFT_PARTS, len(seconds)))]
        return cls(
            threads,
            spread=float((upper_quartile - lower_quartile) / median),
            drift=float(max(abs(part / median - 1) for part in part_medians)),
            resolution={
                repeats: compute_resolution(readings, repeats) for repeats in REPEATS if 2 * repeats <= len(readings)
            },
        )


class MachineCheck(msgspec.Struct, frozen=True):
    """The result of `searchlab machine check`.

    Attributes:
        created: When it was made, in seconds since 1970.
        cpu: The CPU's name.
        cores: The number of available cores.
        noise: The noise of a program with one thread and, on several cores, of one with a thread per core.
        second_core: How many times as long a program with one thread takes while a process keeps another core busy, or
            None on a single core.
        mhz: The lowest and the highest clock frequency that the system reported, or None if it reports none.
    """

    created: float
    cpu: str
    cores: int
    noise: tuple[Noise, ...]
    second_core: float | None = None
    mhz: tuple[float, float] | None = None


def compute_resolution(readings: Sequence[float], repeats: int) -> float:
    """Return the relative difference that 95 % of pairs of medians do not exceed.

    Each median is that of ``repeats`` consecutive readings.
    """
    group_count = len(readings) // repeats
    medians = np.median(np.reshape(readings[: group_count * repeats], (group_count, repeats)), axis=1)
    log_medians = np.log(medians[:: math.ceil(group_count / MAX_GROUPS)])
    first, second = np.triu_indices(len(log_medians), 1)
    return float(np.expm1(np.percentile(np.abs(log_medians[first] - log_medians[second]), 95)))


def write_check(check: MachineCheck) -> Path:
    """Keep the check for later runs, next to the machine's lock, and return its path."""
    write_file(path := _get_check_path(), msgspec.json.encode(check))
    return path


def read_resolution(threads: int, repeats: int) -> dict[str, Any]:
    """Return the resolution that the last check determined, and its date, for a log's header.

    It is that of programs with as many ``threads``, and of the largest checked number of repeats up to ``repeats``. The
    result is empty if there is no check of this CPU with as many available cores.
    """
    with suppress(msgspec.DecodeError, SearchlabError):
        check = msgspec.json.decode(read_bytes(_get_check_path()), type=MachineCheck)
        if (check.cpu, check.cores) == (cpu_model(), available_cores()):
            noise = check.noise[0 if threads == 1 else -1]
            resolutions = [noise.resolution[count] for count in sorted(noise.resolution) if count <= repeats]
            return {"resolution": round(resolutions[-1], 4), "checked": time.strftime("%F", time.gmtime(check.created))}
    return {}


def _get_check_path() -> Path:
    return lock_path().with_suffix(".json")
