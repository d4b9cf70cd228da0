"""The best program of each run, and the schedule trace of the best program of each strategy.

A log holds configs. Making a trace from a config takes its space, and so a plug-in and TVM. Reading logs must not need
these, run code that a log names, or wait. So a child process makes the traces while the report is computed, for
registered spaces only, or for all within :func:`~searchlab.plugins.trusting`. Traces that are not ready in time are
left out, and the report says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import msgspec
import numpy as np

from ..log.result import fastest
from ..log.traces import TRUST, TraceReply, TraceRequest
from ..plugins import Plugin, trusts
from ..space import SPACES
from .model import Program
from .runs import ComparedRuns, LoggedRun

BUDGET = 20.0  # seconds that a report spends on traces, from its start


def run_programs(comparison: ComparedRuns) -> list[tuple[Program, LoggedRun]]:
    """Return the best program of every run that has one, in the order of the comparison."""
    runs = [run for item in comparison.values() for run in item.runs]
    return [(_program(run), run) for run in runs if np.isfinite(run.log.costs).any()]


def best_programs(programs: Sequence[tuple[Program, LoggedRun]]) -> list[tuple[Program, LoggedRun]]:
    """Return the fastest program of each strategy by workload, the fastest first, with a note if it gets no trace.

    Of equally fast ones, that with the lowest seed.
    """
    best: dict[tuple[str, str], tuple[Program, LoggedRun]] = {}
    for program, run in sorted(programs, key=lambda pair: (-pair[0].gflops, pair[0].seed)):
        best.setdefault((program.workload, program.strategy), (program, run))
    spaces = {msgspec.json.encode(run.log.header.space): run.log.header.space for _, run in best.values()}
    notes = {key: _unsafe(space) for key, space in spaces.items()}  # looking up a plug-in takes milliseconds
    return sorted(
        (
            (msgspec.structs.replace(program, note=notes[msgspec.json.encode(run.log.header.space)]), run)
            for program, run in best.values()
        ),
        key=lambda pair: (pair[0].workload, -pair[0].gflops, pair[0].strategy),
    )


def _program(run: LoggedRun) -> Program:
    log = run.log
    index, seconds, tied = fastest(log.costs, log.final)
    return Program(
        workload=run.workload, strategy=run.strategy, seed=run.seed, trial=index,
        gflops=log.flops / seconds / 1e9, seconds=seconds, as_trial=log.flops / float(log.costs[index]) / 1e9,
        tied=tied, config=log.config(index), log=run.file,
    )  # fmt: skip


def _unsafe(space: Plugin) -> str:
    """Return why this space makes no trace; "" if it does."""
    if trusts() or SPACES.registered(space) is not None:
        return ""
    if SPACES.registered(Plugin(space.name)) is None:
        return f"its space {space.name!r} is not among the installed plug-ins"
    return "an option of its space names code, which a report does not run (--trust does)"


class Traces:
    """Makes the traces of programs in a child process, for which :meth:`programs` waits."""

    def __init__(self, programs: Sequence[tuple[Program, LoggedRun]], budget: float) -> None:
        self._programs = programs
        self._until = time.monotonic() + budget
        self._lines: list[bytes] = []
        self._child: subprocess.Popen[bytes] | None = None
        asked = {
            number: TraceRequest(os.fsencode(run.log.path), program.trial)
            for number, (program, run) in enumerate(programs)
            if not program.note
        }
        if asked and budget > 0:
            self._start(msgspec.json.encode(asked))

    def _start(self, asked: bytes) -> None:
        # -P: nothing in the current directory is a plug-in, unless it is trusted.
        words = ["-m", "searchlab.log.traces", TRUST] if trusts() else ["-P", "-m", "searchlab.log.traces"]
        self._child = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(asked,), daemon=True)
        self._reader.start()

    def _read(self, asked: bytes) -> None:
        assert self._child and self._child.stdin and self._child.stdout
        with suppress(BrokenPipeError):
            self._child.stdin.write(asked)
            self._child.stdin.close()
        for line in self._child.stdout:
            self._lines.append(line)  # one by one: those that are there are used when time is up

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child:
            self._child.kill()
            self._child.wait()
            self._reader.join()
            if self._child.stdout:
                self._child.stdout.close()

    def programs(self) -> list[Program]:
        """Return all programs, with the traces that were made within the budget."""
        traces: dict[int, TraceReply] = {}
        late = ""
        if self._child:
            self._reader.join(max(0.0, self._until - time.monotonic()))
            late = (
                "it was not made in the time a report takes"
                if self._reader.is_alive()
                else "the process that makes it ended"
            )
            for line in list(self._lines):
                with suppress(msgspec.DecodeError):  # a plug-in may print
                    one = msgspec.json.decode(line, type=TraceReply)
                    traces[one.number] = one
        elif any(not program.note for program, _ in self._programs):
            late = "traces were not asked for"
        return [
            msgspec.structs.replace(program, trace=reply.trace, note=reply.note)
            if (reply := traces.get(number))
            else msgspec.structs.replace(program, note=program.note or late)
            for number, (program, _) in enumerate(self._programs)
        ]
