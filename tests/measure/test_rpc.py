"""A fleet on loopback: a real tracker, real servers, real programs, and devices and programs that fail."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from tvm.rpc.base import RPC_MAGIC, RPC_TRACKER_MAGIC
from typer.testing import CliRunner

from searchlab.cli.fleet import fleet as app
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.measure.fleet import Queue, Tracker, list_registered_devices
from searchlab.measure.rpc import RpcMeasurer, RpcSettings
from searchlab.records import Measurement
from searchlab.run.study import Study
from searchlab.schema import convert
from searchlab.space import Config
from searchlab.target import Target, resolve_target
from searchlab.workload import parse_workload
from tests.support.measure import packing
from tests.support.measure.cheating import Cheating
from tests.support.measure.faulty import EXPECTED, Faulty

WORKLOAD = parse_workload("gemm:8x8x8")
SERVER = ("searchlab", "fleet", "server", "--port", "0")
PLAIN_SERVER = ("tvm.exec.rpc_server", "--host", "127.0.0.1", "--silent")


class Process:
    """``python -m ...``, which prints its address once it listens."""

    def __init__(self, *words: str) -> None:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TVM_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )

    def read_line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def kill(self) -> None:
        """Kill it and all its descendants, as a power cut would."""
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        assert self.process.stdout
        self.process.stdout.close()


class Fleet:
    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.tracker = self.start("searchlab", "fleet", "tracker", "--port", "0").read_line().split(";")[0].split()[-1]

    def start(self, *words: str) -> Process:
        self.processes.append(Process(*words))
        return self.processes[-1]

    def serve(self, keys: dict[str, int], plain: dict[str, int] | None = None) -> list[Process]:
        """Start the given number of servers per key and wait until they are registered; ``plain`` are TVM's own."""
        plain = plain or {}
        started = [
            self.start(*words, "--tracker", self.tracker, "--key", key)
            for words, counts in ((SERVER, keys), (PLAIN_SERVER, plain))
            for key, count in counts.items()
            for _ in range(count)
        ]
        expected = keys | plain
        # Each of them imports TVM, which is slow on a busy machine.
        wait_for(
            lambda: {key: len(at) for key, at in self.devices().items() if key in expected} == expected,
            seconds=120,
        )
        return started

    def devices(self) -> dict[str, list[str]]:
        return list_registered_devices(self.tracker)

    def lose(self, key: str) -> None:
        """Kill all servers under ``key``."""
        while key in self.devices():
            with contextlib.suppress(AssertionError):
                self.server_at(key).kill()
            time.sleep(0.05)

    def server_at(self, key: str) -> Process:
        """Return one of the servers under ``key``."""
        for process in self.processes:
            words = process.process.args
            if isinstance(words, list) and words[-1] == key and process.process.poll() is None:
                return process
        raise AssertionError(f"there is no server {key!r}")


def queues_of(fleet: Fleet, key: str) -> list[Queue]:
    """Return the tracker's queue for ``key``."""
    with Tracker(fleet.tracker) as tracker:
        return [queue for name, queue in tracker.read_summary().queue_info.items() if name == key]


def wait_for(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    new_fleet = Fleet()
    try:
        new_fleet.serve({"two": 2, "mortal": 2}, plain={"plain": 1})
        yield new_fleet
    finally:
        for process in new_fleet.processes:
            process.kill()


@pytest.fixture(scope="module")
def measurer(fleet: Fleet, native: Target) -> Iterator[RpcMeasurer]:
    with make(fleet, native, "two") as rpc_measurer:
        yield rpc_measurer


def make(fleet: Fleet, target: Target, key: str, **settings: object) -> RpcMeasurer:
    options = {"repeat": 2, "min_repeat_ms": 0, "run_timeout": 1.0, "build_timeout": 5.0, "prune_factor": 0, **settings}
    return RpcMeasurer(RpcSettings(tracker=fleet.tracker, key=key, **options), target, {}, 1)  # type: ignore[arg-type]


def measure(measurer: RpcMeasurer, *faults: str) -> list[Measurement]:
    space = Faulty(WORKLOAD, measurer.target)
    return list(measurer.measure(space, [Config({"fault": fault}) for fault in faults]))


def test_every_fault_has_its_class_and_the_devices_go_on(measurer: RpcMeasurer) -> None:
    faults = [fault for fault in EXPECTED if fault != "schedule hangs"]  # building is the same as on one machine
    results = dict(zip(faults, measure(measurer, *faults), strict=True))
    assert {fault: result.failure for fault, result in results.items()} == {f: EXPECTED[f] for f in faults}
    for result in results.values():
        assert bool(result.seconds) == (result.failure is None) == (not result.message)
    assert len(results["none"].seconds) == 2 and results["none"].build_seconds > 0 < results["none"].run_seconds
    assert results["none"].connect_seconds > 0
    messages = {
        "segfaults": "it crashed its process on 127.0.0.1:",
        "hangs": "longer than 1 s",
        "writes nothing": "64 of 64 elements are off",
        "does not link": "Failed to materialize symbols",
    }
    for fault, text in messages.items():
        assert text in results[fault].message
    measurer.measurements.clear()
    assert [result.failure for result in measure(measurer, "none", "tiled")] == [None, None]


NO_GREETINGS = {
    "nothing, and hangs up": (b"", False),
    "nothing, and stays": (b"", True),
    "a web browser": (b"GET / HTTP/1.1\r\n\r\n", False),
    "half a number": (b"\x01", True),
}
OF_SERVERS = {
    "a key without end": (struct.pack("<ii", RPC_MAGIC, 2**31 - 1), True),
    "a key of less than nothing": (struct.pack("<ii", RPC_MAGIC, -5), False),
    "a key of blanks": (struct.pack("<ii", RPC_MAGIC, 2) + b"  ", False),
    "a key of no encoding": (struct.pack("<ii", RPC_MAGIC, 2) + b"\xff\xfe", False),
}
OF_TRACKERS = {
    "a message without end": (struct.pack("<ii", RPC_TRACKER_MAGIC, 2**31 - 1) + b"[", True),
    "no words": (struct.pack("<ii", RPC_TRACKER_MAGIC, 3) + b"{]}", True),
    "no such order": (struct.pack("<ii", RPC_TRACKER_MAGIC, 4) + b"[99]", True),
    "an order without its words": (struct.pack("<ii", RPC_TRACKER_MAGIC, 3) + b"[4]", True),
}


def test_a_fleet_goes_on_whatever_is_sent_to_its_ports(fleet: Fleet, measurer: RpcMeasurer) -> None:
    with contextlib.ExitStack() as staying:
        for address in (fleet.tracker, *fleet.devices()["two"]):
            host, _, port = address.rpartition(":")
            greetings = OF_TRACKERS if address == fleet.tracker else OF_SERVERS
            for data, stays in (NO_GREETINGS | greetings).values():
                connection = staying.enter_context(socket.create_connection((host, int(port)), 5.0))
                connection.sendall(data)
                if not stays:
                    connection.close()
        measurer.measurements.clear()
        assert [result.failure for result in measure(measurer, "none", "tiled")] == [None, None]


def test_a_program_is_measured_once(measurer: RpcMeasurer) -> None:
    measurer.measurements.clear()
    first, twin = measure(measurer, "none", "none")
    assert not first.reused and twin.reused and twin.seconds == first.seconds
    again = measure(measurer, "none")[0]
    assert again.reused and again.seconds == first.seconds


def test_a_program_must_compute_at_each_execution(measurer: RpcMeasurer) -> None:
    space = Cheating(parse_workload("gemm:192x192x192"), measurer.target)  # takes much longer than a call over RPC
    cheat, right = measurer.measure(
        space, [Config({"cheat": name}) for name in ("computes unless the first element is right", "none")]
    )
    assert cheat.failure == "wrong_answer" and "does not compute in every execution" in cheat.message, cheat
    assert right.failure is None


def test_arguments_are_packed_on_the_device(measurer: RpcMeasurer) -> None:
    space = packing.Packing(parse_workload("gemm:8x12x4"), measurer.target)
    results = measurer.measure(space, [Config({"kind": kind}) for kind in packing.EXPECTED])
    assert dict(zip(packing.EXPECTED, [result.failure for result in results], strict=True)) == packing.EXPECTED


def test_runs_go_on_at_the_same_time_and_come_in_order(fleet: Fleet, measurer: RpcMeasurer) -> None:
    """If they ran in turn, the second would not be available within the timeout of the first."""
    measure(measurer, "none", "tiled")
    wait_for(lambda: sum(queue.free for queue in queues_of(fleet, measurer.settings.key)) == 2)
    ready = measurer._run_pool.set_up_processes(measurer._setup, 2)  # one of them may have just been replaced
    assert ready == measurer._run_pool.processes
    measurer.measurements.clear()
    space = Faulty(WORKLOAD, measurer.target)
    results = measurer.measure(space, [Config({"fault": fault}) for fault in ("hangs", "tiled", "none", "invalid")])
    assert next(results).failure == "run_timeout"
    assert len(measurer.measurements) == 3  # later configs of the batch are measured already
    assert [result.failure for result in results] == [None, None, "invalid"]


@pytest.fixture(scope="module")
def plain(fleet: Fleet, native: Target) -> Iterator[RpcMeasurer]:
    """A measurer on one plain server of TVM, which can also remove arguments from its caches."""
    with make(fleet, native, "plain", connect_timeout=1.5, cache="cold") as rpc_measurer:
        yield rpc_measurer


def test_a_plain_server_of_tvm_is_sufficient(fleet: Fleet, plain: RpcMeasurer) -> None:
    assert [result.failure for result in measure(plain, "tiled", "is wrong")] == [None, "wrong_answer"]
    with make(fleet, plain.target, "plain", cc="no-such-compiler") as measurer:
        failed = measure(measurer, "none")[0]
    assert failed.failure == "build_error" and "no-such-compiler" in failed.message


def test_waiting_for_a_device_is_not_the_programs_time(fleet: Fleet, plain: RpcMeasurer) -> None:
    """While a program hangs there, another user waits for the same device.

    That one builds for a target that this machine may not be, and so has its programs linked where they run.
    """
    target = resolve_target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64", "num-cores": 1})
    with make(fleet, target, "plain") as second_user:
        assert measure(second_user, "none")[0].failure is None
        wait_for(lambda: any(run for run in queues_of(fleet, "plain") if run.free == 1))  # it has been returned
        hanging: list[Measurement] = []
        thread = threading.Thread(target=lambda: hanging.extend(measure(plain, "hangs")))
        start = time.monotonic()
        thread.start()
        wait_for(lambda: any(run for run in queues_of(fleet, "plain") if run.free == 0))
        result = measure(second_user, "tiled")[0]
        waited = time.monotonic() - start
        thread.join()
    assert hanging[0].failure == "run_timeout" and result.failure is None
    assert waited > 2.0 > 1.0 > result.run_seconds  # the server ends a hanging session 2.5 s after its start


@pytest.fixture(scope="module")
def mortal(fleet: Fleet, native: Target) -> Iterator[RpcMeasurer]:
    """A measurer on two servers, which the tests kill one after the other."""
    with make(fleet, native, "mortal", run_timeout=2.0, connect_timeout=3.0) as rpc_measurer:
        yield rpc_measurer


def call_while_running(server: Process, act: Callable[[], object]) -> threading.Thread:
    """Call ``act`` once the server has a session that has had time to run its program."""

    def watch() -> None:
        wait_for(psutil.Process(server.process.pid).children)
        time.sleep(0.3)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_device_that_hangs_is_replaced_and_goes_on_when_it_can(fleet: Fleet, mortal: RpcMeasurer) -> None:
    """A program that hangs looks the same, except that the device still answers."""
    server = fleet.server_at("mortal")
    stopped: list[psutil.Process] = []

    def stop() -> None:
        parent = psutil.Process(server.process.pid)
        stopped.extend([parent, *parent.children(recursive=True)])
        for process in stopped:
            process.suspend()

    thread = call_while_running(server, stop)
    measurements = measure(mortal, "naps", "none", "tiled")
    while not stopped:  # the other device had the program
        mortal.measurements.clear()
        measurements = measure(mortal, "naps", "none", "tiled")
    thread.join()
    assert [result.failure for result in measurements] == ["wrong_answer", None, None]
    for process in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    wait_for(lambda: sum(queue.free for queue in queues_of(fleet, "mortal")) == 2)


def test_a_lost_device_is_replaced_and_its_program_charged_once(fleet: Fleet, mortal: RpcMeasurer) -> None:
    measurer, server = mortal, fleet.server_at("mortal")
    measure(measurer, "none", "tiled")
    measurer.measurements.clear()
    # Both devices run a program that hangs when one of them is lost.
    thread = call_while_running(server, server.kill)
    measurements = measure(measurer, "hangs", "hangs too", "none", "tiled", "is wrong")
    thread.join()
    assert [result.failure for result in measurements] == ["run_timeout", "run_timeout", None, None, "wrong_answer"]
    assert not any(result.reused for result in measurements)
    assert all(result.run_seconds < 3.0 for result in measurements)
    assert len(fleet.devices()["mortal"]) == 1


def test_a_program_that_every_device_is_lost_over_fails(fleet: Fleet, mortal: RpcMeasurer) -> None:
    """No process of a killed server is left, not even the session in which a program hangs."""
    measurer, server = mortal, fleet.server_at("mortal")
    measurer.measurements.clear()
    measurer.settings = msgspec.structs.replace(measurer.settings, retries=0, run_timeout=20.0)
    sessions: list[psutil.Process] = []

    def kill() -> None:
        sessions.extend(psutil.Process(server.process.pid).children(recursive=True))
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()

    thread = call_while_running(server, kill)
    result = measure(measurer, "hangs")[0]
    thread.join()
    assert result.failure == "crash" and "given up after 1 devices were lost" in result.message
    assert sessions and not psutil.wait_procs(sessions, timeout=5)[1]


def test_a_device_that_comes_back_is_used(fleet: Fleet, mortal: RpcMeasurer) -> None:
    fleet.lose("mortal")
    thread = threading.Thread(target=fleet.serve, args=({"mortal": 1},))
    thread.start()
    assert [result.failure for result in measure(mortal, "none", "tiled")] == [None, None]
    thread.join()


def test_a_missing_device_is_one_sentence_after_the_timeout(fleet: Fleet, mortal: RpcMeasurer) -> None:
    mortal.measurements.clear()
    mortal.settings = msgspec.structs.replace(mortal.settings, device_timeout=0.5)
    fleet.lose("mortal")
    with pytest.raises(SearchlabError, match=r"has no device with the key 'mortal'; .* for 0.5 s; start one with"):
        measure(mortal, "none")


def test_wrong_settings_and_addresses_are_one_sentence(fleet: Fleet, native: Target) -> None:
    with pytest.raises(SearchlabError, match=r"has no device with the key 'none'; it has .*'two' \(2\)"):
        make(fleet, native, "none")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    nowhere = RpcSettings(tracker=f"127.0.0.1:{port}", key="two")
    with pytest.raises(SearchlabError, match=r"cannot reach an RPC tracker at 127.0.0.1:\d+ \(Connection refused\)"):
        RpcMeasurer(nowhere, native, {}, 1)
    server = fleet.devices()["two"][0]
    with pytest.raises(SearchlabError, match="is not a TVM RPC tracker, or hangs"):
        RpcMeasurer(RpcSettings(tracker=server, key="two"), native, {}, 1)
    with pytest.raises(SearchlabError, match="tracker must be host:port"):
        convert({"tracker": "here", "key": "two"}, RpcSettings, "measure")
    study = {"workloads": ["gemm:8x8x8"], "spaces": ["knob-template"], "policies": ["random"]}
    with pytest.raises(SearchlabError, match="'two' requires a target"):
        Study.from_dict(study | {"measure": {"kind": "rpc", "tracker": fleet.tracker, "key": "two"}}).plan()
    with pytest.raises(SearchlabError, match="on this machine, where 2 jobs would disturb each other"):
        Study.from_dict(study).run("nowhere", jobs=2)


def test_two_jobs_on_one_fleet(fleet: Fleet, measurer: RpcMeasurer, tmp_path: Path) -> None:
    study = Study.from_dict(
        {
            "workloads": ["gemm:16x16x16"],
            "spaces": ["knob-template"],
            "policies": ["random"],
            "seeds": 3,
            "trials": 4,
            "batch": 2,
            "target": "native",
            "measure": {"kind": "rpc", "tracker": fleet.tracker, "key": "two", "repeat": 1, "workers": 1},
        }
    )
    calls: list[tuple[int, int]] = []
    results = study.run(tmp_path, lambda run, number, _, job: lambda *_: calls.append((number, job)), jobs=2)
    assert [len(result.trials) for result in results] == [4, 4, 4]
    assert all(trial.measurement.failure is None for result in results for trial in result.trials)
    assert {job for _, job in calls} == {0, 1} and len(calls) == 12
    header = read_log(next(tmp_path.rglob("*.jsonl"))).header
    assert header.measure["key"] == "two" and "tracker" not in header.measure


def test_list_shows_the_devices_of_a_fleet(fleet: Fleet) -> None:
    listed = CliRunner().invoke(app, ["list", "--tracker", fleet.tracker])
    assert listed.exit_code == 0
    assert any(line.split()[:2] == ["two", "2"] for line in listed.stdout.splitlines())


def test_a_server_that_nobody_could_reach_is_refused(fleet: Fleet) -> None:
    refused = CliRunner().invoke(app, ["server", "--tracker", "192.0.2.1:9190", "--key", "lost"])
    assert isinstance(refused.exception, SearchlabError) and "cannot reach it at 127.0.0.1" in str(refused.exception)


def test_no_process_is_left_but_the_fork_server(fleet: Fleet, native: Target) -> None:
    with make(fleet, native, "two") as measurer:
        assert measure(measurer, "none")[0].failure is None
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with make(fleet, native, "two") as measurer:
        results = measurer.measure(Faulty(WORKLOAD, native), [Config({"fault": fault}) for fault in ("none", "hangs")])
        assert next(results).failure is None
        results.close()  # type: ignore[attr-defined]  # as an interrupt does, with a program still running
        assert measure(measurer, "tiled")[0].failure is None
    remaining = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    # On a busy machine, a killed process may take a moment to end.
    assert psutil.wait_procs(remaining, timeout=10)[1] == []
