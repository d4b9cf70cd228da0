"""The fastest program of each strategy, and how it came about: its schedule trace, made again in a process of its own.

A log holds configs; a trace takes the space, hence its plug-in and TVM. Reading logs must take neither, nor run code
that a log names, nor wait: so a child process makes the traces, of registered spaces only, while the report is being
computed, and what it has not made in time is left out, and said to be.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from ..log import Plugin
from ..registry import installed
from ..traces import Made, Wanted
from .cells import Cell, Comparison

BUDGET = 20.0
"""Seconds that a report spends on traces, counted from its start."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest trial of a strategy on a workload, over its seeds; the earliest by seed where several are as fast.

    trial: from 1. again: GFLOPS when it was measured again at the end of its run, None where it was not. trace: its
    schedule trace, or None, and ``note`` says why.
    """

    workload: str
    strategy: str
    seed: int
    trial: int
    gflops: float
    seconds: float
    again: float | None
    config: dict[str, Any]
    log: str
    trace: str | None = None
    note: str = ""


def best_programs(comparison: Comparison) -> list[tuple[Program, Path]]:
    """By workload, the fastest strategy first, with the log that each is in."""
    found: list[tuple[Program, Path]] = []
    for strategies in comparison.values():
        here = []
        for cells in strategies.values():
            working = [cell for cell in cells if np.isfinite(cell.log.costs).any()]
            if working:
                cell = max(working, key=lambda cell: (cell.curve[-1], -cell.seed))
                here.append((_program(cell), cell.log.path))
        found += sorted(here, key=lambda one: (-one[0].gflops, one[0].strategy))
    return found


def _program(cell: Cell) -> Program:
    index = int(np.argmin(cell.log.costs))
    cost = float(cell.log.costs[index])
    finalists = cell.log.final.finalists if cell.log.final else ()
    again = next((float(np.median(one.seconds)) for one in finalists if one.index == index), None)
    return Program(
        workload=cell.workload, strategy=cell.strategy, seed=cell.seed, trial=index + 1,
        gflops=cell.log.flops / cost / 1e9, seconds=cost, again=again and cell.log.flops / again / 1e9,
        config=cell.log.records[index].config, log=cell.file, note=_unsafe(cell.log.header.space),
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
    """The programs of a comparison, whose traces are being made from the start, and are waited for at the end."""

    def __init__(self, comparison: Comparison, budget: float) -> None:
        self._programs = best_programs(comparison)
        self._until = time.monotonic() + budget
        self._lines: list[bytes] = []
        self._child: subprocess.Popen[bytes] | None = None
        wanted = [(number, path) for number, (one, path) in enumerate(self._programs) if not one.note]
        if wanted and budget > 0:
            asked = {number: Wanted(str(path), self._programs[number][0].trial - 1) for number, path in wanted}
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
