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
from typing import NamedTuple

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
from ..measure.suite import MANIFEST_FILE, Suite, compute_file_digest, find_suite
from ..plugins import find_unregistered_code, iterate_functions, names_from, search_path, trust_plugins, trusts
from ..policy import POLICIES
from ..run.loop import search
from ..run.plan import Run, plan_run
from ..run.strategy import SpaceChoice, Strategy
from ..schema import UNREADABLE
from ..source import source_digest
from ..tables.info import explain_unsteadiness
from .cards import TableCard
from .dataset import make_dataset_texts
from .trajectories import RecordedTable, RecordedTables, Trajectories, Trajectory, read_baselines, read_trajectories

REPLAY_SECONDS = 100.0
"""The time limit for replaying, unless all runs are replayed."""

BASELINE_CHECK_SECONDS = 2.0
"""The time after which no further run of a baseline is replayed before it is used."""

MEMBERSHIP_SAMPLE_SIZE = 64
"""The number of configs to look up in a space if this requires building programs."""

NUMPY_FEATURES_VARIABLE = "NPY_DISABLE_CPU_FEATURES"
"""The environment variable with features of the CPU that numpy must not use."""

OnStep = Callable[[str, list[str]], None]
"""A function called after each step, with a description of what was checked and a sentence for each problem."""


class RunToReplay(NamedTuple):
    """A run to replay: the runs of its strategy, the name of its table, and its trajectory."""

    trajectories: Trajectories
    table_name: str
    trajectory: Trajectory


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


def list_files(suite: Suite) -> dict[str, Path]:
    """Return the files of a suite by relative path, except its manifest and hidden files."""
    paths_by_name = {path.relative_to(suite.directory).as_posix(): path for path in sorted(suite.directory.rglob("*"))}
    return {
        name: path
        for name, path in paths_by_name.items()
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
    split = suite.splits
    if (suite.directory / MANIFEST_FILE).exists():
        sealed_split = read_manifest(suite).split
        if moved_tables := sorted(name for name in sealed_split if name in split and split[name] != sealed_split[name]):
            raise SearchlabError(
                f"the split of {suite.name} is frozen, but {', '.join(moved_tables)} would move to the other side; "
                f"create a new version of the suite"
            )
    cards_dir = suite.directory / "cards"
    try:
        cards_dir.mkdir(exist_ok=True)
        for card_path in cards_dir.glob("*.md"):
            card_path.unlink()
        table_cards = []
        for table in suite.tables:
            on_table(table.name)
            card = TableCard(RecordedTable(table))
            if card.info.unsteady_reason:
                raise SearchlabError(f"{table.name} cannot be sealed: {card.info.unsteady_reason}; rebuild this table")
            write_file(cards_dir / f"{table.entry.name}.md", card.to_markdown(), under=suite.directory)
            table_cards.append(card)
        for name, text in make_dataset_texts(suite, table_cards).items():
            write_file(suite.directory / name, text, under=suite.directory)
        digests = {name: compute_file_digest(path) for name, path in list_files(suite).items()}
        manifest = Manifest(suite.spec.version, split, digests)
        manifest_bytes = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        write_file(suite.directory / MANIFEST_FILE, manifest_bytes, under=suite.directory, durable=True)
    except OSError as error:
        raise SearchlabError(f"cannot write to {suite.directory}: {error.strerror}") from None
    return manifest


# --- verifying --------------------------------------------------------------------------------------------------------


def verify_suite(suite: Suite, on_step: OnStep, seconds: float | None) -> bool:
    """Check the files, split, tables, cards and baselines of ``suite``, and return whether all are correct.

    Baselines are replayed for ``seconds``, with at least one run of each, or completely if ``seconds`` is None.
    """
    manifest = read_manifest(suite)
    recorded_tables = [RecordedTable(table) for table in suite.tables]
    is_correct = True

    def report_step(description: str, problems: list[str]) -> None:
        nonlocal is_correct
        is_correct = is_correct and not problems
        on_step(description, problems)

    report_step(f"{len(manifest.files)} files", _find_file_problems(suite, manifest))
    report_step("the split", _find_split_problems(suite, manifest))
    for noun, find_problems in (("tables", _find_table_problems), ("cards", _find_card_problems)):
        problems: list[str] = []
        for recorded_table in recorded_tables:
            try:
                problems += find_problems(recorded_table)
            except SearchlabError as error:
                problems.append(str(error))
        report_step(f"{len(recorded_tables)} {noun}", problems)
    try:
        baseline_runs = read_baselines(suite)
    except SearchlabError as error:
        report_step("baselines", [str(error)])
        return False
    report_step(
        f"{len(baseline_runs)} baselines",
        [problem for baseline in baseline_runs for problem in _find_run_problems(suite, baseline)],
    )
    if baseline_runs and is_correct:
        replay_result = replay(
            suite, baseline_runs, digest=compute_file_digest(suite.directory / MANIFEST_FILE), seconds=seconds
        )
        report_step(replay_result.describe("runs of baselines"), replay_result.problems)
    return is_correct


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


def _find_table_problems(recorded_table: RecordedTable) -> list[str]:
    table, records = recorded_table.table, recorded_table.log.records
    space = SpaceChoice.from_table(table).space
    problems = [f"{table.name} is not steady: {text}"] if (text := explain_unsteadiness(recorded_table.log)) else []
    if (cores := space.target.cores) != table.entry.threads:
        problems.append(f"{table.name} was measured with {cores} threads instead of {table.entry.threads}")
    if len(recorded_table.positions_by_config) < len(records):
        duplicate_count = len(records) - len(recorded_table.positions_by_config)
        problems.append(f"{table.name} contains {duplicate_count} duplicate configs")
    space_size = recorded_table.log.header.space_size
    if space.builds_programs:
        rng = np.random.default_rng(int(table.digest[:16], 16))
        configs = list(recorded_table.positions_by_config)
        sample = rng.permutation(len(records))[:MEMBERSHIP_SAMPLE_SIZE].tolist()
        foreign_count = sum(configs[position] not in space for position in sample)
    else:
        members = set(space.enumerate())
        foreign_count = len(recorded_table.positions_by_config.keys() - members)
        if space_size != len(members):
            problems.append(
                f"{table.name} records that its space has {space_size} configs, but the space has {len(members)}"
            )
    if foreign_count:
        problems.append(f"{table.name} contains {foreign_count} configs that are not in its space")
    if space_size is None or len(recorded_table.positions_by_config) < space_size:
        problems.append(
            f"{table.name} contains only {len(recorded_table.positions_by_config)} of the {space_size} configs in its "
            f"space"
        )
    return problems


def _find_card_problems(recorded_table: RecordedTable) -> list[str]:
    card_name = f"cards/{recorded_table.table.entry.name}.md"
    card_path = recorded_table.table.directory / card_name
    if not card_path.is_file():
        return [f"{card_name} is missing; run `searchlab suite seal` to create it"]
    is_correct = read_text(card_path, under=recorded_table.table.directory) == TableCard(recorded_table).to_markdown()
    return [] if is_correct else [f"{card_name} does not match its table; run `searchlab suite seal` to rewrite it"]


def _find_run_problems(suite: Suite, trajectories: Trajectories) -> list[str]:
    problems, recorded_tables = [], RecordedTables(suite)
    for name in trajectories.tables:
        try:
            for run in trajectories.runs_on(recorded_tables[name].table).runs:
                recorded_tables[name].check_run(trajectories, run)
        except SearchlabError as error:
            problems.append(str(error))
    return problems


# --- replaying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplayResult:
    """The result of :func:`replay`.

    Attributes:
        replayed_count: The number of runs that were replayed.
        total_count: The number of all runs.
        problems: A sentence for each run that now differs.
        without_avx512_count: The number of runs that can be replayed only if numpy does not use AVX-512.
    """

    replayed_count: int
    total_count: int
    problems: list[str]
    without_avx512_count: int

    def describe(self, noun: str) -> str:
        """Describe the verification step that replayed ``noun``, such as "runs"."""
        count = self.without_avx512_count
        avx512_text = f", {count} of them without numpy's code for AVX-512" if count else ""
        return f"{self.replayed_count:,} of {self.total_count:,} {noun}, replayed{avx512_text}"


class Replayer:
    """A context manager that replays runs over a suite's tables, because a measurer may own processes."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._recorded_tables = RecordedTables(suite)
        self._opened_tables: dict[str, tuple[SpaceChoice, Measurer]] = {}
        self._exit_stack = ExitStack()

    def __enter__(self) -> Replayer:
        self._folder = Path(self._exit_stack.enter_context(ScratchFolder()))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def describe_difference(self, trajectories: Trajectories, table_name: str, original: Trajectory) -> str:
        """Replay a run over the table ``table_name``. Return a sentence on how it differs, or "" if it does not."""
        table = self._recorded_tables[table_name]
        new_run = self.replay_run(trajectories, table_name, original.seed)
        positions = new_run.configs
        if new_run == original:
            return ""
        run_title = f"{trajectories.strategy} over {table.table.name} with seed {original.seed}"
        changes = list_version_changes(trajectories.versions)
        changes_text = f"; these versions have changed since: {', '.join(changes)}" if changes else ""
        for trial, (before, after) in enumerate(zip(original.configs, positions, strict=False)):
            if before != after:
                difference = f"trial {trial} was config {before} of the table, but is now config {after}"
                return f"{run_title}: {difference}{changes_text}"
        return f"{run_title}: the run had {len(original.configs)} trials, but now has {len(positions)}{changes_text}"

    def replay_run(self, trajectories: Trajectories, table_name: str, seed: int) -> Trajectory:
        """Run the strategy of ``trajectories`` over the table ``table_name``."""
        table = self._recorded_tables[table_name]
        space_choice, measurer = self._open_table(table_name)
        log_path = self._folder / "replay.jsonl"
        log_path.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchlabWarning)  # the original run already issued these warnings
            run = Run(
                space_choice,
                strategy_of(trajectories),
                seed,
                trajectories.batch,
                Budget(trajectories.trials),
                table.table.settings(),
                log_path,
                starts=trajectories.starts,
            )
            replayed_log = search(plan_run(run), measurer)
        return Trajectory(seed, table.find_positions(replayed_log), bool(replayed_log.ended))

    def replay_without_avx512(self, cases: Sequence[RunToReplay], features: Sequence[str]) -> list[str] | None:
        """Replay runs in a process whose numpy does not use ``features``.

        Returns the differences, or None if the process fails.
        """
        command = [sys.executable, "-P", "-c", f"from {__name__} import _replay_in_subprocess; _replay_in_subprocess()"]
        env = {**os.environ, NUMPY_FEATURES_VARIABLE: " ".join(features), "PYTHONPATH": search_path()}
        input_bytes = pickle.dumps((self._suite, cases, trusts()))
        process = subprocess.run(command, input=input_bytes, capture_output=True, env=env, check=False)
        return None if process.returncode else list(json.loads(process.stdout.splitlines()[-1]))

    def _open_table(self, table_name: str) -> tuple[SpaceChoice, Measurer]:
        if table_name not in self._opened_tables:
            table = self._recorded_tables[table_name].table
            space_choice = SpaceChoice.from_table(table)
            measurer = self._exit_stack.enter_context(table.settings().make(space_choice.space.target, {}))
            self._opened_tables[table_name] = space_choice, measurer
        return self._opened_tables[table_name]


def strategy_of(trajectories: Trajectories) -> Strategy:
    """Return the strategy whose runs were recorded."""
    features = trajectories.features if trajectories.cost_model else None
    return Strategy.from_specs(trajectories.policy, trajectories.cost_model, features, trajectories.strategy)


def replay(
    suite: Suite,
    strategies: Sequence[Trajectories],
    *,
    digest: str,
    seconds: float | None,
    trusted: Collection[str] = (),
) -> ReplayResult:
    """Replay one run of each strategy, then the other runs, in random order.

    Args:
        suite: The suite.
        strategies: The runs of each strategy.
        digest: The seed for the order, as hexadecimal digits.
        seconds: The time in seconds after which no further run starts, or None to replay all runs.
        trusted: Policies and cost models (``module:Class``) that may be imported even if they are not registered.

    Raises:
        SearchlabError: If a strategy uses code that is neither registered nor trusted.
    """
    for trajectories in strategies:
        _require_trust(trajectories, trusted)
    with Replayer(suite) as replayer:
        return replay_cases(replayer, strategies, digest, seconds)


def replay_cases(
    replayer: Replayer, strategies: Sequence[Trajectories], digest: str, seconds: float | None
) -> ReplayResult:
    """Replay runs with ``replayer``; see :func:`replay`."""
    cases = list(_draw_cases(strategies, digest))
    differing_cases: list[tuple[RunToReplay, str]] = []
    start_time, replayed_count = time.monotonic(), 0
    for case in cases:
        if seconds is not None and replayed_count >= len(strategies) and time.monotonic() - start_time > seconds:
            break
        replayed_count += 1
        if problem := replayer.describe_difference(*case):
            differing_cases.append((case, problem))
    problems = [problem for _, problem in differing_cases]
    # A logarithm computed by numpy may differ in its last bit between CPUs, and so may a proposal that depends on it.
    if problems and (features := list_avx512_features()):
        problems = replayer.replay_without_avx512([case for case, _ in differing_cases], features) or problems
    return ReplayResult(replayed_count, len(cases), list(filter(None, problems)), problems.count(""))


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
            code = _digest_code(suite, baseline)
        except SearchlabError:
            continue
        if code == baseline.code:
            continue
        identity_bytes = msgspec.json.encode([baseline, code, library_versions()], order="sorted")
        identity_digest = hashlib.sha256(identity_bytes).hexdigest()[:32]
        marker_path = platformdirs.user_cache_path("searchlab") / "baselines" / identity_digest
        if marker_path.exists():
            continue
        say(f"checking that {baseline.strategy} still proposes what its recorded runs contain, once")
        replay_result = replay(
            suite.select_split(None), [baseline], digest=identity_digest, seconds=BASELINE_CHECK_SECONDS
        )
        if replay_result.problems:
            raise SearchlabError(
                f"the baseline {baseline.strategy} of {suite.spec.version} is not what its code does now: "
                f"{replay_result.problems[0]}; use the code that recorded it, or record it again (`searchlab suite "
                f"baselines`); `searchlab suite verify {suite.directory}` shows all differences"
            )
        with suppress(OSError):  # it is replayed again next time
            marker_path.parent.mkdir(parents=True, exist_ok=True)
            marker_path.touch()


def _digest_code(suite: Suite, baseline: Trajectories) -> dict[str, str]:
    """Return the digests of a baseline's code. Raises SearchlabError if the code is missing or not trusted."""
    with names_from(suite.directory):
        digests = {
            "policy": source_digest(POLICIES.load(baseline.policy.name), *iterate_functions(baseline.policy.options))
        }
        if (model := baseline.cost_model) is not None:
            digests["cost_model"] = source_digest(COST_MODELS.load(model.name), *iterate_functions(model.options))
    return digests


def list_avx512_features() -> list[str]:
    """Return numpy's names for those AVX-512 features of this CPU for which numpy has special code."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # type: ignore[import-not-found]

    return [name for name in __cpu_dispatch__ if __cpu_features__[name] and (name == "X86_V4" or "AVX512" in name)]


def _replay_in_subprocess() -> None:
    suite, cases, trusted = pickle.loads(sys.stdin.buffer.read())
    with trust_plugins(trusted), Replayer(suite) as replayer:
        print(json.dumps([replayer.describe_difference(*case) for case in cases]))


def _draw_cases(strategies: Sequence[Trajectories], digest: str) -> Iterator[RunToReplay]:
    """Yield all runs in random order, starting with one run of each strategy."""
    rng = np.random.default_rng(int(digest[:16], 16))
    queues = []
    for trajectories in strategies:
        cases = [
            RunToReplay(trajectories, name, run)
            for name, table_runs in trajectories.tables.items()
            for run in table_runs.runs
        ]
        queues.append([cases[i] for i in rng.permutation(len(cases))])
    for position in range(max(map(len, queues), default=0)):
        yield from (queue[position] for queue in queues if position < len(queue))


def _require_trust(trajectories: Trajectories, trusted: Collection[str]) -> None:
    """Raise SearchlabError if ``trajectories`` uses code that is neither registered nor ``trusted``."""
    code = find_unregistered_code([[plugin.name, plugin.options] for plugin in trajectories.plugins])
    unknown_names = [name for name in code if name not in trusted]
    if unknown_names and not trusts():
        options = " ".join(f"--policy {name}" for name in dict.fromkeys([*trusted, *unknown_names]))
        raise SearchlabError(
            f"{trajectories.strategy} uses {', '.join(unknown_names)}, which no installed package registers; install "
            f"the package that provides it, or pass {options} if you trust it"
        )
