"""Measures the accuracy of `searchlab fleet plan` for a study on a local fleet.

    python studies/benchmarks/fleet_plan.py [--devices 2] [--jobs 1] [--seeds 2] [--trials 64]

A tracker and some servers listen on the loopback interface. A pilot study with its own seed measures on them; the plan
uses only the pilot's logs. Then the study itself runs with different seeds, and its wall time is compared with the
plan.

The machine needs one core per builder or per device, whichever is greater, and must otherwise be idle. Logs record the
CPU seconds for proposing and building, so the plan ignores contention for cores. The script measures how much
contention slows these phases down, and also prints a plan that takes this into account.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from fleet_soak import KEY, Program, free_ports, wait_for

from searchlab.fleet import plan_fleet, start_seconds
from searchlab.measure.pool import BuildPool
from searchlab.run.loop import Searcher
from searchlab.run.study import Study

LOOK_SECONDS = 0.5


class Waiting(threading.Thread):
    """Sums the time that this process and its children have spent on the cores and waiting for them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.last: dict[int, tuple[int, int]] = {}
        self.had = self.waited = 0
        self.ended = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.ended.wait(LOOK_SECONDS):
            for process in [me, *me.children(recursive=True)]:
                with contextlib.suppress(OSError):
                    for task in Path(f"/proc/{process.pid}/task").iterdir():
                        with contextlib.suppress(OSError, ValueError):
                            had, waited, _ = map(int, (task / "schedstat").read_text().split())
                            before = self.last.get(int(task.name), (0, 0))
                            self.last[int(task.name)] = had, waited
                            self.had += max(0, had - before[0])
                            self.waited += max(0, waited - before[1])

    def __enter__(self) -> Waiting:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

    @property
    def slower(self) -> float:
        """Return the slowdown compared with dedicated cores."""
        return 1 + self.waited / self.had if self.had else 1.0


@contextlib.contextmanager
def timed(cls: type[Any], names: Sequence[str], seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Within this context, add the wall time of calls to these methods to ``phase``."""
    before = {name: getattr(cls, name) for name in names}

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            start = time.monotonic()
            try:
                return method(*args, **given)
            finally:
                seconds[phase] += time.monotonic() - start

        return call

    for name, method in before.items():
        setattr(cls, name, counting(method))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(cls, name, method)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2, help="number of servers under one key (2)")
    parser.add_argument("--builders", type=int, default=2, help="number of build workers per run (2)")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs (1)")
    parser.add_argument(
        "--seeds", type=int, default=2, help="number of seeds of the study; the pilot uses an additional one (2)"
    )
    parser.add_argument("--trials", type=int, default=64, help="number of trials per run (64)")
    parser.add_argument(
        "--pilot-trials", type=int, default=0, help="number of trials per run of the pilot (same as --trials)"
    )
    parser.add_argument("--batch", type=int, default=8, help="batch size of all runs (8)")
    parser.add_argument("--workload", default="gemm:256x256x256")
    parser.add_argument("--space", default="knob-template")
    parser.add_argument("--policies", nargs="+", default=["random", "evolutionary", "xgb"])
    parser.add_argument("--out", type=Path, help="directory in which to keep the logs")
    options = parser.parse_args(arguments)
    port, *ports = free_ports(1 + options.devices)
    tracker = f"127.0.0.1:{port}"
    study: dict[str, Any] = {
        "workloads": [options.workload], "spaces": [options.space], "policies": options.policies,
        "seeds": list(range(options.seeds)), "trials": options.trials, "batch": options.batch,
        "target": {"kind": "native", "num-cores": 1},
        "measure": {"kind": "rpc", "tracker": tracker, "key": KEY, "workers": options.builders},
    }  # fmt: skip
    fleet: dict[str, Program] = {}
    with contextlib.ExitStack() as ends:
        scratch = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        ends.callback(lambda: [program.kill() for program in fleet.values()])
        folder = options.out or scratch
        fleet["tracker"] = Program(scratch / "tracker.txt", "fleet", "tracker", "--port", str(port))
        wait_for(tracker, fleet, 0)  # a server that finds no tracker exits
        for number, one in enumerate(ports):
            words = ["fleet", "server", "--port", str(one), "--tracker", tracker, "--key", KEY]
            fleet[f"server {number}"] = Program(scratch / f"server{number}.txt", *words)
        wait_for(tracker, fleet, options.devices)
        pilot = {"seeds": [options.seeds], "trials": options.pilot_trials or options.trials}
        seconds, slower, phases = {}, {}, {}
        for name, given, jobs in (("pilot", pilot, 1), ("study", {}, options.jobs)):
            made = Study.from_dict(study | given)
            runs, _ = made.plan()
            phases[name] = Counter[str]()
            with (
                timed(Searcher, ["ask", "tell", "quality"], phases[name], "proposing"),
                timed(BuildPool, ["build"], phases[name], "building"),
                timed(BuildPool, ["ready"], phases[name], "starting"),
                Waiting() as waiting,
            ):
                start = time.monotonic()
                made.run(folder / name, jobs=jobs, progress=False)
                seconds[name] = time.monotonic() - start
            slower[name] = waiting.slower
            print(f"{name}: {seconds[name]:.1f} s; contention made CPU work {slower[name]:.2f} times as long")
        plan = plan_fleet(
            runs, [folder / "pilot"], devices=[options.devices], builders=[options.builders], jobs=[options.jobs],
            start=start_seconds(runs[0].space),
        )  # fmt: skip
        for note in plan.notes:
            print(f"note: {note}")
        (one,) = plan.outlooks
        simulated = {phase: share * one.seconds for phase, share in one.waiting.items()}
        if options.jobs == 1:
            measured = phases["study"]
            measured["building"] -= measured["starting"]
            measured["running"] = seconds["study"] - measured.total()
            for phase, length in simulated.items():
                print(f"{phase:10} simulated {length:6.1f} s, measured {measured[phase]:6.1f} s")
        on_cores = one.seconds - simulated["running"]
        corrected = one.seconds + (slower["study"] - 1) * on_cores
        for what, length in (("", one.seconds), (" on such cores", corrected)):
            print(f"simulated{what}: {length:.1f} s; the study took {seconds['study'] / length:.2f} times as long")


if __name__ == "__main__":
    main(sys.argv[1:])
