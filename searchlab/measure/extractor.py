"""Features of programs, extracted by the processes that build: these are idle while a policy proposes."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Sequence

import numpy as np

from ..arrays import Floats
from ..errors import SearchlabError, SearchlabWarning
from ..space import Config, Space
from .build_pool import BuildPool
from .channel import answered
from .messages import Extract, Extracted
from .process import START_SECONDS, MeasuringWorker, WorkerDied

FEWEST = 16
"""Fewer configs than this are not worth the way to other processes."""

CHUNK = 16
"""At most so many configs go to a process at a time."""


class Extractor:
    """Extracts features with the processes of ``pool``, in any order and on any of them; the rows are the same.

    A config that a process dies of, or takes longer for than programs may take to build, has no features. The first of
    them is warned of.

    seconds: of the CPU, for all that it has extracted; those of a batch are divided by the processes that shared it.
    """

    def __init__(self, pool: BuildPool) -> None:
        self.seconds = 0.0
        self._pool = pool
        self._warned = False

    def extract(self, space: Space, features: str, configs: Sequence[Config]) -> list[Floats] | None:
        """The ``features`` (d,) of each config, empty for one that has none; None if there are too few configs.

        Raises SearchlabError if a process cannot take in ``space``.
        """
        if len(configs) < FEWEST:
            return None
        batch = _Batch(self._pool, space, features, configs)
        batch.run()
        self.seconds += batch.seconds
        if batch.lost and not self._warned:
            self._warned = True
            index, fate = batch.lost[0]
            warnings.warn(
                f"{configs[index].to_json()} has no {features} features, since the process that extracts them {fate}; "
                f"the same may hold for others, and a cost model knows nothing of such configs",
                SearchlabWarning,
                stacklevel=2,
            )
        return batch.rows


class _Batch:
    """One batch: chunks of indices that wait, idle processes, and busy ones with their chunk, and when it is due.

    A process that is new to the features is sent an empty chunk first, so that no config is charged for its imports.
    """

    def __init__(self, pool: BuildPool, space: Space, features: str, configs: Sequence[Config]) -> None:
        self.pool = pool
        self.space = space
        self.features = features
        self.configs = configs
        size = min(CHUNK, -(-len(configs) // pool.workers))
        indices = range(len(configs))
        self.waiting = deque(indices[start : start + size] for start in range(0, len(configs), size))
        self.sharing = min(pool.workers, len(self.waiting))
        self.idle = pool.ready(space, self.sharing)
        self.seconds = 0.0
        self.busy: dict[MeasuringWorker, tuple[range, float]] = {}
        self.rows = [np.empty(0)] * len(configs)
        self.lost: list[tuple[int, str]] = []

    def run(self) -> None:
        try:
            while self.waiting or self.busy:
                while self.waiting and self.idle:
                    self._start(self.idle.pop())
                due = min(due for _, due in self.busy.values())
                there = answered([worker.channel for worker in self.busy], due - time.perf_counter())
                for worker in [worker for worker in self.busy if worker.channel in there]:
                    self._answered(worker)
                for worker, (chunk, due) in list(self.busy.items()):
                    if time.perf_counter() > due and not worker.channel.poll():
                        self._lose(worker, chunk, f"took longer than {self.pool.build_timeout:g} s")
        finally:
            for worker in self.busy:  # interrupted: nobody wants any more what they extract
                self.pool.discard(worker)

    def _start(self, worker: MeasuringWorker) -> None:
        is_new = self.features not in worker.extracts
        chunk = range(0) if is_new else self.waiting.popleft()
        worker.send(Extract(self.features, [self.configs[i] for i in chunk]))
        self.busy[worker] = (chunk, time.perf_counter() + (START_SECONDS if is_new else self.pool.build_timeout))

    def _answered(self, worker: MeasuringWorker) -> None:
        chunk, _ = self.busy[worker]
        try:
            answer = worker.recv(Extracted)
            rows = _rows_of(answer, len(chunk))
        except WorkerDied as death:
            self._lose(worker, chunk, str(death))
            return
        if not worker.usable and len(chunk) > 1:  # a config has spoiled the process, perhaps for those after it
            self._lose(worker, chunk, f"has other {worker.changed}")
            return
        worker.extracts.add(self.features)
        if chunk:  # the empty chunk takes the imports of a new process
            self.seconds += answer.seconds / self.sharing
        for index, row in zip(chunk, rows, strict=True):
            self.rows[index] = row
        del self.busy[worker]
        if not worker.usable:
            self.pool.discard(worker)
            worker = self.pool.another(self.space)
        self.idle.append(worker)

    def _lose(self, worker: MeasuringWorker, chunk: range, fate: str) -> None:
        """Go on with another process; the configs of ``chunk`` one by one, to find the one that is to blame."""
        if not chunk:
            raise SearchlabError(
                f"a process that extracts features {fate} while it started; check your TVM installation"
            )
        self.pool.discard(worker)
        del self.busy[worker]
        if len(chunk) > 1:
            self.waiting.extend(chunk[i : i + 1] for i in range(len(chunk)))
        else:
            self.lost.append((chunk[0], fate))
        self.idle.append(self.pool.another(self.space))


def _rows_of(answer: Extracted, count: int) -> list[Floats]:
    """The rows of ``count`` configs. Raises WorkerDied where they are something else."""
    if len(answer.rows) != count or any(len(row) % 8 for row in answer.rows):
        raise WorkerDied("sent what is no answer: its rows are not those of the configs")
    return [np.frombuffer(row, np.float64).copy() for row in answer.rows]
