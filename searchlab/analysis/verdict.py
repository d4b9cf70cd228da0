"""Which strategy converges fastest, and whether that is more than the noise of the seeds, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .contrasts import seeds_needed
from .family import PageTests
from .measures import AREA, Reached, StrategySummary
from .model import Contrast
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

    If no test separates the leader from another strategy, "No winner" leads, and all that are tied with the leader are
    named. The measure is the median number of trials to ``target`` times the best known throughput, with its interval;
    where no strategy reaches this in most of its seeds, the measure is the area under the curve. ``in_start`` is a
    clause on what the first trials that two strategies share had found. What ``contrasts`` by area say of the leader is
    among the ``tests`` of the report. Another sentence names another strategy that leads in seconds. The verdict opens
    with "So far" where seeds differ in their trials, or where ``so_far`` says that a run has yet to begin.
    """
    if not rows:
        return "No trial has been measured yet."
    if all(row.best_gflops.upper == 0 for row in rows):
        return "No trial has succeeded: see the failures."
    if len(rows) == 1:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    so_far = so_far or not all(row.complete for row in rows)
    goal = f"{100 * target:g} % of the best known"
    names = [row.strategy for row in rows]
    reached = rows[0].trials_to_target.median is not None
    found = standing(names, contrasts, AREA, tests, by="by area under the curve " if reached else "")
    if not reached:
        first, second = (f"{row.area.median:.2f}" for row in rows[:2])
        leads = "has the largest area under the curve" if found.tied else "converges fastest by area under the curve"
        sentence = f"{names[0]} {leads} ({first}, {names[1]} {second})"
        said = f"{found.opening()}{found.says}. {sentence}." if found.tied else f"{sentence}; {found.says}."
        return f"{_so_far(said, so_far)} No strategy reaches {goal} in most of its seeds."
    sentence = _reaches(rows, goal, "trial", lambda row: row.trials_to_target) + in_start
    said = f"{found.opening()}{found.says}. {sentence}." if found.tied else f"{sentence}; {found.says}."
    said = _so_far(said, so_far)
    timed = sorted(rows, key=lambda row: _or_inf(row.seconds_to_target.median))
    if timed[0] is not rows[0]:
        reaches = _reaches(timed, "it", "s", lambda row: row.seconds_to_target)
        said += f" In seconds {reaches}."
    return said + "".join(f" {note}" for note in _without_interval(rows[:2]))


@dataclass(frozen=True)
class Standing:
    """What the contrasts of one measure say of the leader against the others.

    tied: those that no test separates from it. behind, ahead: those that one does. says: all this in a clause.
    """

    leader: str
    tied: list[str]
    behind: list[str]
    ahead: list[str]
    says: str

    def opening(self, over: str = "") -> str:
        """How a verdict opens if there is no winner. over: such as " over 3 workloads"."""
        if not self.behind:
            return f"No winner{over}: "
        return f"{self.leader} is tied with {listed(self.tied, None)}{over}: "


def standing(
    names: Sequence[str],
    contrasts: Sequence[Contrast],
    measure: str,
    tests: PageTests | None = None,
    *,
    by: str = "",
    unit: str = "seed",
) -> Standing:
    """What the contrasts of ``measure`` say of the leader, the first of ``names``.

    tests: of the report, to say how many seeds a rank test takes among them; None where the test is another. by: how
    the clause begins.
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
    without = [f"{listed(left_out, None)} ({why})" for why, left_out in sorted(untested.items(), reverse=True)]
    if not others:
        whom = "the difference" if len(names) == 2 else leader
        said = f"there is no test of {whom} ({about[names[1]].test})"
        return Standing(leader, list(names[1:]), [], [], said)
    behind = [name for name in others if about[name].ahead(leader, name)]
    ahead = [name for name in others if about[name].ahead(name, leader)]
    tied = [] if ahead else [name for name in others if name not in behind]
    if ahead:  # the leader has the better median, and these the better runs on the whole
        better = f"run against run {listed(ahead, None)} {'does' if len(ahead) == 1 else 'do'} better, significantly"
        said = f"yet {by}{better}, {_most(about[name] for name in ahead)}"
    elif tied:
        said = by + _no_difference(leader, tied, behind, about, unit, tests)
    else:
        whose = "the difference is" if len(others) == 1 else "its difference from each of the others is"
        said = f"{by}{whose} significant, {_most(about[name] for name in behind)}"
    said += f"; there is no test of {' and '.join(without)}" if without else ""
    return Standing(leader, tied, behind, ahead, said)


def _no_difference(
    leader: str,
    tied: Sequence[str],
    behind: Sequence[str],
    about: Mapping[str, Contrast],
    unit: str,
    tests: PageTests | None,
) -> str:
    """A clause on the strategies that no test separates from the leader. about: by strategy, its contrast with it."""
    runs = min(about[name].runs for name in tied)
    count = f"{runs} {unit}{'s' * (runs != 1)}"
    needed = min(seeds_needed(tests.level(leader, name)) for name in tied) if tests else 0
    these = "these" if len(tied) > 1 else tied[0]  # the opening has named them, if any is behind
    if tests and runs < needed:
        whom = f"it from {these}" if behind else f"{leader} from {listed(tied, None)}"
        several = f", with {tests.number} tests in this report" if tests.number > 1 else ""
        said = f"{count} cannot separate {whom} (a significant result needs at least {needed} seeds{several})"
    else:
        whom = f"from {these}" if behind else f"of {leader} from {listed(tied, None, 'or')}"
        values = [value for name in tied if (value := about[name].adjusted) is not None]
        least = f" ({_p(min(values), '=' if len(set(values)) == 1 else 'at least')})" if values else ""
        said = f"no difference {whom} is significant with {count}{least}"
    if behind:
        said += f"; {leader} is significantly ahead of {listed(behind)}, {_most(about[name] for name in behind)}"
    return said


def _so_far(said: str, so_far: bool) -> str:
    return f"So far, {said.replace('No winner', 'no winner', 1)}" if so_far else said


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
