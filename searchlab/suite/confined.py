"""Replaying a stranger's policy in a process that has no network and reads neither the suite nor the user's files.

The process is told each measurement only after its policy has proposed the config, over a pipe, as if it were measured.
What a run proposes is therefore known here, whatever the policy's code does there. Each run has a process of its own,
so that nothing is remembered from one run to the next.
"""

from __future__ import annotations

import math
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
from statistics import fmean
from threading import Timer
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from ..analysis.words import listed
from ..arrays import Floats, Ints
from ..console import escape_to_one_line
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
from .bundle import Bundle, find_bundle_problems, read_bundle
from .replay import NUMPY_FEATURES_VARIABLE, Replayer, ReplayResult, RunToReplay, strategy_of
from .trajectories import RANDOM, TableRuns, Trajectories, Trajectory, read_baselines
from .verify import OnStep

RUN_TIMEOUT = 900.0
"""The time after which a run that is replayed is ended."""

_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/nix", "/gnu")
_DEVICE_PATHS = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MAX_MESSAGE_BYTES = 64 << 20

MAX_BLIND_SHARE = 0.5
"""The share of a strategy's lead over random search that must not remain if it is told shuffled measurements."""

BLIND_ROUNDS = 3
"""The number of runs over each table, if there is time."""

MAX_STANDARD_ERRORS = 3.0
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
        bundle: The bundle whose code the processes run.
        missing_protections: What the processes are not prevented from, in sentences.
    """

    def __init__(self, suite: Suite, bundle: Bundle) -> None:
        super().__init__(suite)
        self.bundle = bundle
        self.missing_protections: list[str] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.suite.select_split(None), self.bundle)

    def __enter__(self) -> ConfinedReplayer:
        super().__enter__()
        self._source_dir = Path(self._exit_stack.enter_context(ScratchFolder()))
        for name, content in self.bundle.source_files.items():
            write_file(self._source_dir / name, content, under=self._source_dir)
        home_dir = str(self._folder)
        names = [name for name in (*_KEPT_VARIABLES, NUMPY_FEATURES_VARIABLE) if name in os.environ]
        variables = {name: os.environ[name] for name in names}
        variables |= {"PYTHONPATH": search_path(), "PYTHONDONTWRITEBYTECODE": "1", "HOME": home_dir, "TMPDIR": home_dir}
        script = (
            "from searchlab.measure.isolation import leave_network\n"
            "has_no_network = leave_network()\n"  # before anything else is imported
            f"from {__name__} import serve_runs\n"
            "serve_runs(has_no_network)\n"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables,
            cwd=home_dir,
        )
        self._exit_stack.callback(self._end_process)
        hidden_directories = [str(path) for path in {self.suite.directory.resolve(), *find_installed_suites().values()}]
        spaces = sorted({table.plugin.name for table in self.suite.tables if ":" not in table.plugin.name})
        reply = self._exchange(
            {"source": str(self._source_dir), "writable": home_dir, "hidden": hidden_directories, "spaces": spaces}
        )
        if not reply.is_confined:
            self.missing_protections.append(
                "without Landlock (Linux 5.13), the code may have read the suite's tables from the disk"
            )
        if not reply.has_no_network:
            self.missing_protections.append("without user namespaces, the code may have used the network")
        return self

    def replay_run(
        self, trajectories: Trajectories, table_name: str, seed: int, shuffled_positions: Ints | None = None
    ) -> Trajectory:
        """Run the bundle's strategy. Config i is told the measurement of config ``shuffled_positions[i]``, if not None.

        Raises SearchlabError if the strategy fails or breaks its contract.
        """
        table = self.suite.table(table_name)
        space_choice, measurer = self._open_table(table_name)
        submission = self.bundle.submission
        run_title = f"{trajectories.strategy} over {table.name} with seed {seed}"
        cost_model = trajectories.cost_model
        strategy = msgspec.structs.replace(
            trajectories,
            policy=submission.resolve_plugin(trajectories.policy),
            cost_model=submission.resolve_plugin(cost_model) if cost_model else None,
            tables={},
        )
        request = _Request(table.entry.workload, table.header.target, table.plugin, strategy, seed)
        configs = list(table.positions_by_config)
        positions: list[int] = []
        problem = ""
        timer = Timer(RUN_TIMEOUT, self._process.kill)
        timer.start()
        try:
            reply = self._exchange(request)
            while reply.ended is None and not reply.error:
                proposals = [table.positions_by_config.get(Config(values), -1) for values in reply.configs]
                if min(proposals, default=-1) < 0 or len({*positions, *proposals}) < len(positions) + len(proposals):
                    problem = "it proposes a config that is not in the table, or one twice"
                    self._exchange(None)  # ends the run
                    break
                positions += proposals
                told_positions = proposals if shuffled_positions is None else shuffled_positions[proposals].tolist()
                measurements = measurer.measure(space_choice.space, [configs[position] for position in told_positions])
                reply = self._exchange(list(measurements))
            self._receive()  # the run's processes have ended
        finally:
            timer.cancel()
        for path in self._folder.iterdir():  # nothing is remembered for the next run
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if problem := problem or reply.error:
            raise SearchlabError(f"{run_title}: {problem}")
        return Trajectory(seed, tuple(positions), bool(reply.ended))

    def describe_difference(self, case: RunToReplay) -> str:
        try:
            return super().describe_difference(case)
        except SearchlabError as error:
            return str(error)

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

    def _end_process(self) -> None:
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
    problems = list(find_bundle_problems(bundle, suite))
    authors = escape_to_one_line(listed(submission.authors))
    on_step(f"the data of {escape_to_one_line(submission.name)} by {authors}, without executing anything", problems)
    results = list(bundle.results.values())
    result, unchecked = ReplayResult(0, sum(len(result.named_runs) for result in results), [], 0), list[str]()
    if not problems:
        if bundle.code_references and not trusts():
            raise SearchlabError(
                f"to replay the runs of {path} is to run code that a stranger wrote "
                f"({listed(bundle.code_references)}); read its source, then add --trust: it runs without a network, "
                f"and reads only itself and libraries"
            )
        with ConfinedReplayer(suite, bundle) as replayer:
            result = replayer.replay(results, bundle.digest, seconds)
            problems += result.problems
            on_step(result.describe("runs, each in a process that cannot read the tables"), result.problems)
            unchecked += replayer.missing_protections
            if not problems:
                refusals, limitations = _test_foreknowledge(replayer, seconds and seconds / 2)
                on_step("what the policy proposes when it is told shuffled measurements", refusals)
                problems += refusals
                unchecked += limitations
        if (omitted_count := result.total_count - result.replayed_count) > 0:
            unchecked.append(f"{omitted_count:,} of {result.total_count:,} runs, which --all replays as well")
        unchecked.append("on what its options were tuned, and how often its authors used the test tables")
    return BundleVerification(
        bundle=bundle.digest,
        date=time.strftime("%Y-%m-%d"),
        versions=dict(library_versions()),
        runs=result.replayed_count,
        total=result.total_count,
        problems=problems,
        unchecked=unchecked,
    )


class _BlindRun(NamedTuple):
    """The areas of a run whose strategy was told shuffled measurements, relative to random search on the same table.

    Attributes:
        gain: The run's area minus the mean area of random search.
        lead: The mean area of the strategy's recorded runs minus the mean area of random search.
        variance: The variance of such a gain of random search.
    """

    gain: float
    lead: float
    variance: float


def _test_foreknowledge(replayer: ConfinedReplayer, seconds: float | None) -> tuple[list[str], list[str]]:
    """Test whether a strategy finds good configs although it is told the measurements of others.

    Each config is told the measurement of another one, so that what a strategy learns is worthless: on the real table,
    it should do no better than random search. A strategy that has the answers does.

    Returns:
        The reasons to refuse the strategy, and what could not be checked.
    """
    suite, bundle = replayer.suite, replayer.bundle
    if RANDOM not in suite.baseline_paths:
        return [], [f"the suite has no baseline {RANDOM!r} with which to tell whether the policy knows the tables"]
    [random] = read_baselines(suite, [RANDOM])
    table_names = {name for result in bundle.results.values() for name in result.tables if name in random.tables}
    random_areas = {name: random.compute_areas(suite.table(name)) for name in table_names}
    try:
        blind_runs = list(_run_blind(replayer, random_areas, seconds))
    except SearchlabError as error:
        return [f"told shuffled measurements, {error}"], []
    if not blind_runs:
        return [], []
    gain, lead = fmean(run.gain for run in blind_runs), fmean(run.lead for run in blind_runs)
    standard_error = math.sqrt(sum(run.variance for run in blind_runs)) / len(blind_runs)
    if gain <= max(MAX_STANDARD_ERRORS * standard_error, MAX_BLIND_SHARE * lead):
        return [], []
    finding = (
        f"told shuffled measurements, its area still exceeds that of random search by {gain:.3f} in "
        f"{len(blind_runs)} runs (told the real ones: {lead:.3f}), so it knew what it had yet to measure"
    )
    if bundle.submission.track == "transfer":
        return [], [f"{finding}, as a strategy may that has learned from other workloads"]
    return [finding], []


def _run_blind(
    replayer: ConfinedReplayer, random_areas: Mapping[str, Floats], seconds: float | None
) -> Iterator[_BlindRun]:
    """Yield runs over the tables in ``random_areas``, in random order, until ``seconds`` have passed.

    Raises SearchlabError if a run fails.
    """
    start_time, rng = time.monotonic(), np.random.default_rng(int(replayer.bundle.digest[:16], 16))
    cases = [
        (result, name) for result in replayer.bundle.results.values() for name in result.tables if name in random_areas
    ]
    indices = [index for _ in range(BLIND_ROUNDS) for index in rng.permutation(len(cases))]
    for number, index in enumerate(indices):
        if seconds is not None and number and time.monotonic() - start_time > seconds:
            return
        result, name = cases[index]
        table = replayer.suite.table(name)
        seed, shuffled_positions = int(rng.integers(1 << 31)), rng.permutation(len(table.log.costs))
        trajectory = replayer.replay_run(result, name, seed, shuffled_positions)
        blind_runs = TableRuns(table.digest, (trajectory,))
        blind_result = msgspec.structs.replace(result, tables={name: blind_runs})
        yield _BlindRun(
            gain=float(blind_result.compute_areas(table).mean() - random_areas[name].mean()),
            lead=float(result.compute_areas(table).mean() - random_areas[name].mean()),
            variance=float(random_areas[name].var()) * (1 + 1 / len(random_areas[name])),
        )


# --- in the process that runs the bundle's code -----------------------------------------------------------------------


def serve_runs(has_no_network: bool) -> None:
    """Confine this process, then perform each run that is requested in a fork."""
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null_descriptor = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_descriptor, 0)
    os.dup2(null_descriptor, 1)
    setup_message = msgspec.json.decode(inbox.readline())
    for name in setup_message["spaces"]:
        SPACES.load(name)  # once, for all forks, and with TVM
    source_dir, writable_dir = Path(setup_message["source"]), Path(setup_message["writable"])
    hidden_directories = [Path(path) for path in setup_message["hidden"]]
    library_dirs = [sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *_SYSTEM_FOLDERS]
    readable_paths = [*map(Path, (*library_dirs, *_DEVICE_PATHS)), *_list_package_paths(), source_dir]
    is_confined = confine(
        [path for start in readable_paths for path in _exclude_directories(start.resolve(), hidden_directories)],
        writable_dir,
    )
    sys.path += [str(source_dir), str(source_dir / "src")]
    _send(outbox, _Reply(is_confined=is_confined, has_no_network=has_no_network))
    become_subreaper()
    space_choices: dict[bytes, SpaceChoice] = {}  # created once, for all forks: they are the suite's, not the bundle's
    while line := inbox.readline():
        request = msgspec.json.decode(line, type=_Request)
        request_key = msgspec.json.encode([request.workload, request.target, request.space])
        if request_key not in space_choices:
            with trust_plugins():
                workload, target = parse_workload(request.workload), resolve_target(request.target)
                space_choices[request_key] = SpaceChoice.from_spec(request.space, workload, target)
        if (child_pid := os.fork()) == 0:
            try:
                _perform_run(request, space_choices[request_key], inbox, outbox)
            except BaseException as error:
                with suppress(BaseException):
                    _send(outbox, _Reply(error=describe(error)))
            finally:
                os._exit(0)
        os.waitpid(child_pid, 0)
        kill_children()  # that the run has left behind
        _send(outbox, _Reply())


def _list_package_paths() -> Iterator[Path]:
    """Yield the installed packages outside Python's own directories, such as those of a checkout."""
    for directory in map(Path, filter(None, sys.path)):
        for path in directory.iterdir() if directory.is_dir() else ():
            if path.suffix in (".py", ".so", ".pth", ".dist-info", ".libs") or (path / "__init__.py").is_file():
                yield path


def _exclude_directories(path: Path, hidden_directories: Sequence[Path]) -> Iterator[Path]:
    """Yield paths that together contain everything in ``path`` except what is in ``hidden_directories``."""
    if not any(directory.is_relative_to(path) for directory in hidden_directories):
        if not any(path.is_relative_to(directory) for directory in hidden_directories):
            yield path
    elif path not in hidden_directories:
        for child in path.iterdir():
            yield from _exclude_directories(child, hidden_directories)


def _perform_run(request: _Request, space_choice: SpaceChoice, inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Propose configs and learn from their measurements, as in :class:`~searchlab.run.loop.RunLoop`."""
    recorded_runs = request.strategy
    with trust_plugins():
        strategy, budget = strategy_of(recorded_runs), Budget(recorded_runs.trial_count)
        run = Run(space_choice, strategy, request.seed, recorded_runs.batch, budget, TableSettings(""), Path())
        driver = PolicyDriver(replace(run, start_salt=recorded_runs.start_salt))
        trials: list[Trial] = []
        while len(trials) < recorded_runs.trial_count:
            first_index = len(trials)
            configs = driver.ask(recorded_runs.batch)[: recorded_runs.trial_count - first_index]
            if not configs:
                break
            _send(outbox, _Reply(configs=[config.to_json() for config in configs]))
            measurements = msgspec.json.decode(inbox.readline(), type=list[Measurement])
            outcomes = zip(configs, measurements, strict=True)
            trials += [Trial(index, *outcome) for index, outcome in enumerate(outcomes, first_index)]
            driver.tell(trials[first_index:])
        _send(outbox, _Reply(ended=len(trials) < recorded_runs.trial_count))


def _send(stream: IO[bytes], message: Any) -> None:
    stream.write(msgspec.json.encode(message) + b"\n")
    stream.flush()
