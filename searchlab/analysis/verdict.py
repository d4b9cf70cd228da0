"""The sentences in a report: which strategy leads, whether this may be noise, and what the runs support.

Each sentence is a fixed text in which facts are filled in; tables and JSON contain the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ..stats.inference import ROPE, Difference
from ..stats.intervals import Interval
from ..stats.ranks import ALPHA
from .contrasts import PageTests, seeds_needed
from .measures import OverallStrategy, StrategySummary
from .model import Comparand, Contrast, Outcome, Standing
from .words import counted, listed, number_text, p_equals, p_text

SO_FAR = "Some runs are not complete, so this may change."
DIGITS = 3  # after the decimal point, for differences of the area under the curve
WORDS = {
    "better": "better than",
    "worse": "worse than",
    "level": "level with",
    "undecided": "not distinguishable from",
    "untested": "not tested against",
}
"""The words for each verdict on a contrast, which follow "is" in a sentence."""

STANDINGS = {
    Outcome.AHEAD: "{leader} is significantly better than {behind}{over} by {measure} ({p_behind}).",
    Outcome.AHEAD_OF_SOME: "{leader} is first{over} by {measure}: it is significantly better than {behind} "
    "({p_behind}), but cannot be told apart from {undecided} ({p_undecided}).",
    Outcome.UNDECIDED: "No winner{among}{over}: {leader} cannot be told apart from {undecided} by {measure} "
    "({p_undecided}).",
    Outcome.TOO_FEW_SEEDS: "No winner{among}{over}: {leader} cannot be told apart from {undecided} by {measure} with "
    "{seeds}; a significant difference needs at least {seeds_needed}.",
    Outcome.CONTRADICTED: "No winner{among}{over}: {leader} has the largest mean area, but {better} is significantly "
    "better in a test of ranks ({p_better}).",
    Outcome.UNTESTED: "No winner{among}{over}.",
}
"""The sentence for each outcome of the tests."""


def compare_leader(leader: str, contrasts: Sequence[Contrast], tests: PageTests | None = None) -> Standing:
    """Compare the leading strategy with the others by area.

    Args:
        leader: The name of the strategy, which is the first in its contrasts.
        contrasts: The contrasts, with corrected p-values.
        tests: The report's tests, to state how many seeds a rank test needs, or None for other tests.
    """
    better, behind, undecided = dict[str, float](), dict[str, float](), dict[str, float]()
    untested: dict[str, str] = {}
    by_opponent = {contrast.second: contrast for contrast in contrasts if contrast.first == leader}
    for name, contrast in by_opponent.items():
        if contrast.adjusted is None:
            untested[name] = contrast.test
            continue
        group = behind if contrast.ahead(leader, name) else better if contrast.ahead(name, leader) else undecided
        group[name] = contrast.adjusted
    runs = min((by_opponent[name].runs for name in undecided), default=0)
    corrections = [tests.correction(leader, name) for name in undecided] if tests else []
    minimum = seeds_needed(ALPHA / min(corrections)) if corrections else 0
    return Standing(
        leader=leader,
        better=better,
        behind=behind,
        undecided=undecided,
        untested=untested,
        seeds=runs,
        seeds_needed=minimum if runs < minimum else None,
    )


def standing_sentences(standing: Standing, measure: str, over: str = "") -> list[str]:
    """Return sentences about the leader's standing by ``measure``, with a phrase such as " across 3 workloads"."""
    strategies = {standing.leader, *standing.better, *standing.behind, *standing.undecided, *standing.untested}
    facts = {
        "leader": standing.leader,
        "among": f" among {len(strategies)} strategies" * (len(strategies) > 2),
        "measure": measure,
        "over": over,
        "better": listed([*standing.better], None),
        "behind": listed([*standing.behind]),
        "undecided": listed([*standing.undecided], None),
        "p_better": _p(standing.better, max),
        "p_behind": _p(standing.behind, max),
        "p_undecided": _p(standing.undecided, min),
        "seeds": counted(standing.seeds, "seed"),
        "seeds_needed": standing.seeds_needed,
    }
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in standing.untested.items():
        names_by_reason.setdefault(reason, []).append(name)
    reasons = [
        f"There is no test of {standing.leader} against {listed(names, None)} ({reason})."
        for reason, names in names_by_reason.items()
    ]
    return [STANDINGS[standing.outcome].format_map(facts), *reasons]


def _p(p: Mapping[str, float], bound: Callable[[Collection[float]], float]) -> str:
    """Format the largest or smallest of the corrected p-values."""
    value = bound(p.values()) if p else 1.0
    exact = len(set(p.values())) == 1 or value < 0.001
    return p_equals(value) if exact else f"p at {'most' if bound is max else 'least'} {p_text(value)}"


def verdict(
    rows: Sequence[StrategySummary] | Sequence[OverallStrategy],
    standing: Standing | None,
    area: str,
    over: str = "",
    *,
    so_far: bool,
) -> str:
    """Return the verdict: the leader's standing by area, and the mean areas of the first two strategies.

    Args:
        rows: The strategies, largest mean area first.
        standing: The leader's standing, or None if there is only one strategy.
        area: The name of the area by which strategies are compared.
        over: A phrase such as " across 3 workloads".
        so_far: Whether some runs have not begun or ended yet.
    """
    if not rows:
        return "No trials have been measured yet."
    if all(row.area.value == 0 for row in rows):
        return "No trials have succeeded: see the failures."
    if standing is None:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    areas = [f"{row.strategy} {row.area.text()}" for row in rows[:2]]
    sentences = [*standing_sentences(standing, area, over), f"Mean {area.removeprefix('mean ')}: {', '.join(areas)}."]
    return " ".join([*sentences, SO_FAR] if so_far else sentences)


def tally(difference: Difference | Comparand) -> str:
    """Return on how many workloads the first strategy is better and worse."""
    return f"better on {difference.ahead} of {counted(difference.workloads, 'workload')}, worse on {difference.behind}"


def effect_text(difference: Interval) -> str:
    """Format a difference in area with its interval: "+0.039, uncorrected 95 % interval 0.033 to 0.045"."""
    ends = (number_text(end, DIGITS) for end in (difference.lower, difference.upper) if end is not None)
    return ", uncorrected 95 % interval ".join(filter(None, [signed(difference.value), " to ".join(ends)]))


def answer_word(contrast: Contrast) -> str:
    """Return the ``verdict`` of a :class:`~searchlab.analysis.model.ContrastAnswer`."""
    difference = contrast.difference
    p_values = [answer.p for answer in (difference.on_these, difference.on_others) if answer.p is not None]
    if not p_values:
        return "untested"
    if min(p_values) <= ALPHA and contrast.effect * difference.value > 0:
        return "better" if difference.value > 0 else "worse"
    lower, upper = difference.on_these.difference.lower, difference.on_these.difference.upper
    return "level" if lower is not None and upper is not None and max(-lower, upper) <= ROPE else "undecided"


def answer(contrast: Contrast, area: str) -> str:
    """Return whether the first strategy is better: the effect, its interval, and the p-values of its tests, if any."""
    difference = contrast.difference
    on_these, on_others = difference.on_these, difference.on_others
    other_scope = "for these kernels on other devices" if difference.clusters else "on workloads like these"
    tests = {f"on {these_workloads(difference.workloads)}": on_these.p, other_scope: on_others.p}
    p = [f"corrected {p_equals(value)} {scope}" for scope, value in tests.items() if value is not None]
    effect = f": {area} {effect_text(on_these.difference)}" if difference.workloads else ""
    sentence = f"{contrast.first} is {WORDS[answer_word(contrast)]} {contrast.second}{effect}"
    return f"{'; '.join([sentence, *p])}." if p else f"{sentence}. {on_these.difference.note}"


def these_workloads(number: int) -> str:
    return "this workload" if number == 1 else f"these {number} workloads"


def signed(value: float) -> str:
    """Format a difference in area with its sign, which is a plus for zero."""
    return f"{value:+z.{DIGITS}f}"
