"""Build processes: reuse of known programs, and processes that die."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from searchlab.measure.messages import Built
from searchlab.measure.pool import BuildPool
from searchlab.measure.process import MeasuringWorker, Spoiled
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.measure.faulty import Faulty


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
    assert list(builds.programs) != [] and builds.programs[0] == builds.programs[2] != builds.programs[1]
    assert builds.built.keys() == {builds.programs[0], builds.programs[1]}
    assert {index: failed.failure for index, failed in builds.failures.items()} == {3: "invalid", 4: "build_error"}
    assert builds.failures[4].program == builds.programs[4] and not builds.failures[3].program
    again = pool.build(space, configs("none", "tiled"), is_known=lambda program: program == builds.programs[0])
    assert again.built.keys() == {builds.programs[1]} and not again.failures


def test_processes_that_die_at_the_same_time_are_both_replaced(pool: BuildPool, space: Faulty) -> None:
    """Two processes hang while the third schedules its program; then both are killed before the pool looks."""

    def kill(program: str) -> bool:
        for process in pool.processes:
            if not process.channel.poll():
                psutil.Process(process.pid).kill()
        time.sleep(0.5)
        return False

    pool.ready(pool.holding(space), 3)
    builds = pool.build(space, configs("schedule hangs", "schedule hangs", "tiled"), kill)
    assert {failed.failure for failed in builds.failures.values()} == {"crash"}
    assert all("the building process died of SIGKILL" in failed.message for failed in builds.failures.values())
    assert {0, 1} <= builds.failures.keys() and len(pool.processes) == 3
    assert all(process.alive for process in pool.processes)
    assert not pool.build(space, configs("none", "tiled")).failures


def test_no_process_is_left(pool: BuildPool, space: Faulty) -> None:
    processes = [psutil.Process(process.pid) for process in pool.ready(pool.holding(space), 2)]
    pool.close()
    assert pool.processes == [] and not any(process.is_running() for process in processes)


def test_a_program_whose_process_was_spoilt_as_it_compiled_is_compiled_again(
    pool: BuildPool, space: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    recv = MeasuringWorker.recv
    spoilt: list[Built] = []

    def spoil(worker: MeasuringWorker, *expected: type[Any]) -> Any:
        answer = recv(worker, *expected)
        if isinstance(answer, Built) and not spoilt:
            spoilt.append(answer)
            worker.end()
            raise Spoiled("answered a message that it was not sent")
        return answer

    monkeypatch.setattr(MeasuringWorker, "recv", spoil)
    builds = pool.build(space, configs("none", "none"))
    assert spoilt and builds.built.keys() == {builds.programs[0]} == {builds.programs[1]} and not builds.failures
