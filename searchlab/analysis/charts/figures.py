"""Line charts as plain numbers: what the pictures, the page and ``figures.*`` show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..stats.curves import Floats

Ints = np.ndarray[Any, np.dtype[np.int64]]

BY_TRIALS, BY_SECONDS = "trials", "seconds"
"""Keys of the views of a figure against trials, and against seconds."""

AXES = ((BY_TRIALS, "trials"), (BY_SECONDS, "seconds of search and measurement"))
"""Those views with the labels of their x axes."""

POINTS = 200
"""Most points of a line. The line of a longer run is sampled at this many places."""

LOG_FROM = 100.0
"""Ratio of the last x to the first from which a logarithmic axis is the more readable."""


class Series(msgspec.Struct, frozen=True):
    """The line of one strategy: ``y`` at each ``x`` of the view, None where there is no line; and its band, if any."""

    strategy: str
    y: Sequence[float | None]
    lower: Sequence[float | None] | None = None
    upper: Sequence[float | None] | None = None


class Level(msgspec.Struct, frozen=True):
    """A horizontal line and its name."""

    y: float
    name: str


class Shade(msgspec.Struct, frozen=True):
    """A stretch of the x axis from its beginning to ``end``, and its name."""

    end: float
    name: str


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One way to draw a figure: ``x`` is common to its lines. label: of the x axis. name: of its button."""

    key: str
    name: str
    label: str
    x: list[float]
    series: list[Series]
    quantity: str
    levels: list[Level] = []
    bottom: float | None = None
    top: float | None = None
    """bottom, top: bounds of the y axis, None to fit the lines. In pictures 0 is always on the axis."""
    shade: Shade | None = None

    @property
    def log(self) -> bool:
        return len(self.x) > 1 and self.x[0] > 0 and self.x[-1] / self.x[0] >= LOG_FROM


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. brief: the line under the title of its picture. says: how to read the chart.

    step: whether lines are constant between points. digits: after the point. ends: whether the place where a line ends
    means something.
    """

    key: str
    title: str
    brief: str
    says: str
    views: list[View]
    step: bool = True
    digits: int = 2
    ends: bool = True


def places(last: int, most: int) -> list[int]:
    """1, ... ``last``; or ``most`` of them at most, closer together at the start, where lines rise."""
    if last <= most:
        return list(range(1, last + 1))
    return sorted({round(place) for place in np.geomspace(1, last, most).tolist()})


def eventful(changes: Ints, most: int) -> list[int]:
    """At most ``most`` + 2 places: the first, the last, and those where most happens.

    changes: how many lines change at each place. All places with a change are taken if there are no more than ``most``.
    Else the changes are divided into ``most`` stretches of about equal number, and the place with the most changes is
    taken from each.
    """
    places = np.flatnonzero(changes)
    if len(places) > most:
        counts = changes[places]
        stretch = (np.cumsum(counts) - counts) * most // counts.sum()
        order = np.lexsort((places, -counts, stretch))
        places = places[order[np.unique(stretch[order], return_index=True)[1]]]
    return sorted({0, len(changes) - 1, *places.tolist()})


def seconds_grid(first: float, last: float) -> Floats:
    """Places from ``first`` to ``last`` seconds, in equal steps or, where these are far apart, in equal ratios."""
    if first > 0 and last / first >= LOG_FROM:
        return np.geomspace(first, last, POINTS)
    return np.linspace(first, last, POINTS) if last > first else np.array([first])


def short(value: float) -> float:
    """With four significant digits."""
    return float(f"{value:.4g}")


def shorten(values: Floats) -> list[float]:
    every = values.tolist()
    shortened = {value: short(value) for value in set(every)}  # few: lines have steps
    return [shortened[value] for value in every]
