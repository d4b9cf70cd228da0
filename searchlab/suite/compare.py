"""Running a policy over a suite's tables, and comparing it with the baseline runs that the suite contains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..analysis.measures import rank_over_all
from ..analysis.read import group_runs
from ..analysis.runs import ComparedRuns
from ..analysis.summary import ContrastAnswer, Summary
from ..analysis.verdict import DIGITS, WORDS, format_effect, format_signed
from ..analysis.words import counted, format_number, format_p, listed
from ..errors import SearchlabError
from ..files import real_path
from ..log.budget import UNLIMITED, Budget
from ..log.columns import LogColumns
from ..measure.suite import Suite, find_suite
from ..plugins import Plugin
from ..policy import POLICIES
from ..run.study import Study
from ..stats.random_search import parse_difficulty
from .replay import check_baselines
from .trajectories import RANDOM, Trajectories, collect_trajectories, read_baselines, read_results

if TYPE_CHECKING:
    import pandas as pd

STYLES = {"better": "green", "worse": "red"}

MAX_SHOWN_BASELINES = 6
"""The maximum number of baselines with their own rows and columns; the report shows all baselines."""


def make_suite_study(
    suite: Suite, policy: Mapping[str, Any], seeds: int | None = None, against: Collection[str] = ()
) -> Study:
    """Return the study that runs ``policy`` over the tables of ``suite``, following the suite's protocol.

    Args:
        suite: The suite, or one of its splits or tables.
        policy: A policy entry as in a study file, including its ``label``.
        seeds: The number of runs over each table, by default as in the protocol.
        against: The baselines to compare the policy with; the comparisons are registered before it runs.
    """
    suite_path = real_path(suite.directory) / (suite.table_name or suite.split or "")
    contrasts = [[policy["label"], name] for name in against]
    study_fields = {"suite": str(suite_path), "policies": [dict(policy)], "contrasts": contrasts}
    return Study.from_dict(study_fields | ({"seeds": seeds} if seeds else {}))


def run_policy(study: Study, out_dir: Path, jobs: int = 1, *, progress: bool | Console = True) -> Trajectories:
    """Run the policy of a :func:`make_suite_study`. Logs are written to ``out_dir``, from which a later call resumes.

    For ``jobs`` and ``progress``, see :meth:`~searchlab.run.study.Study.run`. Raises SearchlabError if the input is
    invalid, or if the policy cannot search any table.
    """
    results = study.run(out_dir, jobs=jobs, progress=progress)
    assert study.suite is not None
    (trajectories,) = collect_trajectories(study.suite, [result.log.path for result in results])
    return trajectories


def choose_baselines(suite: Suite, policy: type[Any] | None = None) -> list[str]:
    """Return the baselines with which a new policy is compared by default.

    These are random search, the best baseline on the development split (by mean area) and, if it is a baseline, the
    registered policy that the new policy is or derives from.
    """
    areas = compute_dev_areas(suite)
    ancestors = [name for base in (policy.__mro__ if policy else ()) if (name := POLICIES.name_of(base)) in areas]
    ranked_names = sorted(areas, key=lambda name: -areas[name])
    return list(dict.fromkeys(name for name in (RANDOM, *ranked_names[:1], *ancestors[:1]) if name in areas))


def compute_dev_areas(suite: Suite) -> dict[str, float]:
    """Return the mean area under the curve of each baseline that ran over the complete development split.

    If there is no development split, all tables count. Tables in which every config fails are skipped.
    """
    full_suite = suite.select_split(None)
    dev_part = suite.select_split("dev") if suite.select_split("dev").tables else full_suite
    areas: dict[str, float] = {}
    tables = [table for table in dev_part.tables if table.log.has_success]
    for baseline in read_baselines(full_suite):
        if not tables or any(table.entry.name not in baseline.tables for table in tables):
            continue
        areas[baseline.strategy] = float(np.mean([baseline.compute_areas(table) for table in tables]))
    return areas


def restrict_to_runs(suite: Suite, result: Trajectories) -> Suite:
    """Return ``suite`` with only the tables over which ``result`` has runs, because a policy may reject some spaces.

    Raises SearchlabError if there are none.
    """
    tables = [entry for entry in suite.spec.tables if entry.name in result.tables]
    if not tables:
        raise SearchlabError(f"{result.strategy} has no runs over the tables of {suite.name}; pass its suite")
    return replace(suite, spec=msgspec.structs.replace(suite.spec, tables=tables))


def group_suite_runs(
    suite: Suite,
    new_results: Sequence[Trajectories],
    baseline_runs: Sequence[Trajectories],
    seeds: Collection[int],
    trials: int | str | None = None,
) -> ComparedRuns:
    """Return the runs over the tables of ``suite``, for comparison.

    Only the time for building and running programs is charged, not the time of the strategies themselves, which ran on
    different machines.

    Args:
        suite: The suite, or one of its splits or tables.
        new_results: The new results. They may register contrasts with baselines, because the runs of baselines never
            change.
        baseline_runs: The suite's baselines.
        seeds: The seeds to compare.
        trials: The number of trials after which runs are compared, which may depend on each table's difficulty:
            ``"difficulty"`` or a multiple such as ``"0.5 difficulty"``. By default, complete runs are compared.

    Raises:
        SearchlabError: If two results have the same name.
    """
    contrasts = tuple(pair for result in new_results for pair in result.contrasts)
    all_results = [*new_results, *(msgspec.structs.replace(result, contrasts=contrasts) for result in baseline_runs)]
    strategy_names = [result.strategy for result in all_results]
    if duplicates := sorted({name for name in strategy_names if strategy_names.count(name) > 1}):
        raise SearchlabError(
            f"two results are called {duplicates[0]!r}; omit one, or rerun it with a different --label"
        )
    logs: list[LogColumns] = []
    for table in suite.tables:
        limit = parse_difficulty(trials, table.log.costs) if isinstance(trials, str) else trials
        budget = Budget(UNLIMITED if limit is None else limit)
        for result in all_results:
            if table.entry.name in result.tables:
                runs = [run for run in result.runs_on(table).runs if run.seed in seeds]
                logs += [budget.truncate(result.make_columns(table, run)) for run in runs]
    return group_runs((log, log.path.as_posix()) for log in logs)


def read_suite_study_runs(study: Study, logs_dir: Path) -> ComparedRuns:
    """Return the runs of a study whose logs are in ``logs_dir``, and those of the suite's baselines to which it refers.

    Raises SearchlabError if the logs cannot be read or compared.
    """
    assert study.suite is not None
    log_paths = [logs_dir / run.log_path for run in study.plan().runs]
    new_results = collect_trajectories(study.suite, [log for log in log_paths if log.exists()])
    baseline_runs = read_baselines(study.suite, study.baselines)
    check_baselines(study.suite, baseline_runs)
    return group_suite_runs(study.suite, new_results, baseline_runs, study.spec.seed_list)


def against_baselines(result: str | Path, suite_path: str = "") -> tuple[ComparedRuns, str]:
    """Compare the directory or file ``result`` of ``suite run --out`` with its suite's baselines on the same tables.

    ``suite_path`` is the path of the suite, if it cannot be found by name. Returns the runs to compare, and the name of
    the strategy in ``result``. Raises SearchlabError if the file is damaged or the suite cannot be found.
    """
    new_result = read_results([Path(result)])[0]
    suite = find_suite(suite_path or new_result.suite).select_split(None)
    seeds = {run.seed for _, run in new_result.named_runs}
    part = restrict_to_runs(suite, new_result)
    return group_suite_runs(part, [new_result], read_baselines(suite), seeds), new_result.strategy


def choose_label(policy: str, label: str, used_names: Collection[str]) -> str:
    """Return a name for a new policy, for pictures and tables, that differs from those of all baselines."""
    if label in used_names:
        raise SearchlabError(f"{label!r} is the name of a baseline; pass a different --label")
    title = label or Plugin(policy).title
    return f"{title} (new)" if title in used_names else title


@dataclass(frozen=True)
class SuiteAnswer:
    """The comparison of a new strategy with the baselines registered for it, in at most thirty lines."""

    suite: Suite
    new_result: Trajectories
    summary: Summary

    @property
    def label(self) -> str:
        return self.new_result.strategy

    @cached_property
    def answers(self) -> list[ContrastAnswer]:
        return [answer for answer in self.summary.answers if answer.first == self.label]

    @cached_property
    def areas(self) -> pd.DataFrame:
        """The mean area over all seeds, with a row for each workload and a column for each strategy."""
        import pandas as pd  # imported here because the other commands for suites do not need it

        areas = {
            summary.workload: {row.strategy: fmean(row.area.by_seed) for row in summary.strategies}
            for summary in self.summary.workloads
        }
        return pd.DataFrame.from_dict(areas, orient="index")

    @property
    def ranking(self) -> list[tuple[str, float]]:
        """The strategies that ran on every table, sorted by mean area."""
        rows = rank_over_all([summary.by_strategy for summary in self.summary.workloads])
        return [(row.strategy, row.area.value) for row in rows]

    @property
    def is_better_than_all(self) -> bool:
        return bool(self.answers) and all(answer.verdict == "better" for answer in self.answers)

    def describe_verdicts(self) -> str:
        """Return a sentence with the verdicts, such as "Mine is better than random (+0.039)."."""
        if not self.answers:
            return f"{self.label} has no registered comparison with a baseline that ran on all of the same tables."
        clauses = [
            f"{WORDS[answer.verdict]} {answer.second} ({format_effect(answer.difference.on_these.difference)})"
            for answer in self.answers
        ]
        return f"{self.label} is {', '.join(clauses)}."

    def render(self) -> Iterator[RenderableType]:
        """Yield the output for the terminal, which fits in 100 columns."""
        tables, seeds = len(self.summary.workloads), max(len(runs.runs) for runs in self.new_result.tables.values())
        yield Text(self.describe_verdicts(), "bold")
        yield Text(
            f"Differences in mean area under the curve across {counted(tables, 'table')} of {self.suite.name}, "
            f"{counted(seeds, 'seed')}, {counted(self.new_result.trial_count, 'trial')}."
        )
        if self.answers:
            yield Text()
            yield self._make_baseline_table()
            yield Text()
            yield self._make_space_table()
            yield Text()
            yield Text(
                "'p' is for these tables; 'p, others' is for tables like these. Both are corrected; intervals are not. "
                "Counts in parentheses are significant."
            )
            if len(self.areas) > 1:
                strongest = min(self.answers, key=lambda answer: answer.difference.value).second  # on these tables
                differences = self.areas[self.label] - self.areas[strongest]
                worst, best = (
                    f"{differences.index[position]} ({format_signed(float(differences.iloc[position]))})"
                    for position in (int(differences.argmin()), int(differences.argmax()))
                )
                yield Text(f"Compared with {strongest}, {self.label} does worst on {worst} and best on {best}.")
        ranking = self.ranking
        rank = [name for name, _ in ranking].index(self.label)
        neighbours = [f"{name} {_format_number(area)}" for name, area in ranking[max(0, rank - 2) : rank + 3]]
        yield Text(
            f"By mean area, {self.label} is number {rank + 1} of {len(ranking)}; around it are "
            f"{listed(neighbours, None)}. It needed {self.new_result.own_seconds:.3g} s per run for proposing and "
            f"learning, on {self.new_result.host}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the verdict against each baseline, results by space, the ranking and the time spent as plain data."""
        return {
            "strategy": self.label,
            "suite": self.suite.name,
            "headline": self.describe_verdicts(),
            "against": [
                {
                    "baseline": answer.second,
                    "verdict": answer.verdict,
                    "difference": answer.difference.value,
                    "lower": answer.difference.on_these.difference.lower,
                    "upper": answer.difference.on_these.difference.upper,
                    "p_on_these": answer.difference.on_these.p,
                    "p_on_others": answer.difference.on_others.p,
                    "tables": self._count_tables(answer.second),
                }
                for answer in self.answers
            ],
            "families": [
                {"space": space, "tables": tables, "area": area, "differences": differences}
                for space, tables, area, differences in self._summarize_spaces()
            ],
            "ranking": [{"strategy": name, "area": area} for name, area in self.ranking],
            "seconds_per_run": self.new_result.own_seconds,
            "host": self.new_result.host,
        }

    def _make_baseline_table(self) -> Table:
        table = _make_table("against", "difference", "95 % interval", "p", "p, others", "ahead / level / behind")
        for contrast in self.answers[:MAX_SHOWN_BASELINES]:
            interval, counts = contrast.difference.on_these.difference, self._count_tables(contrast.second)
            answers = contrast.difference.on_these, contrast.difference.on_others
            table.add_row(
                Text(contrast.second),
                Text(format_signed(interval.value), STYLES.get(contrast.verdict, "")),
                "-"
                if interval.lower is None
                else f"{_format_number(interval.lower)} to {_format_number(interval.upper)}",
                *("-" if answer.p is None else format_p(answer.p) for answer in answers),
                f"{counts['ahead']} ({counts['significantly ahead']}) / {counts['level']} / "
                f"{counts['behind']} ({counts['significantly behind']})",
            )
        return table

    def _make_space_table(self) -> Table:
        names = [answer.second for answer in self.answers[:MAX_SHOWN_BASELINES]]
        table = _make_table("space", "tables", "area", *(f"less {name}" for name in names))
        for space, tables, area, differences in self._summarize_spaces():
            table.add_row(space, str(tables), _format_number(area), *(format_signed(differences[n]) for n in names))
        return table

    def _summarize_spaces(self) -> Iterator[tuple[str, int, float, dict[str, float]]]:
        """Yield each space with its number of tables, the mean area, and the mean difference from each baseline."""
        spaces = {table.entry.name: table.entry.family for table in self.suite.tables}
        for space, areas in self.areas.groupby(self.areas.index.map(spaces)):
            means = areas.mean()
            names = [answer.second for answer in self.answers]
            differences = {name: float(means[self.label] - means[name]) for name in names}
            yield str(space), len(areas), float(means[self.label]), differences

    def _count_tables(self, baseline: str) -> Mapping[str, int]:
        """Count the tables on which the strategy is ahead of, level with or behind ``baseline``."""
        differences = (self.areas[self.label] - self.areas[baseline]).round(12)
        strategies = {self.label, baseline}
        contrasts = [
            contrast
            for summary in self.summary.workloads
            for contrast in summary.contrasts
            if {contrast.first, contrast.second} == strategies
        ]
        return {
            "ahead": int((differences > 0).sum()),
            "level": int((differences == 0).sum()),
            "behind": int((differences < 0).sum()),
            "significantly ahead": sum(contrast.is_ahead(self.label, baseline) for contrast in contrasts),
            "significantly behind": sum(contrast.is_ahead(baseline, self.label) for contrast in contrasts),
        }


def _format_number(value: float | None) -> str:
    return format_number(value, DIGITS)


def _make_table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if number else "left", overflow="fold")
    return table
