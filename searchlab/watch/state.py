"""The state of a study, read from its logs as they grow."""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import Lock
from typing import Literal, get_args

import msgspec
import numpy as np

from ..errors import SearchlabError, encodable
from ..log.format import Follower, find_logs
from ..log.plan import PLAN, UNLIMITED, Budget, PlannedRun, read_plan
from ..log.writer import is_locked

Status = Literal["running", "done", "waiting", "stopped", "damaged"]

AGAIN = 0.3
"""The time in seconds for which the same state is returned before the logs are read again."""

BETWEEN = 5.0
"""The maximum time in seconds that a running study takes between the end of one run and the start of the next."""


class RunState(msgspec.Struct, frozen=True):
    """The current state of a run in a study.

    Its status is "running" while a process is writing its log, "waiting" if it has no log yet, "done" if it is
    complete, and "damaged" if its log cannot be read. Otherwise, it is "stopped", which means that trials are missing
    or, if there is no plan, may be missing.
    """

    number: int  # in planned order, from 0
    log: str
    workload: str
    space: str
    strategy: str
    seed: int
    status: Status
    trials: int
    wanted: int | None  # the maximum number of trials; None if its budget is unknown or does not limit the trials
    share: float | None  # the fraction of its budget that is spent; None without a plan
    failed: int
    best: float | None  # the highest throughput so far, in ``unit``
    unit: str
    steps: tuple[tuple[int, float], ...]  # the trials that improved on the best so far, with their throughput
    updated: float  # when its last trial ended, in seconds since 1970
    problem: str  # why its log cannot be read, or why the run ended


class State(msgspec.Struct, frozen=True):
    """The current state of a study, and the runs that have changed since an earlier look."""

    version: int  # changes if the plan changes or logs disappear, so that earlier rows are invalid
    look: int  # the number of times that the logs have been read
    title: str
    runs: int
    counts: dict[Status, int]
    share: float | None  # the fraction of all budgets that is spent; None if unknown
    left: float | None  # the approximate number of seconds left; None if unknown
    at_most: bool  # whether the study may end earlier
    says: str  # a sentence that describes the state
    notes: list[str]
    rows: list[RunState]


class Watched:
    """A study that is followed as its logs in ``directory`` grow. Raises SearchlabError if there is no directory."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            what = "is not a directory" if directory.exists() else "does not exist"
            raise SearchlabError(
                f"{directory} {what}; pass the directory that contains a study's logs, such as results/STUDY"
            )
        self._directory = directory
        self._lock = Lock()
        self._version = self._look = 0
        self._looked = self._ran = -math.inf
        self._plan: tuple[float, int] | None = None  # modification time and size of the plan
        self._budgets: dict[str, PlannedRun] = {}
        self._followers: dict[str, Follower] = {}
        self._rows: dict[str, RunState] = {}
        self._changed: dict[str, int] = {}  # the look at which a row last changed
        self._problem = ""

    def state(self, version: int = 0, since: int = 0) -> State:
        """Return the current state, with the rows that changed after look ``since``, or all if ``version`` differs."""
        with self._lock:
            if time.monotonic() - self._looked > AGAIN:
                self._refresh()
                self._looked = time.monotonic()
            since = since if version == self._version else -1
            return self._summed([row for log, row in self._rows.items() if self._changed[log] > since])

    def _refresh(self) -> None:
        self._look += 1
        self._follow_plan()
        for number, log in enumerate(self._logs()):
            follower = self._followers.get(log)
            if follower is None:
                follower = self._followers[log] = Follower(self._directory / log, self._directory)
            before = self._rows.get(log)
            # The lock is checked before the log is read: once it has been released, the log can be read completely.
            locked = (before is None or before.status != "done") and is_locked(follower.path)
            follower.look()
            row = self._row(number, log, follower, locked)
            if row != before:
                self._rows[log], self._changed[log] = row, self._look
            if row.status == "running":
                self._ran = time.monotonic()

    def _follow_plan(self) -> None:
        """Read the plan if it has changed."""
        try:
            status = (self._directory / PLAN).stat()
            now = status.st_mtime, status.st_size
        except OSError:
            now = None
        if now == self._plan and self._version:
            return
        self._plan, self._problem = now, ""
        try:
            plan = read_plan(self._directory)
        except SearchlabError as error:
            plan, self._problem = None, str(error)
        self._budgets = dict(plan.by_log) if plan else {}
        self._version += 1
        self._rows.clear()
        self._changed.clear()

    def _logs(self) -> list[str]:
        if self._budgets:
            return list(self._budgets)
        logs = [path.relative_to(self._directory).as_posix() for path in find_logs(self._directory)]
        if gone := self._rows.keys() - set(logs):
            self._version += 1
            for log in gone:
                del self._rows[log], self._changed[log]
        return logs

    def _row(self, number: int, log: str, follower: Follower, locked: bool) -> RunState:
        header, planned = follower.header, self._budgets.get(log)
        budget = planned.budget if planned else None
        if planned:
            names = planned.workload, planned.space, planned.strategy, planned.seed
        elif header:
            names = header.table or header.workload, header.space_name, header.name, header.seed
        else:
            names = "", "", log, 0
        done = _is_done(follower, budget)
        status: Status = (
            "damaged"
            if follower.problem
            else "running"
            if locked
            else "done"
            if done
            else "waiting"
            if header is None
            else "stopped"
        )
        reached = follower.steps[-1][1] if follower.steps else None
        gflops = follower.flops / 1e9
        return RunState(
            number=number,
            log=encodable(log),
            workload=encodable(names[0]),
            space=encodable(names[1]),
            strategy=encodable(names[2]),
            seed=names[3],
            status=status,
            trials=follower.trials,
            wanted=budget.trials if budget and budget.trials < UNLIMITED else None,
            share=1.0 if done else _share(follower, budget),
            failed=follower.failed,
            best=gflops / reached if reached else None,
            unit=follower.unit,
            steps=tuple((index, gflops / cost) for index, cost in follower.steps),
            updated=follower.updated,
            problem=encodable(follower.problem) or (follower.ended.reason if done and follower.ended else ""),
        )

    def _summed(self, rows: list[RunState]) -> State:
        runs = list(self._rows.values())
        counts = {status: sum(row.status == status for row in runs) for status in get_args(Status)}
        goes_on = time.monotonic() - self._ran < BETWEEN and counts["done"] < len(runs)
        left = self._left() / max(1, counts["running"]) if goes_on else math.inf
        notes = [self._problem] if self._problem else []
        if not self._budgets and not self._problem:
            notes.append(f"The directory contains no plan ({PLAN}), so the planned number of trials is unknown.")
        shares = [row.share for row in runs if row.share is not None]
        return State(
            version=self._version,
            look=self._look,
            title=encodable(str(self._directory)),
            runs=len(runs),
            counts=counts,
            share=sum(shares) / len(runs) if len(shares) == len(runs) and runs else None,
            left=left if math.isfinite(left) else None,
            at_most=any(run.budget.stop_after is not None for run in self._budgets.values()),
            says=_sentence(counts, len(runs), goes_on, bool(self._budgets)),
            notes=notes,
            rows=rows,
        )

    def _left(self) -> float:
        """Return the seconds that the remaining runs will take if they run sequentially, or infinity if unknown.

        The time per trial is taken from runs of the same strategy on the same workload and space if there are any;
        otherwise, from all runs on this workload and space; failing that, from all runs.
        """
        spent: dict[tuple[str, ...], np.ndarray] = {}
        for log, row in self._rows.items():
            one = self._followers[log]
            for key in _keys(row):
                spent[key] = spent.get(key, 0.0) + np.array([one.waited, one.waits, one.charged, one.trials])
        left = 0.0
        for log, row in self._rows.items():
            if row.status in ("done", "damaged"):
                continue
            known = next((spent[key] for key in _keys(row) if spent[key][1]), None)
            if known is None or log not in self._budgets:
                return math.inf
            waited, waits, charged, trials = map(float, known)
            follower, budget = self._followers[log], self._budgets[log].budget
            missing = math.inf if budget.trials >= UNLIMITED else float(budget.trials - follower.trials)
            if budget.seconds is not None and charged:
                missing = min(missing, max(0.0, budget.seconds - follower.charged) / (charged / trials))
            left += missing * waited / waits
        return left


def _keys(row: RunState) -> tuple[tuple[str, ...], ...]:
    return (row.workload, row.space, row.strategy), (row.workload, row.space), ()


def _is_done(follower: Follower, budget: Budget | None) -> bool:
    ended = follower.ended
    if budget is None:
        return ended is not None
    if follower.trials >= budget.trials or ended is None:
        return follower.trials >= budget.trials
    limits = (ended.seconds, budget.seconds), (ended.stop_after, budget.stop_after)
    return ended.by_policy or any(had is not None and now is not None and had >= now for had, now in limits)


def _share(follower: Follower, budget: Budget | None) -> float | None:
    """Return the fraction of the budget that is spent: 0 if it limits neither trials nor seconds, None if unknown."""
    if budget is None:
        return None
    by_seconds = follower.charged / budget.seconds if budget.seconds else 0.0
    return min(1.0, max(follower.trials / budget.trials, by_seconds))


def _sentence(counts: dict[Status, int], runs: int, goes_on: bool, planned: bool) -> str:
    if not runs:
        return "There are no runs here yet."
    if planned and counts["done"] == runs and not goes_on:
        return f"The study is done: all {runs} runs are complete." if runs > 1 else "The study is done."
    several = "s" * (runs != 1)
    parts = [f"{runs} log{several}"]
    words: dict[Status, str] = {"running": "running", "waiting": "yet to start", "damaged": "damaged"}
    if planned:  # otherwise it is unknown whether a log is complete
        parts = [f"{counts['done']} of {runs} run{several} {_are(counts['done'])} done"]
        words["stopped"] = "stopped"
    parts += [f"{n} {_are(n)} {word}" for status, word in words.items() if (n := counts[status])]
    return f"The study is {'running' if goes_on else 'not running'}: {', '.join(parts)}."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
