"""Sealing a suite, checking that it has not changed since, and replaying runs over it.

A replay reruns a strategy over a table, where it must propose the same configs in the same order.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import platformdirs

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, SearchlabWarning
from ..files import FileMissing, read_text, write_file
from ..log.budget import Budget
from ..log.programs import list_version_changes
from ..log.read import RESULT_FILE_NAME
from ..machine.host import library_versions
from ..machine.scratch import ScratchFolder
from ..measure.contract import Measurer
from ..measure.suite import MANIFEST_FILE, Suite, digest_of, find_suite, split_of
from ..plugins import functions_in, names_from, search_path, trust_plugins, trusts, unregistered_code
from ..policy import POLICIES
from ..run.loop import search
from ..run.plan import Run, plan_run
from ..run.strategy import SpaceChoice, Strategy
from ..schema import UNREADABLE
from ..source import source_digest
from ..tables.info import unsteady
from .cards import TableCard
from .dataset import dataset_files
from .trajectories import RecordedTable, RecordedTables, Trajectories, Trajectory, baselines, read_trajectories

SECONDS = 100.0
"""The time limit for replaying, unless all runs are replayed."""

CHECK_SECONDS = 2.0
"""The time after which no further run of a baseline is replayed before it is used."""

SAMPLE = 64
"""The number of configs to look up in a space if this requires building programs."""

NUMPY_WITHOUT = "NPY_DISABLE_CPU_FEATURES"
"""The environment variable with features of the CPU that numpy must not use."""

OnStep = Callable[[str, list[str]], None]
"""A function called after each step, with a description of what was checked and a sentence for each problem."""

Case = tuple[Trajectories, str, Trajectory]
"""A run to replay: the trajectories of its strategy, the name of its table, and its trajectory."""


# --- sealing ----------------------------------------------------------------------------------------------------------


class Manifest(msgspec.Struct, frozen=True):
    """The content of ``manifest.json``.

    Attributes:
        split: The split of each table.
        files: The SHA-256 of each file, by relative path.
    """

    version: str
    split: Mapping[str, str]
    files: dict[str, str]


def files_of(suite: Suite) -> dict[str, Path]:
    """Return the files of a suite by relative path, except its manifest and hidden files."""
    paths = {path.relative_to(suite.directory).as_posix(): path for path in sorted(suite.directory.rglob("*"))}
    return {
        name: path
        for name, path in paths.items()
        if path.is_file() and name != MANIFEST_FILE and not any(part.startswith(".") for part in name.split("/"))
    }


def read_manifest(suite: Suite) -> Manifest:
    """Read the manifest of ``suite``. Raises SearchlabError if it is missing or damaged."""
    path = suite.directory / MANIFEST_FILE
    try:
        return msgspec.json.decode(read_text(path, under=suite.directory, kind="the manifest"), type=Manifest)
    except FileMissing as error:
        raise SearchlabError(f"{error}; `searchlab suite seal {suite.directory}` creates it") from None
    except UNREADABLE as error:
        raise SearchlabError(f"the manifest {path} is damaged: {error}; fetch it again") from None


def seal(suite: Suite, on_table: Callable[[str], None] = lambda name: None) -> Manifest:
    """Seal ``suite`` by writing each table's card, the suite's own card and metadata, and the manifest.

    Raises:
        SearchlabError: If a table is missing, if its times depend on when they were measured, or if a table would move
            from one split to the other.
    """
    split = split_of(suite)
    if (suite.directory / MANIFEST_FILE).exists():
        sealed_split = read_manifest(suite).split
        if moved_tables := sorted(name for name in sealed_split if name in split and split[name] != sealed_split[name]):
            raise SearchlabError(
                f"the split of {suite.name} is frozen, but {', '.join(moved_tables)} would move to the other side; "
                f"create a new version of the suite"
            )
    cards = suite.directory / "cards"
    try:
        cards.mkdir(exist_ok=True)
        for card_path in cards.glob("*.md"):
            card_path.unlink()
        table_cards = []
        for table in suite.tables:
            on_table(table.name)
            card = TableCard(RecordedTable(table))
            if card.info.unsteady:
                raise SearchlabError(f"{table.name} cannot be sealed: {card.info.unsteady}; rebuild this table")
            write_file(cards / f"{table.entry.name}.md", card.text(), under=suite.directory)
            table_cards.append(card)
        for name, text in dataset_files(suite, table_cards).items():
            write_file(suite.directory / name, text, under=suite.directory)
        files = {name: digest_of(path) for name, path in files_of(suite).items()}
        manifest = Manifest(suite.spec.version, split, files)
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        write_file(suite.directory / MANIFEST_FILE, data, under=suite.directory, durable=True)
    except OSError as error:
        raise SearchlabError(f"cannot write to {suite.directory}: {error.strerror}") from None
    return manifest


# --- verifying --------------------------------------------------------------------------------------------------------


def verify_suite(suite: Suite, on_step: OnStep, seconds: float | None) -> bool:
    """Check the files, split, tables, cards and baselines of ``suite``, and return whether all are correct.

    Baselines are replayed for ``seconds``, with at least one run of each, or completely if ``seconds`` is None.
    """
    manifest = read_manifest(suite)
    tables = [RecordedTable(table) for table in suite.tables]
    is_correct = True

    def step(description: str, problems: list[str]) -> None:
        nonlocal is_correct
        is_correct = is_correct and not problems
        on_step(description, problems)

    step(f"{len(manifest.files)} files", _file_problems(suite, manifest))
    step("the split", _split_problems(suite, manifest))
    for kind, check in (("tables", _table_problems), ("cards", _card_problems)):
        problems: list[str] = []
        for table in tables:
            try:
                problems += check(table)
            except SearchlabError as error:
                problems.append(str(error))
        step(f"{len(tables)} {kind}", problems)
    try:
        baseline_runs = baselines(suite)
    except SearchlabError as error:
        step("baselines", [str(error)])
        return False
    step(
        f"{len(baseline_runs)} baselines",
        [problem for baseline in baseline_runs for problem in _run_problems(suite, baseline)],
    )
    if baseline_runs and is_correct:
        result = replay(suite, baseline_runs, digest=digest_of(suite.directory / MANIFEST_FILE), seconds=seconds)
        step(result.describe("runs of baselines"), result.problems)
    return is_correct


def verify_result(
    directory: Path,
    on_step: OnStep,
    seconds: float | None = SECONDS,
    trusted: Collection[str] = (),
    suite_path: str = "",
) -> bool:
    """Check that the runs in ``directory`` match the local suite and can be replayed, and return whether this is so.

    Args:
        directory: A directory written by ``suite run --out``.
        on_step: A function called after each step.
        seconds: The time limit for replaying, in seconds, or None to replay all runs.
        trusted: See :func:`replay`.
        suite_path: The path of the suite, if it cannot be found by name.
    """
    result = read_trajectories(directory / RESULT_FILE_NAME)
    suite = find_suite(suite_path or result.suite).select_split(None)
    problems = _run_problems(suite, result)
    on_step(f"the runs of {result.strategy} over {len(result.tables)} tables of {suite.name}", problems)
    if problems:
        return False
    replay_result = replay(
        suite, [result], digest=digest_of(directory / RESULT_FILE_NAME), seconds=seconds, trusted=trusted
    )
    on_step(replay_result.describe("runs"), replay_result.problems)
    return not replay_result.problems


def _file_problems(suite: Suite, manifest: Manifest) -> list[str]:
    files = files_of(suite)
    problems = [f"{name} is missing; fetch it again" for name in manifest.files if name not in files]
    problems += [f"{name} is not in {MANIFEST_FILE}; remove it" for name in files if name not in manifest.files]
    for name, path in files.items():
        if name in manifest.files and (digest := digest_of(path)) != manifest.files[name]:
            problems.append(f"{name} has changed: its SHA-256 is {digest}, not {manifest.files[name]}; fetch it again")
    return problems


def _split_problems(suite: Suite, manifest: Manifest) -> list[str]:
    split, sealed_split = split_of(suite), manifest.split
    return [
        f"{name} is in the split {split.get(name)}, but was in {sealed_split.get(name)} when the split was frozen"
        for name in sorted({*split, *sealed_split})
        if split.get(name) != sealed_split.get(name)
    ]


def _table_problems(recorded_table: RecordedTable) -> list[str]:
    table, records = recorded_table.table, recorded_table.log.records
    space = SpaceChoice.from_table(table).space
    problems = [f"{table.name} is not steady: {text}"] if (text := unsteady(recorded_table.log)) else []
    if (cores := space.target.cores) != table.entry.threads:
        problems.append(f"{table.name} was measured with {cores} threads instead of {table.entry.threads}")
    if len(recorded_table.positions) < len(records):
        problems.append(f"{table.name} contains {len(records) - len(recorded_table.positions)} duplicate configs")
    size = recorded_table.log.header.space_size
    if space.builds_programs:
        rng = np.random.default_rng(int(table.digest[:16], 16))
        configs = list(recorded_table.positions)
        foreign_count = sum(configs[i] not in space for i in rng.permutation(len(records))[:SAMPLE].tolist())
    else:
        members = set(space.enumerate())
        foreign_count = len(recorded_table.positions.keys() - members)
        if size != len(members):
            problems.append(f"{table.name} records that its space has {size} configs, but the space has {len(members)}")
    if foreign_count:
        problems.append(f"{table.name} contains {foreign_count} configs that are not in its space")
    if size is None or len(recorded_table.positions) < size:
        problems.append(
            f"{table.name} contains only {len(recorded_table.positions)} of the {size} configs in its space"
        )
    return problems


def _card_problems(recorded_table: RecordedTable) -> list[str]:
    name = f"cards/{recorded_table.table.entry.name}.md"
    path = recorded_table.table.directory / name
    if not path.is_file():
        return [f"{name} is missing; run `searchlab suite seal` to create it"]
    is_correct = read_text(path, under=recorded_table.table.directory) == TableCard(recorded_table).text()
    return [] if is_correct else [f"{name} does not match its table; run `searchlab suite seal` to rewrite it"]


def _run_problems(suite: Suite, trajectories: Trajectories) -> list[str]:
    problems, recorded_tables = [], RecordedTables(suite)
    for name in trajectories.tables:
        try:
            for run in trajectories.runs_on(recorded_tables[name].table).runs:
                recorded_tables[name].check(trajectories, run)
        except SearchlabError as error:
            problems.append(str(error))
    return problems


# --- replaying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplayResult:
    """The result of :func:`replay`.

    Attributes:
        runs: The number of runs that were replayed.
        total: The number of all runs.
        problems: A sentence for each run that now differs.
        without_avx512: The number of runs that can be replayed only if numpy does not use AVX-512.
    """

    runs: int
    total: int
    problems: list[str]
    without_avx512: int

    def describe(self, kind: str) -> str:
        """Describe the verification step that replayed ``kind``, such as "runs"."""
        suffix = f", {self.without_avx512} of them without numpy's code for AVX-512" if self.without_avx512 else ""
        return f"{self.runs:,} of {self.total:,} {kind}, replayed{suffix}"


class Replayer:
    """A context manager that replays runs over a suite's tables, because a measurer may own processes."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._recorded_tables = RecordedTables(suite)
        self._tables: dict[str, tuple[SpaceChoice, Measurer]] = {}
        self._exit_stack = ExitStack()

    def __enter__(self) -> Replayer:
        self._folder = Path(self._exit_stack.enter_context(ScratchFolder()))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def describe_difference(self, trajectories: Trajectories, name: str, original: Trajectory) -> str:
        """Replay a run over the table ``name``. Return a sentence on how it differs, or "" if it does not."""
        table = self._recorded_tables[name]
        new_run = self.replay_run(trajectories, name, original.seed)
        positions = new_run.configs
        if new_run == original:
            return ""
        run_title = f"{trajectories.strategy} over {table.table.name} with seed {original.seed}"
        changes = list_version_changes(trajectories.versions)
        note = f"; these versions have changed since: {', '.join(changes)}" if changes else ""
        for trial, (before, after) in enumerate(zip(original.configs, positions, strict=False)):
            if before != after:
                return f"{run_title}: trial {trial} was config {before} of the table, but is now config {after}{note}"
        return f"{run_title}: the run had {len(original.configs)} trials, but now has {len(positions)}{note}"

    def replay_run(self, trajectories: Trajectories, name: str, seed: int) -> Trajectory:
        """Run the strategy of ``trajectories`` over the table ``name``."""
        table = self._recorded_tables[name]
        space_choice, measurer = self._table(name)
        log = self._folder / "replay.jsonl"
        log.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchlabWarning)  # the original run already issued these warnings
            run = Run(
                space_choice,
                strategy_of(trajectories),
                seed,
                trajectories.batch,
                Budget(trajectories.trials),
                table.table.settings(),
                log,
                starts=trajectories.starts,
            )
            replayed_log = search(plan_run(run), measurer)
        return Trajectory(seed, table.indices_of(replayed_log), bool(replayed_log.ended))

    def replay_without_avx512(self, cases: Sequence[Case], features: Sequence[str]) -> list[str] | None:
        """Replay runs in a process whose numpy does not use ``features``.

        Returns the differences, or None if the process fails.
        """
        words = [sys.executable, "-P", "-c", f"from {__name__} import _replay_in_subprocess; _replay_in_subprocess()"]
        env = {**os.environ, NUMPY_WITHOUT: " ".join(features), "PYTHONPATH": search_path()}
        data = pickle.dumps((self._suite, cases, trusts()))
        process = subprocess.run(words, input=data, capture_output=True, env=env, check=False)
        return None if process.returncode else list(json.loads(process.stdout.splitlines()[-1]))

    def _table(self, name: str) -> tuple[SpaceChoice, Measurer]:
        if name not in self._tables:
            table = self._recorded_tables[name].table
            space_choice = SpaceChoice.from_table(table)
            measurer = self._exit_stack.enter_context(table.settings().make(space_choice.space.target, {}))
            self._tables[name] = space_choice, measurer
        return self._tables[name]


def strategy_of(trajectories: Trajectories) -> Strategy:
    """Return the strategy whose runs were recorded."""
    features = trajectories.features if trajectories.cost_model else None
    return Strategy.from_specs(trajectories.policy, trajectories.cost_model, features, trajectories.strategy)


def replay(
    suite: Suite, runs: Sequence[Trajectories], *, digest: str, seconds: float | None, trusted: Collection[str] = ()
) -> ReplayResult:
    """Replay one run of each strategy, then the other runs, in random order.

    Args:
        suite: The suite.
        runs: The trajectories of each strategy.
        digest: The seed for the order, as hexadecimal digits.
        seconds: The time in seconds after which no further run starts, or None to replay all runs.
        trusted: Policies and cost models (``module:Class``) that may be imported even if they are not registered.

    Raises:
        SearchlabError: If a strategy uses code that is neither registered nor trusted.
    """
    for trajectories in runs:
        _check_trusted(trajectories, trusted)
    with Replayer(suite) as replayer:
        return replay_with(replayer, runs, digest, seconds)


def replay_with(replayer: Replayer, runs: Sequence[Trajectories], digest: str, seconds: float | None) -> ReplayResult:
    """Replay runs with ``replayer``; see :func:`replay`."""
    order = list(_draw_runs(runs, digest))
    differ: list[tuple[Case, str]] = []
    start, count = time.monotonic(), 0
    for case in order:
        if seconds is not None and count >= len(runs) and time.monotonic() - start > seconds:
            break
        count += 1
        if problem := replayer.describe_difference(*case):
            differ.append((case, problem))
    problems = [problem for _, problem in differ]
    # A logarithm computed by numpy may differ in its last bit between CPUs, and so may a proposal that depends on it.
    if problems and (features := avx512()):
        problems = replayer.replay_without_avx512([case for case, _ in differ], features) or problems
    return ReplayResult(count, len(order), list(filter(None, problems)), problems.count(""))


def check_baselines(
    suite: Suite, baseline_runs: Sequence[Trajectories], say: Callable[[str], None] = lambda text: None
) -> None:
    """Check that baselines are still what their policies and cost models do, because users compare with them by name.

    A baseline is replayed in part if its code has changed since it was recorded, or if the suite does not record the
    code, but only once: the user's cache remembers the code that reproduced it. Baselines that cannot be replayed here,
    because their plug-ins are missing or not trusted, are not checked. ``say`` is told of each replay, which takes
    seconds.

    Raises:
        SearchlabError: If a replay differs.
    """
    for baseline in baseline_runs:
        try:
            code = _code_of(suite, baseline)
        except SearchlabError:
            continue
        if code == baseline.code:
            continue
        identity = msgspec.json.encode([baseline, code, library_versions()], order="sorted")
        marker = platformdirs.user_cache_path("searchlab") / "baselines" / hashlib.sha256(identity).hexdigest()[:32]
        if marker.exists():
            continue
        say(f"checking that {baseline.strategy} still proposes what its recorded runs contain, once")
        replay_result = replay(suite.select_split(None), [baseline], digest=marker.name, seconds=CHECK_SECONDS)
        if replay_result.problems:
            raise SearchlabError(
                f"the baseline {baseline.strategy} of {suite.spec.version} is not what its code does now: "
                f"{replay_result.problems[0]}; use the code that recorded it, or record it again (`searchlab suite "
                f"baselines`); `searchlab suite verify {suite.directory}` shows all differences"
            )
        with suppress(OSError):  # it is replayed again next time
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()


def _code_of(suite: Suite, baseline: Trajectories) -> dict[str, str]:
    """Return the digests of a baseline's code. Raises SearchlabError if the code is missing or not trusted."""
    with names_from(suite.directory):
        digests = {"policy": source_digest(POLICIES.load(baseline.policy.name), *functions_in(baseline.policy.options))}
        if (model := baseline.cost_model) is not None:
            digests["cost_model"] = source_digest(COST_MODELS.load(model.name), *functions_in(model.options))
    return digests


def avx512() -> list[str]:
    """Return numpy's names for those AVX-512 features of this CPU for which numpy has special code."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # type: ignore[import-not-found]

    return [name for name in __cpu_dispatch__ if __cpu_features__[name] and (name == "X86_V4" or "AVX512" in name)]


def _replay_in_subprocess() -> None:
    suite, cases, trust = pickle.loads(sys.stdin.buffer.read())
    with trust_plugins(trust), Replayer(suite) as replayer:
        print(json.dumps([replayer.describe_difference(*case) for case in cases]))


def _draw_runs(runs: Sequence[Trajectories], digest: str) -> Iterator[Case]:
    """Yield all runs in random order, starting with one run of each strategy."""
    rng = np.random.default_rng(int(digest[:16], 16))
    queues = []
    for trajectories in runs:
        cases = [
            (trajectories, name, run) for name, table_runs in trajectories.tables.items() for run in table_runs.runs
        ]
        queues.append([cases[i] for i in rng.permutation(len(cases))])
    for row in range(max(map(len, queues), default=0)):
        yield from (queue[row] for queue in queues if row < len(queue))


def _check_trusted(trajectories: Trajectories, trusted: Collection[str]) -> None:
    """Raise SearchlabError if ``trajectories`` uses code that is neither registered nor ``trusted``."""
    code = unregistered_code([[plugin.name, plugin.options] for plugin in trajectories.plugins])
    unknown_names = [name for name in code if name not in trusted]
    if unknown_names and not trusts():
        options = " ".join(f"--policy {name}" for name in dict.fromkeys([*trusted, *unknown_names]))
        raise SearchlabError(
            f"{trajectories.strategy} uses {', '.join(unknown_names)}, which no installed package registers; install "
            f"the package that provides it, or pass {options} if you trust it"
        )
