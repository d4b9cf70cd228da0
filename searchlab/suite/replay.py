"""Replaying runs over a suite: rerunning a strategy over a table, where it must propose the same configs in order."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import platformdirs

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, SearchlabWarning
from ..log.budget import Budget
from ..log.columns import LogColumns
from ..log.programs import list_version_changes
from ..machine.host import library_versions
from ..machine.scratch import ScratchFolder
from ..measure.contract import Measurer
from ..measure.suite import Suite
from ..plugins import find_unregistered_code, iterate_functions, names_from, search_path, trust_plugins, trusts
from ..policy import POLICIES
from ..run.loop import search
from ..run.plan import Run, plan_run
from ..run.strategy import SpaceChoice, Strategy
from ..source import source_digest
from .trajectories import Trajectories, Trajectory

BASELINE_CHECK_SECONDS = 2.0
"""The time after which no further run of a baseline is replayed before it is used."""

NUMPY_FEATURES_VARIABLE = "NPY_DISABLE_CPU_FEATURES"
"""The environment variable with features of the CPU that numpy must not use."""


class RunToReplay(NamedTuple):
    """A run to replay: the runs of its strategy, the name of its table, and its trajectory."""

    trajectories: Trajectories
    table_name: str
    trajectory: Trajectory


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
        self.suite = suite
        self._opened_tables: dict[str, tuple[SpaceChoice, Measurer]] = {}
        self._exit_stack = ExitStack()

    def __enter__(self) -> Replayer:
        self._folder = Path(self._exit_stack.enter_context(ScratchFolder()))
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.suite.select_split(None),)  # another process reads the tables itself

    def replay(self, strategies: Sequence[Trajectories], digest: str, seconds: float | None) -> ReplayResult:
        """Replay one run of each strategy, then the other runs, in random order; see :func:`replay`."""
        cases = list(_draw_cases(strategies, digest))
        differing_cases: list[tuple[RunToReplay, str]] = []
        start_time, replayed_count = time.monotonic(), 0
        for case in cases:
            if seconds is not None and replayed_count >= len(strategies) and time.monotonic() - start_time > seconds:
                break
            replayed_count += 1
            if problem := self.describe_difference(case):
                differing_cases.append((case, problem))
        problems = [problem for _, problem in differing_cases]
        # A logarithm computed by numpy may differ in its last bit between CPUs, and so may proposals that depend on it.
        if problems and (features := list_avx512_features()):
            problems = self.replay_without_avx512([case for case, _ in differing_cases], features) or problems
        return ReplayResult(replayed_count, len(cases), list(filter(None, problems)), problems.count(""))

    def describe_difference(self, case: RunToReplay) -> str:
        """Replay a run. Return a sentence on how it differs, or "" if it does not."""
        trajectories, table_name, original = case
        new_run = self.replay_run(trajectories, table_name, original.seed)
        if new_run == original:
            return ""
        difference = f"the run had {len(original.configs)} trials, but now has {len(new_run.configs)}"
        for trial, (before, after) in enumerate(zip(original.configs, new_run.configs, strict=False)):
            if before != after:
                difference = f"trial {trial} was config {before} of the table, but is now config {after}"
                break
        if changes := list_version_changes(trajectories.versions):
            difference += f"; these versions have changed since: {', '.join(changes)}"
        table = self.suite.table(table_name)
        return f"{trajectories.strategy} over {table.name} with seed {original.seed}: {difference}"

    def replay_run(self, trajectories: Trajectories, table_name: str, seed: int) -> Trajectory:
        """Run the strategy of ``trajectories`` over the table ``table_name``."""
        table = self.suite.table(table_name)
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
                Budget(trajectories.trial_count),
                table.settings(),
                log_path,
                start_salt=trajectories.start_salt,
            )
            replayed_log = search(plan_run(run), measurer)
        return Trajectory.from_log(LogColumns.from_log(replayed_log), table)

    def replay_without_avx512(self, cases: Sequence[RunToReplay], features: Sequence[str]) -> list[str] | None:
        """Replay runs in a process whose numpy does not use ``features``.

        Returns the differences, or None if the process fails.
        """
        command = [sys.executable, "-P", "-c", f"from {__name__} import _replay_in_subprocess; _replay_in_subprocess()"]
        env = {**os.environ, NUMPY_FEATURES_VARIABLE: " ".join(features), "PYTHONPATH": search_path()}
        input_bytes = pickle.dumps((self, cases, trusts()))
        process = subprocess.run(command, input=input_bytes, capture_output=True, env=env, check=False)
        return None if process.returncode else list(json.loads(process.stdout.splitlines()[-1]))

    def _open_table(self, table_name: str) -> tuple[SpaceChoice, Measurer]:
        if table_name not in self._opened_tables:
            table = self.suite.table(table_name)
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
        suite: The complete suite.
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
        return replayer.replay(strategies, digest, seconds)


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
    full_suite = suite.select_split(None)
    for baseline in baseline_runs:
        try:
            code = _digest_code(suite, baseline)
        except SearchlabError:
            continue
        if code == baseline.code_digests:
            continue
        identity_bytes = msgspec.json.encode([baseline, code, library_versions()], order="sorted")
        identity_digest = hashlib.sha256(identity_bytes).hexdigest()[:32]
        marker_path = platformdirs.user_cache_path("searchlab") / "baselines" / identity_digest
        if marker_path.exists():
            continue
        say(f"checking that {baseline.strategy} still proposes what its recorded runs contain, once")
        replay_result = replay(full_suite, [baseline], digest=identity_digest, seconds=BASELINE_CHECK_SECONDS)
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
    unopened_replayer, cases, trusted = pickle.loads(sys.stdin.buffer.read())
    with trust_plugins(trusted), unopened_replayer as replayer:
        print(json.dumps([replayer.describe_difference(case) for case in cases]))


def _draw_cases(strategies: Sequence[Trajectories], digest: str) -> Iterator[RunToReplay]:
    """Yield all runs in random order, starting with one run of each strategy."""
    rng = np.random.default_rng(int(digest[:16], 16))
    queues = []
    for trajectories in strategies:
        cases = [RunToReplay(trajectories, name, run) for name, run in trajectories.named_runs]
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
