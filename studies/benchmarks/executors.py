"""Measures each executor's runs per second over a recorded table, and checks the logs when workers are killed.

    python studies/benchmarks/executors.py [--runs 10000] [--jobs 2] [--kill 30] [--only WAY ...] [--rounds 1]
        [--json FILE]

The same study is run in several ways: one run after another in this process; by local processes (``local``, with
``--jobs``); by a Dask cluster on this machine; by both of these while one of their processes is killed every ``--kill``
seconds; by submitit's local executor, in jobs of 500 runs; and by two shards in separate directories, which are merged.
The seconds include starting the processes. With several rounds, the ways take turns. The script then reports the median
seconds, and the median of their ratios to ``local`` in the same round. All logs are compared with those of the first
way: the exit status is 1 if a log is missing or differs in more than clock times. The extras ``dask`` and ``slurm``
install Dask and submitit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
from cpu import difference

from searchlab.log.read import read_header
from searchlab.run.study import Study

TABLE = Path(__file__).parent.parent / "suite" / "v1" / "tables" / "gemm-99x51x85-knob-1t.parquet"
FIRST = "one-by-one"
"""The way with which all others are compared."""
WORKERS = ("searchlab.executors.local", "multiprocessing.spawn")
"""The strings that identify the command lines of processes that perform runs: searchlab's and Dask's."""


def study_file(folder: Path, runs: int, trials: int, policies: Sequence[str]) -> Path:
    """Write a study file of about ``runs`` runs over a table."""
    header = read_header(TABLE)
    space = json.dumps({"name": header.space.name, "options": header.space.options}).replace('":', '" =')
    path = folder / "study.toml"
    path.write_text(
        f"workloads = {json.dumps([header.workload])}\nspaces = [{space}]\npolicies = {json.dumps(list(policies))}\n"
        f"seeds = {runs // len(policies)}\ntrials = {trials}\n"
        f"measure = {{ kind = 'table', path = {json.dumps(str(TABLE.resolve()))} }}\n"
    )
    return path


@contextmanager
def kill_workers(kill_seconds: float, out: Path) -> Iterator[list[int]]:
    """Within this context, kill a worker process every few seconds. Yields the list of killed processes.

    The first one is killed once the directory ``out`` contains a log, because a cluster does not start without workers.
    """
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not any(out.rglob("*.jsonl")) and not ended.wait(0.1):
            pass
        while not ended.wait(kill_seconds):
            workers = [child for child in psutil.Process().children(recursive=True) if _makes_runs(child)]
            if workers:
                victim = min(workers, key=lambda process: process.create_time())
                victim.kill()
                killed.append(victim.pid)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def _makes_runs(process: psutil.Process) -> bool:
    try:
        return any(word in " ".join(process.cmdline()) for word in WORKERS)
    except psutil.Error:
        return False


def by_shards(path: Path, out: Path) -> None:
    """Run two shards in parallel, in separate directories, and merge them."""
    parts = [out.with_name(f"{out.name}-{part}") for part in (1, 2)]
    command = [sys.executable, "-m", "searchlab", "run", str(path), "--out"]
    shards = [
        subprocess.Popen([*command, str(part), "--shard", f"{number}/2"], stdout=subprocess.DEVNULL)
        for number, part in enumerate(parts, 1)
    ]
    for shard in shards:
        if shard.wait():
            raise SystemExit("a shard failed")
    for part in parts:
        shutil.copytree(part, out, dirs_exist_ok=True)


def ways(path: Path, jobs: int, kill_seconds: float) -> dict[str, Callable[[Path], int]]:
    """Return each way to run the study file ``path``: a function that returns the number of killed processes."""

    def study_runner(executor: dict[str, Any] | None, kill: bool = False) -> Callable[[Path], int]:
        def run(out: Path) -> int:
            context: AbstractContextManager[list[int]] = kill_workers(kill_seconds, out) if kill else nullcontext([])
            with context as killed:
                Study.load(path).run(out, executor=executor, progress=False)
            return len(killed)

        return run

    def shards(out: Path) -> int:
        by_shards(path, out)
        return 0

    local, dask = ({"name": name, "options": {"jobs": jobs}} for name in ("local", "dask"))
    slurm = {"name": "slurm", "options": {"cluster": "local", "jobs": 1, "batch": 500, "timeout_min": 600}}
    return {
        FIRST: study_runner(None),
        "local": study_runner(local),
        "dask": study_runner(dask),
        "local-killed": study_runner(local, kill=True),
        "dask-killed": study_runner(dask, kill=True),
        "slurm": study_runner(slurm),
        "shards": shards,
    }


def differences(reference: Path, out: Path) -> list[str]:
    """Return the differences between the logs in two directories."""
    logs = {log.relative_to(reference) for log in reference.rglob("*.jsonl")}
    other_logs = {log.relative_to(out) for log in out.rglob("*.jsonl")}
    differing = [f"{log} is only in one of them" for log in sorted(logs ^ other_logs)]
    return differing + [
        f"{log}: {text}" for log in sorted(logs & other_logs) if (text := difference(reference / log, out / log))
    ]


def row(
    count: int, times: Sequence[float], local: Sequence[float] | None, killed: int, differ: int
) -> dict[str, float | None]:
    """Return a way's figures, given the seconds of its rounds and of ``local``'s rounds."""
    middle = statistics.median(times)
    ratios = [seconds / local_seconds for seconds, local_seconds in zip(times, local or [], strict=False)]
    return {
        "seconds": middle,
        "runs_per_second": count / middle,
        "of_local": statistics.median(ratios) if ratios else None,
        "killed": killed,
        "differ": differ,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--policies", nargs="+", default=["random", "evolutionary"], metavar="P")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kill", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--only", nargs="+", default=[], metavar="WAY", help="run only one-by-one and these ways")
    parser.add_argument(
        "--rounds", type=int, default=1, help="number of rounds in which the ways are timed in turn (1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to which the figures are also written")
    options = parser.parse_args(argv)
    wrong: list[str] = []
    seconds: dict[str, list[float]] = {}
    killed: Counter[str] = Counter()
    differ: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = study_file(folder, options.runs, options.trials, options.policies)
        count = len(Study.load(path).plan().runs)
        print(f"{count} runs of {options.trials} trials", flush=True)
        makers = ways(path, options.jobs, options.kill)
        selected = [way for way in makers if way != FIRST and (not options.only or way in options.only)]
        for way in [FIRST, *selected * options.rounds]:
            start = time.perf_counter()
            killed[way] += makers[way](folder / way)
            seconds.setdefault(way, []).append(time.perf_counter() - start)
            print(f"  {way} {seconds[way][-1]:.1f} s", flush=True)
            if way != FIRST:
                differing = differences(folder / FIRST, folder / way)
                wrong += differing
                differ[way] += len(differing)
                shutil.rmtree(folder / way)
    rows = {way: row(count, times, seconds.get("local"), killed[way], differ[way]) for way, times in seconds.items()}
    print("way           runs/s   seconds  of local  killed  logs that differ")
    for way, figures in rows.items():
        ratio = "-" if figures["of_local"] is None else f"{figures['of_local']:.2f}"
        print(
            f"{way:12} {figures['runs_per_second']:7.1f} {figures['seconds']:9.1f} {ratio:>9} {figures['killed']:7} "
            f"{figures['differ']:17}"
        )
    print("\n".join(wrong[:20]))
    if options.json:
        options.json.write_text(json.dumps({"runs": count, "trials": options.trials, "ways": rows}, indent=1) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
