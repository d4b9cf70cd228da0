"""Tries what crosses the border: edited code, wrong programs, other machines, strangers' files, and absurd values.

    python studies/benchmarks/border.py [--situation NAME ...]

Each row of the table shows the kind of a situation, the situation, what is right, and what happened when it was tried.
Commands run in processes of their own, in an empty directory. A row is bad if a command prints a traceback, executes
the code of a stranger, takes longer than ``DEADLINE`` seconds, or does anything else but what is right. The exit status
is 1 if there is a bad row.
"""

from __future__ import annotations

import argparse
import fcntl
import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
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
    """

    kind: str
    name: str
    right: str
    attempt: Callable[[Path], str]


SITUATIONS: dict[str, Situation] = {}


def situation(kind: str, name: str, right: str) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    """Return a decorator that adds a function to SITUATIONS."""

    def add(attempt: Callable[[Path], str]) -> Callable[[Path], str]:
        SITUATIONS[name] = Situation(kind, name, right, attempt)
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
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "searchlab", *shlex.split(command)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it takes longer than {DEADLINE:.0f} s") from None
    lines = done.stderr.strip().splitlines()
    last = lines[-1] if lines else ""
    assert "Traceback" not in done.stderr, f"traceback: {last}"
    assert done.returncode == code, f"exit status {done.returncode}: {last}"
    assert mentions in done.stdout + done.stderr, f"{mentions!r} is not mentioned: {last}"
    assert not (folder / "PWNED").exists(), "a stranger's code was executed"
    return last.replace(str(folder), ".") or f"exit status {done.returncode}"


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

ONCE = """
import tvm
from tvm.s_tir import Schedule
from tvm.script import tirx as T
from searchlab.space import Knob, ProductSpace

class Once(ProductSpace):
    def __init__(self, workload, target):
        super().__init__(workload, target, [Knob("x", (0,))])

    def schedule(self, config):
        marker = MARKER

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")):
            T.func_attr({"global_symbol": "main"})
            if T.call_extern("int32", "access", marker, 0) != 0:
                T.evaluate(T.call_extern("int32", "creat", marker, 0o644))
                for i, j in T.grid(16, 16):
                    C[i, j] = T.float32(0)
                    for k in range(16):
                        C[i, j] = C[i, j] + A[i, k] * B[k, j]

        return Schedule(tvm.IRModule({"main": main}))
"""


@situation("timing", "a program computes in its first execution only", "its trial fails as wrong")
def compute_once(folder: Path) -> str:
    (folder / "own_space.py").write_text(ONCE.replace("MARKER", repr(str(folder / "marker"))))
    options = "--space own_space:Once --policy random --trials 1 --log a.jsonl"
    run(folder, f"tune gemm:16x16x16 {options}", code=2, mentions="wrong_answer")
    trial = json.loads((folder / "a.jsonl").read_text().splitlines()[1])
    assert "seconds" not in trial, f"it was measured: {trial.get('seconds')}"
    return f"{trial.get('failure')}: {trial.get('message', '')}"


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


@situation("plug-in", "a policy calls os._exit(0)", "an error that names the policy")
def policy_exits(folder: Path) -> str:
    write_study(folder)
    source = POLICY.replace("        return self.space", "        import os; os._exit(0)\n        return self.space")
    (folder / "own_policy.py").write_text(source)
    return run(folder, "run study.toml --out out", code=1, mentions="own_policy:Own")


def try_all(names: list[str]) -> list[tuple[Situation, Row, str]]:
    """Try the situations called ``names``, each in a directory of its own."""
    rows = []
    for name in names:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="border-") as folder:
            try:
                happened, wrong = SITUATIONS[name].attempt(Path(folder).resolve()), []
            except AssertionError as error:
                happened, wrong = f"BAD {error}", [str(error)]
        seconds = time.perf_counter() - start
        print(f"{name:<70} {seconds:6.1f} s  {'BAD' if wrong else 'ok'}", file=sys.stderr, flush=True)
        rows.append((SITUATIONS[name], Row(f"border: {SITUATIONS[name].kind}", name, 1, wrong, seconds), happened))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--situation", nargs="+", choices=SITUATIONS, default=[*SITUATIONS], metavar="NAME")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append rows for robustness.py to FILE")
    options = parser.parse_args()
    rows = try_all(options.situation)
    table = Table("kind", "situation", "right", "what happened")
    for tried, _, happened in rows:
        table.add_row(tried.kind, tried.name, tried.right, happened[:200])
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    write_rows([row for _, row, _ in rows], options.rows)


if __name__ == "__main__":
    main()
