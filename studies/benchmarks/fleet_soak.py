"""Runs a search on a local fleet while the tracker, the servers and the run itself are killed, stopped or sent garbage.

    python studies/benchmarks/fleet_soak.py [--faults 60] [--devices 3]

A tracker and some servers listen on the loopback interface. A process runs random search on a small GEMM with a fixed
seed. Meanwhile, faults, which are also drawn from a fixed seed, occur a few seconds apart:

    server killed     SIGKILL, including its children; another server takes its port two seconds later
    server hung       SIGSTOP, including its children, for twice the time limit of a program
    tracker killed    SIGKILL; another tracker takes its port two seconds later
    garbage           invalid greetings to every port, over connections that stay open
    run killed        SIGKILL; it is restarted at once, repeatedly if there is no tracker

At the end, the log must contain the configs that the policy proposes, each once and in order, and every trial must have
been measured. All programs are correct, so a failed trial means that a device's fault was blamed on a program. The exit
status is 1 if a trial is missing, duplicated or blamed for a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from searchlab.log.format import Log
from searchlab.log.read import read_log
from searchlab.measure.fleet import list_registered_devices
from searchlab.run.study import Study
from searchlab.space import Config

SPACE = "knob-template"
WORKLOAD = "gemm:64x64x64"
KEY = "soaked"
RUN_TIMEOUT = 3.0
BACK_SECONDS = 2.0
SEARCH = (
    "import json, sys, searchlab\n"
    "searchlab.Study.from_dict(json.load(open(sys.argv[1]))).run(sys.argv[2], progress=False)"
)
GARBAGE = (b"", b"\x01", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)), b"\xff" * 64)


class Program:
    """A searchlab process on a loopback port, which is restarted on the same port after being killed."""

    def __init__(self, output: Path, *words: str) -> None:
        self.output_path = output
        self.words = words
        self.start()

    def start(self) -> None:
        with self.output_path.open("ab") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "searchlab", *self.words], stdout=file, stderr=file)

    def processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.process.pid)
            return [process, *process.children(recursive=True)]
        return []

    def signal(self, what: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(what)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        time.sleep(BACK_SECONDS)
        self.start()

    def hang(self) -> None:
        self.signal(signal.SIGSTOP)
        time.sleep(2 * RUN_TIMEOUT)
        self.signal(signal.SIGCONT)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in bound]


def send_garbage(ports: Sequence[int], staying: list[socket.socket]) -> None:
    for old in staying:
        old.close()
    staying.clear()
    for port in ports:
        for data in GARBAGE:
            with contextlib.suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", port), 2.0)
                staying.append(connection)
                connection.sendall(data)


def wait_for(tracker: str, fleet: Mapping[str, Program], devices: int) -> None:
    """Wait until the tracker listens and knows the given number of devices."""
    end = time.monotonic() + 120
    while True:
        with contextlib.suppress(Exception):
            if len(list_registered_devices(tracker).get(KEY, [])) >= devices:
                return
        if time.monotonic() > end:
            outputs = [
                f"{name}: {program.output_path.read_text(errors='replace')[-500:]}" for name, program in fleet.items()
            ]
            sys.exit("\n".join(["the fleet did not start within two minutes", *outputs]))
        time.sleep(0.5)


def losses(log: Log, expected: Sequence[Config], trials: int) -> list[str]:
    """Return the log's problems, one sentence each."""
    configs = [Config(record.config) for record in log.records]
    failed = Counter(f"{record.failure}: {record.message}" for record in log.records if record.failure)
    wrong = [f"{count} trials are blamed for {what}" for what, count in failed.items()]
    if configs != list(expected):
        wrong.append(f"the log contains {len(configs)} configs, not the {trials} that the policy proposes")
    return wrong


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60, help="minimum number of faults (60)")
    parser.add_argument("--devices", type=int, default=3, help="number of servers under one key (3)")
    parser.add_argument("--trials", type=int, default=3000, help="number of trials (3000)")
    parser.add_argument("--pause", type=float, default=4.0, help="mean number of seconds between faults (4)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the faults (0)")
    options = parser.parse_args(arguments)
    moments = random.Random(options.seed)
    port, *ports = free_ports(1 + options.devices)
    tracker = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = {
            "workloads": [WORKLOAD],
            "spaces": [SPACE],
            "policies": ["random"],
            "trials": options.trials,
            "batch": 12,
            "target": {"kind": "native", "num-cores": 1},
            "measure": {
                "kind": "rpc",
                "tracker": tracker,
                "key": KEY,
                "repeat": 2,
                "min_repeat_ms": 1,
                "retries": 20,
                "run_timeout": RUN_TIMEOUT,
                "connect_timeout": 5.0,
                "device_timeout": 120.0,
                "prune_factor": 0,
            },
        }
        study = Study.from_dict(data)
        (run,), _ = study.plan()
        policy, _ = run.start()
        expected: list[Config] = []
        while len(expected) < options.trials:
            expected += policy.ask(12)
        expected = expected[: options.trials]
        file, log = folder / "study.json", folder / "results" / run.log_path
        file.write_text(json.dumps(data))

        fleet = {"tracker": Program(folder / "tracker.txt", "fleet", "tracker", "--port", str(port))}
        wait_for(tracker, fleet, 0)  # a server that finds no tracker exits
        for number, server_port in enumerate(ports):
            words = ["fleet", "server", "--port", str(server_port), "--tracker", tracker, "--key", KEY]
            fleet[f"server {number}"] = Program(folder / f"server{number}.txt", *words)
        servers = [program for name, program in fleet.items() if name != "tracker"]
        staying: list[socket.socket] = []
        searching: subprocess.Popen[bytes] | None = None

        def search() -> subprocess.Popen[bytes]:
            words = [sys.executable, "-c", SEARCH, str(file), str(folder / "results")]
            return subprocess.Popen(words, env=os.environ | {"TVM_NUM_THREADS": "1"})

        def kill_run() -> None:
            nonlocal searching
            assert searching
            searching.kill()
            searching.wait()
            searching = search()

        def restart_tracker() -> None:
            fleet["tracker"].restart()
            wait_for(tracker, fleet, 0)

        faults: dict[str, Callable[[], object]] = {
            "server killed": lambda: moments.choice(servers).restart(),
            "server hung": lambda: moments.choice(servers).hang(),
            "tracker killed": restart_tracker,
            "garbage": lambda: send_garbage([port, *ports], staying),
            "run killed": kill_run,
        }
        counts: Counter[str] = Counter()
        try:
            wait_for(tracker, fleet, options.devices)
            searching = search()
            while not log.exists():
                time.sleep(0.1)
            refused = 0
            while searching.poll() is None or searching.returncode:
                if searching.poll() is not None:  # it started while no tracker was running, and said so
                    refused += 1
                    if refused > options.faults:
                        break
                    searching = search()
                if counts.total() < options.faults:
                    time.sleep(moments.expovariate(1 / options.pause))
                    kind = moments.choice(sorted(faults))
                    faults[kind]()
                    counts[kind] += 1
                    print(
                        f"\r{counts.total()} faults, {len(log.read_bytes().splitlines()) - 1} trials",
                        end="",
                        flush=True,
                    )
                else:
                    time.sleep(1)
            problems = losses(read_log(log), expected, options.trials)
        finally:
            for program in fleet.values():
                program.kill()
            if searching and searching.poll() is None:
                searching.kill()
        print(f"\n{', '.join(f'{count} times {kind}' for kind, count in sorted(counts.items()))}")
        if searching.returncode:
            problems.append(f"the run ended with exit code {searching.returncode}, {refused} times")
        if counts.total() < options.faults:
            problems.append(f"the run ended after {counts.total()} faults; increase --trials, or reduce --pause")
        print("\n".join(problems) or f"{options.trials} trials, none missing, duplicated or blamed for a fault")
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
