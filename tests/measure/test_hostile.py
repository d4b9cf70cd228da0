"""Candidates that misbehave in the process that builds or runs them: each loses its own trial and no other."""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Iterator

import cloudpickle
import numpy as np
import psutil
import pytest

from searchlab.errors import MAX_TEXT_LENGTH, shorten_text
from searchlab.measure.channel import Channel, Deadline, wait_for_answers
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.records import Measurement
from searchlab.space import Config
from searchlab.target import Target
from searchlab.workload import parse_workload
from tests.support.benchmarks import script

hostile = script("hostile")
cloudpickle.register_pickle_by_value(hostile)  # its folder is not on the path of workers

CHANGES = (
    "limits open files",
    "limits its CPU",
    "changes the environment",
    "changes C's environment",
    "changes the folder",
    "changes the umask",
    "blocks signals",
    "sets an alarm",
    "binds itself to a core",
    "is nice",
    "opens files",
    "leaves an idle thread",
    "leaves a daemon",
    "joins its parent's group",
)
WRITES = (
    "closes all and loops",
    "closes its connection",
    "sends garbage",
    "sends a long length",
    "sends half a length",
    "trickles",
    "sends a pickle",
    "sends another answer",
    "sends many answers",
)


@pytest.fixture(scope="module")
def measurer(native: Target) -> Iterator[LocalMeasurer]:
    settings = LocalSettings(
        repeat=1, min_repeat_ms=0, memory_limit_mb=400, build_timeout=2.0, run_timeout=1.5, finalists=0, sentinel=0
    )
    with LocalMeasurer(settings, native, {}, 1) as local_measurer:
        yield local_measurer


@pytest.mark.parametrize("phase", hostile.PHASES)
@pytest.mark.parametrize("mode", [*CHANGES, *WRITES])
def test_a_candidate_that_misbehaves_costs_no_other_trial(measurer: LocalMeasurer, mode: str, phase: str) -> None:
    """It also ends within its time limit: the timeout of pytest is longer than ``hang()``."""
    start = time.monotonic()
    assert not hostile.measure(measurer, mode, phase)
    assert time.monotonic() - start < 60
    if mode in WRITES:
        assert hostile.outcomes[mode] in ("crash", "build_timeout", "run_timeout")


def measure(measurer: LocalMeasurer, code: str, phase: str = "building") -> Measurement:
    measurer.measurements.clear()
    space = hostile.Misbehaving(parse_workload("gemm:16x16x16"), measurer.target, phase, {"mode": code})
    (measurements,) = measurer.measure(space, [Config({"mode": "mode"})])
    assert isinstance(measurements, Measurement)
    return measurements


def test_the_text_of_a_failure_has_a_limit(measurer: LocalMeasurer) -> None:
    measurement = measure(measurer, "raise ValueError('m' * (10 << 20))")
    assert measurement.failure == "build_error" and len(measurement.message) <= MAX_TEXT_LENGTH
    assert re.search(r"\[104857\d\d characters, cut\]", measurement.message)
    measurement = measure(measurer, "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()")
    assert "__str__ raises ZeroDivisionError" in measurement.message


def test_what_a_candidate_leaves_is_ended_before_the_next(measurer: LocalMeasurer) -> None:
    """A daemon has another parent, group and session than the worker."""
    assert measure(measurer, "").failure is None
    server = psutil.Process(measurer._build_pool.processes[0].pid).parent()
    assert server
    existing = {child.pid for child in server.children(recursive=True)}
    for phase in hostile.PHASES:
        code = hostile.code_of("leaves a daemon").replace("time.sleep(600)", f"time.sleep(600.{os.getpid()})")
        assert measure(measurer, code, phase).failure is None
        until = time.monotonic() + 10
        workers = {measurer._build_pool.processes[0].pid, *(runner.pid for runner in measurer._run_pool.processes)}
        while strays := {child.pid for child in server.children(recursive=True)} - workers - existing:
            assert time.monotonic() < until, strays
            time.sleep(0.01)


def test_a_config_that_spoils_its_process_harms_no_features(measurer: LocalMeasurer) -> None:
    space = hostile.Misbehaving(
        parse_workload("gemm:16x16x16"), measurer.target, "building", {"mode": hostile.code_of("limits open files")}
    )
    configs = [Config({"mode": mode}) for mode in ("good 1", "mode", *["good 2"] * 16)]
    rows = measurer.extract(space, "program", configs)
    fine = measurer.extract(space, "program", [config for config in configs if config["mode"] != "mode"] * 2)
    assert rows and fine and len(rows[0]) and len(rows[-1])
    np.testing.assert_array_equal(rows[-1], fine[-1])


def test_a_program_that_writes_to_its_inputs_harms_no_other(measurer: LocalMeasurer) -> None:
    from tests.support.measure.hostile import Hostile

    measurer.measurements.clear()
    space = Hostile(parse_workload("gemm:8x8x8"), measurer.target)
    measurements, fine = measurer.measure(
        space, [Config({"fault": fault}) for fault in ("writes to its inputs", "none")]
    )
    assert measurements.failure == "wrong_answer" and "its input A" in measurements.message
    assert fine.failure is None, fine.message


def test_ordinary_candidates_leave_their_processes_in_use(measurer: LocalMeasurer) -> None:
    space = hostile.Misbehaving(parse_workload("gemm:16x16x16"), measurer.target, "building", {})
    pids = set()
    for name in hostile.GOOD:
        assert next(measurer.measure(space, [Config({"mode": name})])).failure is None
        pids.add((measurer._build_pool.processes[0].pid, measurer._run_pool.processes[0].pid))
    assert len(pids) == 1


# --- frames ---------------------------------------------------------------------------------------------------


def test_a_channel_bounds_the_length_and_the_time_of_a_frame() -> None:
    own_end, other_end = socket.socketpair()
    channel = Channel(own_end.detach(), max_frame_bytes=1 << 20)
    with other_end:
        other_end.sendall(struct.pack("<Q", 5) + b"he")
        assert not channel.poll()
        other_end.sendall(b"llo" + struct.pack("<Q", 0))
        assert channel.poll() and channel.recv() == b"hello"
        assert channel.recv() == b""
        other_end.sendall(struct.pack("<Q", (1 << 20) + 1))
        with pytest.raises(ValueError, match="a frame of 1048577 bytes exceeds the limit of 1048576"):
            channel.recv()
    channel.close()


def test_a_frame_that_was_read_is_still_an_answer() -> None:
    """``poll`` reads the answer, so that the operating system has nothing left to report."""
    own_end, other_end = socket.socketpair()
    channel = Channel(own_end.detach())
    with other_end:
        other_end.sendall(struct.pack("<Q", 2) + b"ab")
        assert channel.poll()
        assert wait_for_answers([channel]) == [channel]
        channel.recv()
        assert wait_for_answers([channel], [Deadline(0.1)]) == []
    channel.close()


def test_a_channel_gives_up_where_nobody_reads() -> None:
    own_end, other_end = socket.socketpair()
    channel = Channel(own_end.detach())
    with other_end, pytest.raises(TimeoutError):
        channel.send(b"x" * (1 << 24), Deadline(0.05))
    channel.close()


def test_a_shortened_text_keeps_both_ends() -> None:
    text = shorten_text("a" * 9000 + "end")
    assert len(text) == MAX_TEXT_LENGTH and text.endswith("end") and "9003 characters" in text
    assert shorten_text(text) == text
