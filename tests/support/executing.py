"""Studies for executors, and executors that act like machines that share nothing or lose their workers."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from searchlab.conformance import toys
from searchlab.executors.contract import RunExecutor
from searchlab.policy import NeverTwice
from searchlab.run.dispatch import RunOutcome, StudyContext
from searchlab.run.study import Study
from searchlab.space import Space
from tests.support.logs import read_deterministic_part, write_table


def table_study(folder: Path, **changes: Any) -> Study:
    """Return a study of 4 runs over a table in ``folder``, with some keys replaced by ``changes``."""
    if not (folder / "table.jsonl").exists():
        write_table(folder / "table.jsonl", toys.Small(), toys.simulate_flaky)
    data = {
        "workloads": ["gemm:64x64x64"],
        "spaces": [{"name": "searchlab.conformance.toys:Small"}],
        "policies": ["random", "grid"],
        "seeds": 2,
        "trials": 12,
        "batch": 4,
        "target": {"kind": "llvm"},
        "measure": {"kind": "table", "path": "table.jsonl"},
    }
    return Study.from_dict({**data, **changes}, folder)


def read_deterministic_parts(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the contents of the logs in ``out`` except for clock times, by their paths."""
    return {str(log.relative_to(out)): read_deterministic_part(log) for log in sorted(out.rglob("*.jsonl"))}


class Dies(NeverTwice):
    """Proposes at random; its process is killed at the second batch, as long as fewer than ``times`` marks are there.

    marks: a directory, where each death leaves a file.
    """

    def __init__(self, space: Space, *, seed: int, marks: str, times: int = 1) -> None:
        super().__init__(space, seed=seed)
        self.marks = Path(marks)
        self.times = times

    def propose(self, n: int, rng: np.random.Generator) -> Any:
        deaths = len(list(self.marks.iterdir()))
        if self.trials and deaths < self.times:
            (self.marks / str(deaths)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return []


class Elsewhere(Executor):
    """Calls at once, as if on a machine that does not see the directory of the logs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        context, *arguments = args
        assert isinstance(context, StudyContext)
        future: Future[Any] = Future()
        future.set_result(fn(replace(context, shared_folder=Path("/nowhere/shared")), *arguments))
        return future


class Refuses(RunExecutor):
    """Refuses every run after a moment. most: how many calls it had at the same time."""

    jobs = 4

    def __init__(self) -> None:
        self.running = self.most = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        future: Future[Any] = Future()

        def end() -> None:
            self.running -= 1
            future.set_result([RunOutcome("no", "no")])

        threading.Timer(0.05, end).start()
        return future
