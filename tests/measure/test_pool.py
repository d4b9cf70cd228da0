"""Build processes: reuse of known programs, and processes that die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from searchlab.measure.building import BuildPool
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.measure.messages import Built
from searchlab.measure.process import AnswerMismatch, MeasuringWorker
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.measure.faulty import Changing, Faulty


@pytest.fixture(scope="module")
def pool() -> Iterator[BuildPool]:
    pool = BuildPool(workers=3, build_timeout=20.0, memory_limit_mb=0)
    yield pool
    pool.close()


@pytest.fixture
def space(native: Target) -> Faulty:
    return Faulty(parse_workload("gemm:8x8x8"), native)


def configs(*faults: str) -> list[Config]:
    return [Config({"fault": fault}) for fault in faults]


def test_a_program_is_built_once_and_a_known_one_not_at_all(pool: BuildPool, space: Faulty) -> None:
    builds = pool.build(space, configs("none", "tiled", "none", "invalid", "does not compile"))
    plain, tiled, repeated, invalid, broken = builds
    assert plain.program_hash == repeated.program_hash != tiled.program_hash
    assert tiled.built and (plain.built is None) != (repeated.built is None)
    assert [build.failure and build.failure.failure for build in builds] == [None, None, None, "invalid", "build_error"]
    assert not invalid.program_hash and broken.failure and broken.failure.program == broken.program_hash != ""
    again = pool.build(space, configs("none", "tiled"), is_known=lambda program: program == plain.program_hash)
    assert [bool(build.built) for build in again] == [False, True] and not any(build.failure for build in again)


def test_processes_that_die_at_the_same_time_are_both_replaced(pool: BuildPool, space: Faulty) -> None:
    """Two processes sleep while the third schedules its program; then all are killed before the pool looks."""
    killed: list[int] = []

    def kill(program: str) -> bool:
        if not killed:
            killed.extend(process.pid for process in pool.processes)
            for pid in killed:
                psutil.Process(pid).kill()
            time.sleep(0.5)
        return False

    pool.set_up_processes(pool.make_set_up_message(space), 3)
    builds = pool.build(space, configs("schedule sleeps", "schedule sleeps", "tiled"), kill)
    assert len(killed) == 3 and not any(build.failure for build in builds)  # each is built again in a new process
    assert sum(build.built is not None for build in builds) == 2
    assert len(pool.processes) == 3 and all(process.is_alive for process in pool.processes)
    assert not set(killed) & {process.pid for process in pool.processes}


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "build_error"),
        ("tvm.compile = lambda *_, **__: os.abort()", "crash"),
        ("tvm.compile = lambda *_, **__: time.sleep(9)", "build_timeout"),
    ],
)
def test_a_failure_that_a_config_caused_is_not_its_programs(native: Target, code: str, failure: str) -> None:
    space = Changing(parse_workload("gemm:8x8x8"), native, code, is_same=True)
    settings = LocalSettings(repeat=1, min_repeat_ms=0, build_timeout=1.0)
    first, *later_configs = (Config({"config": name}) for name in ("changing", "second", "third"))
    with LocalMeasurer(settings, native, {}, 1) as measurer:
        (spoilt,) = measurer.measure(space, [first])
        second, third = measurer.measure(space, later_configs)
        measurer.measurements.clear()
        batch = list(measurer.measure(space, [first, *later_configs]))
    assert spoilt.failure == failure and not spoilt.program
    assert second.failure is None and not second.reused and third.reused
    assert [measurement.failure for measurement in batch[1:]] == [None, None]


@pytest.mark.parametrize(
    "code",
    [
        "space.is_broken = True",
        "compile = tvm.compile\ntvm.compile = lambda *_, **__: setattr(tvm, 'compile', os.abort) or compile(*_, **__)",
    ],
)
def test_a_failure_in_a_process_with_a_past_is_confirmed(native: Target, code: str) -> None:
    """The first config changes its process in a way that is not detected, so that all later builds in it fail."""
    space = Changing(parse_workload("gemm:8x8x8"), native, code, is_same=False)
    pool = BuildPool(1, build_timeout=20.0, memory_limit_mb=0)
    builds = pool.build(space, [Config({"config": name}) for name in ("changing", "second", "third")])
    pool.close()
    assert all(build.built and not build.failure for build in builds)


def test_no_process_is_left(pool: BuildPool, space: Faulty) -> None:
    processes = [psutil.Process(process.pid) for process in pool.set_up_processes(pool.make_set_up_message(space), 2)]
    pool.close()
    assert pool.processes == [] and not any(process.is_running() for process in processes)


def test_a_program_compiled_in_a_spoilt_process_is_recompiled(
    pool: BuildPool, space: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    recv = MeasuringWorker.recv
    spoilt: list[Built] = []

    def spoil(worker: MeasuringWorker, *expected: type[Any]) -> Any:
        answer = recv(worker, *expected)
        if isinstance(answer, Built) and not spoilt:
            spoilt.append(answer)
            worker.kill()
            raise AnswerMismatch("answered a message that it was not sent")
        return answer

    monkeypatch.setattr(MeasuringWorker, "recv", spoil)
    builds = pool.build(space, configs("none", "none"))
    assert spoilt and builds[0].program_hash == builds[1].program_hash
    assert sum(build.built is not None for build in builds) == 1 and not any(build.failure for build in builds)
