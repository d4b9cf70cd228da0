"""A candidate that attacks other processes loses its own trial and no other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.cli import run_python

MEASURE = """
import sys
from searchlab.measure.local import LocalMeasurer, LocalSettings
from searchlab.space import Config
from searchlab.target import resolve_target
from searchlab.workload import parse_workload
from tests.support.measure.hostile import Hostile

target = resolve_target("native")
space = Hostile(parse_workload("gemm:8x8x8"), target)
configs = [Config({"fault": fault}) for fault in ("kills its parent", "schedule kills its parent", "none")]
with LocalMeasurer(LocalSettings(repeat=1, min_repeat_ms=0), target, {}, 1) as measurer:
    print([found.failure for found in measurer.measure(space, configs)])
"""


def test_a_candidate_that_kills_its_parent_costs_its_own_trial() -> None:
    result = run_python("-c", MEASURE)
    assert result.returncode == 0, result.stderr
    confined = "['wrong_answer', 'build_error', None]"  # the kernel refused
    assert result.stdout.strip() in (confined, "['crash', 'crash', None]")


BOUND = """
import os, signal, sys
from searchlab.measure import isolation
isolation.die_with_parent(int(sys.argv[1]))
{}
"""


def bound(code: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-c", BOUND.format(code), str(os.getpid())],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit(0)", 0),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getppid(), signal.SIGKILL); signal.pause()", -signal.SIGKILL),
    ],
)
def test_a_parent_ends_in_the_same_way_as_its_child(last: str, code: int) -> None:
    """A candidate that kills its parent kills the go-between; this process continues."""
    process = bound(f"isolation.continue_in_child(); {last}")
    process.communicate(timeout=60)
    assert process.returncode == code


def test_nothing_outlives_a_parent_that_waits() -> None:
    process = bound("isolation.continue_in_child(); print(os.getpid(), flush=True); signal.pause()")
    assert process.stdout
    child = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_confined_signals_reach_children_alone() -> None:
    code = """
print(isolation.confine_signals())
child = os.fork() or signal.pause()
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    print("refused")
"""
    process = bound(code)
    output, _ = process.communicate(timeout=60)
    if output.startswith("False"):
        pytest.skip("this kernel cannot confine signals")
    assert output.split() == ["True", str(-signal.SIGTERM), "refused"]


CONFINED = """
import socket, sys
from pathlib import Path
from searchlab.measure.isolation import confine, leave_network

alone = leave_network()
source, scratch, secret, port = *map(Path, sys.argv[1:4]), int(sys.argv[4])
if not confine([source, *map(Path, (sys.prefix, sys.base_prefix, "/usr", "/lib", "/proc"))], scratch):
    sys.exit("no Landlock")


def allowed(action):
    try:
        action()
        return True
    except OSError:
        return False


print(
    allowed((source / "code.py").read_text),
    allowed(lambda: (scratch / "own").write_text("x")),
    allowed(secret.read_text),
    allowed(lambda: list(secret.parent.iterdir())),
    allowed(lambda: Path(f"/proc/self/root{secret}").read_text()),
    allowed(lambda: (source / "more.py").write_text("x")),
    allowed(lambda: secret.unlink()),
    alone and allowed(lambda: socket.create_connection(("127.0.0.1", port), 5)),
)
"""


def test_a_confined_process_reads_only_what_it_may(tmp_path: Path) -> None:
    for name in ("source", "scratch", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "code.py").write_text("")
    (tmp_path / "home" / "secret").write_text("the answers")
    with socket.create_server(("127.0.0.1", 0)) as server:
        paths = [tmp_path / "source", tmp_path / "scratch", tmp_path / "home" / "secret"]
        result = run_python("-c", CONFINED, *paths, server.getsockname()[1])
    if "no Landlock" in result.stderr:
        pytest.skip("this kernel has no Landlock")
    assert result.stdout.split() == ["True"] * 2 + ["False"] * 6, result.stderr
    assert (tmp_path / "home" / "secret").exists()
