"""Checking that a suite has not changed since it was sealed, and that a result over it can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from ..errors import SearchlabError
from ..files import read_text
from ..log.read import RESULT_FILE_NAME
from ..measure.suite import MANIFEST_FILE, Suite, SuiteTable, compute_file_digest, find_suite
from ..run.strategy import SpaceChoice
from ..tables.info import explain_unsteadiness
from .cards import TableCard
from .replay import replay
from .seal import Manifest, list_files, read_manifest
from .trajectories import Trajectories, read_baselines, read_trajectories

REPLAY_SECONDS = 100.0
"""The time limit for replaying, unless all runs are replayed."""

MEMBERSHIP_SAMPLE_SIZE = 64
"""The number of configs to look up in a space if this requires building programs."""

OnStep = Callable[[str, list[str]], None]
"""A function called after each step, with a description of what was checked and a sentence for each problem."""


def verify_suite(suite: Suite, on_step: OnStep, seconds: float | None) -> bool:
    """Check the files, split, tables, cards and baselines of ``suite``, and return whether all are correct.

    Baselines are replayed for ``seconds``, with at least one run of each, or completely if ``seconds`` is None.
    """
    manifest = read_manifest(suite)
    all_problems: list[str] = []

    def report_step(description: str, problems: list[str]) -> None:
        all_problems.extend(problems)
        on_step(description, problems)

    report_step(f"{len(manifest.files)} files", _find_file_problems(suite, manifest))
    report_step("the split", _find_split_problems(suite, manifest))
    for noun, find_problems in (("tables", _find_table_problems), ("cards", _find_card_problems)):
        problems: list[str] = []
        for table in suite.tables:
            try:
                problems += find_problems(table)
            except SearchlabError as error:
                problems.append(str(error))
        report_step(f"{len(suite.tables)} {noun}", problems)
    try:
        baseline_runs = read_baselines(suite)
    except SearchlabError as error:
        report_step("baselines", [str(error)])
        return False
    report_step(
        f"{len(baseline_runs)} baselines",
        [problem for baseline in baseline_runs for problem in _find_run_problems(suite, baseline)],
    )
    if baseline_runs and not all_problems:
        replay_result = replay(
            suite, baseline_runs, digest=compute_file_digest(suite.directory / MANIFEST_FILE), seconds=seconds
        )
        report_step(replay_result.describe("runs of baselines"), replay_result.problems)
    return not all_problems


def verify_result(
    result_dir: Path,
    on_step: OnStep,
    seconds: float | None = REPLAY_SECONDS,
    trusted: Collection[str] = (),
    suite_path: str = "",
) -> bool:
    """Check that the runs in ``result_dir`` match the local suite and can be replayed, and return whether this is so.

    Args:
        result_dir: A directory written by ``suite run --out``.
        on_step: A function called after each step.
        seconds: The time limit for replaying, in seconds, or None to replay all runs.
        trusted: See :func:`replay`.
        suite_path: The path of the suite, if it cannot be found by name.
    """
    result = read_trajectories(result_dir / RESULT_FILE_NAME)
    suite = find_suite(suite_path or result.suite).select_split(None)
    problems = _find_run_problems(suite, result)
    on_step(f"the runs of {result.strategy} over {len(result.tables)} tables of {suite.name}", problems)
    if problems:
        return False
    replay_result = replay(
        suite, [result], digest=compute_file_digest(result_dir / RESULT_FILE_NAME), seconds=seconds, trusted=trusted
    )
    on_step(replay_result.describe("runs"), replay_result.problems)
    return not replay_result.problems


def _find_file_problems(suite: Suite, manifest: Manifest) -> list[str]:
    files = list_files(suite)
    problems = [f"{name} is missing; fetch it again" for name in manifest.files if name not in files]
    problems += [f"{name} is not in {MANIFEST_FILE}; remove it" for name in files if name not in manifest.files]
    for name, path in files.items():
        if name in manifest.files and (digest := compute_file_digest(path)) != manifest.files[name]:
            problems.append(f"{name} has changed: its SHA-256 is {digest}, not {manifest.files[name]}; fetch it again")
    return problems


def _find_split_problems(suite: Suite, manifest: Manifest) -> list[str]:
    split, sealed_split = suite.splits, manifest.split
    return [
        f"{name} is in the split {split.get(name)}, but was in {sealed_split.get(name)} when the split was frozen"
        for name in sorted({*split, *sealed_split})
        if split.get(name) != sealed_split.get(name)
    ]


def _find_table_problems(table: SuiteTable) -> list[str]:
    header, configs = table.log.header, list(table.positions_by_config)
    space = SpaceChoice.from_table(table).space
    problems = [f"{table.name} is not steady: {text}"] if (text := explain_unsteadiness(table.log)) else []
    if (cores := space.target.cores) != table.entry.threads:
        problems.append(f"{table.name} was measured with {cores} threads instead of {table.entry.threads}")
    if duplicate_count := len(table.log.records) - len(configs):
        problems.append(f"{table.name} contains {duplicate_count} duplicate configs")
    if space.builds_programs:
        rng = np.random.default_rng(int(table.digest[:16], 16))
        sample = rng.permutation(len(configs))[:MEMBERSHIP_SAMPLE_SIZE].tolist()
        foreign_count = sum(configs[position] not in space for position in sample)
    else:
        members = set(space.enumerate())
        foreign_count = sum(config not in members for config in configs)
        if header.space_size != len(members):
            problems.append(
                f"{table.name} records that its space has {header.space_size} configs, but the space has {len(members)}"
            )
    if foreign_count:
        problems.append(f"{table.name} contains {foreign_count} configs that are not in its space")
    if header.space_size is None or len(configs) < header.space_size:
        problems.append(f"{table.name} contains only {len(configs)} of the {header.space_size} configs in its space")
    return problems


def _find_card_problems(table: SuiteTable) -> list[str]:
    card_name = f"cards/{table.entry.name}.md"
    card_path = table.directory / card_name
    if not card_path.is_file():
        return [f"{card_name} is missing; run `searchlab suite seal` to create it"]
    is_correct = read_text(card_path, under=table.directory) == TableCard(table).to_markdown()
    return [] if is_correct else [f"{card_name} does not match its table; run `searchlab suite seal` to rewrite it"]


def _find_run_problems(suite: Suite, trajectories: Trajectories) -> list[str]:
    problems = []
    for name in trajectories.tables:
        try:
            trajectories.runs_on(suite.table(name))
        except SearchlabError as error:
            problems.append(str(error))
    return problems
