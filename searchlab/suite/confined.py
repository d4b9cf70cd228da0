"""Replaying a stranger's policy in a process that has no network and reads neither the suite nor the user's files.

The process is told each measurement only after its policy has proposed the config, over a pipe, as if it were measured.
What a run proposes is therefore known here, whatever the policy's code does there. Each run has a process of its own,
so that nothing is remembered from one run to the next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import IO, Any

import msgspec
import numpy as np

from ..analysis.words import listed
from ..arrays import Ints
from ..console import one_line
from ..errors import SearchlabError, describe
from ..files import write_file
from ..log.budget import Budget
from ..machine.host import library_versions
from ..machine.scratch import ScratchFolder
from ..measure.isolation import become_subreaper, confine, kill_children
from ..measure.suite import Suite, find_installed_suites, find_suite
from ..measure.table import TableSettings
from ..plugins import Plugin, search_path, trust_plugins, trusts
from ..records import Measurement, Trial
from ..run.loop import PolicyDriver
from ..run.plan import Run
from ..run.strategy import SpaceChoice
from ..space import SPACES, Config
from ..target import resolve_target
from ..workload import parse_workload
from .bundle import Bundle, bundle_problems, read_bundle
from .trajectories import RANDOM, RecordedTables, TableRuns, Trajectories, Trajectory, baselines
from .verify import NUMPY_WITHOUT, Case, OnStep, Replayer, ReplayResult, replay_with, strategy_of

RUN_SECONDS = 900.0
"""The time after which a run that is replayed is ended."""

_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/nix", "/gnu")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MAX_MESSAGE_BYTES = 64 << 20

MAX_BLIND_SHARE = 0.5
"""The share of a strategy's lead over random search that must not remain if it is told shuffled measurements."""

ROUNDS = 3
"""The number of runs over each table, if there is time."""

STANDARD_ERRORS = 3.0
"""The number of standard errors by which it must not exceed random search then."""


class _Request(msgspec.Struct, frozen=True):
    """A run to perform, by a strategy without tables."""

    workload: str
    target: dict[str, Any]
    space: Plugin
    strategy: Trajectories
    seed: int


class _Reply(msgspec.Struct, frozen=True):
    """What the process says: what it is confined to, configs to measure, or how the run ended."""

    configs: list[dict[str, Any]] = []
    ended: bool | None = None
    error: str = ""
    is_confined: bool = False
    has_no_network: bool = False


class ConfinedReplayer(Replayer):
    """Replays the runs of a bundle in processes that run its code.

    Attributes:
        limits: What the processes are not prevented from, in sentences.
    """

    def __init__(self, suite: Suite, bundle: Bundle, env: Mapping[str, str] | None = None) -> None:
        super().__init__(suite)
        self._bundle, self._env = bundle, env or {}
        self.limits: list[str] = []

    def __enter__(self) -> ConfinedReplayer:
        super().__enter__()
        self._source = Path(self._exit_stack.enter_context(ScratchFolder()))
        for name, content in self._bundle.source.items():
            write_file(self._source / name, content, under=self._source)
        home = str(self._folder)
        env = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        env |= {"PYTHONPATH": search_path(), "PYTHONDONTWRITEBYTECODE": "1", "HOME": home, "TMPDIR": home, **self._env}
        begin = f"from searchlab.measure.isolation import leave_network as leave; left = leave(); from {__name__} "
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{begin}import main; main(left)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=home,
        )
        self._exit_stack.callback(self._end)
        hidden_directories = [
            str(path) for path in {self._suite.directory.resolve(), *find_installed_suites().values()}
        ]
        spaces = sorted({table.plugin.name for table in self._suite.tables if ":" not in table.plugin.name})
        reply = self._exchange(
            {"source": str(self._source), "writable": home, "hidden": hidden_directories, "spaces": spaces}
        )
        if not reply.is_confined:
            self.limits.append("without Landlock (Linux 5.13), the code may have read the suite's tables from the disk")
        if not reply.has_no_network:
            self.limits.append("without user namespaces, the code may have used the network")
        return self

    def replay_run(self, trajectories: Trajectories, name: str, seed: int) -> Trajectory:
        return self.rerun(trajectories, name, seed, None)

    def rerun(self, trajectories: Trajectories, name: str, seed: int, order: Ints | None) -> Trajectory:
        """Run the bundle's strategy. With ``order``, config i is told the measurement of config ``order[i]``.

        Raises SearchlabError if the strategy fails or breaks its contract.
        """
        recorded_table = self._recorded_tables[name]
        space_choice, measurer = self._table(name)
        submission = self._bundle.submission
        run_title = f"{trajectories.strategy} over {recorded_table.table.name} with seed {seed}"
        model = trajectories.cost_model
        strategy = msgspec.structs.replace(
            trajectories,
            policy=submission.plugin(trajectories.policy),
            cost_model=submission.plugin(model) if model else None,
            tables={},
        )
        table = recorded_table.table
        request = _Request(table.entry.workload, table.header.target, table.plugin, strategy, seed)
        configs = list(recorded_table.positions)
        positions: list[int] = []
        problem = ""
        timer = Timer(RUN_SECONDS, self._process.kill)
        timer.start()
        try:
            answer = self._exchange(request)
            while answer.ended is None and not (problem := problem or answer.error):
                proposals = [recorded_table.positions.get(Config(values), -1) for values in answer.configs]
                if min(proposals, default=-1) < 0 or len({*positions, *proposals}) < len(positions) + len(proposals):
                    problem = "it proposes a config that is not in the table, or one twice"
                    answer = self._exchange(None)  # ends the run
                    continue
                positions += proposals
                sources = proposals if order is None else order[proposals].tolist()
                measurements = measurer.measure(space_choice.space, [configs[position] for position in sources])
                answer = self._exchange(list(measurements))
            self._receive()  # the run's processes have ended
        finally:
            timer.cancel()
        for path in self._folder.iterdir():  # nothing is remembered for the next run
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if problem:
            raise SearchlabError(f"{run_title}: {problem}")
        return Trajectory(seed, tuple(positions), bool(answer.ended))

    def describe_difference(self, trajectories: Trajectories, name: str, original: Trajectory) -> str:
        try:
            return super().describe_difference(trajectories, name, original)
        except SearchlabError as error:
            return str(error)

    def replay_without_avx512(self, cases: Sequence[Case], features: Sequence[str]) -> list[str]:
        with ConfinedReplayer(self._suite, self._bundle, {NUMPY_WITHOUT: " ".join(features)}) as replayer:
            return [replayer.describe_difference(*case) for case in cases]

    def _exchange(self, message: Any) -> _Reply:
        """Send a message and return the answer. Raises SearchlabError if the process has ended or sends nonsense."""
        assert self._process.stdin
        with suppress(OSError):  # then there is no answer either
            _send(self._process.stdin, message)
        return self._receive()

    def _receive(self) -> _Reply:
        assert self._process.stdout
        try:
            return msgspec.json.decode(self._process.stdout.readline(_MAX_MESSAGE_BYTES), type=_Reply)
        except (OSError, msgspec.MsgspecError):
            raise SearchlabError("the process that runs the bundle's code ended, or answered with nonsense") from None

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


# --- verifying a bundle -----------------------------------------------------------------------------------------------


class BundleVerification(msgspec.Struct, frozen=True, kw_only=True):
    """What was verified of a bundle, and what was not.

    Attributes:
        bundle: The bundle's SHA-256.
        runs: The number of runs that were replayed, of ``total``.
        problems: Reasons to refuse the bundle.
        unchecked: What could not be checked, in sentences.
    """

    bundle: str
    date: str
    versions: dict[str, str]
    runs: int
    total: int
    problems: list[str]
    unchecked: list[str]


def verify_submission(path: Path, on_step: OnStep, seconds: float | None, suite_path: str) -> BundleVerification:
    """Verify the bundle at ``path`` against the local suite: first its data, then its runs, by replaying them.

    For the other arguments, see :func:`~searchlab.suite.verify.verify_result`. Raises SearchlabError if the file is not
    a bundle, the suite is missing, or replaying requires trust.
    """
    bundle = read_bundle(path)
    submission = bundle.submission
    suite = find_suite(suite_path or submission.suite).select_split(None)
    problems = list(bundle_problems(bundle, suite))
    authors = one_line(listed(submission.authors))
    on_step(f"the data of {one_line(submission.name)} by {authors}, without executing anything", problems)
    results = list(bundle.results.values())
    runs = [len(table_runs.runs) for result in results for table_runs in result.tables.values()]
    result, unchecked = ReplayResult(0, sum(runs), [], 0), []
    if not problems:
        if bundle.references and not trusts():
            raise SearchlabError(
                f"to replay the runs of {path} is to run code that a stranger wrote ({listed(bundle.references)}); "
                f"read its source, then add --trust: it runs without a network, and reads only itself and libraries"
            )
        with ConfinedReplayer(suite, bundle) as replayer:
            result = replay_with(replayer, results, bundle.digest, seconds)
            problems += result.problems
            on_step(result.describe("runs, each in a process that cannot read the tables"), result.problems)
            unchecked += replayer.limits
            if not problems:
                share = None if seconds is None else seconds / 2
                reason = _foreknowledge(replayer, bundle, suite, share, unchecked)
                on_step("what the policy proposes when it is told shuffled measurements", reason)
                problems += reason
        if result.runs < result.total:
            unchecked.append(f"{result.total - result.runs:,} of {result.total:,} runs, which --all replays as well")
        unchecked.append("on what its options were tuned, and how often its authors used the test tables")
    return BundleVerification(
        bundle=bundle.digest,
        date=time.strftime("%Y-%m-%d"),
        versions=dict(library_versions()),
        runs=result.runs,
        total=result.total,
        problems=problems,
        unchecked=unchecked,
    )


def _foreknowledge(
    replayer: ConfinedReplayer, bundle: Bundle, suite: Suite, seconds: float | None, unchecked: list[str]
) -> list[str]:
    """Return a reason to refuse a strategy that finds good configs although it is told the measurements of others.

    Each config is told the measurement of another one, so that what a strategy learns is worthless: on the real table,
    it should do no better than random search. A strategy that has the answers does.
    """
    if RANDOM not in suite.baseline_paths:
        unchecked.append(f"the suite has no baseline {RANDOM!r} with which to tell whether the policy knows the tables")
        return []
    (random,) = baselines(suite, [RANDOM])
    recorded_tables, start = RecordedTables(suite), time.monotonic()
    rng = np.random.default_rng(int(bundle.digest[:16], 16))
    gains, leads, variances = list[float](), list[float](), list[float]()
    cases = [(result, name) for result in bundle.results.values() for name in result.tables if name in random.tables]
    for result, name in [cases[i] for _ in range(ROUNDS) for i in rng.permutation(len(cases))]:
        if seconds is not None and gains and time.monotonic() - start > seconds:
            break
        table = recorded_tables[name]
        costs, random_areas = table.log.costs, table.areas(random)
        try:
            blind_run = replayer.rerun(result, name, int(rng.integers(1 << 31)), rng.permutation(len(costs)))
        except SearchlabError as error:
            return [f"told shuffled measurements, {error}"]
        blind = msgspec.structs.replace(result, tables={name: TableRuns(table.table.digest, (blind_run,))})
        gains.append(float(table.areas(blind).mean() - random_areas.mean()))
        leads.append(float(table.areas(result).mean() - random_areas.mean()))
        variances.append(float(random_areas.var()) * (1 + 1 / len(random_areas)))
    if not gains:
        return []
    gain, lead = float(np.mean(gains)), float(np.mean(leads))
    standard_error = float(np.sqrt(np.sum(variances))) / len(gains)
    if gain <= max(STANDARD_ERRORS * standard_error, MAX_BLIND_SHARE * lead):
        return []
    finding = (
        f"told shuffled measurements, its area still exceeds that of random search by {gain:.3f} in {len(gains)} "
        f"runs (told the real ones: {lead:.3f}), so it knew what it had yet to measure"
    )
    if bundle.submission.track == "transfer":
        unchecked.append(f"{finding}, as a strategy may that has learned from other workloads")
        return []
    return [finding]


# --- in the process that runs the bundle's code -----------------------------------------------------------------------


def main(has_no_network: bool) -> None:
    """Confine this process, then perform each run that is requested in a fork."""
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    setup = msgspec.json.decode(inbox.readline())
    for name in setup["spaces"]:
        SPACES.load(name)  # once, for all forks, and with TVM
    source, writable = Path(setup["source"]), Path(setup["writable"])
    hidden_directories = [Path(path) for path in setup["hidden"]]
    libraries = [sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *_SYSTEM_FOLDERS]
    readable = [*map(Path, (*libraries, *_DEVICES)), *_packages(), source]
    is_confined = confine(
        [path for start in readable for path in _without(start.resolve(), hidden_directories)], writable
    )
    sys.path += [str(source), str(source / "src")]
    _send(outbox, _Reply(is_confined=is_confined, has_no_network=has_no_network))
    become_subreaper()
    spaces: dict[bytes, SpaceChoice] = {}  # created once, for all forks: they are the suite's, not the bundle's
    while line := inbox.readline():
        request = msgspec.json.decode(line, type=_Request)
        key = msgspec.json.encode([request.workload, request.target, request.space])
        if key not in spaces:
            with trust_plugins():
                workload, target = parse_workload(request.workload), resolve_target(request.target)
                spaces[key] = SpaceChoice.from_spec(request.space, workload, target)
        if (child := os.fork()) == 0:
            try:
                _perform(request, spaces[key], inbox, outbox)
            except BaseException as error:
                with suppress(BaseException):
                    _send(outbox, _Reply(error=describe(error)))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        kill_children()  # that the run has left behind
        _send(outbox, _Reply())


def _packages() -> Iterator[Path]:
    """Yield the installed packages outside Python's own directories, such as those of a checkout."""
    for directory in map(Path, filter(None, sys.path)):
        for path in directory.iterdir() if directory.is_dir() else ():
            if path.suffix in (".py", ".so", ".pth", ".dist-info", ".libs") or (path / "__init__.py").is_file():
                yield path


def _without(path: Path, hidden_directories: Sequence[Path]) -> Iterator[Path]:
    """Yield paths that together contain everything in ``path`` except what is in ``hidden_directories``."""
    if not any(directory.is_relative_to(path) for directory in hidden_directories):
        if not any(path.is_relative_to(directory) for directory in hidden_directories):
            yield path
    elif path not in hidden_directories:
        for child in path.iterdir():
            yield from _without(child, hidden_directories)


def _perform(request: _Request, space_choice: SpaceChoice, inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Propose configs and learn from their measurements, as in :class:`~searchlab.run.loop.RunLoop`."""
    recorded_runs = request.strategy
    with trust_plugins():
        strategy, budget = strategy_of(recorded_runs), Budget(recorded_runs.trials)
        run = Run(space_choice, strategy, request.seed, recorded_runs.batch, budget, TableSettings(""), Path())
        driver = PolicyDriver(replace(run, starts=recorded_runs.starts))
        trials: list[Trial] = []
        while len(trials) < recorded_runs.trials:
            start = len(trials)
            configs = driver.ask(recorded_runs.batch)[: recorded_runs.trials - start]
            if not configs:
                break
            _send(outbox, _Reply(configs=[config.to_json() for config in configs]))
            measurements = msgspec.json.decode(inbox.readline(), type=list[Measurement])
            trials += [Trial(start + i, *pair) for i, pair in enumerate(zip(configs, measurements, strict=True))]
            driver.tell(trials[start:])
        _send(outbox, _Reply(ended=len(trials) < recorded_runs.trials))


def _send(to: IO[bytes], message: Any) -> None:
    to.write(msgspec.json.encode(message) + b"\n")
    to.flush()
