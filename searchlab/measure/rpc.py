"""Measure on a fleet: build on this machine, and run in parallel on all devices that a tracker lends under one key."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ..errors import SearchlabError
from ..machine.cuda import choose_compiler
from ..machine.host import available_cores
from ..options import Between, TimeLimit
from ..records import Failure, Measurement
from ..space import Space
from ..target import Target
from .building import BuildingMeasurer
from .contract import MeasurementsByProgram, RunSettings
from .fleet import Address, Tracker, greets_clients, is_reachable, list_registered_devices
from .messages import (
    Built,
    DeviceLost,
    DeviceUnfit,
    Failed,
    FleetSettings,
    InputsReceived,
    Ran,
    RunOn,
    SetUpRunner,
    measurement_of,
)
from .pool import JobBatch, WorkerPool
from .process import MeasuringWorker, WorkerDied, WorkerTimeout, failure_of

POLL_SECONDS = 1.0
"""The time between checks for registered devices while a request is pending."""


class RpcSettings(RunSettings, frozen=True, kw_only=True, tag="rpc"):
    """Measure on a fleet of devices.

    A program's clock starts once the device has received the inputs. Waiting for a device is not timed.

    Attributes:
        tracker: The address of TVM's RPC tracker, in the form ``"host:port"``.
        key: The key under which the devices are registered.
        connect_timeout: The time limit for connecting to a device and sending a program's inputs, in seconds.
        device_timeout: How long the tracker may be without a device before the run ends, in seconds.
        retries: The number of other devices to try if the device running a program vanishes.
        cc: The compiler that links programs for devices that can only load shared libraries, or "" for the local one.
    """

    tracker: str
    key: str
    connect_timeout: TimeLimit = 10.0
    device_timeout: Annotated[float, Between(0, 1e6)] = 60.0
    retries: Annotated[int, Between(0, 1000)] = 3
    cc: str = ""

    not_identity: ClassVar[tuple[str, ...]] = (
        *RunSettings.not_identity,
        "tracker",
        "connect_timeout",
        "device_timeout",
        "retries",
        "cc",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key.split() != [self.key]:
            raise ValueError(f"key must be the single word under which the devices are registered, not {self.key!r}")
        host, _, port = self.tracker.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"tracker must be host:port, such as 10.0.0.1:9190, not {self.tracker!r}")

    def default_target(self, base_dir: Path = Path()) -> str:
        raise SearchlabError(
            f"measuring on the devices {self.key!r} requires a target that describes them: an LLVM CPU name such as "
            f'"cortex-a72", {{"kind": "llvm", "mtriple": ..., "mcpu": ..., "num-cores": ...}}, or "native" if they '
            f"have the same CPU as this machine"
        )

    def machine_name(self, target: Target, base_dir: Path = Path()) -> str:
        return self.key

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> RpcMeasurer:
        return RpcMeasurer(self, target, measurements, self.workers or available_cores())


@dataclass
class _DeviceTask:
    """A program to run on a device.

    Attributes:
        lost_devices: The number of devices lost while running it.
        has_hung: Whether a device has hung while running it, perhaps because of the program.
        address: The device used in its latest run.
        connect_seconds: The seconds that connecting took in that run; None until it is connected.
    """

    program_hash: str
    built: Built
    lost_devices: int = 0
    has_hung: bool = False
    address: Address = ("", 0, "")
    connect_seconds: float | None = None


class RpcMeasurer(BuildingMeasurer):
    """A measurer that runs programs with one process per device and one session per program.

    If connecting to a device fails, the device counts as lost, and the program is retried on a different one. The same
    happens if the connection breaks and the host no longer accepts connections. If the host still accepts connections,
    the program is to blame and is not retried. If the time limit expires and the server does not answer, either may be
    to blame, and the program is retried once. Only a program's last run is charged.

    Raises:
        SearchlabError: If the tracker cannot be reached or has no device with the key.
    """

    settings: RpcSettings

    def __init__(
        self, settings: RpcSettings, target: Target, measurements: MeasurementsByProgram, workers: int
    ) -> None:
        if target.kind == "cuda":
            choose_compiler()  # raises an error if this machine has no compiler; only the devices need a GPU
        devices = list_registered_devices(settings.tracker)
        if settings.key not in devices:
            problem = _describe_missing_device(settings, devices)
            raise SearchlabError(f"{problem}; start one with `searchlab fleet server`")
        super().__init__(settings, target, measurements, workers, has_scratch_folder=True)

    def _prepare_runners(self, space: Space, config_count: int) -> None:
        device_count = len(self._run_pool.processes)  # if the tracker cannot be reached now, it may return in time
        with contextlib.suppress(SearchlabError):
            device_count = len(list_registered_devices(self.settings.tracker).get(self.settings.key, []))
        fleet = FleetSettings(self.settings.connect_timeout, self.settings.cc)
        self._setup = SetUpRunner(space.workload, self.settings.for_worker(), self.target, space.error_factor, fleet)
        self._process_count = min(max(1, device_count), config_count)
        self._run_pool.prepare_processes(self._setup, self._process_count)

    @contextlib.contextmanager
    def _run_programs(
        self, space: Space, programs: dict[str, Built], best_cost: float
    ) -> Iterator[Callable[[str, float], Measurement]]:
        tasks = [_DeviceTask(program_hash, built) for program_hash, built in programs.items()]
        with _DeviceBatch(self._run_pool, self._setup, self._process_count, tasks, self.settings, best_cost) as batch:

            def run(program_hash: str, best_cost: float) -> Measurement:
                while program_hash not in batch.measurements:
                    batch.step()
                    self.measurements.update(batch.measurements)
                return batch.measurements[program_hash]

            yield run


def _describe_missing_device(settings: RpcSettings, devices: dict[str, list[str]]) -> str:
    keys = ", ".join(f"{key!r} ({len(addresses)})" for key, addresses in devices.items()) or "no devices"
    return f"the tracker at {settings.tracker} has no device with the key {settings.key!r}; it has {keys}"


class _DeviceBatch(JobBatch[_DeviceTask]):
    """The programs to run in a batch. While any are waiting, a device is requested for each idle process.

    Attributes:
        best_cost: The lowest cost in the run so far.
        measurements: The measurements of the programs that have run or failed, by program hash.
    """

    def __init__(
        self,
        pool: WorkerPool,
        set_up_message: SetUpRunner,
        process_count: int,
        tasks: Sequence[_DeviceTask],
        settings: RpcSettings,
        best_cost: float,
    ) -> None:
        super().__init__(pool, set_up_message, process_count, tasks)
        self.settings = settings
        self.best_cost = best_cost
        self.measurements: dict[str, Measurement] = {}
        self.tracker: Tracker | None = None
        self.request_count = 0
        self.unavailable_since: float | None = None  # when the tracker or its last device vanished, by time.monotonic()
        self.last_check_time = time.monotonic()

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self.tracker:
            self.tracker.close()  # which cancels the requests
        super().__exit__(error_type)

    def step(self) -> list[Any]:
        sources = super().step()
        if self.tracker in sources:
            self._receive_device()
        return sources

    def assign_jobs(self) -> list[Tracker]:
        """Request the devices that can be used now. Raises SearchlabError if none has been available for too long."""
        device_count = min(len(self.queue), len(self.idle_processes))
        now = time.monotonic()
        is_running = any(assignment.job for assignment in self.assignments.values())
        problem = ""
        try:
            if now - self.last_check_time > POLL_SECONDS and self.request_count and not is_running:
                self.last_check_time = now
                devices = list_registered_devices(self.settings.tracker)
                if self.settings.key in devices:
                    self.unavailable_since = None
                else:
                    problem = _describe_missing_device(self.settings, devices)
            if device_count and self.tracker is None:
                self.tracker = Tracker(self.settings.tracker)
            while self.tracker and self.request_count < device_count:
                self.tracker.request_device(self.settings.key)
                self.request_count += 1
        except (OSError, SearchlabError) as error:
            self._handle_lost_tracker(error)
        if problem:
            self._fail_if_unavailable(
                f"{problem}, and had none for {self.settings.device_timeout:g} s; start one with `searchlab fleet "
                f"server` and run this again: all measurements are kept"
            )
        return [self.tracker] if self.tracker and self.request_count else []

    def _receive_device(self) -> None:
        assert self.tracker
        try:
            address = self.tracker.receive_device()
        except (OSError, SearchlabError) as error:
            self._handle_lost_tracker(error)
            return
        self.unavailable_since = None
        self.request_count -= 1
        task, process = self.queue.popleft(), self.idle_processes.pop()
        task.address, task.connect_seconds = address, None
        process.send(RunOn(address, task.built.code, self.best_cost))
        self.mark_busy(process, task, self.settings.connect_timeout)

    def _handle_lost_tracker(self, error: Exception) -> None:
        """Wait briefly for the tracker to return. Raises SearchlabError after ``device_timeout``."""
        if self.tracker:
            self.tracker.close()
        self.tracker, self.request_count = None, 0
        self._fail_if_unavailable(
            f"the tracker at {self.settings.tracker} has become unreachable ({error}); restart it and run this again: "
            f"all measurements are kept"
        )
        time.sleep(min(POLL_SECONDS, self.settings.device_timeout))

    def _fail_if_unavailable(self, message: str) -> None:
        """Raise SearchlabError with ``message`` if no device has been available for ``device_timeout`` seconds."""
        now = time.monotonic()
        if self.unavailable_since is None:
            self.unavailable_since = now
        if now - self.unavailable_since > self.settings.device_timeout:
            raise SearchlabError(message)

    def receive_answer(self, process: MeasuringWorker, task: _DeviceTask) -> None:
        has_connected = task.connect_seconds is not None
        answer = process.recv(Ran if has_connected else InputsReceived, Failed, DeviceLost, DeviceUnfit)
        seconds = self.assignments[process].deadline.used_seconds
        if isinstance(answer, InputsReceived):
            task.connect_seconds = seconds
            self.mark_busy(process, task, self.settings.run_timeout)
            return
        self.mark_idle(process)
        match answer:
            case DeviceLost(text):
                self._handle_lost_device(task, text, seconds)
            case DeviceUnfit(text):
                raise SearchlabError(f"{text}; register it under a different key, or choose a different target")
            case Ran() | Failed():
                self._record_measurement(task, answer)

    def on_worker_died(self, task: _DeviceTask, death: WorkerDied, seconds: float) -> None:
        if isinstance(death, WorkerTimeout) and task.connect_seconds is None:
            limit = self.settings.connect_timeout
            self._handle_lost_device(task, f"it did not accept the connection and the inputs within {limit:g} s", 0.0)
        else:
            failed = failure_of(death, "running", seconds)
            self._handle_lost_device(task, failed.message, seconds, failed.failure)

    def _handle_lost_device(self, task: _DeviceTask, reason: str, seconds: float, failure: Failure = "crash") -> None:
        host, port, _ = task.address
        has_connected = task.connect_seconds is not None
        is_suspect = failure == "run_timeout" and not task.has_hung and not greets_clients(host, port)
        task.has_hung |= is_suspect
        task.lost_devices += 1
        if has_connected and not is_suspect and is_reachable(host, port):
            message = reason if failure == "run_timeout" else f"it crashed its process on {host}:{port}: {reason}"
        elif task.lost_devices <= self.settings.retries:
            self.queue.appendleft(task)
            return
        else:
            message = f"given up after {task.lost_devices} devices were lost, the last one at {host}:{port}: {reason}"
        failed = Failed(failure, message, seconds) if has_connected else Failed("run_error", message)
        self._record_measurement(task, failed)

    def _record_measurement(self, task: _DeviceTask, answer: Ran | Failed) -> None:
        measurement = replace(
            measurement_of(answer, self.settings.statistic),
            build_seconds=task.built.cpu_seconds,
            program=task.program_hash,
            connect_seconds=task.connect_seconds or 0.0,
        )
        self.best_cost = min(self.best_cost, measurement.cost)
        self.measurements[task.program_hash] = measurement
