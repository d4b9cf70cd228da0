"""Whether a suite is what its manifest says, and whether runs over it replay."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from ..errors import SearchlabError
from ..measure.suite import Suite, digest_of, find_suite
from ..run.study import searched_table
from ..tables.steadiness import unsteady
from .cards import Card
from .manifest import FILE, Manifest, files_of, read_manifest, split_digest, split_of
from .replay import replay
from .trajectories import RecordedTable, RecordedTables, Trajectories, baselines, read_trajectories

RESULT = "result.json.gz"
"""The file of a bundle."""

SECONDS = 100.0
"""How long runs are replayed, unless all are."""

SAMPLE = 64
"""How many configs are looked up in a space that builds programs to decide."""

OnStep = Callable[[str, list[str]], None]
"""Called after each step, with what was looked at, and a sentence for each thing that is wrong."""


def verify_suite(suite: Suite, on_step: OnStep, seconds: float | None = SECONDS) -> bool:
    """Whether nothing is wrong with ``suite``: its files, split, tables, cards, and baselines.

    seconds: how long baselines are replayed, at least a run of each; None to replay all.
    """
    manifest = read_manifest(suite)
    tables = [RecordedTable(table) for table in suite.tables]
    right = True

    def step(said: str, problems: list[str]) -> None:
        nonlocal right
        right = right and not problems
        on_step(said, problems)

    step(f"{len(manifest.files)} files", _files(suite, manifest))
    step("the split", _split(suite, manifest))
    step(f"{len(tables)} tables", [problem for table in tables for problem in _told(_table, table)])
    step(f"{len(tables)} cards", [problem for table in tables for problem in _told(_card, table)])
    try:
        shipped = baselines(suite)
    except SearchlabError as error:
        step("baselines", [str(error)])
        return False
    problems = [problem for one in shipped for problem in _runs(suite, one)]
    step(f"{len(shipped)} baselines", problems)
    if shipped and right:
        digest = digest_of(suite.directory / FILE)
        done = replay(suite, shipped, digest=digest, seconds=seconds)
        step(done.told("runs of baselines"), done.problems)
    return right


def verify_bundle(
    bundle: Path, on_step: OnStep, seconds: float | None = SECONDS, trusted: Collection[str] = (), where: str = ""
) -> bool:
    """Whether the runs in the directory ``bundle`` are over the suite as it is here, and replay.

    where: the suite, if it is not found by its name. trusted: as :func:`~searchlab.suite.replay.replay` takes it.
    """
    result = read_trajectories(bundle / RESULT)
    suite = find_suite(where or result.suite).part(None)
    problems = _runs(suite, result)
    on_step(f"the runs of {result.strategy} over {len(result.tables)} tables of {suite.name}", problems)
    if problems:
        return False
    digest = digest_of(bundle / RESULT)
    done = replay(suite, [result], digest=digest, seconds=seconds, trusted=trusted)
    on_step(done.told("runs"), done.problems)
    return not done.problems


def _told(check: Callable[[RecordedTable], list[str]], table: RecordedTable) -> list[str]:
    try:
        return check(table)
    except SearchlabError as error:
        return [str(error)]


def _files(suite: Suite, manifest: Manifest) -> list[str]:
    here = files_of(suite)
    missing = [f"{name} is missing; fetch it again" for name in manifest.files if name not in here]
    foreign = [f"{name} is not in {FILE}; remove it" for name in here if name not in manifest.files]
    changed = [
        f"{name} has changed: its SHA-256 is {now}, not {manifest.files[name]}; fetch it again"
        for name, path in here.items()
        if name in manifest.files and (now := digest_of(path)) != manifest.files[name]
    ]
    return missing + foreign + changed


def _split(suite: Suite, manifest: Manifest) -> list[str]:
    split = split_of(suite)
    problems = []
    for name in sorted({*split, *manifest.split}):
        if split.get(name) != manifest.split.get(name):
            problems.append(
                f"{name} is in the split {split.get(name)}, not {manifest.split.get(name)} as it was frozen"
            )
    if not problems and split_digest(split) != manifest.split_digest:
        problems.append(f"the digest of the split is {split_digest(split)}, not {manifest.split_digest}")
    return problems


def _table(recorded: RecordedTable) -> list[str]:
    table, records = recorded.table, recorded.log.records
    space = searched_table(table).space
    problems = [f"{table.name} is refused: {text}"] if (text := unsteady(recorded.log)) else []
    if (cores := space.target.cores) != table.entry.threads:
        problems.append(f"{table.name} was measured with {cores} threads, not {table.entry.threads}")
    if len(recorded.places) < len(records):
        problems.append(f"{table.name} holds {len(records) - len(recorded.places)} configs twice")
    size = recorded.log.header.space_size
    if space.builds_programs:
        rng = np.random.default_rng(int(table.digest[:16], 16))
        drawn = rng.permutation(len(records))[:SAMPLE].tolist()
        configs = list(recorded.places)
        strangers = sum(configs[i] not in space for i in drawn)
    else:
        everything = set(space.enumerate())
        strangers = len(recorded.places.keys() - everything)
        if size != len(everything):
            problems.append(f"{table.name} says that its space has {size} configs, and it has {len(everything)}")
    if strangers:
        problems.append(f"{table.name} holds {strangers} configs that are not in its space")
    if size is None or len(recorded.places) < size:
        problems.append(f"{table.name} holds {len(recorded.places)} of the {size} configs of its space")
    return problems


def _card(recorded: RecordedTable) -> list[str]:
    name = f"cards/{recorded.table.entry.name}.md"
    path = recorded.table.directory / name
    if not path.is_file():
        return [f"{name} is missing; `searchlab suite seal` makes it"]
    if path.read_text(encoding="utf-8") != Card(recorded).text():
        return [f"{name} is not the card of its table; `searchlab suite seal` rewrites it"]
    return []


def _runs(suite: Suite, of: Trajectories) -> list[str]:
    """What is wrong with trajectories, as far as the tables tell."""
    problems = []
    recorded = RecordedTables(suite)
    for name in of.tables:
        try:
            for run in of.runs_on(recorded[name].table).runs:
                recorded[name].check(of, run)
        except SearchlabError as error:
            problems.append(str(error))
    return problems
