"""The best program of each cell, and how that of each strategy came about: its schedule trace, made again in a process
of its own.

A log holds configs; a trace takes the space, hence its plug-in and TVM. Reading logs must take neither, nor run code
that a log names, nor wait: so a child process makes the traces, of registered spaces only, while the report is being
computed, and what it has not made in time is left out, and said to be.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec
import numpy as np

from ..log import Plugin
from ..registry import installed
from ..result import Result
from ..traces import Made, Wanted
from .read import Cell, Comparison

BUDGET = 20.0
"""Seconds that a report spends on traces, counted from its start."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The best program of a cell, as :attr:`searchlab.result.Result.best` has it.

    Where the fastest trials were measured again at the end of its run it is the one that then won, and ``gflops`` and
    ``seconds`` are what it then gave; else it is the fastest trial. trial: its index in the log, from 0. as_trial:
    GFLOPS as that trial. tied: the trials that could not be told from it when they were measured again; None where
    none were.
    trace: its schedule trace, or None, and ``note`` says why; only that of a strategy's best cell is made.
    """

    workload: str
    strategy: str
    seed: int
    trial: int
    gflops: float
    seconds: float
    as_trial: float
    tied: list[int] | None
    config: dict[str, Any]
    log: str
    trace: str | None = None
    note: str = ""


def cell_programs(comparison: Comparison) -> list[tuple[Program, Cell]]:
    """Of every cell with a program that runs, in the order of the comparison."""
    cells = [cell for strategies in comparison.values() for found in strategies.values() for cell in found]
    return [(_program(cell), cell) for cell in cells if np.isfinite(cell.log.costs).any()]


def best_programs(found: Sequence[tuple[Program, Cell]]) -> list[tuple[Program, Cell]]:
    """The fastest of each strategy, the lowest seed of equals: by workload, the fastest strategy first."""
    best: dict[tuple[str, str], tuple[Program, Cell]] = {}
    for one in sorted(found, key=lambda one: (-one[0].gflops, one[0].seed)):
        best.setdefault((one[0].workload, one[0].strategy), one)
    return sorted(best.values(), key=lambda one: (one[0].workload, -one[0].gflops, one[0].strategy))


def _program(cell: Cell) -> Program:
    best = Result(cell.log).best
    trial = best.trial
    return Program(
        workload=cell.workload, strategy=cell.strategy, seed=cell.seed, trial=trial.index,
        gflops=best.gflops, seconds=best.seconds, as_trial=cell.log.flops / trial.cost / 1e9,
        tied=None if best.tied is None else [other.index for other in best.tied],
        config=cell.log.records[trial.index].config, log=cell.file, note=_unsafe(cell.log.header.space),
    )  # fmt: skip


def _unsafe(space: Plugin) -> str:
    """Why its trace is not made here; "" where it is."""
    if space.name not in installed("space"):
        return f"its space {space.name!r} is not among the installed plug-ins"
    if _names_code(space.options):
        return "an option of its space names code, which a report does not run"
    return ""


def _names_code(value: Any) -> bool:
    """Whether it holds a ``"module:function"``, at any depth."""
    if isinstance(value, dict):
        return any(_names_code(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_names_code(item) for item in value)
    return isinstance(value, str) and ":" in value


class Traces:
    """Programs whose traces are being made from the start, and are waited for at the end."""

    def __init__(self, programs: Sequence[tuple[Program, Cell]], budget: float) -> None:
        self._programs = programs
        self._until = time.monotonic() + budget
        self._lines: list[bytes] = []
        self._child: subprocess.Popen[bytes] | None = None
        asked = {
            number: Wanted(str(cell.log.path), one.trial) for number, (one, cell) in enumerate(programs) if not one.note
        }
        if asked and budget > 0:
            self._start(msgspec.json.encode(asked))

    def _start(self, asked: bytes) -> None:
        self._child = subprocess.Popen(  # -P: what lies in the current directory is no plug-in
            [sys.executable, "-P", "-m", "searchlab.traces"],
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
            self._lines.append(line)  # one by one: what is there is read when time is up

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
        """All of them, with the traces that were made within the budget."""
        made: Mapping[int, Made] = {}
        late = ""
        if self._child:
            self._reader.join(max(0.0, self._until - time.monotonic()))
            late = (
                "it was not made in the time a report takes"
                if self._reader.is_alive()
                else "the process that makes it ended"
            )
            made = {one.number: one for line in list(self._lines) if (one := _decode(line))}
        elif any(not one.note for one, _ in self._programs):
            late = "traces were not asked for"
        return [_with(one, made.get(number), late) for number, (one, _) in enumerate(self._programs)]


def _decode(line: bytes) -> Made | None:
    with suppress(msgspec.DecodeError):  # a plug-in may print
        return msgspec.json.decode(line, type=Made)
    return None


def _with(program: Program, made: Made | None, late: str) -> Program:
    if made is None:
        return msgspec.structs.replace(program, note=program.note or late)
    return msgspec.structs.replace(program, trace=made.trace, note=made.note)
