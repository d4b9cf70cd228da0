"""Cells of a study that run at the same time, each in a process of its own."""

from __future__ import annotations

import pickle
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import cloudpickle
import msgspec

from .errors import SearchlabError, SearchlabWarning
from .measure.contract import Cache, Measurer
from .measure.process import Worker, WorkerDied, die_with
from .measure.settings import Settings
from .records import Measurement
from .target import available_cores
from .tuner import Cell, OnTrial, run_cell

if TYPE_CHECKING:
    from .study import OnCell, StudyCell


def check_jobs(jobs: int, settings: Settings) -> None:
    """Raise SearchlabError where runs measured so cannot be ``jobs`` at the same time."""
    if jobs < 1:
        raise SearchlabError(f"jobs must be at least 1, not {jobs}")
    if jobs > 1 and settings.exclusive:
        raise SearchlabError(
            f"{jobs} jobs on this machine, which the study is measured on, would disturb each other's times; leave it "
            f'to one, or measure on a fleet (measure = {{ kind = "rpc", ... }}) or from a table'
        )


def run_jobs(
    cells: Sequence[StudyCell],
    out: Path,
    trials: int,
    settings: Settings,
    base: Path,
    cache: Mapping[str, Measurement],
    jobs: int,
    on_cell: OnCell,
) -> None:
    """Run ``cells``, ``jobs`` of them at a time; the first failure, or an interrupt, ends them all.

    Each cell starts with what ``cache`` holds, and learns nothing of those that run beside or before it: so it does not
    matter which of them are quick.
    """
    waiting = deque(enumerate(cells, 1))
    running: dict[Worker, OnTrial] = {}
    with ExitStack() as ends:

        def start(worker: Worker, job: int) -> None:
            number, item = waiting.popleft()
            running[worker] = on_cell(item, number, len(cells), job)
            worker.send(("cell", cloudpickle.dumps(item.cell), out / item.path, trials))

        # Jobs are ended without a chance to clean up; the processes of their own may take a moment longer.
        scratch = ends.enter_context(TemporaryDirectory(prefix="searchlab-", ignore_cleanup_errors=True))
        job_of: dict[Worker, int] = {}
        for job in range(min(jobs, len(cells))):
            worker = Worker(max(1, available_cores() // jobs), scratch, module="searchlab.jobs")
            ends.callback(worker.kill)
            job_of[worker] = job
            worker.send(("study", msgspec.to_builtins(settings), base, dict(cache)))
            start(worker, job)
        while running:
            answered = wait([worker.connection for worker in running])
            for worker in [worker for worker in running if worker.connection in answered]:
                try:
                    kind, *rest = worker.recv()
                except WorkerDied as death:
                    raise SearchlabError(f"a job {death}; run this again to go on: what was measured is kept") from None
                if kind == "trial":
                    running[worker](rest[0])
                elif kind == "warning":
                    warnings.warn(rest[0], SearchlabWarning, stacklevel=2)
                elif kind == "refused":
                    raise SearchlabError(rest[0])
                elif kind == "failed":
                    raise RuntimeError(f"a job failed:\n{rest[0]}")
                else:
                    del running[worker]
                    if waiting:
                        start(worker, job_of[worker])


class _Job:
    """The process of a job: its measurer is kept from cell to cell."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.cache: Cache = {}
        self.measurer: Measurer | None = None

    def run(self, cell: Cell, path: Path, trials: int, settings: Settings, base: Path) -> None:
        if self.measurer is None:
            self.measurer = settings.make(cell.space.target, self.cache, base)
        run_cell(
            replace(cell, settings=settings),
            path,
            trials,
            self.measurer,
            lambda trial: self.connection.send(("trial", trial)),
        )


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    die_with(int(sys.argv[2]))

    def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if category is SearchlabWarning:
            connection.send(("warning", str(message)))

    warnings.showwarning = show_warning
    job = _Job(connection)
    _, fields, base, known = connection.recv()
    # Read as from a study file: pickled, what was left to its default no longer looks so, and a log's header differs.
    settings = msgspec.convert(fields, Settings)
    while True:
        try:
            _, cell, path, trials = connection.recv()
        except EOFError:
            return
        job.cache.clear()
        job.cache.update(known)
        try:
            job.run(pickle.loads(cell), path, trials, settings, base)
        except SearchlabError as error:
            connection.send(("refused", str(error)))
        except Exception:
            connection.send(("failed", traceback.format_exc()))
        else:
            connection.send(("done",))


if __name__ == "__main__":
    main()
