"""How long a study takes on fleets of different sizes, by what logs say of its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SearchlabError
from ..log.format import find_logs
from ..log.plan import UNLIMITED
from ..measure.pool import BuildPool
from ..measure.process import START_SECONDS
from ..run.plan import Run
from ..space import Space
from .recorded import Kind, Recorded, RecordedRun, kind_of, recorded
from .simulate import Fleet, Phase, simulate

NEAR = 0.1
"""A fleet is as good as another if the study takes at most so much longer, as a share."""

SIMULATED = 10_000
"""About how many trials are simulated on each fleet, of a study that has more: every n-th run of each kind."""

TIMED_BY = ("number", "repeat", "min_repeat_ms", "prune_factor", "check")
"""The settings of a measurement that decide how long a program is on a device."""


@dataclass(frozen=True)
class Outlook:
    """How long a study takes on a fleet.

    batch: None where each run has its own. seconds: of the whole study. waiting: what its jobs wait for, as shares of
    their time. devices_busy, builders_busy: shares of the time of the devices and of the cores that build.
    """

    devices: int
    builders: int
    jobs: int
    batch: int | None
    seconds: float
    waiting: Mapping[Phase, float]
    devices_busy: float
    builders_busy: float


@dataclass(frozen=True)
class FleetPlan:
    """A study on fleets of different sizes.

    runs, trials: of the study. logs: how many say what its trials take.
    knee: the smallest fleet, counting devices and builders, on which the study takes at most ``NEAR`` longer than on
    the fastest one. by_devices: for each number of devices, the fewest builders of which the same is true among fleets
    with that number of devices; then the fewest jobs, and the smallest batch. notes: what to know about the logs, a
    sentence each.
    """

    runs: int
    trials: int
    logs: int
    outlooks: Sequence[Outlook]
    knee: Outlook
    by_devices: Sequence[Outlook]
    notes: Sequence[str]


def plan_fleet(
    runs: Sequence[Run],
    logs: Iterable[Path],
    *,
    devices: Sequence[int],
    builders: Sequence[int],
    start: float = 0.0,
    jobs: Sequence[int] = (1,),
    batches: Sequence[int | None] = (None,),
    seed: int = 0,
) -> FleetPlan:
    """Simulate all ``runs`` of a study on every fleet of these numbers of devices, builders and jobs, with every batch.

    logs: logs, and directories of logs, whose trials the runs are made of; ``seed`` decides which. start: seconds of a
    core that it takes to start a process, as :func:`start_seconds` gives them.
    Raises SearchlabError if they hold no trial of a kind of run, and says which trials to record.
    """
    kinds = [kind_of(run) for run in runs]
    held = recorded((path for place in logs for path in find_logs(place)), set(kinds))
    _check_all_known(runs, kinds, held)
    used = [one for known in held.values() for one in known.runs]
    stride = max(1, sum(_expected(run, held[kind]) for run, kind in zip(runs, kinds, strict=True)) // SIMULATED)
    some: list[int] = []
    of_kind: Counter[Kind] = Counter()
    for number, kind in enumerate(kinds):
        if of_kind[kind] % stride == 0:
            some.append(number)
        of_kind[kind] += 1
    share = len(runs) / len(some)
    outlooks: list[Outlook] = []
    trials = 0
    for batch, cores in product(batches, builders):
        drawn = [
            held[kinds[number]].draw(
                runs[number], batch or runs[number].batch, cores, np.random.default_rng([seed, number])
            )
            for number in some
        ]
        trials = round(share * sum(len(one) for made in drawn for one in made))
        for count, at_once in product(devices, jobs):
            spent = simulate(drawn, Fleet(count, cores, at_once, start))
            waited = sum(spent.waited.values())
            # What is left out would have kept all jobs busy, and would not have changed how the last of them end.
            whole = spent.seconds + (share - 1) * waited / at_once
            outlooks.append(
                Outlook(
                    count, cores, at_once, batch, whole,
                    {phase: seconds / waited for phase, seconds in spent.waited.items()},
                    share * spent.devices / (count * whole), share * spent.cores / (cores * whole),
                )
            )  # fmt: skip
    knee = min(
        _near(outlooks),
        key=lambda one: (one.devices + one.builders, one.devices, one.jobs, one.batch or 0, one.seconds),
    )
    by_devices = [
        min(
            _near([one for one in outlooks if one.devices == count]),
            key=lambda one: (one.builders, one.jobs, one.batch or 0, one.seconds),
        )
        for count in devices
    ]
    return FleetPlan(len(runs), trials, len(used), outlooks, knee, by_devices, _notes(runs, used, batches))


def start_seconds(space: Space) -> float:
    """Seconds of a core that it takes on this machine to start a process that builds programs of ``space``."""
    pool = BuildPool(1, START_SECONDS, 0)
    try:
        (process,) = pool.ready(pool.holding(space), 1)
    finally:
        pool.close()
    return process.cpu_seconds


def _near(outlooks: Sequence[Outlook]) -> list[Outlook]:
    """Those that take at most ``NEAR`` longer than the fastest."""
    least = min(one.seconds for one in outlooks)
    return [one for one in outlooks if one.seconds <= (1 + NEAR) * least]


def _expected(run: Run, held: Recorded) -> int:
    """How many trials ``run`` will have, or, if it has no such number, the longest of its logs."""
    return run.trials if run.trials != UNLIMITED else max(len(one.trials) for one in held.runs)


def _check_all_known(runs: Sequence[Run], kinds: Sequence[Kind], held: Mapping[Kind, Recorded]) -> None:
    """Raise SearchlabError if ``held`` has nothing of the kind of one of ``runs``."""
    missing = list(
        dict.fromkeys(
            f"{run.workload} in {run.searched.name} by {run.strategy.name}"
            for run, kind in zip(runs, kinds, strict=True)
            if kind not in held
        )
    )
    if missing:
        first = missing[:3]
        more = f" and {len(missing) - len(first)} more" if len(missing) > len(first) else ""
        raise SearchlabError(
            f"no log says how long trials take of {', '.join(first)}{more}; record a few: run a copy of the study with "
            f"seeds = 1 and trials = 32, here or on one device, and give the directory of its logs as --logs"
        )


def _notes(runs: Sequence[Run], used: Sequence[RecordedRun], batches: Sequence[int | None]) -> list[str]:
    notes = []
    targets = {str(run.space.target.to_json()) for run in runs}
    others = {str(one.header.target) for one in used} - targets
    if others:
        notes.append(f"some logs are for another target, whose programs run at another speed: {', '.join(others)}")
    if not any(trial.connect for one in used for trial in one.trials):
        notes.append("the logs are not of a fleet: the time to connect to a device is not in them, and counts as 0")
    wanted: dict[str, Any] = runs[0].settings.identity()
    for name in TIMED_BY:
        values = {str(one.header.measure.get(name, wanted.get(name))) for one in used}
        if name in wanted and values != {str(wanted[name])}:
            had = ", ".join(sorted(values))
            notes.append(f"the logs were measured with {name} = {had}, the study has {wanted[name]}")
    sizes = {one.header.batch for one in used}
    if asked := {batch for batch in batches if batch is not None} - sizes:
        notes.append(
            f"the logs are of batches of {', '.join(map(str, sorted(sizes)))}; proposing a batch of "
            f"{', '.join(map(str, sorted(asked)))} is taken to cost the same for each trial. A policy learns less "
            f"often from larger batches"
        )
    return notes
