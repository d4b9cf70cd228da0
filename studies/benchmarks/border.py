"""Tries what crosses the border: edited code, wrong programs, other machines, strangers' files, and absurd values.

    python studies/benchmarks/border.py [--situation NAME ...] [--cases N]

Each row of the table shows the kind of a situation, the situation, what is right, how many of its cases were right, and
what happened in the last one, or in the first that was wrong. Commands run in processes of their own, in an empty
directory for each case. A case is wrong if a command prints a traceback, executes the code of a stranger, takes longer
than ``DEADLINE`` seconds, or does anything else but what is right. The exit status is 1 if there is a wrong case. With
``--cases``, only the first N cases of each situation are tried.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import json
import os
import random
import shlex
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rows import Row, write_rows

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "data"
DATA = ROOT / "tests" / "border" / "data"

DEADLINE = 90.0
"""The time limit for a command on a busy machine, in seconds."""

EVIL = 'open("PWNED", "w").close()\n\n\ndef f(*arguments):\n    pass\n'
"""A module that leaves a file where it is executed."""


@dataclass(frozen=True)
class Situation:
    """Something that once went wrong.

    Attributes:
        kind: The border that it crosses.
        name: What happens.
        right: What searchlab should do.
        attempt: Tries it in an empty directory, and returns what happened. Raises AssertionError if that is wrong.
            Called for each of the ``cases`` with the case as the second argument, if there are any.
        cases: The cases.
    """

    kind: str
    name: str
    right: str
    attempt: Callable[..., str]
    cases: Sequence[Any]


SITUATIONS: dict[str, Situation] = {}


Attempt = TypeVar("Attempt", bound=Callable[..., str])


def situation(kind: str, name: str, right: str, cases: Sequence[Any] = ()) -> Callable[[Attempt], Attempt]:
    """Return a decorator that adds a function to SITUATIONS."""

    def add(attempt: Attempt) -> Attempt:
        SITUATIONS[name] = Situation(kind, name, right, attempt, cases)
        return attempt

    return add


def run(folder: Path, command: str, code: int, mentions: str = "") -> str:
    """Run a ``searchlab`` command in ``folder``.

    Args:
        folder: The current directory.
        command: The command's words, without ``searchlab``.
        code: The exit status that is right.
        mentions: Text that the output must contain.

    Returns:
        The last line that it printed to the standard error, or the exit status.

    Raises:
        AssertionError: If something else happened.
    """
    return end(begin(folder, command), folder, (code,), mentions)


def begin(folder: Path, command: str, before: str = "") -> subprocess.Popen[str]:
    """Start a ``searchlab`` command in ``folder``, after the shell commands ``before``."""
    words = [sys.executable, "-P", "-m", "searchlab", *shlex.split(command)]
    return subprocess.Popen(
        ["sh", "-c", f"{before}\nexec {shlex.join(words)}"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def end(process: subprocess.Popen[str], folder: Path, codes: Collection[int], mentions: str = "") -> str:
    """Wait for a command that was started in ``folder``, and check it like :func:`run`."""
    try:
        output, errors = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"it takes longer than {DEADLINE:.0f} s") from None
    lines = errors.strip().splitlines()
    last = lines[-1] if lines else ""
    assert "Traceback" not in errors, f"traceback: {last}"
    assert process.returncode in codes, f"exit status {process.returncode}: {last}"
    assert mentions in (output or "") + errors, f"{mentions!r} is not mentioned: {last}"
    assert not (folder / "PWNED").exists(), "a stranger's code was executed"
    return last.replace(str(folder), ".") or f"exit status {process.returncode}"


# --- results and the code that made them ------------------------------------------------------------------------------

POLICY = """
from searchlab_policies.random import Random

class Own(Random):
    def __init__(self, *arguments, skip=0, **options):
        super().__init__(*arguments, **options)
        self.skip = skip

    def propose(self, n, rng):
        return self.space.sample_new(rng, n + self.skip, self.seen)[self.skip :]
"""


def write_study(folder: Path, policy: str = '"own_policy:Own"', top: str = "") -> Path:
    """Write a study that takes its measurements from a table, and a policy."""
    (folder / "own_policy.py").write_text(POLICY)
    shutil.copy(GOLDEN / "table.jsonl.gz", folder)
    study = folder / "study.toml"
    study.write_text(
        f'workloads = ["gemm:64x64x64"]\npolicies = [{policy}]\ntrials = 8\n{top}\n'
        'spaces = [{ name = "guided-gemm", options = { pack_a = "knob", pack_b = "knob" } }]\n'
        'measure = { kind = "table", path = "table.jsonl.gz" }\n'
    )
    return study


def repeat_after(folder: Path, old: str, new: str, code: int, mentions: str = "") -> str:
    """Run a study, edit its policy, and run the study again."""
    write_study(folder)
    run(folder, "run study.toml --out out", code=0)
    (folder / "own_policy.py").write_text(POLICY.replace(old, new))
    return run(folder, "run study.toml --out out", code=code, mentions=mentions)


@situation("code", "a policy is edited and its study repeated", "refused, with --out and --discard as ways on")
def edit_policy(folder: Path) -> str:
    return repeat_after(folder, "[self.skip :]", "[self.skip :][::-1]", code=1, mentions="--discard")


@situation("code", "a default of an option is edited", "refused, with --out and --discard as ways on")
def edit_default(folder: Path) -> str:
    return repeat_after(folder, "skip=0", "skip=3", code=1, mentions="--discard")


@situation("code", "only a comment is edited", "the log is kept")
def edit_comment(folder: Path) -> str:
    return repeat_after(folder, "    def propose", "    # a comment\n    def propose", code=0)


# --- programs that are timed ------------------------------------------------------------------------------------------

EXECUTIONS = 8

OWN_SPACE = """
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from searchlab.space import Knob, ProductSpace

FOLDER, PROGRAMS, ONCE, MICROSECONDS = SETTINGS

class Own(ProductSpace):
    def __init__(self, workload, target):
        super().__init__(workload, target, [Knob("slow", tuple(range(PROGRAMS)))])

    def schedule(self, config):
        slow = config["slow"]
        files = [f"{FOLDER}/{slow}-{number}" for number in range(8)]  # its executions create them in turn

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
            if not ONCE or T.call_extern("int32", "access", files[0], 0) != 0:
                for i, j in T.grid(16, 16):
                    C[i, j] = T.float32(0)
                    for k in range(16):
                        C[i, j] = C[i, j] + A[i, k] * B[k, j]
            EXECUTIONS

        return Schedule(tvm.IRModule({"main": main.with_attr("global_symbol", "main")}))
"""


def tune_own(folder: Path, programs: int, microseconds: int = 0, once: bool = False, **measure: object) -> str:
    """Write a space, and return the command that measures its programs.

    Args:
        folder: The directory for the space, for the log ``a.jsonl`` and for the files that the programs create.
        programs: The number of programs. In program n, execution n takes longer; they are numbered from 0.
        microseconds: How much longer it takes.
        once: Whether only a program's first execution computes anything.
        measure: Settings of the measurement.
    """
    lines = []
    for number in range(EXECUTIONS):
        lines += [f'{"elif" if number else "if"} T.call_extern("int32", "access", files[{number}], 0) != 0:']
        lines += [f'    T.evaluate(T.call_extern("int32", "creat", files[{number}], 0o644))']
        lines += [f"    if slow == {number}:", f'        T.evaluate(T.call_extern("int32", "usleep", {microseconds}))']
    source = OWN_SPACE.replace("EXECUTIONS", f"\n{12 * ' '}".join(lines))
    source = source.replace("SETTINGS", repr((str(folder), programs, once, microseconds)))
    (folder / "own_space.py").write_text(source)
    settings = json.dumps({"kind": "local", "min_repeat_ms": 0, "finalists": 0, **measure})
    words = ["tune", "gemm:16x16x16", "--space", "own_space:Own", "--policy", "random", "--trials", str(programs)]
    return shlex.join([*words, "--log", "a.jsonl", "--measure", settings])


def read_trials(folder: Path) -> list[dict[str, Any]]:
    """Return the trials in the log ``a.jsonl``."""
    lines = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "trial"]


@situation("timing", "a program computes in its first execution only", "its trial fails as wrong")
def compute_once(folder: Path) -> str:
    run(folder, tune_own(folder, programs=1, once=True), code=2, mentions="wrong_answer")
    (trial,) = read_trials(folder)
    assert "seconds" not in trial, f"it was measured: {trial.get('seconds')}"
    return f"{trial.get('failure')}: {trial.get('message', '')}"


@situation("timing", "one execution of each program is slow: the first, ..., the eighth", "its time is not affected")
def hiccup(folder: Path) -> str:
    run(folder, tune_own(folder, programs=EXECUTIONS, microseconds=100_000), code=0)
    trials = {trial["config"]["slow"]: trial for trial in read_trials(folder)}
    right = [n for n, trial in trials.items() if "seconds" in trial and statistics.median(trial["seconds"]) < 0.05]
    happened = f"{len(right)} of {EXECUTIONS} programs have the time of their other executions"
    assert len(right) == EXECUTIONS, f"{happened}; the others: {[t for n, t in trials.items() if n not in right]}"
    return happened


@situation("timing", "all processes are stopped for 4 s, longer than the time limit (SIGSTOP)", "no trial fails")
def suspend(folder: Path) -> str:
    programs = 6
    process = begin(folder, tune_own(folder, programs, microseconds=500_000, run_timeout=3, repeat=5))
    try:
        for number in range(0, programs, 2):  # program n, of which an execution takes half a second, is running
            wait_for(folder / f"{number}-0", process)
            time.sleep(0.2)
            processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for searchlab_process in processes:
                searchlab_process.suspend()
            time.sleep(4)
            for searchlab_process in processes:
                searchlab_process.resume()
    finally:
        end(process, folder, codes=(0,))
    failed = [trial for trial in read_trials(folder) if "failure" in trial]
    assert not failed, f"{len(failed)} trials failed: {failed[0].get('failure')}"
    return f"{programs} of {programs} trials have times"


def wait_for(path: Path, process: subprocess.Popen[Any]) -> None:
    """Wait until ``path`` exists. Raises AssertionError if the process ends before."""
    until = time.monotonic() + DEADLINE
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until, f"{path.name} is never created"
        time.sleep(0.01)


CHEATS = ROOT / "tests" / "support" / "measure" / "cheating.py"
FLOAT16 = ["gemm:8x8x65536:float16", "gemm:4x4x8192:float16", "gemm:16x16x1024:float16", "gemm:64x64x256:float16"]


def tune_cheats(folder: Path, workload: str, right: Collection[str]) -> str:
    """Measure all programs of the tests that compute only sometimes, or only in part; only those in ``right`` do."""
    shutil.copy(CHEATS, folder / "cheating.py")
    settings = json.dumps({"kind": "local", "repeat": 2, "min_repeat_ms": 0, "finalists": 0})
    words = ["tune", workload, "--space", "cheating:Cheating", "--policy", "random", "--trials", "99"]
    run(folder, shlex.join([*words, "--log", "a.jsonl", "--measure", settings]), code=0)
    failures = {trial["config"]["cheat"]: trial.get("failure") for trial in read_trials(folder)}
    wrong = {cheat for cheat, failure in failures.items() if (failure is None) != (cheat in right)}
    assert not wrong, f"{len(wrong)} of {len(failures)} programs are misjudged: {', '.join(sorted(wrong))}"
    return f"{len(failures)} of {len(failures)} programs are judged right"


@situation("timing", "programs that are right once, or on some inputs", "all but the right one fail as wrong")
def cheat(folder: Path) -> str:
    return tune_cheats(folder, "gemm:96x96x96", right=("none", "saturates"))


@situation("timing", "a float16 program omits the last 8 terms of its sums", "it fails as wrong", cases=FLOAT16)
def omit_terms(folder: Path, workload: str) -> str:
    return tune_cheats(folder, workload, right=("none", "saturates"))


@situation("timing", "another process measures this machine", "it waits, and says for whom")
def wait_for_lock(folder: Path) -> str:
    lock = folder / "lock"
    os.environ["SEARCHLAB_LOCK"] = str(lock)
    try:
        with lock.open("w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.write("process 1 of somebody")
            file.flush()
            words = "tune gemm:16x16x16 --space guided-gemm --policy random --trials 1 --log a.jsonl"
            process = subprocess.Popen(
                [sys.executable, "-m", "searchlab", *words.split()], cwd=folder, stderr=subprocess.PIPE, text=True
            )
            timer = threading.Timer(DEADLINE, process.kill)
            timer.start()
            try:
                assert process.stderr
                for line in process.stderr:
                    if "waiting for" in line:
                        return line.strip()
            finally:
                timer.cancel()
                process.kill()
                process.communicate()
    finally:
        del os.environ["SEARCHLAB_LOCK"]
    raise AssertionError("it did not wait")


@situation("timing", "the log of a run is cut while the run goes on", "it ends with a sentence, and can be repeated")
def cut_log(folder: Path) -> str:
    command = tune_own(folder, programs=EXECUTIONS, microseconds=500_000)
    process = begin(folder, command)
    wait_for(folder / "2-0", process)
    log = folder / "a.jsonl"
    os.truncate(log, log.stat().st_size - 10)
    happened = end(process, folder, codes=(2,), mentions="a.jsonl")
    run(folder, command, code=0)
    run(folder, "log check a.jsonl", code=0)
    assert len(read_trials(folder)) == EXECUTIONS, "trials are missing after the repetition"
    return happened


# --- machines ---------------------------------------------------------------------------------------------------------


@situation("machine", "the logs of two hosts are one table", "refused, with both names")
def join_hosts(folder: Path) -> str:
    write_study(folder, policy='"random"')
    table = gzip.decompress((folder / "table.jsonl.gz").read_bytes()).decode()
    (folder / "tables").mkdir()
    for name in ("a", "b"):
        header, rest = table.split("\n", 1)
        text = json.dumps(json.loads(header) | {"host": {"cpu": f"CPU {name}"}})
        (folder / "tables" / f"{name}.jsonl").write_text(f"{text}\n{rest}")
    study = folder / "study.toml"
    study.write_text(study.read_text().replace("table.jsonl.gz", "tables"))
    return run(folder, "run study.toml --out out", code=1, mentions="CPU b")


def tune(folder: Path, target: str, workload: str = "gemm:64x64x64", mentions: str = "") -> str:
    """Try to tune for a target. It must be refused before the first trial."""
    words = ["tune", workload, "--space", "guided-gemm", "--policy", "random", "--trials", "4", "--target", target]
    happened = run(folder, shlex.join([*words, "--log", "a.jsonl"]), code=2, mentions=mentions)
    assert not (folder / "a.jsonl").exists(), "it was refused only after its log was begun"
    return happened


@situation("machine", "the target is a CPU that this is not", "refused before the first trial")
def target_elsewhere(folder: Path) -> str:
    return tune(folder, '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}')


@situation("machine", "LLVM does not know the target's triple", "refused; TVM would crash")
def unknown_triple(folder: Path) -> str:
    return tune(folder, '{"kind": "llvm", "mtriple": "aarch46-linux-gnu"}', mentions="aarch46")


@situation("machine", "a target with -1 cores", "refused")
def negative_cores(folder: Path) -> str:
    return tune(folder, '{"kind": "native", "num-cores": -1}', mentions="num-cores")


@situation("machine", "a workload larger than memory", "refused, with the size")
def too_large(folder: Path) -> str:
    return tune(folder, "native", workload="gemm:1000000x1000000x1000000")


ANSWERS: dict[str, Any] = {
    "nothing": None,
    "a number": 0,
    "no object": [0, []],
    "another type": [0, {"server_info": [{"key": 1, "addr": ["a", 1]}]}],
    "no port": [0, {"server_info": [{"key": "a", "addr": ["a", 10**9]}]}],
}


@situation("machine", "a fleet's tracker hangs, or sends other types", "refused, with its address", cases=[*ANSWERS])
def strange_tracker(folder: Path, answer: str) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())

        def serve() -> None:
            connection = server.accept()[0]
            data = json.dumps(ANSWERS[answer]).encode()
            connection.sendall(
                struct.pack("<i", TRACKER) + (struct.pack("<i", len(data)) + data) * (answer != "nothing")
            )
            while connection.recv(1 << 16):  # and hang until the other end is closed
                pass

        threading.Thread(target=serve, daemon=True).start()
        return run(folder, f"fleet list --tracker {address}", code=2, mentions=address)


TRACKER = 0x2F271
"""The number with which TVM's trackers greet."""


@situation(
    "machine", "a Dask scheduler is killed during a study", "the study ends with a sentence, and can be repeated"
)
def kill_scheduler(folder: Path) -> str:
    if find_spec("distributed") is None:
        return "not tried: Dask is not installed; pip install '.[dask]'"
    write_study(folder, policy='"random"')
    file = folder / "scheduler.json"
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = subprocess.Popen(
        [*words, "--no-dashboard", "--scheduler-file", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(file, scheduler)
        time.sleep(0.5)  # the file is not written at once
        address = json.loads(file.read_text())["address"].removeprefix("tcp://")
        process = begin(folder, f"run study.toml --out out --on dask://{address}")  # no worker, so the runs wait
        wait_for(folder / "out" / "plan.json", process)
        time.sleep(2)
    finally:
        scheduler.kill()
        scheduler.wait()
    happened = end(process, folder, codes=(1, 2), mentions="Dask")
    run(folder, "run study.toml --out out", code=0)
    return happened


# --- strangers' files -------------------------------------------------------------------------------------------------


def copy_data(folder: Path, name: str) -> None:
    """Copy a stranger's files to ``folder``, with a module that they name."""
    shutil.copytree(DATA / name, folder, dirs_exist_ok=True)
    (folder / "evil.py").write_text(EVIL)


@situation("reading", "a suite names code", "refused without --trust; nothing is executed")
def suite_names_code(folder: Path) -> str:
    copy_data(folder, "suite-names-code")
    return run(folder, "suite run ./s --policy random --out out", code=2, mentions="--trust")


@situation("reading", "a T4 file names code", "refused; nothing is executed")
def t4_names_code(folder: Path) -> str:
    copy_data(folder, "import-t4-names-a-file")
    return run(folder, "import t4.json --out o.jsonl", code=2)


@situation("reading", "a MetaSchedule database names code", "refused; nothing is executed")
def database_names_code(folder: Path) -> str:
    copy_data(folder, "import-metaschedule-names-a-file")
    return run(folder, "import db --out o.jsonl --space sketch", code=2)


@situation("reading", "a log names a class", "refused without --trust; nothing is executed")
def log_names_code(folder: Path) -> str:
    (folder / "evil.py").write_text(EVIL)
    text = (GOLDEN / "model.jsonl").read_text().replace('"name":"guided-gemm"', '"name":"evil:f"', 1)
    (folder / "a.jsonl").write_text(text)
    return run(folder, "best a.jsonl --show tir", code=2, mentions="--trust")


@situation("reading", "files in the current directory are named as modules", "none is executed")
def shadow_modules(folder: Path) -> str:
    for name in ("torch", "cuda", "cPickle", "cython", "linkify_it", "numpy", "tvm"):
        (folder / f"{name}.py").write_text(EVIL)
    return run(folder, f"best {GOLDEN / 'model.jsonl'} --show tir", code=0)


@situation("links", "the copy of a study is a link to a secret", "the report does not contain the secret")
def link_to_secret(folder: Path) -> str:
    (folder / "secret").write_text("hunter2")
    results = folder / "results"
    results.mkdir()
    shutil.copy(GOLDEN / "model.jsonl", results)
    (results / "study-as-run.toml").symlink_to(folder / "secret")
    happened = run(folder, "report results --out report", code=0)
    for file in (folder / "report").rglob("*"):
        assert file.is_dir() or b"hunter2" not in file.read_bytes(), f"{file.name} contains the secret"
    return happened


@situation("links", "a link stands where the report is written", "the link's target remains as it was")
def link_at_report(folder: Path) -> str:
    (folder / "precious").write_text("precious")
    (folder / "results" / "report").mkdir(parents=True)
    shutil.copy(GOLDEN / "model.jsonl", folder / "results")
    (folder / "results" / "report" / "report.html").symlink_to(folder / "precious")
    happened = run(folder, "report results", code=0)
    assert (folder / "precious").read_text() == "precious", "the target was overwritten"
    return happened


@situation("links", "logs and plans in a directory lead out of it", "each log is named; nothing of it is shown")
def links_to_logs(folder: Path) -> str:
    secret = (GOLDEN / "model.jsonl").read_text().replace("gemm:64x64x64", "gemm:48x48x48")
    for name in ("secret.jsonl", "secret.json"):
        (folder / name).write_text(secret)
    results = folder / "results"
    results.mkdir()
    shutil.copy(GOLDEN / "model.jsonl", results)
    (results / "secret.jsonl").symlink_to(folder / "secret.jsonl")
    (results / "plan.json").symlink_to(folder / "secret.json")
    for command in ("best results", "table info results", "report results --out report", "log check results"):
        happened = run(folder, command, code=1 if command.startswith("log") else 0, mentions="secret.jsonl leads to")
    for file in (folder / "report").rglob("*"):
        assert file.is_dir() or b"48x48x48" not in file.read_bytes(), f"{file.name} contains the secret"
    return happened


# --- absurd values ----------------------------------------------------------------------------------------------------


@situation(
    "input", "a pipe, a loose link and a damaged log beside a sound log", "each is named; the sound log is shown"
)
def bad_neighbours(folder: Path) -> str:
    shutil.copy(GOLDEN / "model.jsonl", folder)
    shutil.copy(DATA / "computation" / "longw.jsonl", folder)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "link.jsonl").symlink_to("nowhere")
    run(folder, "best .", code=0, mentions="pipe.jsonl")
    run(folder, "best .", code=0, mentions="link.jsonl")
    return run(folder, "best .", code=0, mentions="longw.jsonl")


@situation("input", "a pipe is given as a log", "refused")
def pipe_as_log(folder: Path) -> str:
    os.mkfifo(folder / "pipe.jsonl")
    return run(folder, "best pipe.jsonl", code=2, mentions="pipe")


READERS = (
    "run {}",
    "hypertune {} --policy random",
    "table build {}.toml --out out",
    "tune gemm:16x16x16 --space guided-gemm --policy random --trials 1 --log a.jsonl --warm-start {}",
    "tune gemm:16x16x16 --space guided-gemm --policy random --trials 1 --log {}",
    "watch {} --port 0",
    "report {} --out out",
    "report --publish out {}",
    "report --publish out {}.zip",
    "power {}",
    "best {}",
    "verify {}",
    "log check {}",
    "table info {}",
    "costmodel eval {} --model random",
    "export {} --out out.so",
    "export {} --to metaschedule --out out",
    "export {} --to kernel-tuner --out out.json",
    "import {} --out out",
    "import {} --format kernel-tuner --out out.jsonl",
    "model tasks {}.py:f",
    "model tasks {}.onnx",
    "model tune {}.pt2 --trials 1 --out out",
    "model run {}.so",
    "show workload tir:{}.json",
    "space tir:{}.py:f --space trace",
    "check workload tir:{}.json",
    "suite info {}",
    "suite run {} --policy random --out out",
    "suite report {} --out out",
    "suite verify {}",
    "suite verify {}.zip",
    "suite submit {} --out out.zip",
    "suite build {} --from .",
    "suite seal {}",
    "suite baselines v1 {} --out out",
)
"""The commands that read a file or directory, with ``{}`` in its place."""

ENDLESS = ("pipe", "zero")


@situation("input", "a pipe or /dev/zero is what a command reads", "refused in one sentence", cases=READERS)
def read_endless(folder: Path, command: str) -> str:
    ending = command.partition("{}")[2].split(" ")[0].partition(":")[0]
    os.mkfifo(folder / f"pipe{ending}")
    (folder / f"zero{ending}").symlink_to("/dev/zero")
    for name in ENDLESS:
        process = begin(folder, command.replace("{}", name))
        happened = end(process, folder, codes=(1, 2), mentions=name)
        files = {path.name for path in folder.iterdir()} - {f"{name}{ending}" for name in ENDLESS}
        assert files <= {"out"}, f"it leaves {', '.join(files)}"
    return happened


@situation("input", "the TVM graph in a log is damaged", "refused; TVM would crash")
def damaged_graph(folder: Path) -> str:
    return run(folder, f"best {DATA / 'computation' / 'cycle.jsonl'} --show tir", code=2, mentions="damaged")


@situation("input", "a number of 400 digits", "refused, with the line")
def long_number(folder: Path) -> str:
    return run(folder, f"report {DATA / 'computation' / 'flops400.jsonl'} --out report", code=2, mentions="line 1")


@situation("input", "the last line of TopHub's log is torn", "the other records are imported")
def torn_log(folder: Path) -> str:
    text = (DATA / "tophub" / "llvm.log").read_text()
    (folder / "llvm.log").write_text(text + text.splitlines()[-1][:80])
    return run(folder, "import llvm.log --out out", code=0)


@situation("input", "10^9 seeds", "refused")
def many_seeds(folder: Path) -> str:
    write_study(folder, top="seeds = 1000000000")
    return run(folder, "run study.toml --out out --dry-run", code=2, mentions="seeds")


@situation("input", "a memory limit of 10^18 MB", "refused")
def memory_limit(folder: Path) -> str:
    measure = json.dumps({"kind": "local", "memory_limit_mb": 10**18})
    words = ["tune", "gemm:16x16x16", "--space", "guided-gemm", "--policy", "random", "--trials", "1"]
    command = shlex.join([*words, "--log", "a.jsonl", "--measure", measure])
    return run(folder, command, code=2, mentions="memory_limit_mb")


@situation("input", "a study begins with a byte order mark", "accepted")
def byte_order_mark(folder: Path) -> str:
    study = write_study(folder)
    study.write_text("\ufeff" + study.read_text(), encoding="utf-8", newline="\r\n")
    return run(folder, "run study.toml --out out --dry-run", code=0)


# --- disks, terminals and signals -------------------------------------------------------------------------------------

FOREIGN = ROOT / "tests" / "exchange" / "data"
SUITE = """
version = "small"
title = "A small suite"
licence = "MIT"
trials = 12
seeds = 2

[[tables]]
name = "gemm"
split = "dev"
workload = "kernel:gemm@a:1769472flop"
space = { name = "parameters" }
file = "gemm_t4.json.gz"
"""
FEW = shlex.quote(json.dumps({"kind": "local", "repeat": 1, "min_repeat_ms": 0, "finalists": 0}))

WRITERS = {
    "run": "run study.toml --out out",
    "tune": f"tune gemm:16x16x16 --space guided-gemm --policy random --trials 30 --measure {FEW} --log a.jsonl",
    "report": "report results --out out",
    "publish": "report --publish out results",
    "model tune": f"model tune models.py:mlp --trials 6 --batch 2 --policy random --measure {FEW} --force --out out",
    "hypertune": "hypertune study.toml --policy evolutionary --trials 4 --seeds 2 --fresh-seeds 2 --out out",
    "import": "import gemm_t4.json.gz --workload kernel:gemm@a:1769472flop --out b.jsonl",
    "export": "export model.jsonl --out b.so",
    "export metaschedule": "export model.jsonl --to metaschedule --out out",
    "table build": f"table build gemm:16x16x16 --space guided-gemm --limit 8 --passes 0 --measure {FEW} --out b.jsonl",
    "suite build": "suite build small --from .",
    "suite seal": "suite seal built",
    "suite run": "suite run built --policy evolutionary --seeds 2 --out out",
}
"""Commands that write files, for the directory that :func:`prepare` makes."""


def prepare(folder: Path) -> None:
    """Write everything that the commands in WRITERS read."""
    shutil.copytree(prepared_directory().name, folder, dirs_exist_ok=True)


@cache
def prepared_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a directory with everything that the commands in WRITERS read."""
    directory = tempfile.TemporaryDirectory(prefix="border-")
    folder = Path(directory.name).resolve()
    study = write_study(folder, policy='"random", "evolutionary"', top="seeds = 4")
    study.write_text(study.read_text().replace("trials = 8", "trials = 60"))
    shutil.copytree(FOREIGN / "kernel_tuner", folder, dirs_exist_ok=True)
    shutil.copy(GOLDEN / "model.jsonl", folder)
    shutil.copy(ROOT / "tests" / "model" / "models.py", folder)
    for name in ("small", "built"):
        (folder / name).mkdir()
        (folder / name / "suite.toml").write_text(SUITE)
    run(folder, "run study.toml --out results", code=0)
    run(folder, "suite build built --from .", code=0)
    run(folder, "suite run built --policy random --seeds 2 --out first", code=0)
    run(folder, "suite baselines built first/logs", code=0)
    return directory


LIMITS = {"0 bytes": 0, "2 kB": 4, "32 kB": 64, "1 MB": 2048}


@situation(
    "disk",
    "no file may be longer than 0 bytes, 2 kB, 32 kB, 1 MB (ulimit -f)",
    "a sentence; it can be repeated",
    cases=[*WRITERS],
)
def full_disk(folder: Path, writer: str) -> str:
    prepare(folder)
    for name, blocks in LIMITS.items():
        process = begin(folder, WRITERS[writer], before=f"ulimit -f {blocks}")
        happened = end(process, folder, codes=(0, 1, 2))
        assert not happened.startswith("LLVM"), happened
        if process.returncode == 0:
            return f"{name} are enough"
    run(folder, WRITERS[writer], code=0)
    return happened


PRINTERS = (
    "best model.jsonl --show tir",
    "report results --json",
    "list policies",
    "schema",
    "show policy xgb",
    "log check results",
    "table info table.jsonl.gz",
    "run study.toml --dry-run",
    "suite info built",
    "--help",
)


@situation("terminal", "the output is closed, or its reader ends (| head -1)", "no traceback", cases=PRINTERS)
def closed_output(folder: Path, command: str) -> str:
    prepare(folder)
    end(begin(folder, command, before="exec >&-"), folder, codes=(0, 1))
    process = begin(folder, command)
    assert process.stdout
    process.stdout.close()
    process.stdout = None
    return end(process, folder, codes=(0, 1))


def clean(folder: Path) -> None:
    """Remove everything that a command in WRITERS has written."""
    shutil.rmtree(folder)
    folder.mkdir()
    prepare(folder)


MOMENTS = 10
LATEST = 8.0
"""The latest moment at which a command is interrupted, in seconds after its start."""

INTERRUPTS = [(writer, name) for writer in (*WRITERS, "watch") for name in ("SIGINT", "SIGTERM")]


@situation(
    "signal",
    f"a command is interrupted at {MOMENTS} random moments, and repeated each time",
    "exit status 130; nothing in a log is lost, and no process is left",
    cases=INTERRUPTS,
)
def interrupt(folder: Path, case: tuple[str, str]) -> str:
    prepare(folder)
    writer, name = case
    command = WRITERS.get(writer, "watch results --port 0")
    moments = random.Random(repr(case))
    number = signal.Signals[name]
    interrupted = 0
    for _ in range(MOMENTS):
        logs = [folder / "a.jsonl", *(folder / "out").rglob("*.jsonl")]
        lines = {log: log.read_bytes().rpartition(b"\n")[0] for log in logs if log.exists()}
        process = begin(folder, command)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.1, LATEST))
        processes: list[psutil.Process] = []
        with suppress(psutil.Error):
            processes = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(number)
        end(process, folder, codes=(0, 130, -number, -signal.SIGINT))  # a signal while Python starts or ends
        interrupted += process.returncode != 0
        assert not psutil.wait_procs(processes, timeout=10)[1], "its processes are left"
        for log, data in lines.items():
            assert log.read_bytes().startswith(data), f"lines of {log.relative_to(folder)} are lost"
        if process.returncode == 0 or writer.startswith("export"):  # a file that is complete is not overwritten
            clean(folder)
    if writer in WRITERS:
        run(folder, command, code=0)
    return f"interrupted {interrupted} times"


@situation("plug-in", "a policy calls sys.exit(0)", "an error that names the policy")
def policy_exits(folder: Path) -> str:
    write_study(folder)
    source = POLICY.replace("        return self.space", "        import sys; sys.exit(0)\n        return self.space")
    (folder / "own_policy.py").write_text(source)
    return run(folder, "run study.toml --out out", code=1, mentions="own_policy:Own")


def try_all(names: list[str], most: int | None) -> list[tuple[Situation, Row, str]]:
    """Try the first ``most`` cases of the situations called ``names``, each in a directory of its own."""
    rows = []
    for name in names:
        start = time.perf_counter()
        case_group = SITUATIONS[name]
        wrong = []
        calls: list[tuple[str, ...]] = [(case,) for case in case_group.cases[:most]] or [()]
        for case in calls:
            with tempfile.TemporaryDirectory(prefix="border-") as folder:
                try:
                    happened = case_group.attempt(Path(folder).resolve(), *case)
                except AssertionError as error:
                    wrong.append(": ".join([*map(repr, case), str(error)]))
        seconds = time.perf_counter() - start
        count = f"{len(calls) - len(wrong)} of {len(calls)}"
        print(f"{name:<70} {seconds:6.1f} s  {count}", file=sys.stderr, flush=True)
        print(*wrong, sep="\n", end="\n" * bool(wrong), file=sys.stderr, flush=True)
        row = Row(f"border: {case_group.kind}", name, len(calls), wrong, seconds)
        rows.append((case_group, row, f"WRONG {wrong[0]}" if wrong else happened))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situation", nargs="+", choices=SITUATIONS, default=[*SITUATIONS], metavar="NAME")
    parser.add_argument("--cases", type=int, metavar="N", help="the number of cases of each situation (all)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append rows for robustness.py to FILE")
    options = parser.parse_args()
    rows = try_all(options.situation, options.cases)
    table = Table("kind", "situation", "what is right", "right", "what happened")
    for case_group, row, happened in rows:
        count = f"{row.attempts - len(row.wrong)} of {row.attempts}"
        table.add_row(case_group.kind, case_group.name, case_group.right, count, escape(happened[:200]))
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    write_rows([row for _, row, _ in rows], options.rows)


if __name__ == "__main__":
    main()
