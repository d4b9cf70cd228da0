"""A run that was killed and resumed ends with the log of the uninterrupted run."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from searchlab.conformance import toys
from searchlab.errors import SearchlabError
from searchlab.log.read import read_log
from searchlab.log.result import load_log
from searchlab.policy import POLICIES
from searchlab.records import Trial
from searchlab.run.tune import tune
from tests.support.logs import read_deterministic_part, write_table
from tests.support.policies import OPTIONS, space_for, strategies

pytestmark = pytest.mark.usefixtures("language_model")  # which "llm" asks

TRIALS = 40
SPACES = ("dependent", "small")


def run(policy: str, where: str, tables: Path, log: Path, trials: int = TRIALS, batch: int = 5) -> None:
    space = space_for(policy, where)
    tune(
        space.workload,
        space=space,
        policy={"name": policy, "options": OPTIONS.get(policy, {})},
        log=log,
        trials=trials,
        batch=batch,
        seed=3,
        measure={"kind": "table", "path": str(tables)},
        # Features of programs would import TVM in every fork.
        features="knob" if POLICIES.load(policy).traits.takes_cost_model else None,
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthetic measurements of each complete space."""
    folder = tmp_path_factory.mktemp("tables")
    for policy in ("random", "metaschedule"):
        for where in SPACES:
            write_table(folder / f"{policy}-{where}.jsonl", space_for(policy, where), toys.simulate_flaky)
    return folder


FORK_SERVER = """
import json, os, signal, sys, time
import optuna, xgboost  # so that a run starts at once; no thread has run in this process when it forks
from pathlib import Path
from tests.run.test_resume import run

for line in sys.stdin:
    size, delay, policy, space, table, log = json.loads(line)
    pid = os.fork()
    if pid == 0:
        run(policy, space, Path(table), Path(log))
        os._exit(0)
    ended, status = 0, 0
    while size is not None and not ended and not (os.path.exists(log) and os.path.getsize(log) >= size):
        ended, status = os.waitpid(pid, os.WNOHANG)
    if size is not None and not ended:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    if not ended:
        ended, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """A process that executes a run in a fork of itself and kills the fork."""
    with subprocess.Popen(
        [sys.executable, "-c", FORK_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("policy", ["random", "evolutionary", "xgb", "tpe"])
def test_killed_at_random_moments(policy: str, tables: Path, server: subprocess.Popen[str], tmp_path: Path) -> None:
    """What a kill leaves does not depend on the policy; the tests below are about all policies."""

    def in_fork(log: Path, size: float | None = None, delay: float = 0.0) -> int:
        """Return the exit code of a run that is killed ``delay`` seconds after its log has ``size`` bytes."""
        assert server.stdin and server.stdout
        task = [size, delay, policy, "dependent", str(tables), str(log)]
        print(json.dumps(task), file=server.stdin, flush=True)
        return int(server.stdout.readline())

    uninterrupted = tmp_path / "whole.jsonl"
    assert in_fork(uninterrupted) == 0
    size = len(uninterrupted.read_bytes())
    moments = random.Random(policy)
    kills = 0
    while kills < 5:  # the quick policies need several runs for that
        log = tmp_path / f"killed{kills}.jsonl"
        log.unlink(missing_ok=True)
        complete_lines, code = b"", -9
        while code != 0:
            code = in_fork(
                log, moments.uniform(len(complete_lines), len(complete_lines) + size / 8), moments.uniform(0, 0.001)
            )
            written = log.read_bytes() if log.exists() else b""
            assert written.startswith(complete_lines)  # nothing lost, nothing measured twice
            complete_lines = written[: written.rfind(b"\n") + 1]
            kills += code == -9
        assert read_deterministic_part(log) == read_deterministic_part(uninterrupted)


def cut(log: Path, moments: random.Random, least: int = 0) -> None:
    """Truncate the log at a random byte after the first ``least``, as a crash may leave it."""
    data = log.read_bytes()
    log.write_bytes(data[: moments.randrange(least, len(data))])


@pytest.mark.parametrize("policy", strategies())
def test_runs_that_were_cut_and_extended_equal_whole_runs(policy: str, tables: Path, tmp_path: Path) -> None:
    """At any budgets, also within a batch, and at any byte of the log."""
    size = space_for(policy, "dependent").size()
    moments = random.Random(policy)
    steps, uninterrupted = tmp_path / "steps.jsonl", tmp_path / "whole.jsonl"
    for trials in (7, 27, TRIALS):
        if steps.exists():
            cut(steps, moments, steps.stat().st_size // 2)
        run(policy, "dependent", tables, steps, trials)
        log = read_log(steps)
        assert len(log.records) == min(trials, size or trials) or (POLICIES.load(policy).traits.stops and log.run_end)
    run(policy, "dependent", tables, uninterrupted)
    assert read_deterministic_part(steps) == read_deterministic_part(uninterrupted)


def test_a_log_can_be_cut_at_any_line_of_its_beginning(tables: Path, tmp_path: Path) -> None:
    uninterrupted, log = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    run("random", "dependent", tables, uninterrupted, trials=10)
    data = uninterrupted.read_bytes()
    header = data.index(b"\n")
    for size in (0, 1, header, header + 1):
        log.write_bytes(data[:size])
        run("random", "dependent", tables, log, trials=10)
        assert read_deterministic_part(log) == read_deterministic_part(uninterrupted)


@pytest.mark.parametrize("policy", ["random", "evolutionary", "tpe", "one-plus-one", "droplet"])
def test_an_exhausted_space_ends_the_run(policy: str, tables: Path, tmp_path: Path) -> None:
    """It ends with the same log when it is cut and continued. The conformance kit exhausts a space by every policy."""
    path = tmp_path / "a.jsonl"
    run(policy, "small", tables, path, trials=1000, batch=16)
    expected = read_deterministic_part(path)
    log = read_log(path)
    assert log.run_end and (POLICIES.load(policy).traits.stops or len(log.records) == space_for(policy, "small").size())
    cut(path, random.Random(policy))
    run(policy, "small", tables, path, trials=1000, batch=16)
    assert read_deterministic_part(path) == expected and read_log(path).run_end


def test_a_policy_that_asks_for_something_else_is_found_out(tables: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    run("random", "small", tables, log, trials=20)
    lines = log.read_text().splitlines()
    lines[12] = lines[12].replace('"unroll":', '"unroll":1')
    log.write_text(changed := "\n".join(lines) + "\n")
    with pytest.raises(SearchlabError, match=r"cannot be continued, .*Trial 11 is .* but the policy now proposes"):
        run("random", "small", tables, log)
    assert log.read_text() == changed


def test_on_trial_sees_every_trial_once_also_when_resumed(tables: Path, tmp_path: Path) -> None:
    """It receives whether the log held the trial before; a complete log is replayed, too."""
    for existing, trials in ((0, 13), (13, 21), (21, 21)):
        calls: list[tuple[int, bool]] = []
        tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy="random",
            log=tmp_path / "a.jsonl",
            trials=trials,
            batch=5,
            measure={"kind": "table", "path": str(tables)},
            on_trial=lambda trial, replayed: calls.append((trial.index, replayed)),  # noqa: B023
        )
        assert calls == [(index, index < existing) for index in range(trials)]


@pytest.mark.parametrize("returned", [True, False, "stop"])
def test_the_return_value_of_on_trial_does_not_stop_the_run(tables: Path, tmp_path: Path, returned: object) -> None:
    result = tune(
        toys.WORKLOAD,
        space=toys.Small(),
        policy="random",
        log=tmp_path / "a.jsonl",
        trials=13,
        batch=5,
        measure={"kind": "table", "path": str(tables)},
        on_trial=lambda trial, replayed: returned,
    )
    assert len(result.trials) == 13


def test_a_run_resumes_after_the_trial_whose_callback_raised(tables: Path, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(trial: Trial, replayed: bool) -> None:
        if trial.index == 6 and not replayed:
            raise Enough

    def run_tune(**options: Any) -> Path:
        log = tmp_path / "a.jsonl"
        tune(
            toys.WORKLOAD,
            space=toys.Small(),
            policy="random",
            log=log,
            trials=13,
            batch=5,
            measure={"kind": "table", "path": str(tables)},
            **options,
        )
        return log

    with pytest.raises(Enough):
        run_tune(on_trial=stop)
    assert len(load_log(tmp_path / "a.jsonl").trials) == 7, "what there is can be read"
    assert len(read_log(run_tune(on_trial=stop)).records) == 13
