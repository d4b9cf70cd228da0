"""Following a log as it grows: what was appended since the last look is read, and nothing is read twice."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import SearchlabError
from ..workload import parse_workload
from .format import Ended, Header, Log, Record, batch_numbers, batch_starts, read_bytes, scan

PAUSE = 600.0
"""Seconds between two trials from which on the run was interrupted between them: no trial takes so long."""


class Follower:
    """The log at ``path``, as far as it was read.

    header: None before it is there. trials, failed: the number of trials, and of those that failed. steps: each trial
    that was the fastest so far, and its cost in seconds. ended: as of a :class:`~searchlab.log.format.Log`. charged:
    as the last of :attr:`~searchlab.log.format.Log.elapsed`. waited, waits: seconds by the clock that trials took, and
    the number of trials that this is of. updated: the time of the last trial. problem: why the log cannot be followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None  # inode, size
        self._begin()

    def _begin(self) -> None:
        self.header: Header | None = None
        self.trials = self.failed = 0
        self.steps: list[tuple[int, float]] = []
        self.ended: Ended | None = None
        self.charged = self.waited = self.updated = 0.0
        self.waits = 0
        self.problem = ""
        self.flops, self.unit = 1, ""
        self._offset = self._lines = 0
        self._before = 0.0  # seconds charged before the last batch
        self._batch: list[Record] = []

    def look(self) -> bool:
        """Read what was appended. Whether anything has changed since the last look."""
        try:
            status = os.stat(self.path)
        except OSError:
            gone = self._file is not None
            self._file = None
            if gone:
                self._begin()
            return gone
        now = status.st_ino, status.st_size
        if now == self._file:
            return False
        if self._file is None or now[0] != self._file[0] or now[1] < self._offset or self.path.suffix == ".gz":
            self._begin()  # it is another file than before, or it was rewritten
        self._file = now
        try:
            return self._read()
        except SearchlabError as error:
            self.problem = str(error)
            return True

    def _read(self) -> bool:
        if self.problem:
            return False
        data = self._appended()
        data = data[: data.rfind(b"\n") + 1]  # what comes after may be half a line
        if not data:
            return False
        self._offset += len(data)
        records: list[Record] = []
        for line in scan(data, self._lines + 1, self.trials):
            self._lines = line.number
            if line.problem:
                self.problem = f"line {line.number}: {line.problem}"
                break
            if isinstance(line.item, Header):
                self.header = line.item
                workload = parse_workload(line.item.workload)
                self.flops, self.unit, self.updated = workload.flops, workload.unit, line.item.created
            elif isinstance(line.item, Record):
                records.append(line.item)
                self.ended = None
            elif isinstance(line.item, Ended):
                self.ended = line.item
        self._take(records)
        return True

    def _appended(self) -> bytes:
        if self.path.suffix == ".gz":
            return read_bytes(self.path)
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                return file.read()
        except OSError as error:
            raise SearchlabError(f"it cannot be read: {error.strerror}") from None

    def _take(self, records: Sequence[Record]) -> None:
        if not records or self.header is None:
            return
        best = self.steps[-1][1] if self.steps else math.inf
        for record in records:
            if record.cost < best:
                best = record.cost
                self.steps.append((record.index, best))
            self.failed += record.failure is not None
            if 0 <= record.time - self.updated < PAUSE:
                self.waited += record.time - self.updated
                self.waits += 1
            self.updated = record.time
        self.trials += len(records)
        records = [*self._batch, *records]
        last = batch_starts(batch_numbers(records, self.header.batch), [len(records)])[-1]
        self._before += self._charged(records[:last])
        self._batch = records[last:]
        self.charged = self._before + self._charged(self._batch)

    def _charged(self, records: Sequence[Record]) -> float:
        assert self.header is not None
        return float(Log(self.path, self.header, tuple(records)).elapsed[-1]) if records else 0.0
