"""A policy over the tables of a suite, compared with the suite's baselines, of which only the trajectories are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console

from ..analysis.read import compared
from ..analysis.runs import ComparedRuns
from ..errors import SearchlabError
from ..log.format import Log
from ..measure.suite import Suite, find_suite
from ..policy import POLICIES
from ..run.study import Study
from .trajectories import RecordedTables, Trajectories, baselines, collect, read_trajectories


def suite_study(
    suite: Suite, policy: Mapping[str, Any], seeds: int | None = None, against: Collection[str] = ()
) -> Study:
    """The study of ``policy`` over the tables of ``suite``, with its protocol.

    Args:
        suite: The suite, a split or a table of it.
        policy: An entry as in a study file, with its ``label``.
        seeds: Runs over each table, by default those of the protocol.
        against: The baselines that the policy is registered to be compared with, before it runs.
    """
    part = suite.only or suite.split
    where = suite.directory.resolve()
    return Study.from_dict(
        {
            "suite": str(where / part if part else where),
            "policies": [dict(policy)],
            "contrasts": [[policy["label"], name] for name in against],
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


def default_baselines(suite: Suite, policy: type[Any] | None = None) -> list[str]:
    """The baselines that a new policy is compared with unless others are named.

    These are random search, the best baseline on the development split (by mean area), and the policy's ancestor: the
    registered policy that its class is or derives from, if that is a baseline.
    """
    areas = dev_areas(suite)
    ancestors = [name for base in (policy.__mro__ if policy else ()) if (name := POLICIES.name_of(base)) in areas]
    best = sorted(areas, key=lambda name: -areas[name])
    return list(dict.fromkeys(name for name in ("random", *best[:1], *ancestors[:1]) if name in areas))


def dev_areas(suite: Suite) -> dict[str, float]:
    """The mean area under the curve of each baseline that ran over all of the development split.

    If there is no development split, all tables count. Tables in which every config fails say nothing and are left out.
    """
    whole = suite.part(None)
    part = suite.part("dev") if suite.part("dev").tables else whole
    recorded, areas = RecordedTables(part), dict[str, float]()
    tables = [table for table in part.tables if np.isfinite(recorded[table.entry.name].log.costs).any()]
    for one in baselines(whole):
        if not tables or any(table.entry.name not in one.tables for table in tables):
            continue
        means = []
        for table in tables:
            costs = recorded[table.entry.name].log.costs
            for run in one.runs_on(table).runs:
                best = np.minimum.accumulate(costs[list(run.configs)])
                best = np.pad(best, (0, max(0, one.trials - len(best))), mode="edge")  # a run that ended keeps its best
                means.append(float((costs.min() / best).mean()))
        areas[one.strategy] = float(np.mean(means))
    return areas


def searched(suite: Suite, new: Trajectories) -> Suite:
    """The tables of ``suite`` that ``new`` has runs over: a policy may refuse some spaces."""
    tables = [entry for entry in suite.spec.tables if entry.name in new.tables]
    return replace(suite, spec=msgspec.structs.replace(suite.spec, tables=tables))


def compare(
    suite: Suite, new: Sequence[Trajectories], shipped: Sequence[Trajectories], seeds: Collection[int]
) -> ComparedRuns:
    """Compare runs over the tables of ``suite`` as a report does.

    Seconds are those of building and running: what the strategies spent on other machines is not charged.

    Args:
        suite: The suite, a split or a table of it.
        new: Results. A contrast that they register with a baseline counts, since the runs of baselines never change.
        shipped: Baselines of the suite.
        seeds: The seeds to compare.

    Raises:
        SearchlabError: If two of the results have the same name.
    """
    registered = tuple(pair for one in new for pair in one.contrasts)
    sets = [*new, *(msgspec.structs.replace(one, contrasts=registered) for one in shipped)]
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
    part = searched(suite, new)
    seeds = {run.seed for runs in new.tables.values() for run in runs.runs}
    return compare(part, [new], baselines(suite), seeds), new.strategy


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
