"""The sentences in a report: which strategy leads, whether this may be noise, and what the runs support.

Each sentence is a template in which facts are filled in; tables and JSON contain the same facts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from ..stats.inference import ROPE
from ..stats.intervals import Interval
from ..stats.ranks import ALPHA
from .contrasts import Contrast, ReportTests, count_seeds_needed
from .measures import OverallStrategy, StrategySummary
from .words import fill_template, format_p, format_p_equation

UNFINISHED_SENTENCE = "Some runs are not complete, so this may change."
DIGITS = 3  # after the decimal point, for differences of the area under the curve
WORDS = {
    "better": "better than",
    "worse": "worse than",
    "level": "level with",
    "undecided": "not distinguishable from",
    "untested": "not tested against",
}
"""The words for each verdict on a contrast, which follow "is" in a sentence."""


class Outcome(StrEnum):
    """What the tests of the leading strategy show."""

    AHEAD = "ahead"  # it is better than every strategy that it was tested against
    AHEAD_OF_SOME = "ahead of some"
    UNDECIDED = "undecided"
    TOO_FEW_SEEDS = "too few seeds"  # undecided, and no result with so few seeds would be significant
    CONTRADICTED = "contradicted"  # another strategy is significantly better by ranks, although its mean is smaller
    UNTESTED = "untested"


_NO_WINNER = "No winner{% if strategy_count > 2 %} among {{ strategy_count }} strategies{% endif %}{{ over }}"
STANDINGS = {
    Outcome.AHEAD: """
        {{ leader }} is significantly better than {{ behind | listed }}{{ over }} by {{ area }} ({{ p_behind }}).""",
    Outcome.AHEAD_OF_SOME: """
        {{ leader }} is first{{ over }} by {{ area }}: it is significantly better than {{ behind | listed }}
        ({{ p_behind }}), but cannot be told apart from {{ undecided | listed(None) }} ({{ p_undecided }}).""",
    Outcome.UNDECIDED: _NO_WINNER
    + """: {{ leader }} cannot be told apart from {{ undecided | listed(None) }} by {{ area }} ({{ p_undecided }}).""",
    Outcome.TOO_FEW_SEEDS: _NO_WINNER
    + """: {{ leader }} cannot be told apart from {{ undecided | listed(None) }} by {{ area }} with
        {{ seeds | counted("seed") }}; a significant difference needs at least {{ seeds_needed }}.""",
    Outcome.CONTRADICTED: _NO_WINNER
    + """: {{ leader }} has the largest mean area, but {{ better | listed(None) }} is significantly better in a test of
        ranks ({{ p_better }}).""",
    Outcome.UNTESTED: _NO_WINNER + ".",
}
"""The sentence for each outcome of the tests."""

_NO_TEST = "There is no test of {{ leader }} against {{ opponents | listed(None) }} ({{ reason }})."

_ANSWER = """
    {{ first }} is {{ words }} {{ second }}
    {%- if difference.workloads %}: {{ area }} {{ effect }}{% endif %}
    {%- for scope, p in p_by_scope.items() %}; corrected {{ p | p_equals }} {{ scope }}{% endfor %}.
    {% if not p_by_scope %}{{ difference.on_these.difference.note }}{% endif %}
"""

_EFFECT = """
    {{ value }}{% if lower is not none %}, uncorrected 95 % interval {{ lower | number(digits) }} to
    {{ upper | number(digits) }}{% endif %}
"""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the leading strategy with all others by area.

    Attributes:
        leader: The strategy with the largest mean area.
        better: The strategies that are significantly better than the leader, with their corrected p-values.
        behind: The strategies that are significantly worse.
        undecided: The strategies that cannot be told apart from the leader.
        untested: The remaining strategies, with the reason why there is no test; see :class:`Contrast`.
        seeds: The smallest number of seeds (over all workloads: of runs) in the tests of ``undecided``.
        seeds_needed: The number of seeds that a significant difference needs at least, or None if it is smaller.
    """

    leader: str
    better: dict[str, float]
    behind: dict[str, float]
    undecided: dict[str, float]
    untested: dict[str, str]
    seeds: int
    seeds_needed: int | None

    @property
    def outcome(self) -> Outcome:
        if self.better:
            return Outcome.CONTRADICTED
        if self.behind:
            return Outcome.AHEAD_OF_SOME if self.undecided else Outcome.AHEAD
        if self.undecided:
            return Outcome.TOO_FEW_SEEDS if self.seeds_needed else Outcome.UNDECIDED
        return Outcome.UNTESTED


def compare_leader(leader: str, contrasts: Sequence[Contrast], tests: ReportTests | None = None) -> Standing:
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
        if contrast.adjusted_p is None:
            untested[name] = contrast.test
        elif contrast.is_ahead(leader, name):
            behind[name] = contrast.adjusted_p
        elif contrast.is_ahead(name, leader):
            better[name] = contrast.adjusted_p
        else:
            undecided[name] = contrast.adjusted_p
    runs = min((by_opponent[name].runs for name in undecided), default=0)
    test_counts = [tests.count_tests(leader, name) for name in undecided] if tests else []
    minimum = count_seeds_needed(ALPHA / min(test_counts)) if test_counts else 0
    return Standing(
        leader=leader,
        better=better,
        behind=behind,
        undecided=undecided,
        untested=untested,
        seeds=runs,
        seeds_needed=minimum if runs < minimum else None,
    )


def write_standing(standing: Standing, area: str, over: str = "") -> str:
    """Return sentences about the leader's standing by area.

    Args:
        standing: The leader's standing.
        area: The name of the area by which strategies are compared.
        over: A phrase such as " across 3 workloads".
    """
    strategies = {standing.leader, *standing.better, *standing.behind, *standing.undecided, *standing.untested}
    sentence = fill_template(
        STANDINGS[standing.outcome],
        area=area,
        over=over,
        strategy_count=len(strategies),
        p_better=_format_limit(standing.better.values(), "most"),
        p_behind=_format_limit(standing.behind.values(), "most"),
        p_undecided=_format_limit(standing.undecided.values(), "least"),
        **msgspec.structs.asdict(standing),
    )
    opponents_by_reason: dict[str, list[str]] = {}
    for name, reason in standing.untested.items():
        opponents_by_reason.setdefault(reason, []).append(name)
    reasons = [
        fill_template(_NO_TEST, leader=standing.leader, opponents=opponents, reason=reason)
        for reason, opponents in opponents_by_reason.items()
    ]
    return " ".join([sentence, *reasons])


def _format_limit(p_values: Collection[float], limit: Literal["most", "least"]) -> str:
    """Format the largest or smallest of corrected p-values, as in "p at most 0.02"."""
    value = (max if limit == "most" else min)(p_values, default=1.0)
    if len(set(p_values)) == 1 or value < 0.001:
        return format_p_equation(value)
    return f"p at {limit} {format_p(value)}"


def write_verdict(
    rows: Sequence[StrategySummary] | Sequence[OverallStrategy],
    standing: Standing | None,
    area: str,
    over: str = "",
    *,
    is_finished: bool,
) -> str:
    """Return the verdict: the leader's standing by area, and the mean areas of the first two strategies.

    Args:
        rows: The strategies, largest mean area first.
        standing: The leader's standing, or None if there is only one strategy.
        area: The name of the area by which strategies are compared.
        over: A phrase such as " across 3 workloads".
        is_finished: Whether all runs have ended.
    """
    if not rows:
        return "No trials have been measured yet."
    if all(row.area.value == 0 for row in rows):
        return "No trials have succeeded: see the failures."
    if standing is None:
        return f"{rows[0].strategy} is the only strategy here: there is nothing to compare it with."
    areas = ", ".join(f"{row.strategy} {row.area.text()}" for row in rows[:2])
    sentences = [write_standing(standing, area, over), f"Mean {area.removeprefix('mean ')}: {areas}."]
    return " ".join(sentences if is_finished else [*sentences, UNFINISHED_SENTENCE])


def format_effect(difference: Interval) -> str:
    """Format a difference in area with its interval: "+0.039, uncorrected 95 % interval 0.033 to 0.045"."""
    value, lower, upper = format_signed(difference.value), difference.lower, difference.upper
    return fill_template(_EFFECT, value=value, lower=lower, upper=upper, digits=DIGITS)


def judge_contrast(contrast: Contrast) -> str:
    """Return the ``verdict`` of a :class:`~searchlab.analysis.summary.ContrastAnswer`."""
    difference = contrast.difference
    p_values = [answer.p for answer in (difference.on_these, difference.on_others) if answer.p is not None]
    if not p_values:
        return "untested"
    if min(p_values) <= ALPHA and contrast.effect * difference.value > 0:
        return "better" if difference.value > 0 else "worse"
    lower, upper = difference.on_these.difference.lower, difference.on_these.difference.upper
    return "level" if lower is not None and upper is not None and max(-lower, upper) <= ROPE else "undecided"


def write_answer(contrast: Contrast, area: str) -> str:
    """Return whether the first strategy is better: the effect, its interval, and the p-values of its tests, if any."""
    difference = contrast.difference
    other_scope = "for these kernels on other devices" if difference.clusters else "on workloads like these"
    p_by_scope = {
        f"on {name_workloads(difference.workloads)}": difference.on_these.p,
        other_scope: difference.on_others.p,
    }
    return fill_template(
        _ANSWER,
        first=contrast.first,
        second=contrast.second,
        words=WORDS[judge_contrast(contrast)],
        difference=difference,
        area=area,
        effect=format_effect(difference.on_these.difference),
        p_by_scope={scope: p for scope, p in p_by_scope.items() if p is not None},
    )


def name_workloads(number: int) -> str:
    return "this workload" if number == 1 else f"these {number} workloads"


def format_signed(value: float) -> str:
    """Format a difference in area with its sign, which is a plus for zero."""
    return f"{value:+z.{DIGITS}f}"
