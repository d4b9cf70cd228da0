"""Simulating how long a study takes on fleets of different sizes, from the trial times in logs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import count, product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from .errors import SearchlabError
from .log.format import Ended, Header, Record, find_logs, read_header, read_log
from .log.plan import UNLIMITED
from .measure.pool import BuildPool
from .measure.process import START_SECONDS
from .run.plan import Run
from .space import Space

NEAR = 0.1
"""A fleet counts as good as the fastest if a study takes at most this share longer on it."""

SIMULATED = 10_000
"""The approximate number of trials of a large study to simulate on each fleet: every n-th run of each kind."""

LOGS = 10
"""The maximum number of logs to read for each kind of run: more add little, and a study may have thousands."""

TIMED_BY = ("number", "repeat", "min_repeat_ms", "prune_factor", "check")
"""The measurement settings that determine how long a program occupies a device."""

Kind = bytes
"""What runs from different seeds have in common; see :func:`kind_of`."""

Phase = Literal["starting", "proposing", "building", "running"]


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """The time that a trial takes, in seconds. A trial that neither connects nor runs needs no device."""

    propose: float  # core time: the trial's share of proposing its batch, including training
    build: float  # core time
    connect: float = 0.0  # the time to connect to a device and send the inputs
    run: float = 0.0  # device time: running and checking the program

    @property
    def on_device(self) -> bool:
        return self.connect > 0 or self.run > 0


Batches = Sequence[Sequence[TrialTimes]]
"""A run, as the trials in each of its batches."""


@dataclass(frozen=True)
class Outlook:
    """The simulated duration of a study on a fleet."""

    devices: int
    builders: int
    jobs: int
    batch: int | None  # None if each run keeps its own batch size
    seconds: float
    waiting: Mapping[Phase, float]  # the share of the jobs' time spent waiting in each phase
    devices_busy: float  # as a share of all devices' time
    builders_busy: float  # as a share of the time of all building cores


@dataclass(frozen=True)
class FleetPlan:
    """The results of simulating a study on fleets of different sizes.

    Attributes:
        runs: The number of runs in the study.
        trials: The number of trials in the study.
        logs: The number of logs that provide the times.
        outlooks: The results for all fleets.
        knee: The smallest fleet, counting devices and builders, on which the study takes at most 10 % longer than on
            the fastest one.
        by_devices: For each number of devices, the fleet with the fewest builders that is within 10 % of the fastest
            fleet with that many devices. Ties are broken by the fewest jobs, then by the smallest batch.
        notes: Caveats about the logs, one sentence each.
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
    """Simulate a study on every combination of the given device, builder and job counts and batch sizes.

    Args:
        runs: All runs of the study.
        logs: Logs or directories of logs. The simulated runs are drawn from their trials.
        devices: The numbers of devices to simulate.
        builders: The core counts to simulate for the machine that builds and proposes.
        start: The core time needed to start a process, in seconds; see :func:`start_seconds`.
        jobs: The numbers of concurrent runs to simulate.
        batches: The batch sizes to simulate for all runs; None keeps each run's own.
        seed: The seed for drawing trials.

    Raises:
        SearchlabError: If the logs contain no trial for some kind of run; the message says which trials to record.
    """
    kinds = [kind_of(run) for run in runs]
    held = recorded((path for place in logs for path in find_logs(place)), set(kinds))
    _check_all_known(runs, kinds, held)
    used = [one for known in held.values() for one in known.runs]
    of_kind: dict[Kind, list[int]] = {}
    expected = 0
    for number, (run, kind) in enumerate(zip(runs, kinds, strict=True)):
        of_kind.setdefault(kind, []).append(number)
        expected += run.trials if run.trials != UNLIMITED else max(len(one.trials) for one in held[kind].runs)
    stride = max(1, expected // SIMULATED)
    some = sorted(number for numbers in of_kind.values() for number in numbers[::stride])
    share = len(runs) / len(some)
    outlooks = []
    for batch, cores in product(batches, builders):
        drawn = []
        for number in some:
            run, rng = runs[number], np.random.default_rng([seed, number])
            drawn.append(held[kinds[number]].draw(run, batch or run.batch, cores, rng))
        trials = round(share * sum(len(one) for made in drawn for one in made))
        for lent, at_once in product(devices, jobs):
            spent = simulate(drawn, Fleet(lent, cores, at_once, start))
            waited = sum(spent.waited.values())
            # The omitted runs would have kept all jobs busy, without changing how the last jobs end.
            seconds = spent.seconds + (share - 1) * waited / at_once
            outlooks.append(
                Outlook(
                    lent, cores, at_once, batch, seconds,
                    {phase: each / waited for phase, each in spent.waited.items()},
                    share * spent.devices / (lent * seconds), share * spent.cores / (cores * seconds),
                )
            )  # fmt: skip
    knee = min(
        _near(outlooks),
        key=lambda one: (one.devices + one.builders, one.devices, one.jobs, one.batch or 0, one.seconds),
    )
    by_devices = [
        min(
            _near([one for one in outlooks if one.devices == lent]),
            key=lambda one: (one.builders, one.jobs, one.batch or 0, one.seconds),
        )
        for lent in devices
    ]
    return FleetPlan(len(runs), trials, len(used), outlooks, knee, by_devices, _notes(runs, used, batches))


def _near(outlooks: Sequence[Outlook]) -> list[Outlook]:
    least = min(one.seconds for one in outlooks)
    return [one for one in outlooks if one.seconds <= (1 + NEAR) * least]


def start_seconds(space: Space) -> float:
    """Measure the core time, in seconds, needed to start a local process that builds programs of ``space``."""
    pool = BuildPool(1, START_SECONDS, 0)
    try:
        (process,) = pool.ready(pool.holding(space), 1)
    finally:
        pool.close()
    return process.cpu_seconds


def _check_all_known(runs: Sequence[Run], kinds: Sequence[Kind], held: Collection[Kind]) -> None:
    missing = [
        f"{run.workload} in {run.searched.name} by {run.strategy.name}"
        for run, kind in zip(runs, kinds, strict=True)
        if kind not in held
    ]
    if missing := list(dict.fromkeys(missing)):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise SearchlabError(
            f"no log shows how long trials take for {', '.join(missing[:3])}{more}; record a few by running a copy of "
            f"the study with seeds = 1 and trials = 32, here or on one device, and pass its log directory as --logs"
        )


def _notes(runs: Sequence[Run], used: Sequence[RecordedRun], batches: Sequence[int | None]) -> list[str]:
    notes = []
    targets = {str(run.space.target.to_json()) for run in runs}
    if others := {str(one.header.target) for one in used} - targets:
        notes.append(f"some logs are for a different target, on which program times may differ: {', '.join(others)}")
    if not any(trial.connect for one in used for trial in one.trials):
        notes.append("the logs do not come from a fleet, so the time to connect to a device is unknown and counts as 0")
    wanted: dict[str, Any] = runs[0].settings.identity()
    for name in TIMED_BY:
        values = {str(one.header.measure.get(name, wanted.get(name))) for one in used}
        if name in wanted and values != {str(wanted[name])}:
            had = ", ".join(sorted(values))
            notes.append(f"the logs were measured with {name} = {had}, but the study has {wanted[name]}")
    sizes = {one.header.batch for one in used}
    if asked := {batch for batch in batches if batch is not None} - sizes:
        notes.append(
            f"the logs have batches of {', '.join(map(str, sorted(sizes)))}; proposing batches of "
            f"{', '.join(map(str, sorted(asked)))} is assumed to cost the same per trial, although a policy learns "
            f"less often with larger batches"
        )
    return notes


# --- recorded trials --------------------------------------------------------------------------------


def kind_of(run: Header | Run) -> Kind:
    """Return a key for a run's workload, space and strategy, including all options."""
    if isinstance(run, Header):
        parts = (run.space, run.policy, run.cost_model, run.features)
    else:
        chosen, model = run.strategy, run.strategy.cost_model
        policy, features = chosen.policy.spelled(), chosen.features
        parts = (run.searched.plugin.spelled(), policy, model.spelled() if model else None, features)
    return msgspec.json.encode((run.workload, *parts), order="sorted")


@dataclass(frozen=True)
class RecordedRun:
    header: Header
    trials: tuple[TrialTimes, ...]
    ended: Ended | None  # why the run ended early

    def has_ended(self, run: Run) -> bool:
        """Check whether the last trial here would also be the last trial of ``run``."""
        ended = self.ended
        return ended is not None and (
            ended.by_policy or (ended.stop_after is not None and ended.stop_after == run.stop_after)
        )


def _times(record: Record) -> TrialTimes:
    proposing = record.propose_seconds + record.train_seconds
    if record.reused:  # it was only scheduled, which takes a few per cent of the build time
        return TrialTimes(proposing, 0.0)
    return TrialTimes(proposing, record.build_seconds, record.connect_seconds, record.run_seconds)


@dataclass(frozen=True)
class Recorded:
    """The logs' contents for one kind of run."""

    runs: Sequence[RecordedRun]

    @cached_property
    def later(self) -> list[TrialTimes]:
        """The trials in the second half of each log, when policies have learned and programs are known."""
        return [trial for run in self.runs for trial in run.trials[len(run.trials) // 2 :]]

    @cached_property
    def proposing(self) -> list[float]:
        """The mean time over all logs to propose the first, second, ... trial; the last value is for later trials.

        Logs differ far more in this than in program times, because one run may fill a cache that the others then use.
        """
        longest = max(len(run.trials) for run in self.runs)
        at_index = ([run.trials[i].propose for run in self.runs if i < len(run.trials)] for i in range(longest))
        return [*map(fmean, at_index), fmean(trial.propose for trial in self.later)]

    def draw(self, run: Run, batch: int, builders: int, rng: np.random.Generator) -> list[list[TrialTimes]]:
        """Draw batches for ``run``: all programs of one log, then single trials from the second halves of all logs.

        A program's build time and run time therefore always come from the same trial.

        Raises:
            SearchlabError: If nothing determines when the run ends.
        """
        model = self.runs[int(rng.integers(len(self.runs)))]
        limit = min(run.trials, len(model.trials)) if model.has_ended(run) else run.trials
        if limit == UNLIMITED and (run.seconds is None or not _charged(self.later, 1)):
            raise SearchlabError(
                f"nothing determines how many trials {run.log} will have; set trials in the study, or record longer "
                f"runs"
            )
        made: list[list[TrialTimes]] = []
        trials, charged = 0, 0.0
        while trials < limit and charged < (math.inf if run.seconds is None else run.seconds):
            size = min(batch, limit - trials)
            own = model.trials[trials : trials + size]
            drawn = (self.later[i] for i in rng.integers(len(self.later), size=size - len(own)))
            proposing = (self.proposing[min(i, len(self.proposing) - 1)] for i in range(trials, trials + size))
            made.append([replace(one, propose=each) for one, each in zip([*own, *drawn], proposing, strict=True)])
            trials += size
            charged += _charged(made[-1], builders)
        return made


def _charged(batch: Sequence[TrialTimes], builders: int) -> float:
    """Return the time charged for a batch, in seconds; see :attr:`~searchlab.log.format.Log.charged`."""
    shared = min(builders, len(batch))
    return sum(trial.propose + trial.build / shared + trial.run for trial in batch)


def recorded(paths: Iterable[Path], kinds: Collection[Kind]) -> dict[Kind, Recorded]:
    """Read the first :data:`LOGS` logs of each of ``kinds``, skipping tables and logs without trials.

    Raises:
        SearchlabError: If a log is unreadable, damaged or not from searchlab.
    """
    runs: dict[Kind, list[RecordedRun]] = {}
    for path in paths:
        header = read_header(path)
        kind = kind_of(header)
        if header.is_table or kind not in kinds or len(runs.get(kind, ())) == LOGS:
            continue
        log = read_log(path)
        if log.records:
            runs.setdefault(kind, []).append(RecordedRun(log.header, tuple(map(_times, log.records)), log.ended))
    return {kind: Recorded(of_kind) for kind, of_kind in runs.items()}


# --- simulation -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fleet:
    """Devices with the same key, and the machine that builds for them."""

    devices: int
    builders: int  # the machine's cores, which its processes share evenly
    jobs: int = 1  # concurrent runs
    start: float = 0.0  # the core time needed to start a process, in seconds


@dataclass
class Spent:
    """The time that the runs took, in seconds."""

    seconds: float = 0.0  # from beginning to end
    waited: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0.0))  # summed over jobs
    devices: float = 0.0  # busy, summed
    cores: float = 0.0  # busy, summed


def simulate(runs: Sequence[Batches], fleet: Fleet) -> Spent:
    """Simulate ``runs`` on ``fleet`` in order, event by event, in the same way as the loop and the RPC measurer work.

    A job executes its runs one after another. For each batch, it proposes configs, builds all programs and runs them
    before it proposes again. A device runs one program at a time. The tracker lends devices in the order of the
    requests, and a job requests a device as soon as one of its programs needs one. Returning a device takes as long as
    connecting to it, and only then can it be lent again.

    A job uses one building process per core and one connection process per device, but no more of either than its
    first batch has trials. A single job starts them once; with several jobs, each starts them again for every run.
    """
    return _Simulation(runs, fleet).run()


Resume = Callable[[], None]
Process = Iterator[Callable[[Resume], None]]
"""A simulated process: it yields each wait as a function that arranges for the process to resume."""


class _Pool:
    """Devices or a job's processes, lent in the order of the requests."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.requests: deque[Resume] = deque()

    def take(self, resume: Resume) -> None:
        self.requests.append(resume)
        self._lend()

    def back(self) -> None:
        self.free += 1
        self._lend()

    def _lend(self) -> None:
        while self.free and self.requests:
            self.free -= 1
            self.requests.popleft()()


class _Simulation:
    """The simulated clock and the pending events.

    Processes on cores advance at the same pace: since the beginning, each could have used ``given`` seconds of core
    time. The next process to end is the one that ends at the smallest value of ``given``, regardless of how many
    processes share the cores until then.
    """

    def __init__(self, runs: Sequence[Batches], fleet: Fleet) -> None:
        self.fleet = fleet
        self.todo = deque(runs)
        self.now = self.given = 0.0
        self.by_clock: list[tuple[float, int, Resume]] = []
        self.on_cores: list[tuple[float, int, Resume]] = []
        self.order = count()
        self.devices = _Pool(fleet.devices)
        self.spent = Spent()

    def run(self) -> Spent:
        for _ in range(min(self.fleet.jobs, len(self.todo))):
            self._go(self._job())
        while self.by_clock or self.on_cores:
            pace = min(1.0, self.fleet.builders / len(self.on_cores)) if self.on_cores else 1.0
            due = self.now + (self.on_cores[0][0] - self.given) / pace if self.on_cores else math.inf
            if self.by_clock and self.by_clock[0][0] < due:
                at, _, resume = heappop(self.by_clock)
                self.given += (at - self.now) * pace
                self.now = at
            else:
                self.given, _, resume = heappop(self.on_cores)
                self.now = due
            resume()
        return self.spent

    def _job(self) -> Process:
        started = False
        while self.todo:
            for batch in self.todo.popleft():
                yield from self._phase("proposing", [self._compute(sum(trial.propose for trial in batch))])
                if not started:
                    started, sessions, builders = True, _Pool(), _Pool(min(self.fleet.builders, len(batch)))
                    for _ in range(min(self.fleet.devices, len(batch))):
                        self._go(self._compute(self.fleet.start), sessions.back)
                    yield from self._phase("starting", [self._compute(self.fleet.start) for _ in range(builders.free)])
                built: list[TrialTimes] = []
                yield from self._phase("building", [self._build(trial, builders, built) for trial in batch])
                on_device = [self._run(trial, sessions) for trial in built if trial.on_device]
                yield from self._phase("running", on_device)
            started = started and self.fleet.jobs == 1
        self.spent.seconds = self.now

    def _build(self, trial: TrialTimes, builders: _Pool, built: list[TrialTimes]) -> Process:
        yield builders.take
        yield from self._compute(trial.build)
        built.append(trial)
        builders.back()

    def _run(self, trial: TrialTimes, sessions: _Pool) -> Process:
        yield sessions.take
        yield self.devices.take
        self.spent.devices += trial.run + 2 * trial.connect
        yield from self._sleep(trial.connect + trial.run)
        sessions.back()
        self._go(self._sleep(trial.connect), self.devices.back)

    def _compute(self, seconds: float) -> Process:
        self.spent.cores += seconds
        yield lambda resume: heappush(self.on_cores, (self.given + seconds, next(self.order), resume))

    def _sleep(self, seconds: float) -> Process:
        yield lambda resume: heappush(self.by_clock, (self.now + seconds, next(self.order), resume))

    def _phase(self, phase: Phase, processes: Sequence[Process]) -> Process:
        """Wait until all ``processes`` have ended."""
        since, left = self.now, len(processes)

        def wait(resume: Resume) -> None:
            def ended() -> None:
                nonlocal left
                left -= 1
                if not left:
                    resume()

            for process in processes:
                self._go(process, ended)

        if processes:
            yield wait
        self.spent.waited[phase] += self.now - since

    def _go(self, process: Process, ended: Resume = lambda: None) -> None:
        """Advance ``process`` to its next wait, after which it continues; call ``ended`` when it ends."""
        wait = next(process, None)
        if wait is None:
            ended()
        else:
            wait(partial(self._go, process, ended))
