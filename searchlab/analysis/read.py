"""The logs of a directory as the cells of a comparison: workload x strategy x seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from ..errors import SearchlabError
from ..log import Log, find_logs, read_log
from ..trust import largest_drift
from ..workload import parse_workload
from .stats.curves import Floats, best_so_far, gflops

REPORT = "report"
"""Folder of what a report writes; logs under a folder of this name are never read."""

_STRATEGY = ("space", "fingerprint", "policy", "cost_model", "features", "batch", "warm_start")
_FOOTING = ("target", "measure")
_NOTED = ("host", "workers", "versions")


@dataclass(frozen=True)
class Cell:
    """One run of one strategy on one workload with one seed."""

    workload: str
    strategy: str
    log: Log
    file: str
    """Path of the log, relative to the directory it was read from."""

    @property
    def seed(self) -> int:
        return self.log.header.seed

    @cached_property
    def curve(self) -> Floats:
        """Best GFLOPS after each trial, 0 while all have failed: shape (trials,)."""
        return gflops(best_so_far(self.log.costs), self.log.flops)

    @property
    def elapsed(self) -> Floats:
        """Seconds charged up to the end of each trial: shape (trials,)."""
        return self.log.elapsed


Comparison = dict[str, dict[str, list[Cell]]]
"""workload -> strategy -> its cells by seed, each in alphabetical order."""


def read_cells(directory: Path) -> Comparison:
    """Every log under ``directory`` in its place.

    Raises SearchlabError where there is none, where one is unreadable, and where logs cannot stand side by
    side: two of one cell, one strategy's name for different things, or a workload measured in different ways.
    """
    if not directory.is_dir():
        raise SearchlabError(f"there is no directory {directory} to report on")
    paths = [p for p in find_logs(directory) if REPORT not in p.relative_to(directory).parts[:-1]]
    if not paths:
        raise SearchlabError(f"{directory} holds no log (*.jsonl); run a study there first, or name another directory")
    logs = [read_log(path) for path in paths]
    workloads = [_workload(log) for log in logs]
    spaces: dict[str, set[str]] = {}
    for workload, log in zip(workloads, logs, strict=True):
        spaces.setdefault(workload, set()).add(log.header.space_name)
    several = any(len(names) > 1 for names in spaces.values())
    comparison: Comparison = {}
    for workload, log in sorted(zip(workloads, logs, strict=True), key=lambda w: (w[0], _strategy(w[1], several))):
        cell = Cell(workload, _strategy(log, several), log, log.path.relative_to(directory).as_posix())
        comparison.setdefault(workload, {}).setdefault(cell.strategy, []).append(cell)
    for strategies in comparison.values():
        _check_footing([cell for cells in strategies.values() for cell in cells])
        for cells in strategies.values():
            cells.sort(key=lambda cell: cell.seed)
            _check_strategy(cells)
    return comparison


def _strategy(log: Log, several_spaces: bool) -> str:
    return f"{log.header.space_name} / {log.header.name}" if several_spaces else log.header.name


def _workload(log: Log) -> str:
    """The one spelling of the log's workload. Raises SearchlabError where it is none."""
    try:
        return str(parse_workload(log.header.workload))
    except SearchlabError as error:
        raise SearchlabError(f"{log.path} is damaged: {error}") from None


def _different(cells: Sequence[Cell], fields: Iterable[str]) -> tuple[str, Cell, Cell] | None:
    """The first header field in which two of ``cells`` differ, and those two."""
    for field in fields:
        for cell in cells[1:]:
            if _plain(cells[0], field) != _plain(cell, field):
                return field, cells[0], cell
    return None


def _plain(cell: Cell, field: str) -> Any:
    return msgspec.to_builtins(getattr(cell.log.header, field))


def _check_footing(cells: Sequence[Cell]) -> None:
    if found := _different(cells, _FOOTING):
        field, one, other = found
        raise SearchlabError(
            f"{one.file} and {other.file} measured {one.workload} in different ways: their {field} is "
            f"{_plain(one, field)} and {_plain(other, field)}; report on them in separate directories"
        )


def _check_strategy(cells: Sequence[Cell]) -> None:
    if found := _different(cells, _STRATEGY):
        field, one, other = found
        raise SearchlabError(
            f"{one.file} and {other.file} are both called {one.strategy!r}, but their {field} differs "
            f"({_plain(one, field)} and {_plain(other, field)}); give each a label of its own"
        )
    for one, other in pairwise(cells):
        if one.seed == other.seed:
            raise SearchlabError(
                f"{one.file} and {other.file} are two logs of one run: {one.strategy!r} on {one.workload} "
                f"with seed {one.seed}; move one of them away"
            )


DRIFT = 0.1
"""How much slower or faster the same program may become within a run before a report says so."""


def footing_notes(cells: Sequence[Cell]) -> list[str]:
    """What a reader should know of the logs of a workload, a sentence each: what differs between them, and how many
    trials were not measured, nor in the table; and whose runs are all the same.
    """
    notes = [
        f"The logs differ in their {found[0]} ({found[1].file} and {found[2].file}): compare seconds with care."
        for field in _NOTED
        if (found := _different(cells, (field,)))
    ]
    drifts = [(ratio, cell) for cell in cells if (ratio := largest_drift(cell.log)) is not None]
    if drifted := [(ratio, cell) for ratio, cell in drifts if abs(ratio - 1) > DRIFT]:
        ratio, cell = max(drifted, key=lambda found: abs(math.log(found[0])))
        most = "" if len(drifted) == 1 else f"{len(drifted)} of {len(drifts)} runs, most in "
        notes.append(
            f"The machine drifted during {most}{cell.file}: its first program once took {ratio:.2f} times as long."
        )
    shares = []
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        near = [record.nearest for cell in cells if cell.strategy == strategy for record in cell.log.records]
        if any(near):
            shares.append(f"{100 * sum(near) / len(near):.1f} % of the trials of {strategy}")
    if shares:
        notes.append(f"Not in the table, and answered by the nearest config in it: {', '.join(shares)}.")
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        runs = [cell.log.costs.tobytes() for cell in cells if cell.strategy == strategy]
        if len(runs) > 1 and len(set(runs)) == 1:
            notes.append(
                f"{strategy} is the same run from each of {len(runs)} seeds: its intervals and tests say nothing of "
                f"what another start would give."
            )
    return notes
