"""Which strategy converges fastest, and whether that is more than the noise of the seeds, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from .contrasts import seeds_needed
from .family import PageTests
from .model import AREA, Contrast, Reached, StrategySummary
from .words import listed


def ranked(rows: Sequence[StrategySummary]) -> list[StrategySummary]:
    """Fastest first: by median trials to the target, then by median area under the curve, then by name."""
    return sorted(rows, key=lambda row: (_or_inf(row.trials_to_target.median), -row.area.median, row.strategy))


def verdict(
    rows: Sequence[StrategySummary],
    contrasts: Sequence[Contrast],
    target: float,
    tests: PageTests,
    *,
    in_start: str = "",
    so_far: bool = False,
) -> str:
    """A sentence on the rows of one workload, as :func:`ranked` orders them.

    The measure is the median number of trials to ``target`` times the best known throughput, with its interval; where
    no strategy reaches this in most of its seeds, the measure is the area under the curve. Then come ``in_start``, a
    clause on what the first trials that two strategies share had found, and what ``contrasts`` by area say of the
    leader; they are among the ``tests`` of the report. A second sentence names another strategy that leads in seconds.
    The verdict opens with "So far" where seeds differ in their trials, or where ``so_far`` says that a run has yet to
    begin.
    """
    if not rows:
        return "No trial has been measured yet."
    if all(row.best_gflops.upper == 0 for row in rows):
        return "No trial has succeeded: see the failures."
    if len(rows) == 1:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    opening = "So far, " if so_far or not all(row.complete for row in rows) else ""
    goal = f"{100 * target:g} % of the best known"
    names = [row.strategy for row in rows]
    if rows[0].trials_to_target.median is None:
        first, second = (f"{row.area.median:.2f}" for row in rows[:2])
        return (
            f"{opening}{names[0]} converges fastest by area under the curve ({first}, {names[1]} {second}); "
            f"{significance(names, contrasts, AREA, tests)}. No strategy reaches {goal} in most of its seeds."
        )
    sentence = f"{opening}{_reaches(rows, goal, 'trial', lambda row: row.trials_to_target)}" + in_start
    sentence += f"; {significance(names, contrasts, AREA, tests, by='by area under the curve')}."
    timed = sorted(rows, key=lambda row: _or_inf(row.seconds_to_target.median))
    if timed[0] is not rows[0]:
        reaches = _reaches(timed, "it", "s", lambda row: row.seconds_to_target)
        sentence += f" In seconds {reaches}."
    return sentence + "".join(f" {note}" for note in _without_interval(rows[:2]))


def significance(
    names: Sequence[str],
    contrasts: Sequence[Contrast],
    measure: str,
    tests: PageTests | None = None,
    *,
    by: str = "",
    unit: str = "seed",
) -> str:
    """A clause: what the contrasts of ``measure`` say of the leader, the first of ``names``, against the others.

    tests: of the report, to say how many seeds a rank test takes among them; None where the test is another. by: how
    the clause names the measure, if at all.
    """
    leader = names[0]
    about = {
        name: next(c for c in contrasts if c.measure == measure and {c.first, c.second} == {leader, name})
        for name in names[1:]
    }
    others = [name for name in names[1:] if about[name].p is not None]
    untested: dict[str, list[str]] = {}
    for name, contrast in about.items():
        if contrast.p is None:
            untested.setdefault(contrast.test, []).append(name)
    without = [f"{listed(left_out)} ({why})" for why, left_out in sorted(untested.items(), reverse=True)]
    if not others:
        if len(names) == 2:
            return f"there is no test of the difference ({about[names[1]].test})"
        return f"there is no test of {leader} ({about[names[1]].test})"
    said = _difference(leader, others, about, unit, tests, f"{by} " if by else "")
    return f"{said}; there is no test of {' and '.join(without)}" if without else said


def _difference(
    leader: str, others: Sequence[str], about: Mapping[str, Contrast], unit: str, tests: PageTests | None, by: str
) -> str:
    """A clause on the ``others`` that the leader was tested against. about: by them, the contrasts with the leader."""
    behind = [name for name in others if about[name].ahead(leader, name)]
    ahead = [name for name in others if about[name].ahead(name, leader)]
    level = [name for name in others if name not in behind and name not in ahead]
    if ahead:  # the leader has the better median, and these the better runs on the whole
        better = f"run against run {listed(ahead)} {'does' if len(ahead) == 1 else 'do'} better, significantly"
        return f"yet {by}{better}, {_most(about[name] for name in ahead)}"
    if not level:
        whose = "the difference is" if len(others) == 1 else "its difference from each of the others is"
        return f"{by}{whose} significant, {_most(about[name] for name in behind)}"
    runs = min(about[name].runs for name in level)
    can = f"that {runs} {unit}{'s' * (runs != 1)} can show"
    needed = min(seeds_needed(tests.level(leader, name)) for name in level) if tests else 0
    if tests and runs < needed:
        one = f"one of {tests.number} tests" if tests.number > 1 else "it"
        can += f" ({one} takes {needed} at the least)"
    elif len(level) == 1:
        can += f" ({_most([about[level[0]]])})"
    if behind:
        than = f"a significant one from {listed(behind)}, {_most(about[name] for name in behind)}"
        return f"{by}no difference from {listed(level)} {can}, {than}"
    return f"{by}no difference {can}" if len(others) == 1 else f"{by}no difference from any other {can}"


def _most(about: Iterable[Contrast]) -> str:
    """The largest p-value of some contrasts."""
    values = [contrast.adjusted for contrast in about if contrast.adjusted is not None]
    return _p(max(values), "=" if len(values) == 1 else "at most")


def _p(value: float, relation: str = "=") -> str:
    return (
        "p < 0.001" if value < 0.001 else f"p {relation} {value:.1g}" if value < 0.01 else f"p {relation} {value:.2g}"
    )


def _reaches(
    rows: Sequence[StrategySummary], goal: str, unit: str, measure: Callable[[StrategySummary], Reached]
) -> str:
    first, second = (f"in {_took(measure(row), unit)}" for row in rows[:2])
    return f"{rows[0].strategy} reaches {goal} {first}, {rows[1].strategy} {second}"


def _took(measure: Reached, unit: str) -> str:
    """ "21 trials [18, 26]": the median and its interval, if it has one; its upper end may lie beyond all runs."""
    seeds = len(measure.by_seed)
    if measure.median is None:
        return f"{measure.reached} of {seeds} seeds"
    shown = _number(measure.median)
    plural = "s" * (unit == "trial" and shown != "1")
    upper = "not reached" if measure.upper is None else _number(measure.upper)
    interval = "" if measure.note else f" [{_number(_or_inf(measure.lower))}, {upper}]"
    return f"{shown} {unit}{plural}{interval}"


def _without_interval(rows: Sequence[StrategySummary]) -> list[str]:
    """Why the medians of trials that were said have no interval, each sentence once; of those that have a median."""
    measures = [row.trials_to_target for row in rows if not row.one_run]
    return list(dict.fromkeys(m.note for m in measures if m.median is not None and m.note))


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 1 else f"{value:.{0 if value >= 100 else 1}f}".removesuffix(".0")


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
