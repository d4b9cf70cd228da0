"""A policy over the tables of a suite, compared with the suite's baselines, of which only the trajectories are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.measures import AREA, StrategySummary
from ..analysis.model import Summary, WorkloadSummary
from ..analysis.read import compared
from ..analysis.runs import ComparedRuns
from ..errors import SearchlabError
from ..log.format import Log
from ..measure.suite import Suite, find_suite
from ..run.study import Study
from .trajectories import RecordedTables, Trajectories, baselines, collect, read_trajectories


def suite_study(suite: Suite, policy: Mapping[str, Any], seeds: int | None = None) -> Study:
    """The study of ``policy``, an entry as in a study file, over the tables of ``suite``, with its protocol."""
    part = suite.only or suite.split
    where = suite.directory.resolve()
    return Study.from_dict(
        {
            "suite": str(where / part if part else where),
            "policies": [dict(policy)],
            **({"seeds": seeds} if seeds else {}),
        }
    )


def run_policy(study: Study, out: Path, jobs: int = 1, *, progress: bool | Console | None = None) -> Trajectories:
    """The runs of the one policy of ``study`` over its suite. The logs are in ``out``, from which a later call resumes.

    progress: as of :meth:`~searchlab.run.study.Study.run`.
    Raises SearchlabError for bad input, and if the policy can search no table.
    """
    results = study.run(out, jobs=jobs, progress=progress)
    assert study.suite is not None
    (trajectories,) = collect(study.suite, [result.log.path for result in results])
    return trajectories


def compare(suite: Suite, sets: Sequence[Trajectories], seeds: Collection[int]) -> ComparedRuns:
    """The runs of ``sets`` over the tables of ``suite`` from ``seeds``, as a report compares them.

    Seconds are those of building and running: what the strategies spent on other machines is not charged.
    Raises SearchlabError if two of ``sets`` have one name.
    """
    names = [one.strategy for one in sets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SearchlabError(f"two of the results are called {twice[0]!r}; leave one out, or make it with a --label")
    return compared(_rebuilt(suite, sets, seeds))


def against_baselines(result: Path, where: str = "") -> tuple[ComparedRuns, str]:
    """The runs in the file ``result`` of ``suite run --out`` beside the baselines of its suite, on the same tables.

    Second, the name of its strategy. where: the suite, if it is not found by its name.
    Raises SearchlabError if the file is damaged, or if the suite is not found.
    """
    new = read_trajectories(result)
    suite = find_suite(where or new.suite).part(None)
    tables = [entry for entry in suite.spec.tables if entry.name in new.tables]
    part = Suite(suite.directory, msgspec.structs.replace(suite.spec, tables=tables))
    seeds = {run.seed for runs in new.tables.values() for run in runs.runs}
    return compare(part, [new, *baselines(suite)], seeds), new.strategy


def _rebuilt(suite: Suite, sets: Sequence[Trajectories], seeds: Collection[int]) -> Iterator[tuple[Log, str]]:
    recorded = RecordedTables(suite)
    for table in suite.tables:
        for one in sets:
            if table.entry.name not in one.tables:
                continue
            for run in one.runs_on(table).runs:
                if run.seed in seeds:
                    log = recorded[table.entry.name].rebuilt(one, run)
                    yield log, log.path.as_posix()


def label_for(policy: str, label: str, taken: Collection[str]) -> str:
    """The name of a new policy in pictures and tables, which no baseline has."""
    if label in taken:
        raise SearchlabError(f"a baseline is called {label!r} too; give another --label")
    name = label or policy.rpartition(":")[2].rpartition(".")[2]
    return f"{name} (new)" if name in taken else name


def by_table(summary: Summary, label: str) -> Table:
    """A row for each table: the area of each strategy, median over seeds, and how it compares with ``label``."""
    measure = StrategySummary.area
    column = measure.columns[0]
    names = [row.strategy for row in summary.overall.strategies] if summary.overall else []
    names = names or sorted({row.strategy for item in summary.workloads for row in item.strategies})
    others = [name for name in names if name != label]
    table = Table(
        title=Text(
            f"{measure.compared_by}, by table; + where {label} is significantly better, - where it is worse", "bold"
        ),
        title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("table", overflow="fold")
    for name in (label, *others):
        table.add_column(Text(name), justify="right", overflow="fold", min_width=6)
    for item in summary.workloads:
        numbers = {row.strategy: column.number(row.area) for row in item.strategies}
        best = measure.better(numbers.values())
        cells: list[str | Text] = []
        for name in (label, *others):
            if name not in numbers:
                cells.append("-")
                continue
            text = Text(column.text(numbers[name]), "bold" if numbers[name] == best else "")
            cells.append(text.append(_mark(item, label, name), ""))
        table.add_row(Text(item.workload), *cells)
    return table


def _mark(item: WorkloadSummary, label: str, name: str) -> str:
    for contrast in item.contrasts:
        if contrast.measure == AREA and {contrast.first, contrast.second} == {label, name}:
            return "+" if contrast.ahead(label, name) else "-" if contrast.ahead(name, label) else " "
    return " "
