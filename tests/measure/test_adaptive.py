"""A program that is much slower than the best is not repeated; all others are measured completely."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from searchlab.log.read import read_log
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.records import Measurement
from searchlab.run.tune import tune
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.measure.counted import Counted

WORKLOAD = parse_workload("gemm:8x8x8")
QUICK = {"repeat": 3, "min_repeat_ms": 0}


@pytest.fixture(scope="module")
def local(native: Target) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(LocalSettings(**QUICK), native, {}, 2) as local_measurer:  # type: ignore[arg-type]
        yield local_measurer


@pytest.fixture
def space(native: Target, tmp_path: Path) -> Counted:
    return Counted(WORKLOAD, native, str(tmp_path))


def measure_one(local: LocalMeasurer, space: Counted, us: int, best: float = math.inf) -> tuple[Measurement, int]:
    """Return the measurement of a program, and how often it was run."""
    (measurement,) = local.measure(space, [Config({"us": us})], best)
    assert measurement.failure is None
    return measurement, space.count(us)


def test_slow_programs_are_run_less_often(local: LocalMeasurer, space: Counted, native: Target) -> None:
    """TVM's evaluator runs a program once before it times it. On a busy machine, any run may be slow."""
    full = 1 + 1 + 3 + 1  # the check, the evaluator, and a single execution
    short = range(full + 1, full + 1 + 2 * 20)  # caches are warmed up before each single execution
    for us, best, runs, repeats in (
        (60000, math.inf, {full}, 3),  # nothing to compare with
        (60000, 3e-4, {2}, 1),  # the run that is checked decides, and a second one
        (60000, 0.5, {full}, 3),  # not slow enough
        (1000, 3e-4, {2, 1 + (1 + 2), 2 + (1 + 2)}, 1),  # the run that is checked decides, and two repeats
        (300, 0.1, {full, *short}, 3),
    ):
        local.measurements.clear()
        measurement, count = measure_one(local, space, us, best)
        assert count in runs and (len(measurement.seconds), measurement.pruned) == (repeats, repeats == 1)
        assert min(measurement.seconds) >= us * 1e-6
    with LocalMeasurer(LocalSettings(prune_factor=0, **QUICK), native, {}, 1) as never:  # type: ignore[arg-type]
        measurement, count = measure_one(never, space, 60000, 3e-4)
        assert (count, len(measurement.seconds), measurement.pruned) == (full, 3, False)


def test_the_best_is_also_that_of_the_batch(local: LocalMeasurer, space: Counted) -> None:
    local.measurements.clear()
    configs = [Config({"us": us}) for us in (60000, 300, 50000)]
    first, best, last = local.measure(space, configs)
    assert [m.pruned for m in (first, best, last)] == [False, False, True]


def test_a_slower_run_measures_in_full_what_another_pruned(local: LocalMeasurer, space: Counted) -> None:
    local.measurements.clear()
    pruned, _ = measure_one(local, space, 4000, 3e-4)
    again, runs = measure_one(local, space, 4000, 4e-4)
    assert pruned.pruned and again.reused and again.seconds == pruned.seconds and runs == 0
    full, runs = measure_one(local, space, 4000, 1.0)
    assert not full.reused and not full.pruned and len(full.seconds) == 3 and runs > 0
    last, runs = measure_one(local, space, 4000, 3e-4)
    assert last.reused and last.seconds == full.seconds and runs == 0


def test_a_resumed_run_prunes_by_its_recorded_best(space: Counted, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    for trials in (3, 4):
        tune(
            WORKLOAD,
            space=space,
            policy="grid",
            log=log,
            trials=trials,
            batch=2,
            measure={"kind": "local", **QUICK, "finalists": 0, "sentinel": 0},
        )
    records = {record.config["us"]: record for record in read_log(log).records}
    # On a busy machine, a program that is not much slower than another one may look so.
    assert {us: records[us].pruned for us in (200, 4000, 60000)} == {200: False, 4000: True, 60000: True}
    assert [len(records[us].seconds) for us in (200, 4000, 60000)] == [3, 1, 1]
    assert records[60000].measurement.pruned and space.count(60000) == 2
    header = json.loads(log.read_text().splitlines()[0])
    assert header["measure"]["prune_factor"] == 3 and header["measure"] == LocalSettings(**QUICK).identity()  # type: ignore[arg-type]
