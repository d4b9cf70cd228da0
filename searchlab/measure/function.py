"""Measure configs by calling a Python function in worker processes on this machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from ..errors import SearchlabError
from ..machine.host import available_cores
from ..options import Between, Megabytes, Repeats, TimeLimit
from ..records import Measurement, Statistic
from ..space import Config, Space
from ..target import Target
from ..workload import Function, pickle_with_code
from .contract import MeasurementsByProgram, Measurer, MeasureSettings
from .messages import Call, Ran, SetUpFunction, measurement_of
from .pool import MessageBatch, WorkerPool


class FunctionSettings(MeasureSettings, frozen=True, tag="function"):
    """Call a Python function in worker processes on this machine. This is the default for workloads of kind ``python``.

    Attributes:
        repeat: The number of calls per config.
        run_timeout: The time limit for all calls for a config, in seconds.
        memory_limit_mb: The amount of memory that a call may use, in MB, or 0 for no limit.
        workers: The number of concurrent calls. If the function measures times, they may disturb each other.
        statistic: The statistic over the repeats that is used as a trial's cost.
    """

    repeat: Repeats = 1
    run_timeout: TimeLimit = 60.0
    memory_limit_mb: Megabytes = 4096
    workers: Annotated[int, Between(1, 1024)] = 1
    statistic: Statistic = "median"

    exclusive: ClassVar[bool] = True

    def make(self, target: Target, measurements: MeasurementsByProgram, base_dir: Path = Path()) -> FunctionMeasurer:
        return FunctionMeasurer(self)


class FunctionMeasurer(Measurer):
    """A measurer that calls the function in processes that are reused until a call crashes or takes too long.

    From its first measurement until it is closed, no other process can measure this machine.
    """

    def __init__(self, settings: FunctionSettings) -> None:
        self.settings = settings
        self.workers = settings.workers
        threads = max(1, available_cores() // settings.workers)
        self._pool = WorkerPool(threads, memory_limit_mb=settings.memory_limit_mb)
        self._workload_and_message: tuple[Function, SetUpFunction] | None = None

    def measure(self, space: Space, configs: Sequence[Config], best_cost: float = math.inf) -> Iterator[Measurement]:
        self.acquire_machine()
        assert isinstance(space.workload, Function)
        set_up_message = self._make_set_up_message(space.workload)
        calls = [Call(config, self.settings.repeat) for config in configs]
        process_count = min(self.settings.workers, len(calls))
        with MessageBatch(self._pool, set_up_message, process_count, calls, Ran, self.settings.run_timeout) as batch:
            for index in range(len(calls)):
                yield measurement_of(batch.wait_for_answer(index), self.settings.statistic)

    def close(self) -> None:
        self._pool.close()
        super().close()

    def _make_set_up_message(self, workload: Function) -> SetUpFunction:
        """Return the message that sets up a process for ``workload``, which is pickled only once."""
        if self._workload_and_message is None or self._workload_and_message[0] is not workload:
            try:
                pickled = pickle_with_code((workload.load(), workload.unit))
                self._workload_and_message = workload, SetUpFunction(pickled, str(workload))
            except Exception as error:  # for example, because the function refers to a lock or an open file
                raise SearchlabError(
                    f"{workload} cannot be sent to a worker process: {type(error).__name__}: {error}; create what it "
                    f"refers to within the function"
                ) from None
        return self._workload_and_message[1]
