"""Processes that each talk to one device of a fleet at a time."""

from __future__ import annotations

from ..messages import SetUpSessions
from ..process import MeasuringWorker


class SessionPool:
    """As many processes as are wanted at the same time, kept from batch to batch.

    scratch: where they leave their temporary files.
    """

    def __init__(self, scratch: str) -> None:
        self.scratch = scratch
        self.processes: list[MeasuringWorker] = []

    def prepare(self, count: int, message: SetUpSessions) -> None:
        """Have at least ``count`` processes, each of them ready for the workload of ``message`` or told to be."""
        for process in list(self.processes):
            if not (process.alive and (process.ready or process.told == message.workload)):
                self.drop(process)
        while len(self.processes) < count:
            self.processes.append(MeasuringWorker(1, self.scratch))
        for process in self.processes:
            if process.told != message.workload:
                process.tell(message.workload, message)

    def another(self, message: SetUpSessions) -> MeasuringWorker:
        """A new process, told to get ready."""
        process = MeasuringWorker(1, self.scratch)
        process.tell(message.workload, message)
        self.processes.append(process)
        return process

    def drop(self, process: MeasuringWorker) -> None:
        process.kill()
        self.processes.remove(process)

    def close(self) -> None:
        for process in list(self.processes):
            self.drop(process)
