"""The result of searching options: what each search tried, and how its options compare with the default ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ..analysis.stats.intervals import Interval


@dataclass(frozen=True)
class HoldOut:
    """One search, by the workloads that are hidden from it."""

    workloads: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"without {', '.join(self.workloads)}" if self.workloads else "on all workloads"


class ProblemScores(msgspec.Struct, frozen=True, kw_only=True):
    """Mean scores of two sets of options over fresh seeds, and the mean of their differences, seed by seed.

    trials: the score is over this many trials, from the first. found: the options that the search found.
    """

    workload: str
    space: str
    held_out: bool
    trials: int
    default: Interval
    found: Interval
    gain: Interval


class Compared(msgspec.Struct, frozen=True):
    """As :class:`ProblemScores`, over several problems, each of which counts the same."""

    default: Interval
    found: Interval
    gain: Interval


class Search(msgspec.Struct, frozen=True, kw_only=True, rename={"problems": "tasks"}):
    """One search and its best options.

    search_score: of these options on the seeds of the search, so it is too good. refused: how many of the trials had
    options that the policy refused.
    """

    name: str
    held_out: list[str]
    options: dict[str, Any]
    search_score: float
    trials: int
    refused: int
    problems: list[ProblemScores]


class Hypertuned(msgspec.Struct, frozen=True, kw_only=True):
    """The searches of a policy's options, and the comparison of what they found with the default.

    better: whether the options are better on the workloads held out, beyond the noise; None if none was held out.
    options: the result of the last search: of the search on all workloads, or of the only one.
    training: over the problems that a search with held-out workloads saw, or that the only search saw.
    held_out: over the problems that a search did not see; None if none was held out. A problem of several searches
    counts once, with the mean of their scores.
    nearest: the share of the trials on fresh seeds that were answered with the nearest config in the table.
    """

    policy: str
    searched: dict[str, str]
    not_searched: dict[str, Any]
    default_options: dict[str, Any]
    options: dict[str, Any]
    better: bool | None
    verdict: str
    training: Compared
    held_out: Compared | None
    searches: list[Search]
    nearest: float
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return plain
