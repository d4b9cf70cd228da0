"""The result of a search for better options: scores, their comparison with the defaults, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..arrays import Floats
from ..stats.intervals import Interval, mean_of_means_interval

VERDICT_TEMPLATES = {
    "better": "The options found are better than the default on held-out workloads (gain in score {gain}).",
    "not better": "Keep the default: on held-out workloads, the options found are not better (gain in score {gain}).",
    "overfitted": "Keep the default: on held-out workloads, the options found are not better (gain in score {gain}). "
    "They are better on the searched workloads, which they may overfit.",
    "unknown": "The options found gain {gain} in score on the searched workload. No workload was held out, so "
    "this does not show how good they are on other workloads.",
}
"""The result of a search in words, for each outcome."""


class ScoreComparison(msgspec.Struct, frozen=True):
    """The mean scores over fresh seeds, and the mean of their differences for each seed. All problems count equally."""

    default: Interval
    tuned: Interval
    gain: Interval


class ProblemScores(ScoreComparison, frozen=True, kw_only=True, rename={"trial_count": "trials"}):
    """The comparison on one problem.

    Attributes:
        trial_count: The number of trials, from the first, that the score covers.
    """

    workload: str
    space: str
    held_out: bool
    trial_count: int


class Search(msgspec.Struct, frozen=True, kw_only=True, rename={"trial_count": "trials"}):
    """The result of one search, with its best options.

    Attributes:
        search_score: The options' score on the search's seeds, which is biased upwards.
        refused: The number of trials whose options the policy rejected.
    """

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float
    trial_count: int
    refused: int
    problems: list[ProblemScores]


class HypertuneResult(msgspec.Struct, frozen=True, kw_only=True):
    """The searches over a policy's options, and a comparison of the best options with the defaults.

    Attributes:
        policy: The policy's name.
        searched: The values of each searched option: the ends of a range, or choices.
        not_searched: The value of each remaining option.
        default_options: The policy's options before any search.
        options: The best options from the last search, which is the search on all workloads or the only search.
        better: Whether the options found are better on held-out workloads, beyond the noise, or None if none was held
            out.
        verdict: The result in words.
        training: The comparison on the problems used by the searches with held-out workloads, or by the only search.
            A problem used by several searches counts once, with its mean score over the searches.
        held_out: The comparison on the problems that were held out from each search, or None if there are none.
        searches: All searches.
        notes: Caveats about the result, one sentence each.
    """

    policy: str
    searched: dict[str, list[Any]]
    not_searched: dict[str, Any]
    default_options: dict[str, Any]
    options: dict[str, Any]
    better: bool | None
    verdict: str
    training: ScoreComparison
    held_out: ScoreComparison | None
    searches: list[Search]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain


def compare_scores(score_pairs: Sequence[Floats]) -> ScoreComparison:
    """Average the scores over problems. The intervals reflect only variation by seed, for exactly these problems.

    Args:
        score_pairs: For each problem, the scores with the default options and with the options found, of shape
            (2, seeds).
    """
    columns = (
        [pair[0] for pair in score_pairs],
        [pair[1] for pair in score_pairs],
        [pair[1] - pair[0] for pair in score_pairs],
    )
    return ScoreComparison(*map(mean_of_means_interval, columns))


def write_verdict(training: ScoreComparison, held_out: ScoreComparison | None, unchanged: bool) -> str:
    """Return the result in words. ``unchanged`` is whether the best options for every search are the defaults."""
    if unchanged:
        return "No options better than the default were found."
    gain = (held_out or training).gain
    if held_out is None:
        outcome = "unknown"
    elif is_above_noise(gain):
        outcome = "better"
    else:
        outcome = "overfitted" if is_above_noise(training.gain) else "not better"
    return VERDICT_TEMPLATES[outcome].format(gain=gain.text("+"))


def is_above_noise(gain: Interval) -> bool:
    """Return whether a gain is above 0 beyond the noise."""
    return gain.lower is not None and gain.lower > 0
