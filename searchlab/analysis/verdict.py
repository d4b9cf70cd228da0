"""Which strategy converges fastest, and whether that is more than the noise of the seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .summary import Reached, StrategySummary

ENOUGH_SEEDS = 3


def ranked(rows: Sequence[StrategySummary]) -> list[StrategySummary]:
    """Fastest first: by median trials to the target, then by median area under the curve, then by name."""
    return sorted(rows, key=lambda row: (_or_inf(row.trials_to_target.median), -row.area.median, row.strategy))


def separable(ahead: Sequence[float], behind: Sequence[float]) -> bool:
    """Whether every seed of one strategy beats every seed of another; lower is better, infinity is censored.

    At least three seeds each are asked for: two equal strategies with two seeds each come out so, in a given
    order, once in C(4, 2) = 6 times by chance, with three seeds each once in C(6, 3) = 20. It errs on the
    side of saying nothing, the more so the more seeds there are.
    """
    return min(len(ahead), len(behind)) >= ENOUGH_SEEDS and max(ahead) < min(behind)


def verdict(rows: Sequence[StrategySummary], target: float, *, so_far: bool = False) -> str:
    """A sentence on the rows of one workload, as :func:`ranked` orders them.

    The measure is the median number of trials to ``target`` times the best known throughput. Where no
    strategy gets there in most of its seeds, it is the area under the curve. The leader is said to be
    separable from another strategy by the rule of :func:`separable`. Where another one leads in seconds, a
    second sentence says so. "So far" opens it where seeds differ in their trials, or where ``so_far`` says that
    a run has yet to begin.
    """
    if not rows:
        return "No trial has been measured yet."
    if all(row.best_gflops.upper == 0 for row in rows):
        return "No trial has succeeded: see the failures."
    if len(rows) == 1:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    opening = "So far, " if so_far or not all(row.complete for row in rows) else ""
    goal = f"{100 * target:g} % of the best known"
    if rows[0].trials_to_target.median is None:
        lead = f"{rows[0].strategy} converges fastest by area under the curve"
        return (
            f"{opening}{lead} ({rows[0].area.median:.2f}, {rows[1].strategy} {rows[1].area.median:.2f})"
            f"{_noise(rows, lambda row: [-area for area in row.area.by_seed])}; "
            f"no strategy reaches {goal} in most of its seeds."
        )
    reaches = f"{goal} after {_details(rows, 'trials', lambda row: row.trials_to_target)}"
    sentence = f"{opening}{rows[0].strategy} converges fastest in trials: {reaches}."
    timed = sorted(rows, key=lambda row: _or_inf(row.seconds_to_target.median))
    if timed[0] is not rows[0]:
        sentence += f" In seconds it is {timed[0].strategy}: {_details(timed, 's', lambda row: row.seconds_to_target)}."
    return sentence


def _details(rows: Sequence[StrategySummary], unit: str, measure: Callable[[StrategySummary], Reached]) -> str:
    first, second = (_took(measure(row), unit) for row in rows[:2])
    noise = _noise(rows, lambda row: [_or_inf(value) for value in measure(row).by_seed])
    return f"{first} in the median ({rows[1].strategy}: {second}){noise}"


def _took(measure: Reached, unit: str) -> str:
    if measure.median is None:
        return f"reached by {measure.reached} of {len(measure.by_seed)} seeds"
    return f"{measure.median:.{0 if measure.median >= 100 else 1}f} {unit}".replace(".0 ", " ")


def _noise(rows: Sequence[StrategySummary], values: Callable[[StrategySummary], list[float]]) -> str:
    rivals = [row for row in rows[1:] if not separable(values(rows[0]), values(row))]
    if not rivals:
        return ", and every seed of it is ahead of every seed of the others"
    names = [row.strategy for row in rivals[:3]]
    if len(rivals) > len(names):
        names.append(f"{len(rivals) - len(names)} more")
    listed = ", ".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
    if 1 < len(rivals) == len(rows) - 1:
        listed = "any other"
    seeds = min(len(row.seeds) for row in [rows[0], *rivals])
    why = f"with {seeds} seed{'s' * (seeds > 1)}" if seeds < ENOUGH_SEEDS else "as their seeds overlap"
    return f", but it is not separable from {listed} {why}"


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
