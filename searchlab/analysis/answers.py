"""The answers to the registered contrasts, which a report gives before anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .claims import DIGITS
from .family import Key
from .measures import AREA
from .model import PAIRED_T, ContrastAnswer, WorkloadSummary
from .overall import OTHERS, Together, paired_areas
from .stats.bayes import ROPE
from .stats.inference import Difference, paired_difference
from .stats.ranks import ALPHA
from .words import number_text, p_equals

WORDS = {
    "better": "better than", "worse": "worse than", "level": "level with",
    "undecided": "not distinguishable from", "untested": "not tested against",
}  # fmt: skip
"""Each verdict as it follows "is"."""


def answers(
    registered: Sequence[tuple[str, str]],
    workloads: Sequence[WorkloadSummary],
    together: Together | None,
    adjusted: Mapping[Key, float],
) -> list[ContrastAnswer]:
    """The answer to each registered contrast.

    Args:
        registered: The contrasts, in the order of the study.
        workloads: Each workload, with its contrasts corrected.
        together: The strategies over all workloads. If there is one workload, its own test answers. Contrasts between
            strategies that did not run on all of several workloads are left out: those workloads answer by themselves.
        adjusted: The p-values of all tests, corrected.
    """
    found = []
    for first, second in registered:
        if together is not None:
            difference = _over_all(first, second, together, adjusted)
        else:
            difference = _alone(first, second, workloads[0]) if len(workloads) == 1 else None
        if difference is not None:
            word = verdict_of(difference)
            found.append(ContrastAnswer(first, second, word, sentence(first, second, word, difference), difference))
    return found


def verdict_of(difference: Difference) -> str:
    """The ``verdict`` of a :class:`~searchlab.analysis.model.ContrastAnswer`."""
    known = difference.on_these, difference.on_others
    if all(answer.p is None for answer in known):
        return "untested"
    if any(answer.p is not None and answer.p <= ALPHA for answer in known):
        return "better" if difference.value > 0 else "worse"
    lower, upper = difference.on_these.difference.lower, difference.on_these.difference.upper
    inside = lower is not None and upper is not None and max(-lower, upper) <= ROPE
    return "level" if inside else "undecided"


def sentence(first: str, second: str, word: str, difference: Difference) -> str:
    """One sentence with the effect, the interval, and p in each form that the runs can carry."""
    interval = difference.on_these.difference
    ends = ""
    if interval.lower is not None and interval.upper is not None:
        ends = f", 95 % interval {number_text(interval.lower, DIGITS)} to {number_text(interval.upper, DIGITS)}"
    these = "this workload" if difference.workloads == 1 else f"these {difference.workloads} workloads"
    tested = [(f"on {these}", difference.on_these), ("on workloads like these", difference.on_others)]
    p = "; ".join(f"{p_equals(answer.p)} {where}" for where, answer in tested if answer.p is not None)
    return (
        f"{first} is {WORDS[word]} {second}: area under the curve {signed(difference.value)}{ends}"
        f"{f'; {p}' if p else f'. {interval.note}'.removesuffix('.')}."
    )


def signed(value: float) -> str:
    """A difference of areas with its sign; zero has a plus."""
    return f"{value:+z.{DIGITS}f}"


def _over_all(first: str, second: str, together: Together, adjusted: Mapping[Key, float]) -> Difference | None:
    for pair in ((first, second), (second, first)):
        if pair in together.differences:
            found = together.differences[pair]
            found = replace(
                found,
                on_these=replace(found.on_these, p=adjusted.get(("", PAIRED_T, *pair))),
                on_others=replace(found.on_others, p=adjusted.get(("", OTHERS, *pair))),
            )
            return found if pair == (first, second) else found.reversed()
    return None


def _alone(first: str, second: str, item: WorkloadSummary) -> Difference | None:
    rows = item.by_strategy
    if not {first, second} <= rows.keys():
        return None
    contrast = next(c for c in item.contrasts if c.measure == AREA and {c.first, c.second} == {first, second})
    found = paired_difference(*paired_areas([rows[first]], [rows[second]]))
    return replace(found, on_these=replace(found.on_these, p=contrast.adjusted))
