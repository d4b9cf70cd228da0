"""Features of programs, extracted by the processes that build: these are idle while a policy proposes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import SearchlabError, SearchlabWarning
from ..space import Config, Space
from .build_pool import BuildPool
from .messages import Extract, Extracted
from .pool import Batch
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
        if batch.blamed and not self._warned:
            self._warned = True
            index, fate = batch.blamed[0]
            warnings.warn(
                f"{configs[index].to_json()} has no {features} features, since the process that extracts them {fate}; "
                f"the same may hold for others, and a cost model knows nothing of such configs",
                SearchlabWarning,
                stacklevel=2,
            )
        return batch.rows


class _Batch(Batch[range]):
    """A batch of extractions; a job is a chunk of the indices of configs.

    A process that is new to the features is sent an empty chunk first, so that no config is charged for its imports.
    """

    def __init__(self, pool: BuildPool, space: Space, features: str, configs: Sequence[Config]) -> None:
        size = min(CHUNK, -(-len(configs) // pool.workers))
        indices = range(len(configs))
        chunks = [indices[start : start + size] for start in range(0, len(configs), size)]
        self.sharing = min(pool.workers, len(chunks))
        super().__init__(pool, pool.holding(space), self.sharing, chunks)
        self.timeout = pool.build_timeout
        self.features = features
        self.configs = configs
        self.seconds = 0.0
        self.rows = [np.empty(0)] * len(configs)
        self.blamed: list[tuple[int, str]] = []

    def offer(self) -> Sequence[Any]:
        while self.waiting and self.idle:
            process = self.idle.pop()
            is_new = self.features not in process.extracts
            chunk = range(0) if is_new else self.waiting.popleft()
            process.send(Extract(self.features, [self.configs[i] for i in chunk]))
            self.begin(process, chunk, START_SECONDS if is_new else self.timeout)
        return ()

    def receive(self, process: MeasuringWorker, chunk: range) -> None:
        answer = process.recv(Extracted)
        rows = _rows_of(answer, len(chunk))
        if not process.usable and len(chunk) > 1:  # a config has spoiled the process, perhaps for those after it
            raise WorkerDied(f"has other {process.changed}")
        process.extracts.add(self.features)
        if chunk:  # the empty chunk takes the imports of a new process
            self.seconds += answer.seconds / self.sharing
        for index, row in zip(chunk, rows, strict=True):
            self.rows[index] = row
        self.free(process)

    def lost(self, chunk: range, death: WorkerDied, seconds: float) -> None:
        """Go on with the configs of ``chunk`` one by one, to find the one that is to blame."""
        if not chunk:
            raise SearchlabError(
                f"a process that extracts features {death} while it started; check your TVM installation"
            )
        if len(chunk) > 1:
            self.waiting.extend(chunk[i : i + 1] for i in range(len(chunk)))
        else:
            self.blamed.append((chunk[0], str(death)))


def _rows_of(answer: Extracted, count: int) -> list[Floats]:
    """The rows of ``count`` configs. Raises WorkerDied where they are something else."""
    if len(answer.rows) != count or any(len(row) % 8 for row in answer.rows):
        raise WorkerDied("sent what is no answer: its rows are not those of the configs")
    return [np.frombuffer(row, np.float64).copy() for row in answer.rows]
