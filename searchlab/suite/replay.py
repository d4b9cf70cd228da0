"""Replaying trajectories: the strategy runs over the table again, and must ask for the same configs in order."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..costmodel import COST_MODELS
from ..errors import SearchlabError, SearchlabWarning
from ..log.plan import Budget
from ..machine.host import library_versions
from ..machine.scratch import ScratchFolder
from ..measure.contract import Measurer
from ..measure.suite import Suite
from ..plugins import Plugin, trusts
from ..policy import POLICIES
from ..run.loop import search
from ..run.plan import Searched, Strategy, plan_run
from ..run.study import searched_table
from .trajectories import RecordedTables, Trajectories, Trajectory


@dataclass(frozen=True)
class Replayed:
    """How many runs were replayed, of how many; and a sentence for each that was another run now.

    narrower: how many replay only if numpy calculates as it does on a CPU without AVX-512.
    """

    runs: int
    of: int
    problems: list[str]
    narrower: int = 0

    def told(self, what: str) -> str:
        """The step of a verification: the number of ``what`` that were replayed."""
        narrower = f", {self.narrower} of them without numpy's code for AVX-512" if self.narrower else ""
        return f"{self.runs:,} of {self.of:,} {what}, replayed{narrower}"


class Replayer:
    """Replays runs over the tables of a suite; a context manager, since a measurer may hold processes."""

    def __init__(self, suite: Suite) -> None:
        self._recorded = RecordedTables(suite)
        self._places: dict[str, tuple[Searched, Measurer]] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Replayer:
        self._folder = Path(self._ends.enter_context(ScratchFolder()))
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def difference(self, of: Trajectories, name: str, recorded: Trajectory) -> str:
        """What is different now in a run over the table ``name``, a sentence; empty if nothing is."""
        table = self._recorded[name]
        searched, measurer = self._place(name)
        log = self._folder / "replay.jsonl"
        log.unlink(missing_ok=True)
        features = of.features if of.cost_model else ""
        strategy = Strategy.of(of.policy, of.cost_model, features or None, of.strategy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SearchlabWarning)  # whoever made the run was told
            run = plan_run(
                searched,
                strategy,
                table.table.settings(),
                Budget(of.trials),
                seed=recorded.seed,
                batch=of.batch,
                log=log,
            )
            now = search(replace(run, starts=of.starts), measurer)
        places = table.places_of(now)
        if (places, bool(now.ended)) == (recorded.configs, recorded.ended):
            return ""
        where = f"{of.strategy} over {table.table.name} from seed {recorded.seed}"
        pairs = zip(recorded.configs, places, strict=False)
        differs = next((trial for trial, (before, after) in enumerate(pairs) if before != after), None)
        if differs is None:
            return f"{where}: the run had {len(recorded.configs)} trials, and has {len(places)} now{_changes(of)}"
        before, after = recorded.configs[differs], places[differs]
        return f"{where}: trial {differs} was config {before} of the table, and is config {after} now{_changes(of)}"

    def _place(self, name: str) -> tuple[Searched, Measurer]:
        if name not in self._places:
            table = self._recorded[name].table
            searched = searched_table(table)
            measurer = self._ends.enter_context(table.settings().make(searched.space.target, {}))
            self._places[name] = searched, measurer
        return self._places[name]


def _changes(of: Trajectories) -> str:
    now = library_versions()
    changed = [f"{name} {old} -> {now.get(name)}" for name, old in of.versions.items() if now.get(name) != old]
    return f"; since then these changed: {', '.join(changed)}" if changed else ""


def replay(
    suite: Suite, runs: Sequence[Trajectories], *, digest: str, seconds: float | None, trusted: Collection[str] = ()
) -> Replayed:
    """Replay ``runs``, in an order that ``digest`` decides: a run of each strategy, then others for some seconds.

    seconds: None to replay all. trusted: the policies and cost models ``module:Class`` that may be
    imported, though they are not registered.
    Raises SearchlabError if a strategy names code that is not registered.
    """
    for one in runs:
        check_trusted(one, trusted)
    order = list(_drawn(runs, digest))
    differ: list[tuple[Case, str]] = []
    start, count = time.monotonic(), 0
    with Replayer(suite) as replayer:
        for number, (one, name, run) in enumerate(order):
            if seconds is not None and number >= len(runs) and time.monotonic() - start > seconds:
                break
            count += 1
            if problem := replayer.difference(one, name, run):
                differ.append(((one, name, run), problem))
    problems = [problem for _, problem in differ]
    narrower = 0
    # A logarithm of numpy's may differ in its last bit from one CPU to another, and so a proposal that hangs on it.
    if problems and (features := avx512()):
        again = _narrower(suite, differ, features)
        problems, narrower = list(filter(None, again)), again.count("")
    return Replayed(count, len(order), problems, narrower)


Case = tuple[Trajectories, str, Trajectory]
"""A run over a table."""


def avx512() -> list[str]:
    """The AVX-512 instructions of this CPU for which numpy has code of its own, in numpy's names."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # type: ignore[import-not-found]

    return [name for name in __cpu_dispatch__ if __cpu_features__[name] and (name == "X86_V4" or "AVX512" in name)]


def _narrower(suite: Suite, differ: Sequence[tuple[Case, str]], features: Sequence[str]) -> list[str]:
    """What is different in each case in a process whose numpy does without ``features``; as before if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", "from searchlab.suite.replay import _worker; _worker()"],
        input=pickle.dumps((suite, [case for case, _ in differ])),
        stdout=subprocess.PIPE,
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(features), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    if done.returncode:
        return [problem for _, problem in differ]
    problems: list[str] = json.loads(done.stdout.splitlines()[-1])
    return problems


def _worker() -> None:
    suite, cases = pickle.loads(sys.stdin.buffer.read())
    with Replayer(suite) as replayer:
        print(json.dumps([replayer.difference(*case) for case in cases]))


def _drawn(runs: Sequence[Trajectories], digest: str) -> Iterator[tuple[Trajectories, str, Trajectory]]:
    """All runs in random order, in which the first are one of each strategy."""
    rng = np.random.default_rng(int(digest[:16], 16))
    queues = []
    for one in runs:
        own = [(one, name, run) for name, on_table in one.tables.items() for run in on_table.runs]
        queues.append([own[i] for i in rng.permutation(len(own))])
    for row in range(max(map(len, queues), default=0)):
        yield from (queue[row] for queue in queues if row < len(queue))


def check_trusted(one: Trajectories, trusted: Collection[str]) -> None:
    """Raise SearchlabError if ``one`` names code that is neither registered nor ``trusted``: it would be imported."""
    if trusts():
        return
    kinds: Mapping[str, tuple[Any, Plugin | None]] = {
        "policy": (POLICIES, one.policy),
        "cost model": (COST_MODELS, one.cost_model),
    }
    unknown = {
        title: plugin
        for title, (kind, plugin) in kinds.items()
        if plugin is not None and plugin.name not in trusted and kind.registered(plugin) is None
    }
    if unknown:
        named = " and ".join(
            f"the {title} {plugin.name!r}, options {plugin.options}" for title, plugin in unknown.items()
        )
        options = " ".join(f"--policy {name}" for name in (*trusted, *(plugin.name for plugin in unknown.values())))
        raise SearchlabError(
            f"{one.strategy} has {named}: code that is not registered here; install its package, or give {options} if "
            f"you trust it"
        )
