"""The three answers on two strategies, in words: in these runs, on these workloads, on workloads like these."""

from __future__ import annotations

from .stats.bayes import Equivalence
from .stats.inference import Answer, Difference
from .words import number_text, p_equals

DIGITS = 3
"""After the point, of differences of the area under the curve."""


def claims(first: str, second: str, difference: Difference, measure: str = "area under the curve") -> list[str]:
    """Three sentences, the narrowest claim first. Where the runs cannot carry a claim, its sentence says why.

    difference: its p-values are corrected for all tests of a report; its intervals are of this difference alone.
    """
    if not difference.workloads:
        return [difference.on_these.difference.note]
    over = "the workload" if difference.workloads == 1 else f"{difference.workloads} workloads"
    return [
        f"In these runs the {measure} of {first} is {_more(difference.value)} that of {second}, on average over "
        f"{over} ({_tally(difference)}).",
        _answer("On these workloads", difference.on_these, first, second),
        _answer("On workloads like these, if these are a fair sample of them,", difference.on_others, first, second),
    ]


def headline(first: str, second: str, difference: Difference, measure: str = "area under the curve") -> str:
    """The widest of :func:`claims` that the runs can carry."""
    answers = difference.on_these, difference.on_others
    sentence, *wider = claims(first, second, difference, measure)
    carried = [said for said, answer in zip(wider, answers, strict=False) if answer.p is not None]
    return [sentence, *carried][-1]


def equivalence_claim(first: str, second: str, found: Equivalence, rope: float) -> str:
    """The Bayesian signed-rank test, in a sentence."""
    return (
        f"The probability that {first} is better than {second} by more than {number_text(rope)} is "
        f"{found.better:.2f}, that it is worse by more than that {found.worse:.2f}, and that they are practically the "
        f"same {found.same:.2f}."
    )


def _answer(where: str, answer: Answer, first: str, second: str) -> str:
    interval = answer.difference
    if interval.lower is None or interval.upper is None or answer.p is None:
        return interval.note
    ends = f"{number_text(interval.lower, DIGITS)} to {number_text(interval.upper, DIGITS)}"
    value = number_text(interval.value, DIGITS)
    return f"{where} {first} less {second} is {value} (95 % interval {ends}; corrected {p_equals(answer.p)})."


def _more(value: float) -> str:
    if not round(value, DIGITS):
        return "the same as"
    return f"{number_text(abs(value), DIGITS)} {'above' if value > 0 else 'below'}"


def _tally(difference: Difference) -> str:
    parts = [("higher", difference.ahead), ("the same", difference.level), ("lower", difference.behind)]
    return ", ".join(f"{word} on {number}" for word, number in parts if number)
