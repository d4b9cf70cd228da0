"""Is a policy better than the baselines of a suite? The answer in at most thirty lines, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..analysis.measures import AREA
from ..analysis.model import ContrastAnswer, Summary, WorkloadSummary
from ..analysis.verdict import DIGITS, WORDS, signed
from ..analysis.words import listed, number_text, p_text
from ..measure.suite import Suite
from .trajectories import Trajectories

STYLES = {"better": "green", "worse": "red"}
MOST = 6
"""Baselines that have rows and columns of their own; more are in the report only."""


@dataclass(frozen=True)
class SuiteAnswer:
    """How a new strategy compares with the baselines that it was registered against."""

    suite: Suite
    new: Trajectories
    summary: Summary

    @property
    def label(self) -> str:
        return self.new.strategy

    @cached_property
    def answers(self) -> list[ContrastAnswer]:
        return [one for one in self.summary.answers if one.first == self.label]

    @cached_property
    def areas(self) -> dict[str, dict[str, float]]:
        """workload -> strategy -> the mean area over its seeds."""
        return {
            item.workload: {row.strategy: fmean(row.by_seed(AREA).values()) for row in item.strategies}
            for item in self.summary.workloads
        }

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """The strategies that ran on every table, by mean area."""
        tables = self.areas.values()
        names = set.intersection(*map(set, tables))
        means = {name: fmean(areas[name] for areas in tables) for name in sorted(names)}
        return sorted(means.items(), key=lambda one: -one[1])

    @property
    def better_than_all(self) -> bool:
        return bool(self.answers) and all(one.verdict == "better" for one in self.answers)

    def headline(self) -> str:
        """Such as "Mine is better than random (+0.039, 0.033 to 0.045), level with xgb (-0.004, -0.009 to 0.001)."."""
        if not self.answers:
            return f"{self.label} has no registered comparison with a baseline that ran over all of its tables."
        said = []
        for one in self.answers:
            interval = one.difference.on_these.difference
            ends = "" if interval.lower is None else f", {_number(interval.lower)} to {_number(interval.upper)}"
            said.append(f"{WORDS[one.verdict]} {one.second} ({signed(interval.value)}{ends})")
        return f"{self.label} is {', '.join(said)}."

    def shown(self) -> Iterator[RenderableType]:
        """What the terminal shows, in 100 columns."""
        yield Text(self.headline(), "bold")
        yield Text(f"Differences of the mean area under the curve over {self._where()}.")
        if self.answers:
            yield Text()
            yield self._against()
            yield Text()
            yield self._families()
            yield Text()
            yield Text("p: on these tables; p, others: on tables like these. In parentheses: significant on a table.")
            if len(self.areas) > 1:
                yield Text(self._extremes())
        yield Text(self._rank())

    def to_json(self) -> dict[str, Any]:
        """As plain values: the verdict against each baseline, by family of space, the ranking, and what it spent."""
        return {
            "strategy": self.label,
            "suite": self.suite.name,
            "headline": self.headline(),
            "against": [
                {
                    "baseline": one.second,
                    "verdict": one.verdict,
                    "difference": one.difference.value,
                    "lower": one.difference.on_these.difference.lower,
                    "upper": one.difference.on_these.difference.upper,
                    "p_on_these": one.difference.on_these.p,
                    "p_on_others": one.difference.on_others.p,
                    "tables": self._tally(one.second),
                }
                for one in self.answers
            ],
            "families": [
                {"space": space, "tables": len(items), "area": area, "differences": differences}
                for space, items, area, differences in self._by_space()
            ],
            "ranking": [{"strategy": name, "area": area} for name, area in self.ranking],
            "seconds_per_run": self.new.own_seconds,
            "host": self.new.host,
        }

    def _where(self) -> str:
        tables = len(self.summary.workloads)
        seeds = max(len(runs.runs) for runs in self.new.tables.values())
        which = f"{tables} tables" if tables > 1 else "the table"
        return f"{which} of {self.suite.name}, {seeds} seed{'s' * (seeds > 1)}, {self.new.trials} trials"

    def _against(self) -> Table:
        table = _table("against", "difference", "95 % interval", "p", "p, others", "ahead / level / behind")
        for one in self.answers[:MOST]:
            interval, tally = one.difference.on_these.difference, self._tally(one.second)
            tests = one.difference.on_these, one.difference.on_others
            table.add_row(
                Text(one.second),
                Text(signed(interval.value), STYLES.get(one.verdict, "")),
                "-" if interval.lower is None else f"{_number(interval.lower)} to {_number(interval.upper)}",
                *("-" if answer.p is None else p_text(answer.p) for answer in tests),
                f"{tally['ahead']} ({tally['significantly ahead']}) / {tally['level']} / "
                f"{tally['behind']} ({tally['significantly behind']})",
            )
        return table

    def _families(self) -> Table:
        names = [one.second for one in self.answers[:MOST]]
        table = _table("space", "tables", "area", *(f"less {name}" for name in names))
        for space, items, area, differences in self._by_space():
            table.add_row(space, str(len(items)), number_text(area, DIGITS), *(signed(differences[n]) for n in names))
        return table

    def _by_space(self) -> Iterator[tuple[str, list[WorkloadSummary], float, dict[str, float]]]:
        """space -> its tables, the mean area, and the mean difference from each baseline."""
        spaces = {table.entry.name: table.entry.family for table in self.suite.tables}

        def space_of(item: WorkloadSummary) -> str:
            return spaces[item.workload]

        for space, group in groupby(sorted(self.summary.workloads, key=space_of), key=space_of):
            items = list(group)
            mine = [self.areas[item.workload][self.label] for item in items]
            yield (
                space,
                items,
                fmean(mine),
                {
                    one.second: fmean(
                        ours - self.areas[item.workload][one.second] for ours, item in zip(mine, items, strict=True)
                    )
                    for one in self.answers
                },
            )

    def _tally(self, baseline: str) -> Mapping[str, int]:
        """Tables ahead of ``baseline``, level and behind; and those on which this is significant."""
        tally = dict.fromkeys(("ahead", "level", "behind", "significantly ahead", "significantly behind"), 0)
        for item in self.summary.workloads:
            value = round(self.areas[item.workload][self.label] - self.areas[item.workload][baseline], 12)
            tally["ahead" if value > 0 else "behind" if value < 0 else "level"] += 1
            contrast = next(
                c for c in item.contrasts if c.measure == AREA and {c.first, c.second} == {self.label, baseline}
            )
            tally["significantly ahead"] += contrast.ahead(self.label, baseline)
            tally["significantly behind"] += contrast.ahead(baseline, self.label)
        return tally

    def _extremes(self) -> str:
        rival = min(self.answers, key=lambda one: one.difference.value).second  # the strongest of these baselines
        differences = {name: areas[self.label] - areas[rival] for name, areas in self.areas.items()}
        order = sorted(differences, key=differences.__getitem__)
        worst, best = (f"{name} ({signed(differences[name])})" for name in (order[0], order[-1]))
        return f"Against {rival} it is worst on {worst} and best on {best}."

    def _rank(self) -> str:
        names = [name for name, _ in self.ranking]
        place = names.index(self.label)
        near = [f"{name} {area:.3f}" for name, area in self.ranking[max(0, place - 2) : place + 3]]
        return (
            f"By mean area it is number {place + 1} of {len(names)}: {listed(near, None)}. It took "
            f"{self.new.own_seconds:.3g} s per run to propose and learn, on {self.new.host}."
        )


def _number(value: float | None) -> str:
    return number_text(value, DIGITS)


def _table(*heads: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if number else "left", overflow="fold")
    return table
