"""How large a difference is in practice, and why a strategy loses: when, on which workloads, and by which trials."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np

from ..arrays import Floats
from ..units import VALUES
from .contrasts import Contrast
from .knobs import format_knob
from .runs import PART_COUNT, BudgetParts, StrategyRuns, WorkloadRuns, average_defined
from .words import fill_template

MAIN_SHARE = 2 / 3  # the share of a difference that arises in the part of the budget that an explanation names
LONGEST = PART_COUNT / 2  # a longer part is not named
LEAST_DIFFERENCE = 0.05  # the smallest difference between two shares of trials that explains anything
MAX_FACTS = 2  # maximum number of workloads, of kinds of trials, and of knobs to consider

TRIAL_KINDS = {
    "near_best_shares": "were near the best so far",
    "slow_shares": "were slower than the space's median",
    "failed_shares": "failed",
    "fill_in_shares": "were random fill-ins",
}
"""What is true of the trials in each share of :class:`~searchlab.analysis.runs.BudgetParts`."""

_SPEEDUP = """
    The best programs of {{ winner }} are {{ speed }} those of {{ loser }}
    {%- if workload_count > 1 %} (geometric mean over {{ workload_count }} workloads){% endif %}
    {%- if is_matched %}, and it matches them after {{ budget_share_to_match | percent }} of the budget{% endif %}.
"""

_LOSS = """
    {{ loser }} falls behind {{ winner }}
    {% if is_all %}throughout the budget
    {%- elif not start %}in the first {{ end | percent }} of the budget
    {%- else %}between {{ start | percent }} and {{ end | percent }} of the budget{% endif %}
    {%- if workload_count > 1 %}, most on {{ worst_workloads | listed }}{% endif %}.
"""

_TRIALS = "Of its trials{% if not is_all %} there{% endif %}, {{ trial_differences | listed }}."

_TRIAL_DIFFERENCE = "{{ loser_share | percent }} {{ trial_kind }} ({{ winner }}: {{ winner_share | percent }})"

_KNOB = """
    {{ loser_share | percent }} of its trials{% if workload_count > 1 %} on {{ workload }}{% endif %} had {{ knob }} =
    {{ value }}, as in the fastest config ({{ winner }}: {{ winner_share | percent }}).
"""


class Explanation(msgspec.Struct, frozen=True):
    """A difference between two strategies in practice; see :func:`describe_speedup` and :func:`explain`.

    Attributes:
        size: How much faster the best programs are; empty if a strategy has found none.
        why: Why the worse strategy loses; empty if the difference is not significant.
    """

    size: str
    why: str


def explain_contrast(contrast: Contrast, comparison: Sequence[WorkloadRuns]) -> Explanation:
    """Explain the difference between two strategies, given the runs on each workload."""
    loser, winner = contrast.pair[::-1] if contrast.difference.value > 0 else contrast.pair
    why = explain(loser, winner, comparison) if contrast.is_significant else ""
    return Explanation(describe_speedup(loser, winner, comparison), why)


def _pair_runs(loser: str, winner: str, comparison: Sequence[WorkloadRuns]) -> list[tuple[StrategyRuns, StrategyRuns]]:
    """Return the runs of both strategies, the loser's first, on each workload on which both ran."""
    return [
        (workload_runs.strategies[loser], workload_runs.strategies[winner])
        for workload_runs in comparison
        if {loser, winner} <= workload_runs.strategies.keys()
    ]


def explain(loser: str, winner: str, comparison: Sequence[WorkloadRuns]) -> str:
    """Return in which part of the budget and where the ``loser`` falls behind, and how its trials differ there.

    Args:
        loser: The name of the worse strategy.
        winner: The name of the better strategy.
        comparison: The runs on each workload.
    """
    pairs = _pair_runs(loser, winner, comparison)
    if not pairs:
        return ""
    # The axes are workloads, strategies, fields of BudgetParts, and parts of the budget.
    budget_parts = np.array([[runs.budget_parts for runs in pair] for pair in pairs])
    lost_areas = budget_parts[:, 1, 0] - budget_parts[:, 0, 0]
    if not lost_areas.sum() > 0:
        return ""
    order = np.argsort(-lost_areas.sum(axis=1))
    workloads = [loser_runs.workload.workload for loser_runs, _ in pairs]
    worst = [f"{workloads[index]} ({-lost_areas[index].mean():+.3f})" for index in order[:MAX_FACTS]]
    start, end = _find_main_part(lost_areas.mean(axis=0))
    trial_shares = average_defined(budget_parts[:, :, 1:, start:end], axis=(0, 3))
    trial_differences = _describe_trials(winner, trial_shares)
    facts = {
        "loser": loser,
        "winner": winner,
        "is_all": end - start == PART_COUNT,
        "start": start / PART_COUNT,
        "end": end / PART_COUNT,
        "workload_count": len(pairs),
        "worst_workloads": worst,
        "trial_differences": trial_differences,
    }
    sentences = [
        fill_template(_LOSS, **facts),
        fill_template(_TRIALS, **facts) if trial_differences else "",
        _describe_knob(*pairs[int(order[0])], workload_count=len(pairs)),
    ]
    return " ".join(filter(None, sentences))


def _find_main_part(lost_areas: Floats) -> tuple[int, int]:
    """Return the start and the end of the shortest part of the budget in which most of the difference arises."""
    parts = sorted(combinations(range(PART_COUNT + 1), 2), key=lambda part: part[1] - part[0])
    start, end = next(part for part in parts if lost_areas[slice(*part)].sum() >= MAIN_SHARE * lost_areas.sum())
    return (start, end) if end - start <= LONGEST else (0, PART_COUNT)


def _describe_trials(winner: str, trial_shares: Floats) -> list[str]:
    """Return the kinds of trials of which strategies had different shares: shape (strategies, kinds), loser first."""
    differences = [
        (abs(loser_share - winner_share), name, loser_share, winner_share)
        for name, (loser_share, winner_share) in zip(BudgetParts._fields[1:], trial_shares.T.tolist(), strict=True)
    ]
    return [
        fill_template(
            _TRIAL_DIFFERENCE,
            winner=winner,
            trial_kind=TRIAL_KINDS[name],
            loser_share=loser_share,
            winner_share=winner_share,
        )
        for difference, name, loser_share, winner_share in sorted(differences, reverse=True)
        if difference >= LEAST_DIFFERENCE
    ][:MAX_FACTS]


def _describe_knob(loser_runs: StrategyRuns, winner_runs: StrategyRuns, workload_count: int) -> str:
    """Return the value of an important knob in the fastest config that the loser tried less often than the winner."""
    if loser_runs.space != winner_runs.space:
        return ""
    workload_runs = winner_runs.workload
    space = workload_runs.runs_by_space[winner_runs.space].measured_space
    fastest = space.throughput.argmax()
    values = {knob: space.knobs[knob][fastest] for knob in list(space.importances)[:MAX_FACTS]}
    shares = [
        (knob, value, _measure_share_with(loser_runs, knob, value), _measure_share_with(winner_runs, knob, value))
        for knob, value in values.items()
    ]
    knob, value, loser_share, winner_share = max(
        shares, key=lambda share: share[3] - share[2], default=("", "", 0.0, 0.0)
    )
    if winner_share - loser_share < LEAST_DIFFERENCE:
        return ""
    return fill_template(
        _KNOB,
        winner=winner_runs.strategy,
        workload=workload_runs.workload,
        workload_count=workload_count,
        knob=knob,
        value=value,
        loser_share=loser_share,
        winner_share=winner_share,
    )


def _measure_share_with(runs: StrategyRuns, knob: str, value: str) -> float:
    """Return the share of the trials that are compared in which ``knob`` has this ``value``."""
    counts = Counter(config for run in runs.compared_runs for config in run.log.configs[: runs.horizon].tolist())
    matches = sum(count for config, count in counts.items() if format_knob(msgspec.json.decode(config), knob) == value)
    return matches / counts.total()


def describe_speedup(loser: str, winner: str, comparison: Sequence[WorkloadRuns]) -> str:
    """Return by how much the best programs of the ``winner`` are faster, and when it finds programs as fast as these.

    The speedup is the geometric mean over workloads of the ratio of the medians over seeds.

    Args:
        loser: The name of the worse strategy.
        winner: The name of the better strategy.
        comparison: The runs on each workload.
    """
    timed_runs = [workload_runs for workload_runs in comparison if workload_runs.unit not in VALUES]
    pairs = [pair for pair in _pair_runs(loser, winner, timed_runs) if all(map(_find_throughput, pair))]
    if not pairs:
        return ""
    ratios = [_find_throughput(winner_runs) / _find_throughput(loser_runs) for loser_runs, winner_runs in pairs]
    gain = math.exp(np.log(ratios).mean()) - 1
    shares = [_find_budget_share_to_match(loser_runs, winner_runs) for loser_runs, winner_runs in pairs]
    budget_share_to_match = float(np.median(shares))
    return fill_template(
        _SPEEDUP,
        winner=winner,
        loser=loser,
        speed=_format_speed(gain),
        workload_count=len(pairs),
        is_matched=budget_share_to_match < 1 and gain >= 0,
        budget_share_to_match=budget_share_to_match,
    )


def _find_throughput(runs: StrategyRuns) -> float:
    """Return the median over seeds of the best GFLOPS, or 0 if few runs found a working program."""
    return float(np.median(runs.curves[:, -1]))


def _format_speed(gain: float) -> str:
    if not round(100 * gain, 1):
        return "as fast as"
    if gain > 1:
        return f"{1 + gain:.1f} times as fast as"
    return f"{100 * abs(gain):.1f} % {'faster' if gain > 0 else 'slower'} than"


def _find_budget_share_to_match(loser_runs: StrategyRuns, winner_runs: StrategyRuns) -> float:
    """Return the share of the budget after which the winner's median is the loser's final one, or infinity."""
    workload_runs = winner_runs.workload
    spent = (
        np.median(winner_runs.elapsed, axis=0)
        if workload_runs.is_by_seconds
        else np.arange(1.0, winner_runs.horizon + 1)
    )
    is_matched = np.median(winner_runs.curves, axis=0) >= np.median(loser_runs.curves[:, -1])
    return float(spent[is_matched.argmax()]) / workload_runs.budget if is_matched.any() else math.inf
