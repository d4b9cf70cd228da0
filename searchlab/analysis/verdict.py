"""The sentences in a report: which strategy converges fastest, whether this may be noise, and what the runs support."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .contrasts import PageTests, seeds_needed
from .measures import AREA, SECONDS, TRIALS, OverallStrategy, Reached, StrategySummary, interval_text
from .model import Contrast
from .stats.inference import ROPE, Answer, Difference, Equivalence
from .stats.intervals import Interval
from .stats.ranks import ALPHA
from .words import counted, listed, number_text, p_equals

DIGITS = 3  # after the decimal point, for differences of the area under the curve
WORDS = {
    "better": "better than",
    "worse": "worse than",
    "level": "level with",
    "undecided": "not distinguishable from",
    "untested": "not tested against",
}
"""The words for each verdict on a contrast, which follow "is" in a sentence."""


def ranked(rows: Sequence[StrategySummary]) -> list[StrategySummary]:
    """Sort strategies by median trials to the target, then by median area under the curve, then by name."""
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
    """Return the verdict on one workload.

    If the leader is not significantly better than any other strategy, the verdict begins with "No winner"; if it is
    better than only some, the verdict begins with the strategies that are tied with it. The first two strategies are
    compared by median trials to the target or, if no strategy reaches the target with most of its seeds, by median area
    under the curve. If another strategy leads in seconds, a further sentence states this.

    Args:
        rows: The strategies in the order of :func:`ranked`.
        contrasts: The contrasts on the workload, of which only those by area are used.
        target: The fraction of the best known throughput that counts as converged.
        tests: The report's tests.
        in_start: A clause about seeds that reached the target during the random start that two strategies share.
        so_far: Whether some runs have not begun yet. If so, the verdict begins with "So far", as it does if seeds have
            different numbers of trials.
    """
    if not rows:
        return "No trials have been measured yet."
    if all(row.best_gflops.upper == 0 for row in rows):
        return "No trials have succeeded: see the failures."
    if len(rows) == 1:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    so_far = so_far or not all(row.complete for row in rows)
    goal = f"{100 * target:g} % of the best known"
    names = [row.strategy for row in rows]
    reached = rows[0].trials_to_target.median is not None
    comparison = standing(names, contrasts, AREA, tests, by="by area under the curve, " if reached else "")
    if reached:
        sentence = _reaches(rows, goal, "trial", TRIALS) + in_start
    else:
        first, second = (number_text(row.area.median, DIGITS) for row in rows[:2])
        leads = "has the largest median area" if comparison.tied else "converges fastest by median area"
        sentence = f"{names[0]} {leads} under the curve ({first}, compared with {second} for {names[1]})"
    text = (
        f"{comparison.opening()}{comparison.says}. {sentence}."
        if comparison.tied
        else f"{sentence}; {comparison.says}."
    )
    text = f"So far, {text.replace('No winner', 'no winner', 1)}" if so_far else text
    if not reached:
        return f"{text} No strategy reaches {goal} in most of its seeds."
    timed = sorted(rows, key=lambda row: _or_inf(row.seconds_to_target.median))
    if timed[0] is not rows[0]:
        reaches = _reaches(timed, "the target", "s", SECONDS)
        text += f" In terms of time, {reaches}."
    medians = [row.trials_to_target for row in rows[:2] if not row.one_run and row.trials_to_target.median is not None]
    return " ".join([text, *dict.fromkeys(median.note for median in medians if median.note)])


def over_all(
    rows: Sequence[OverallStrategy],
    contrasts: Sequence[Contrast],
    workloads: int,
    answered: Collection[frozenset[str]],
    *,
    so_far: bool,
) -> str:
    """Return the verdict over all workloads, without the claims about the first two strategies.

    Args:
        rows: The strategies, largest mean area first.
        contrasts: The contrasts of all pairs of strategies by area.
        workloads: The number of workloads.
        answered: The registered pairs, on which the report already has an answer.
        so_far: Whether some runs have not begun or ended yet.
    """
    names = [row.strategy for row in rows]
    first, second = (f"{number_text(row.area.value, DIGITS)}{interval_text(row.area, DIGITS)}" for row in rows[:2])
    areas = f"{first}, compared with {second} for {names[1]}"
    rest = [name for name in names if frozenset((names[0], name)) not in answered]
    over = f"across {counted(workloads, 'workload')}"
    opening = ["So far,"] * so_far + ["apart from the registered contrasts,"] * bool(answered and rest[1:])
    if not rest[1:]:
        text = f"{over}, {names[0]} has the largest mean area under the curve ({areas})."
    else:
        result = standing(rest, contrasts, AREA, by="on these workloads, ", unit="run", others=not answered)
        if result.tied:
            tied = result.opening(f" {over}", none=not answered)
            text = f"{tied}{result.says}. By mean area under the curve, {names[0]} leads with {areas}."
        else:
            text = f"{over}, {names[0]} converges fastest by mean area under the curve ({areas}); {result.says}."
    text = " ".join([*opening, text.replace("No winner", "no winner", 1) if opening else text])
    return text if text.startswith(names[0]) else text[0].upper() + text[1:]


@dataclass(frozen=True)
class Standing:
    """The comparison of the leader with the other strategies by one measure."""

    leader: str
    tied: list[str]  # strategies that no test separates from the leader
    behind: list[str]
    says: str  # a clause that states all of this

    def opening(self, over: str = "", *, none: bool = True) -> str:
        """Return the beginning of a verdict that has no winner.

        Args:
            over: A phrase such as " across 3 workloads".
            none: Whether to state that there is no winner at all if no strategy is behind.
        """
        if none and not self.behind:
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
    others: bool = True,
) -> Standing:
    """Compare the leader, the first of ``names``, with the others by ``measure``.

    Args:
        names: The names of the strategies.
        contrasts: The contrasts by all measures.
        measure: The measure to compare by.
        tests: The report's tests, used to state how many seeds a rank test needs, or None for other tests.
        by: Words for the beginning of the clause.
        unit: The noun for what a test counts, such as "seed".
        others: Whether ``names`` contains all strategies.
    """
    leader = names[0]
    about = {
        name: next(c for c in contrasts if c.measure == measure and {c.first, c.second} == {leader, name})
        for name in names[1:]
    }
    compared = [name for name in names[1:] if about[name].p is not None]
    untested: dict[str, list[str]] = {}
    for name, contrast in about.items():
        if contrast.p is None:
            untested.setdefault(contrast.test, []).append(name)
    without = [f"{listed(left_out, None)} ({why})" for why, left_out in sorted(untested.items(), reverse=True)]
    if not compared:
        subject = "the difference" if others and len(names) == 2 else leader
        clause = f"there is no test of {subject} ({about[names[1]].test})"
        return Standing(leader, list(names[1:]), [], clause)
    behind = [name for name in compared if about[name].ahead(leader, name)]
    ahead = [name for name in compared if about[name].ahead(name, leader)]
    tied = [] if ahead else [name for name in compared if name not in behind]
    if ahead:  # the leader has the better median, but these have better runs overall
        better = f"{listed(ahead, None)} {'is' if len(ahead) == 1 else 'are'} significantly better, run for run"
        clause = f"yet {by}{better}, {_most(about[name] for name in ahead)}"
    elif tied:
        clause = by + _no_difference(leader, tied, behind, about, unit, tests)
    else:
        each = f"each of {'the others' if others else listed(behind, None)}" if len(behind) > 1 else behind[0]
        subject = "the difference" if others and len(behind) == 1 else f"its difference from {each}"
        clause = f"{by}{subject} is significant, {_most(about[name] for name in behind)}"
    clause += f"; there is no test of {' and '.join(without)}" if without else ""
    return Standing(leader, tied, behind, clause)


def _no_difference(
    leader: str,
    tied: Sequence[str],
    behind: Sequence[str],
    about: Mapping[str, Contrast],
    unit: str,
    tests: PageTests | None,
) -> str:
    """Return a clause about the ``tied`` strategies, given each strategy's contrast with the leader."""
    runs = min(about[name].runs for name in tied)
    count = counted(runs, unit)
    correction = min(tests.correction(leader, name) for name in tied) if tests else 1
    needed = seeds_needed(ALPHA / correction)
    these = "these" if len(tied) > 1 else tied[0]  # if any strategy is behind, the opening lists the tied ones
    if tests and runs < needed:
        subject = f"it from {these}" if behind else f"{leader} from {listed(tied, None)}"
        several = f", corrected for {correction} tests" if correction > 1 else ""
        clause = f"{count} cannot separate {subject} (a significant result needs at least {needed} seeds{several})"
    else:
        subject = f"between {leader} and {these if behind else listed(tied, None, 'or')}"
        values = [value for name in tied if (value := about[name].adjusted) is not None]
        least = f" ({_p(min(values), '=' if len(set(values)) == 1 else 'at least')})" if values else ""
        clause = f"no difference {subject} is significant with {count}{least}"
    if behind:
        clause += f"; {leader} is significantly ahead of {listed(behind)}, {_most(about[name] for name in behind)}"
    return clause


def _most(about: Iterable[Contrast]) -> str:
    """Format the largest corrected p-value of the contrasts."""
    values = [contrast.adjusted for contrast in about if contrast.adjusted is not None]
    return _p(max(values), "=" if len(values) == 1 else "at most")


def _p(value: float, relation: str) -> str:
    return "p < 0.001" if value < 0.001 else f"p {relation} {value:.{1 if value < 0.01 else 2}g}"


def _reaches(rows: Sequence[StrategySummary], goal: str, unit: str, measure: str) -> str:
    first, second = (_took(row.values[measure], unit) for row in rows[:2])
    return f"{rows[0].strategy} reaches {goal} in {first}, compared with {second} for {rows[1].strategy}"


def _took(measure: Reached, unit: str) -> str:
    """Format the median with its interval, if it has one, such as "21 trials [18, 26]"."""
    seeds = len(measure.by_seed)
    if measure.median is None:
        return f"{measure.reached} of {seeds} seeds"
    shown = _number(measure.median)
    plural = "s" * (unit == "trial" and shown != "1")
    upper = "not reached" if measure.upper is None else _number(measure.upper)
    interval = "" if measure.note else f" [{_number(_or_inf(measure.lower))}, {upper}]"
    return f"{shown} {unit}{plural}{interval}"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 1 else f"{value:.{0 if value >= 100 else 1}f}".removesuffix(".0")


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def claims(first: str, second: str, difference: Difference) -> list[str]:
    """Return a sentence for each claim, narrowest first, or the reason why the runs do not support the claim.

    The p-values of ``difference`` are corrected within their families, but its intervals are not.
    """
    if not difference.workloads:
        return [difference.on_these.difference.note]
    value = difference.value
    more = f"{number_text(abs(value), DIGITS)} {'above' if value > 0 else 'below'}" if round(value, DIGITS) else ""
    over = " on the workload" if difference.workloads == 1 else f", on average across {difference.workloads} workloads"
    counts = [("higher", difference.ahead), ("the same", difference.level), ("lower", difference.behind)]
    tally = ", ".join(f"{word} on {number}" for word, number in counts if number)
    return [
        f"In these runs, the area under the curve of {first} is {more or 'the same as'} that of {second}"
        f"{over} ({tally}).",
        _answer("On these workloads,", difference.on_these, first, second),
        _answer(_others(difference), difference.on_others, first, second),
    ]


def _others(difference: Difference) -> str:
    """Return the opening phrase of a claim about other workloads."""
    if not difference.clusters:
        return "On workloads like these, if these are a fair sample of them,"
    return (
        f"On other devices, for these {difference.clusters} kernels, if these devices are a fair sample (for other "
        f"kernels, {difference.clusters} are too few to tell),"
    )


def headline(first: str, second: str, difference: Difference) -> str:
    """Return the sentence for the widest of the :func:`claims` that the runs support."""
    answers = difference.on_these, difference.on_others
    sentence, *wider = claims(first, second, difference)
    supported = [claim for claim, answer in zip(wider, answers, strict=False) if answer.p is not None]
    return [sentence, *supported][-1]


def equivalence_claim(first: str, second: str, equivalence: Equivalence, rope: float) -> str:
    """Return a sentence with the result of the Bayesian signed-rank test."""
    return (
        f"The probability that {first} is better than {second} by more than {number_text(rope)} is "
        f"{equivalence.better:.2f}, the probability that it is worse by more than that is {equivalence.worse:.2f}, "
        f"and the probability that they are practically the same is {equivalence.same:.2f}."
    )


def _answer(where: str, answer: Answer, first: str, second: str) -> str:
    interval = answer.difference
    if interval.lower is None or interval.upper is None or answer.p is None:
        return interval.note
    ends = f"95 % interval {_ends(interval)}; corrected {p_equals(answer.p)}"
    return f"{where} {first} minus {second} is {number_text(interval.value, DIGITS)} ({ends})."


def _ends(interval: Interval) -> str:
    return f"{number_text(interval.lower, DIGITS)} to {number_text(interval.upper, DIGITS)}"


def answer_word(difference: Difference) -> str:
    """Return the ``verdict`` of a :class:`~searchlab.analysis.model.ContrastAnswer`."""
    p_values = [answer.p for answer in (difference.on_these, difference.on_others) if answer.p is not None]
    if not p_values:
        return "untested"
    if min(p_values) <= ALPHA:
        return "better" if difference.value > 0 else "worse"
    lower, upper = difference.on_these.difference.lower, difference.on_these.difference.upper
    return "level" if lower is not None and upper is not None and max(-lower, upper) <= ROPE else "undecided"


def answer(first: str, second: str, word: str, difference: Difference) -> str:
    """Return the answer to a registered contrast: the effect, its interval, and the p-values of its tests, if any."""
    interval = difference.on_these.difference
    ends = "" if interval.lower is None else f", 95 % interval {_ends(interval)}"
    these = "this workload" if difference.workloads == 1 else f"these {difference.workloads} workloads"
    others = "for these kernels on other devices" if difference.clusters else "on workloads like these"
    tested = [(f"on {these}", difference.on_these), (others, difference.on_others)]
    p = "; ".join(f"{p_equals(answer.p)} {where}" for where, answer in tested if answer.p is not None)
    return (
        f"{first} is {WORDS[word]} {second}: area under the curve {signed(difference.value)}{ends}"
        f"{f'; {p}' if p else f'. {interval.note}'.removesuffix('.')}."
    )


def signed(value: float) -> str:
    """Format a difference in area with its sign, which is a plus for zero."""
    return f"{value:+z.{DIGITS}f}"
