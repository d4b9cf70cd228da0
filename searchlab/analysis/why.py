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
from .knobs import knob_text
from .runs import PARTS, BudgetParts, StrategyRuns, WorkloadRuns, mean_of_defined
from .words import listed, percent

MAIN_SHARE = 2 / 3  # the share of a difference that arises in the part of the budget that an explanation names
LONGEST = PARTS / 2  # a longer part is not named
LEAST = 0.05  # the smallest difference between two shares of trials that explains anything
FACTS = 2  # maximum number of workloads, of kinds of trials, and of knobs to consider

KINDS = {
    "near": "were near the best so far",
    "slow": "were slower than the space's median",
    "failed": "failed",
    "filled": "were random fill-ins",
}
"""What is true of the trials in each share of :class:`~searchlab.analysis.runs.BudgetParts`."""

SIZE = "The best programs of {winner} are {faster} those of {loser}{over}"
MATCH = ", and it matches them after {share} of the budget"
WHEN = "{loser} falls behind {winner} {part}{where}."
TRIALS = "Of its trials{scope}, {kinds}."
KNOB = "{share} of its trials{where} had {knob} = {value}, as in the fastest config ({winner}: {winner_share})."


def explain(loser: str, winner: str, items: Sequence[WorkloadRuns]) -> str:
    """Return in which part of the budget and where the ``loser`` falls behind, and how its trials differ there."""
    pairs = _pairs(loser, winner, items)
    if not pairs:
        return ""
    # The axes are workloads, strategies, fields of BudgetParts, and parts of the budget.
    parts = np.array([[behind.parts, ahead.parts] for _, behind, ahead in pairs])
    lost = parts[:, 1, 0] - parts[:, 0, 0]
    if not lost.sum() > 0:
        return ""
    order = np.argsort(-lost.sum(axis=1))
    worst = [f"{pairs[index][0].workload} ({-lost[index].mean():+.3f})" for index in order[:FACTS]]
    start, end = _part_of_most(lost.mean(axis=0))
    when = WHEN.format(
        loser=loser,
        winner=winner,
        part=_part_text(start, end),
        where=f", most on {listed(worst)}" if len(pairs) > 1 else "",
    )
    of_loser, of_winner = mean_of_defined(parts[:, :, 1:, start:end], axis=(0, 3)).tolist()
    shares = zip(BudgetParts._fields[1:], of_loser, of_winner, strict=True)
    differences = [(abs(first - second), kind, first, second) for kind, first, second in shares]
    kinds = [
        f"{percent(first)} {KINDS[kind]} ({winner}: {percent(second)})"
        for difference, kind, first, second in sorted(differences, reverse=True)
        if difference >= LEAST
    ][:FACTS]
    item, behind, ahead = pairs[order[0]]
    where = f" on {item.workload}" * (len(pairs) > 1)
    sentences = [
        when,
        TRIALS.format(scope=" there" * (end - start < PARTS), kinds=listed(kinds)) if kinds else "",
        _missed_value(item, behind, ahead, winner, where),
    ]
    return " ".join(filter(None, sentences))


def practical_size(loser: str, winner: str, items: Sequence[WorkloadRuns]) -> str:
    """Return by how much the best programs of the ``winner`` are faster, and when it finds programs as fast as these.

    The speedup is the geometric mean over workloads of the ratio of the medians over seeds.
    """
    items = [item for item in items if item.unit not in VALUES]
    pairs = [pair for pair in _pairs(loser, winner, items) if all(np.median(runs.curves[:, -1]) for runs in pair[1:])]
    if not pairs:
        return ""
    ratios = [np.median(ahead.curves[:, -1]) / np.median(behind.curves[:, -1]) for _, behind, ahead in pairs]
    gain = math.exp(np.log(ratios).mean()) - 1
    faster = f"{100 * abs(gain):.1f} % {'faster' if gain > 0 else 'slower'} than"
    if gain > 1 or not round(100 * gain, 1):
        faster = f"{f'{1 + gain:.1f} times ' * (gain > 1)}as fast as"
    over = f" (geometric mean over {len(pairs)} workloads)" * (len(pairs) > 1)
    share = float(np.median([_share_to_match(behind, ahead) for _, behind, ahead in pairs]))
    match = MATCH.format(share=percent(share)) * (share < 1 and gain >= 0)
    return SIZE.format(winner=winner, faster=faster, loser=loser, over=over) + match + "."


def _share_to_match(behind: StrategyRuns, ahead: StrategyRuns) -> float:
    """Return the share of the budget after which one strategy's median is the other's final one, or infinity."""
    workload = ahead.workload
    spent = np.median(ahead.elapsed, axis=0) if workload.by_seconds else np.arange(1.0, ahead.horizon + 1)
    matches = np.median(ahead.curves, axis=0) >= np.median(behind.curves[:, -1])
    return float(spent[matches.argmax()]) / workload.budget if matches.any() else math.inf


def _pairs(
    loser: str, winner: str, items: Sequence[WorkloadRuns]
) -> list[tuple[WorkloadRuns, StrategyRuns, StrategyRuns]]:
    """Return the workloads on which both strategies ran, each with the runs of the loser and the winner."""
    return [
        (item, item.strategies[loser], item.strategies[winner])
        for item in items
        if {loser, winner} <= item.strategies.keys()
    ]


def _part_of_most(lost: Floats) -> tuple[int, int]:
    """Return the start and the end of the shortest part of the budget in which most of the difference arises."""
    parts = sorted(combinations(range(PARTS + 1), 2), key=lambda part: part[1] - part[0])
    start, end = next(part for part in parts if lost[slice(*part)].sum() >= MAIN_SHARE * lost.sum())
    return (start, end) if end - start <= LONGEST else (0, PARTS)


def _part_text(start: int, end: int) -> str:
    if end - start == PARTS:
        return "throughout the budget"
    if start == 0:
        return f"in the first {percent(end / PARTS)} of the budget"
    return f"between {percent(start / PARTS)} and {percent(end / PARTS)} of the budget"


def _missed_value(item: WorkloadRuns, behind: StrategyRuns, ahead: StrategyRuns, winner: str, where: str) -> str:
    """Return the value of an important knob in the fastest config that one strategy tried less often than the other."""
    space = next((space for space in item.spaces if space.space == behind.space == ahead.space), None)
    if space is None:
        return ""
    fastest = space.throughput.argmax()
    values = {knob: space.knobs[knob][fastest] for knob in list(space.importances)[:FACTS]}
    shares = [
        (knob, value, _share_with(behind, knob, value), _share_with(ahead, knob, value))
        for knob, value in values.items()
    ]
    knob, value, of_loser, of_winner = max(shares, key=lambda share: share[3] - share[2], default=("", "", 0.0, 0.0))
    if of_winner - of_loser < LEAST:
        return ""
    return KNOB.format(
        share=percent(of_loser), where=where, knob=knob, value=value, winner=winner, winner_share=percent(of_winner)
    )


def _share_with(runs: StrategyRuns, knob: str, value: str) -> float:
    """Return the share of the trials that are compared in which ``knob`` has this ``value``."""
    configs = Counter(config for run in runs.compared_runs for config in run.log.configs[: runs.horizon].tolist())
    matches = sum(number for config, number in configs.items() if knob_text(msgspec.json.decode(config), knob) == value)
    return matches / configs.total()
