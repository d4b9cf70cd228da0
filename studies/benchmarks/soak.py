"""Interrupts runs at random moments, hundreds of times, and counts what is lost.

    python studies/benchmarks/soak.py [--kills 500] [--policies P ...]     # kills runs of every policy
    python studies/benchmarks/soak.py --faults [--kills 500]               # the file system fails instead
    python studies/benchmarks/soak.py --changes [--kills 500]              # kills runs whose code changes each time
    python studies/benchmarks/soak.py --commands [--kills 200]             # interrupts complete commands

Each run searches the first table that its policy supports, in its own process. Policies that take seconds per batch use
smaller settings than their defaults. Whenever the log has grown by a random number of bytes, the process is killed with
SIGKILL, SIGTERM or SIGINT and restarted, until the run has all its trials. With ``--faults``, no process is killed.
Instead, some writes are short, or fail halfway with EIO or ENOSPC (``faults.c``, which requires a C compiler); the run
must then end with a one-line error. After every interruption, the log must begin with all complete records that it had
before. At the end, it must equal the log of an uninterrupted run, except for times. The exit status is 1 if anything
was lost.

With ``--changes``, a log names other code after each interruption, so that the next process replays it and adds a line
``changed``.

With ``--commands``, the signals are sent to ``suite run``, ``suite build``, ``import`` of TopHub's file, ``hypertune``,
``table build`` and two concurrent ``run`` commands in one directory, which share ``--kills``. Each command is restarted
until it succeeds. A signal also counts as a loss if the command prints a traceback, or if one of its processes is still
alive ``ORPHANED`` seconds later.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
from border import FOREIGN, SUITE
from rows import Row, write_rows

import searchlab
from searchlab.log.read import RUNS_SUFFIX, read_header
from searchlab.measure.table import TableMeasurer
from searchlab.policy import POLICIES
from searchlab.suite.trajectories import read_trajectories

HERE = Path(__file__).parent
TABLES = [HERE.parent / f"suite/v1/tables/gemm-{name}-1t.parquet" for name in ("31x256x128-knob", "64x64x64-trace")]
OPTIONS: dict[str, dict[str, Any]] = {
    "autotvm-xgb": {"chains": 16, "steps": 10},
    "autotvm-xgb-rank": {"chains": 16, "steps": 10},
    "ansor": {"population": 48},
    "metaschedule": {"population": 48, "n_startup": 48},
    "gp": {"memory": 64},
    "smac": {"challengers": 100, "searches": 2},
}
"""Options for policies that take seconds per batch. What an interruption loses does not depend on them."""
CLOCKS = {"propose_seconds", "train_seconds", "predict_seconds", "feature_seconds", "time", "created", "code"}
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
REFUSED, LOST = 3, 4
"""The exit codes of a process that ends with a sentence, and with anything else that is not a success."""
PRELOADED = "SOAK_PRELOADED"


def run(policy: str, table: Path, log: Path, trials: int) -> None:
    """Run a search in this process."""
    header = read_header(table)
    searchlab.tune(
        header.workload,
        space={"name": header.space.name, "options": header.space.options},
        policy={"name": policy, "options": OPTIONS.get(policy, {})},
        log=log,
        trials=trials,
        measure={"kind": "table", "path": str(table)},
        progress=False,
    )


def start(policy: str, table: Path, log: Path, trials: int, faults: tuple[int, int] | None) -> int:
    """Run a search in a fork of this process, in which all imports are done, and return the process ID.

    Args:
        faults: How many writes in a thousand fail, and the seed that selects them.
    """
    if pid := os.fork():
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if faults:
        os.environ["FAULTS"], os.environ["FAULTS_SEED"] = map(str, faults)
        TableMeasurer.repeatable = False  # each record is written and synchronised, as for real measurements
    try:
        run(policy, table, log, trials)
    except KeyboardInterrupt:
        os._exit(130)
    except searchlab.SearchlabError as error:
        os._exit(REFUSED if "cannot write" in str(error) and "\n" not in str(error) else LOST)
    except BaseException:
        os._exit(LOST)
    os._exit(0)


def kill_at(pid: int, log: Path, size: int, how: signal.Signals) -> bool:
    """Send the signal once the log has ``size`` bytes. Return False if the run ends before then."""
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if log.exists() and log.stat().st_size >= size:
            os.kill(pid, how)
            os.waitpid(pid, 0)
            return True
        time.sleep(0.0005)
    return False


def read_without_times(log: Path) -> list[Any]:
    """Return the log without times and without what names its code."""
    lines = [
        json.loads(line, object_hook=lambda fields: {k: v for k, v in fields.items() if k not in CLOCKS})
        for line in log.read_text().splitlines()
    ]
    return [line for line in lines if line["kind"] != "changed"]


def change_code(log: Path) -> None:
    """Let all lines of a log that name its code name other code, as if the code had changed since."""
    if data := complete_lines(log):
        log.write_bytes(re.sub(rb'"core":"[0-9a-f]+"', b'"core":"0123456789abcdef"', data))


def complete_lines(log: Path) -> bytes:
    data = log.read_bytes() if log.exists() else b""
    return data[: data.rfind(b"\n") + 1]


class Goal(NamedTuple):
    """The table that a policy searches, and its log of ``size`` bytes without interruptions."""

    table: Path
    log: list[Any]
    size: int


def find_goals(names: Sequence[str], tables: Sequence[Path], folder: Path, trials: int) -> dict[str, Goal]:
    """Return each policy's goal. Policies that support none of the tables are reported and skipped.

    This also performs all imports before anything forks.
    """
    goals = {}
    for name in names:
        path = folder / f"{name}.jsonl"
        for table in tables:
            try:
                run(name, table, path, trials)
            except searchlab.SearchlabError as error:
                print(f"{name} on {table.name}: {error}", flush=True)
            else:
                goals[name] = Goal(table, read_without_times(path), path.stat().st_size)
                break
        else:
            print(f"{name} is skipped", flush=True)
    return goals


# --- commands -------------------------------------------------------------------------------------------------------

MARK = "SEARCHLAB_SOAK"
"""The environment variable that marks the processes of this script."""
ORPHANED = 10.0
PAUSE = 12.0
"""No command takes longer than this. Its signal is sent within this number of seconds of its start."""
IGNORED = "Exception ignored in"
"""If an interrupt arrives while a weak reference is being removed, Python only reports it, and the command
continues."""
ENDS = (0, 130, -9, -15, -2)
"""The exit codes with which a command may end: a signal's own if it arrives before Python has read any of our code."""
UNSTEADY = "the machine is not steady"
"""The message of ``table build`` on a busy machine, where it builds no table; the command is then run again."""

HYPERTUNE = ["--policy", "evolutionary", "--trials", "4", "--seeds", "2", "--fresh-seeds", "2"]
TOPHUB = HERE.parents[1] / "tests" / "border" / "data" / "tophub" / "llvm.log"

STUDY = """
workloads = ["{workload}"]
spaces = [{space}]
policies = ["random", "evolutionary", "xgb"]
trials = 400
seeds = 4
measure = {{ kind = "table", path = "{table}" }}
"""


class Command(NamedTuple):
    """Commands that run concurrently in their own folder, and the files that they leave behind.

    Attributes:
        measures: Whether the files contain times measured on this machine. If so, only the configs are compared.
        reads: Files that the commands read, with their text.
    """

    name: str
    words: Sequence[Sequence[str]]
    files: Sequence[str]
    measures: bool = False
    reads: Mapping[str, str] = {}


def commands(folder: Path) -> list[Command]:
    """Return the commands to interrupt; their study file is written to ``folder``."""
    header = read_header(TABLES[0])
    space = f'{{ name = "{header.space.name}", options = {json.dumps(header.space.options).replace(":", " =")} }}'
    study = folder / "two.toml"
    study.write_text(STUDY.format(workload=header.workload, space=space, table=TABLES[0]))
    build = ["table", "build", "gemm:16x16x16", "--space", "knob-template", "--limit", "64", "--passes", "2"]
    run = ["run", str(study), "--out", "out", "--jobs", "2"]
    return [
        Command(
            "suite run",
            [["suite", "run", "v1/dev", "--policy", "evolutionary", "--seeds", "4", "--jobs", "2", "--out", "out"]],
            ["out/logs/**/*.jsonl*", "out/result.runs.parquet"],
        ),
        Command(
            "suite build",
            [["suite", "build", "small", "--from", str(FOREIGN / "kernel_tuner")]],
            ["small/tables/*"],
            reads={"small/suite.toml": SUITE},
        ),
        Command("import", [["import", str(TOPHUB), "--out", "out"]], ["out/*.jsonl"]),
        Command("hypertune", [["hypertune", str(study), *HYPERTUNE, "--out", "out"]], ["out/hypertune.json"]),
        Command("table build", [[*build, "--out", "t.jsonl"]], ["**/*.jsonl"], True),
        Command("two of run", [run, run], ["out/**/*.jsonl"]),
    ]


def make(command: Command, folder: Path) -> None:
    """Make the directory of a command, with the files that it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in command.reads.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def begin(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "searchlab", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {MARK: str(folder)},
    )


def strays(folder: Path) -> list[int]:
    """Return the processes started in ``folder`` that are still alive after ``ORPHANED`` seconds."""
    end = time.monotonic() + ORPHANED
    while pids := [process.pid for process in psutil.process_iter() if _belongs(process, folder)]:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return pids


def _belongs(process: psutil.Process, folder: Path) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(folder))
    except psutil.Error:
        return False


def files_left(command: Command, folder: Path) -> dict[str, Any]:
    """Return the files that the command left behind, without times."""
    contents: dict[str, Any] = {}
    for path in sorted(path for files in command.files for path in folder.glob(files)):
        if path.name.endswith(RUNS_SUFFIX):
            contents[path.name] = _timeless(msgspec.to_builtins(read_trajectories(path)), folder)
            continue
        if not path.name.endswith((".jsonl", ".gz")):
            contents[str(path.relative_to(folder))] = path.read_bytes()
            continue
        lines = _text(path).splitlines()
        if command.measures:
            contents[path.name] = [json.loads(line).get("config") for line in lines]
        else:
            contents[str(path.relative_to(folder))] = [_timeless(json.loads(line), folder) for line in lines]
    return contents


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _timeless(value: Any, folder: Path) -> Any:
    """Return ``value`` without measurements and without ``folder``'s name."""
    if isinstance(value, dict):
        return {name: _timeless(item, folder) for name, item in value.items() if name not in {*CLOCKS, *COSTS}}
    if isinstance(value, list):
        return [_timeless(item, folder) for item in value]
    return value.replace(str(folder), "") if isinstance(value, str) else value


COSTS = {"own_seconds", "ask", "tell"}
"""The keys, in a suite's files, for the seconds that a policy took."""


def interrupt(command: Command, folder: Path, kills: int, moments: random.Random) -> Row:
    """Run ``command`` repeatedly in new folders until ``kills`` signals have been sent."""
    start_time = time.monotonic()
    whole_run = folder / "whole"
    goal = run_to_end(command, whole_run)
    sent: Counter[str] = Counter()
    losses: list[str] = []
    runs = 0
    while sent.total() < kills:
        runs += 1
        run_folder = folder / f"run-{runs}"
        make(command, run_folder)
        finished = False
        while not finished:
            processes = [begin(words, run_folder) for words in command.words]
            victim = moments.choice(processes)
            try:
                victim.wait(moments.uniform(0.1, PAUSE))
            except subprocess.TimeoutExpired:
                number = moments.choice(SIGNALS)
                victim.send_signal(number)
                sent[number.name] += 1
            for process in processes:
                errors = process.communicate(timeout=600)[1]
                ignored = errors.startswith(IGNORED) and process.returncode == 0
                if ("Traceback" in errors and not ignored) or (
                    process.returncode not in ENDS and UNSTEADY not in errors
                ):
                    losses.append(f"it ended with {process.returncode}: {errors[-2000:]}")
            if pids := strays(run_folder):
                losses.append(f"{len(pids)} processes were left")
            finished = all(process.returncode == 0 for process in processes) or sent.total() >= kills
        if files_left(command, run_folder) != goal and run_to_end(command, run_folder) != goal:
            losses.append(f"what {run_folder.name} left behind differs from what an uninterrupted run leaves")
        shutil.rmtree(run_folder)
        print(f"\r{command.name}: {sent.total()} signals, {runs} runs, {len(losses)} losses", end="", flush=True)
    print("".join(f"\n  {loss}" for loss in losses), flush=True)
    return Row("interrupted commands", command.name, sent.total(), losses, time.monotonic() - start_time)


def run_to_end(command: Command, folder: Path) -> dict[str, Any]:
    """Run ``command`` in ``folder`` until it succeeds, and return the files that it left behind."""
    make(command, folder)
    for words in command.words[:1]:
        for _ in range(100):
            process = begin(words, folder)
            errors = process.communicate()[1]
            if process.returncode == 0:
                break
            if UNSTEADY not in errors:
                raise SystemExit(f"{command.name} ended with {process.returncode}: {errors}")
    return files_left(command, folder)


# --- the program ----------------------------------------------------------------------------------------------------


def restart_with_faults(arguments: Sequence[str]) -> None:
    """Restart this program with ``faults.c`` preloaded."""
    compiler = shutil.which("cc") or sys.exit("--faults requires a C compiler, but cc is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "faults.so")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "faults.c", "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), PRELOADED: "1"}
        sys.exit(subprocess.run([sys.executable, __file__, *arguments], env=environment).returncode)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500, help="number of interruptions per policy (500)")
    parser.add_argument("--faults", action="store_true", help="inject file-system errors instead of signals")
    parser.add_argument("--changes", action="store_true", help="change the code in a log after each interruption")
    parser.add_argument("--commands", action="store_true", help="interrupt complete commands instead of single runs")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append rows for robustness.py to FILE")
    parser.add_argument("--tables", type=Path, nargs="+", default=TABLES, metavar="FILE")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=sorted(POLICIES.entry_points_by_name()),
        metavar="P",
        help="policies (default: all)",
    )
    parser.add_argument("--trials", type=int, default=128, help="number of trials per run (128)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the random moments (0)")
    options = parser.parse_args(arguments)
    if options.faults and PRELOADED not in os.environ:
        restart_with_faults(arguments)
    moments = random.Random(options.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if options.commands:
            all_of_them = commands(Path(folder))
            for command in all_of_them:
                command_folder = Path(folder, command.name.replace(" ", "-"))
                rows.append(interrupt(command, command_folder, -(-options.kills // len(all_of_them)), moments))
            write_rows(rows, options.rows)
            return
        goals = find_goals(options.policies, options.tables, Path(folder), options.trials)
        for policy, goal in goals.items():
            kinds: Counter[str] = Counter()
            runs = lost = 0
            step, start_time = goal.size // 6, time.monotonic()
            while kinds.total() < options.kills:
                log = Path(folder, f"{policy}-{runs}.jsonl")
                runs += 1
                interrupted, complete = True, b""
                while interrupted:
                    if options.faults:
                        pid = start(policy, goal.table, log, options.trials, (20, moments.randrange(1 << 30)))
                        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                        lost += code not in (0, REFUSED)
                        interrupted, kind = code != 0, "failed write"
                    else:
                        number = moments.choice(SIGNALS)
                        pid = start(policy, goal.table, log, options.trials, None)
                        interrupted, kind = (
                            kill_at(pid, log, len(complete) + moments.randrange(step), number),
                            number.name,
                        )
                    kinds[kind] += interrupted
                    content = complete_lines(log)
                    lost += not content.startswith(complete)
                    if options.changes and interrupted:
                        change_code(log)
                        content = complete_lines(log)
                    complete = content
                lost += read_without_times(log) != goal.log
                log.unlink()
                print(f"\r{policy}: {kinds.total()} interruptions in {runs} runs, {lost} losses", end="", flush=True)
            print(f" ({', '.join(f'{name} {count}' for name, count in sorted(kinds.items()) if count)})", flush=True)
            part = "failed writes" if options.faults else "interrupted runs"
            part += " of changing code" * options.changes
            losses = [f"{lost} losses"] if lost else []
            rows.append(Row(part, policy, kinds.total(), losses, time.monotonic() - start_time))
    write_rows(rows, options.rows)


if __name__ == "__main__":
    main(sys.argv[1:])
