"""Options that searches found, compared with the default on fresh seeds, and the verdict in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..analysis.stats.intervals import Interval, mean_of_means_interval
from ..arrays import Floats
from .model import Compared, HoldOut, ProblemScores, Search
from .replays import Problem, Replays, Seeds
from .search import Searched

Pair = tuple[Floats, Floats]
"""Scores of one problem with the default options and with those of a search, (seeds,) each."""


@dataclass
class Comparison:
    """Compares the options of each search that is added with ``default``, on the fresh seeds of all ``problems``.

    seen, unseen: the scores of each problem, by its number: a pair for each search that saw it, or did not.
    """

    problems: Sequence[Problem]
    default: Mapping[str, Any]
    seeds: Seeds
    replays: Replays
    seen: dict[int, list[Pair]] = field(default_factory=dict)
    unseen: dict[int, list[Pair]] = field(default_factory=dict)
    nearest: int = 0
    trials: int = 0

    def add(self, hold_out: HoldOut, searched: Searched, only: bool) -> Search:
        """The search with its scores. only: whether there is no other; a search on all beside others is not counted."""
        rows = []
        for number, problem in enumerate(self.problems):
            pair = self._scores(problem, self.default), self._scores(problem, searched.options)
            hidden = problem.workload in hold_out.workloads
            if hold_out.workloads or only:
                (self.unseen if hidden else self.seen).setdefault(number, []).append(pair)
            both = compared([pair])
            rows.append(
                ProblemScores(
                    workload=problem.workload, space=problem.space, held_out=hidden,
                    trials=len(problem.random.baseline), default=both.default, found=both.found, gain=both.gain,
                )
            )  # fmt: skip
        return Search(
            name=hold_out.name, held_out=list(hold_out.workloads), options=searched.options,
            search_score=searched.score, trials=searched.trials, refused=searched.refused, problems=rows,
        )  # fmt: skip

    def _scores(self, problem: Problem, options: Mapping[str, Any]) -> Floats:
        seeds = self.seeds.of_comparison(problem)
        scores = self.replays.scores(problem, options, seeds)
        nearest, trials = self.replays.nearest(problem, options, seeds)
        self.nearest, self.trials = self.nearest + nearest, self.trials + trials
        return scores

    def training(self) -> Compared:
        return compared([mean_scores(pairs) for pairs in self.seen.values()])

    def held_out(self) -> Compared | None:
        return compared([mean_scores(pairs) for pairs in self.unseen.values()]) if self.unseen else None

    def nearest_share(self) -> float:
        return self.nearest / self.trials if self.trials else 0.0


def mean_scores(pairs: Sequence[Pair]) -> Pair:
    """The mean over searches of the scores of one problem, seed by seed."""
    return np.mean([pair[0] for pair in pairs], axis=0), np.mean([pair[1] for pair in pairs], axis=0)


def compared(pairs: Sequence[Pair]) -> Compared:
    """The mean of the scores over problems, a pair each. The intervals are over seeds, for just these problems."""
    columns = [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[1] - pair[0] for pair in pairs]
    return Compared(*(mean_of_means_interval(column) for column in columns))


def verdict(training: Compared, held_out: Compared | None, unchanged: bool) -> str:
    """The result in words. unchanged: whether the best options of every search are the default."""
    if unchanged:
        return "No options were found that are better than the default."
    if held_out is None:
        better = "better" if above(training.gain) else "not better"
        return (
            f"On the workload of the search the options found are {better} beyond the noise, {_signed(training.gain)} "
            f"in score against the default; no workload was held out, so this does not show how good they are "
            f"on another."
        )
    gain = f"{_signed(held_out.gain)} in score against the default"
    if above(held_out.gain):
        return f"The options found are better on workloads held out, beyond the noise: {gain}."
    if held_out.gain.upper is not None and held_out.gain.upper < 0:
        return f"The options found are worse on workloads held out, beyond the noise: {gain}. Keep the default."
    fits = (
        ", though they are better on the workloads of the search, which they may fit too closely"
        if above(training.gain)
        else ""
    )
    return f"The options found are not better on workloads held out beyond the noise{fits}: {gain}. Keep the default."


def above(gain: Interval) -> bool:
    """Whether a gain is above 0 beyond the noise."""
    return gain.lower is not None and gain.lower > 0


def _signed(gain: Interval) -> str:
    if gain.lower is None:
        return f"{gain.value:+.3f}"
    return f"{gain.value:+.3f} [{gain.lower:+.3f}, {gain.upper:+.3f}]"
