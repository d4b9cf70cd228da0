"""The simulation of a fleet: small schedules that were computed by hand, and bounds that hold for all schedules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchlab.fleet import Batches, Fleet, TrialTimes, simulate


def trial(build: float, run: float = 0.0, propose: float = 0.0, connect: float = 0.0) -> TrialTimes:
    return TrialTimes(propose, build, connect, run)


def run(*batches: list[TrialTimes]) -> Batches:
    return batches


ALIKE = run([trial(1, 2)] * 4)


@pytest.mark.parametrize(
    ("runs", "fleet", "seconds", "waited"),
    [
        # Proposing 1, building 1 + 1, running 2 + 2, one after the other.
        ([run([trial(1, 2, 0.5)] * 2)], Fleet(1, 1), 7, {"proposing": 1, "building": 2, "running": 4}),
        ([ALIKE], Fleet(1, 4), 9, {"building": 1, "running": 8}),
        ([ALIKE], Fleet(4, 1), 6, {"building": 4, "running": 2}),
        ([ALIKE], Fleet(3, 3), 6, {"building": 2, "running": 4}),
        ([ALIKE], Fleet(1000, 1000), 3, {"building": 1, "running": 2}),
        # The second program to be built is ready first, and so runs first: 1..2 and 3..6.
        ([run([trial(3, 3), trial(1, 1)])], Fleet(1, 2), 7, {"building": 3, "running": 4}),
        # Two builders take 3, and 1 + 1 + 1; then a device that is handed back in 0.5 s: 2.5, 0.5 + 2.5.
        ([run([trial(3), trial(1, 2, 0, 0.5), trial(1, 2, 0, 0.5), trial(1)])], Fleet(1, 2), 8.5, {"building": 3}),
        # Two batches of one run, and then another run.
        ([run([trial(1, 1)], [trial(2, 2)]), run([trial(3, 3)])], Fleet(9, 9), 12, {"building": 6, "running": 6}),
        # Two jobs, a core: both build until 4 s, share the device until 8 s; each waits for a program of the other.
        ([run([trial(2, 2)]), run([trial(2, 2)])], Fleet(1, 1, 2), 8, {"building": 8, "running": 6}),
        # Devices are lent in the order of requests: to one job until 2 s, to the other until 4 s, then to the first.
        ([run([trial(0, 2)] * 4), run([trial(0.5, 2)] * 2)], Fleet(2, 1, 2), 6, {"building": 1, "running": 9}),
        # A job of one program ends, and the other then has the core to itself: 1 s each, in 2 s, and 2 s more.
        ([run([trial(1)]), run([trial(3)])], Fleet(1, 1, 2), 4, {"building": 6}),
        # One job starts its two processes once; two jobs start theirs at each run: four on two cores, one for devices.
        ([run([trial(1, 1)])] * 2, Fleet(1, 1, 1, 1.0), 6, {"starting": 2, "building": 2, "running": 2}),
        ([run([trial(1, 1)])] * 2, Fleet(2, 4, 2, 1.0), 3, {"starting": 2, "building": 2, "running": 2}),
        ([], Fleet(1, 1), 0, {}),
    ],
)
def test_schedules_that_were_computed_by_hand(
    runs: list[Batches], fleet: Fleet, seconds: float, waited: dict[str, float]
) -> None:
    spent = simulate(runs, fleet)
    assert spent.seconds == pytest.approx(seconds)
    assert {phase: spent.waited[phase] for phase in waited} == pytest.approx(waited)  # type: ignore[index]
    if fleet.jobs == 1:
        assert sum(spent.waited.values()) == pytest.approx(seconds)


SECONDS = st.integers(0, 40).map(lambda tenths: tenths / 10)
TRIALS = st.builds(TrialTimes, SECONDS, SECONDS, SECONDS, SECONDS)
RUNS = st.lists(st.lists(st.lists(TRIALS, min_size=1, max_size=5), max_size=3), min_size=1, max_size=4)
SIZES = st.integers(1, 6)


@settings(max_examples=50)
@given(RUNS, SIZES, SIZES, SIZES, SECONDS)
def test_no_work_is_lost_and_none_is_done_in_less_time_than_it_takes(
    runs: list[list[list[TrialTimes]]], devices: int, builders: int, jobs: int, start: float
) -> None:
    fleet = Fleet(devices, builders, jobs, start)
    spent = simulate(runs, fleet)
    assert spent == simulate(runs, fleet)
    trials = [trial for made in runs for batch in made for trial in batch]
    of_cores = sum(trial.propose + trial.build for trial in trials)
    on_devices = sum(2 * trial.connect + trial.run for trial in trials)
    handed_back = sum(trial.connect for trial in trials)  # no job waits for the last ones
    assert spent.devices == pytest.approx(on_devices)
    assert spent.cores >= of_cores - 1e-9 and (start or spent.cores == pytest.approx(of_cores))
    longest = max(
        sum(
            sum(trial.propose for trial in batch) + max(t.build for t in batch) + max(t.connect + t.run for t in batch)
            for batch in made
        )
        for made in runs
    )
    least = max(of_cores / builders, (on_devices - handed_back) / devices, longest)
    most = spent.cores + on_devices
    assert least - 1e-9 <= spent.seconds <= most + 1e-9
    assert sum(spent.waited.values()) <= jobs * spent.seconds + 1e-9


@settings(max_examples=30)
@given(RUNS, SIZES, SIZES, SIZES)
def test_more_devices_are_not_slower_for_one_job(
    runs: list[list[list[TrialTimes]]], devices: int, builders: int, more: int
) -> None:
    seconds = simulate(runs, Fleet(devices, builders)).seconds
    assert simulate(runs, Fleet(devices + more, builders)).seconds <= seconds + 1e-9
