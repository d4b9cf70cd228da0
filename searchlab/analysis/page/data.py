"""The numbers that the script of the page draws, in few bytes: a page may hold hundreds of charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..charts.figures import Figure, Series, View, short
from ..charts.style import COLOURS
from ..runs import ComparedRuns, LoggedRun, WorkloadRuns

TRACED = "convergence"
"""The figure that shows each seed, too."""
PARTS = 10_000
"""A trace has its throughputs in this part of the best known."""


def page_data(
    names: Sequence[str], figures: Mapping[str, Sequence[Figure]], comparison: ComparedRuns
) -> dict[str, Any]:
    """What the script needs, as plain values. names: of the strategies; a line has its place among them.

    figures: by workload. Those of the workload with number n are under "n-" and their key.
    """
    place = {name: number for number, name in enumerate(names)}
    return {
        "strategies": names,
        "colours": len(COLOURS),
        "parts": PARTS,
        "figures": {
            f"{number}-{figure.key}": {
                "step": figure.step,
                "digits": figure.digits,
                "ends": figure.ends,
                "best": _best(comparison[workload]) if figure.key == TRACED else None,
                "traces": _traces(comparison[workload], place) if figure.key == TRACED else [],
                "views": {view.key: _view(view, place, step=figure.step) for view in figure.views},
            }
            for number, (workload, here) in enumerate(figures.items())
            for figure in here
        },
    }


def _view(view: View, place: Mapping[str, int], *, step: bool) -> dict[str, Any]:
    return {
        "label": view.label, "quantity": view.quantity, "log": view.log, "bottom": view.bottom, "top": view.top,
        "x": _numbers(view.x), "levels": [[level.y, level.name] for level in view.levels],
        "shade": [view.shade.end, view.shade.name] if view.shade else None,
        "series": [[place[series.strategy], *_line(series, step=step)] for series in view.series],
    }  # fmt: skip


def _line(series: Series, *, step: bool) -> list[list[Any] | None]:
    """Places, and at each the value and the ends of the band: every place with a value; of a step line only the first,
    the last, and those at which a value changes, each less the one before.
    """
    edges = [edge for edge in (series.y, series.lower, series.upper) if edge is not None]
    points = list(zip(*edges, strict=True))
    known = [at for at, y in enumerate(series.y) if y is not None]
    at = [i for i in known if not step or i in (known[0], known[-1]) or points[i] != points[i - 1]]
    values = [_numbers([edge[i] for i in at]) for edge in edges]
    return [[i - before for before, i in pairwise([0, *at])], *values]


def _numbers(values: Sequence[float | None]) -> list[float | None]:
    """Whole numbers without a point."""
    return [int(value) if value is not None and float(value).is_integer() else value for value in values]


def _best(item: WorkloadRuns) -> float | None:
    return short(item.best.gflops) if item.best else None


def _traces(item: WorkloadRuns, place: Mapping[str, int]) -> list[Any]:
    """For each strategy its place, and for each of its runs what :func:`_trace` gives; none while nothing is known."""
    if item.best is None:
        return []
    best = item.best.gflops
    return [[place[name], [_trace(run, best) for run in group.runs]] for name, group in item.strategies.items()]


def _trace(run: LoggedRun, best: float) -> list[Any]:
    """The trials at which the run found something faster, and its last trial, each less the one before; the throughput
    then in ``PARTS`` of ``best``; and the seconds then.
    """
    curve = run.curve
    at = [*np.flatnonzero(curve[1:] > curve[:-1]).tolist(), len(curve) - 2]  # one less than each
    if curve[0] > 0:
        at = [-1, *at]
    places = np.array(at) + 1
    trials = [place - before for before, place in pairwise([-2, *at])]
    parts = np.rint(curve[places] / best * PARTS).astype(np.int64).tolist()
    return [trials, parts, _numbers([short(seconds) for seconds in run.elapsed[places].tolist()])]
