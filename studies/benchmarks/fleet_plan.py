"""How near `searchlab fleet plan` comes: a study on a fleet of this machine, as it was simulated and as it was.

    python studies/benchmarks/fleet_plan.py [--devices 2] [--jobs 1] [--seeds 2] [--trials 64]

A tracker and some servers listen on loopback. A pilot, with a seed of its own, measures on them; its logs are all that
the plan knows. Then the study itself runs, from other seeds, and the wall clock decides. The machine needs a core for
each builder or device, whichever are more, and nothing else to do: what others take of its cores is printed, as the
share of its time that the study was ready to run and had to wait. A trial costs CPU seconds in a log, so the plan knows
nothing of such waiting.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from fleet_soak import KEY, Program, free_ports, wait_for_devices

from searchlab.errors import SearchlabError
from searchlab.fleet.plan import plan_fleet
from searchlab.measure.rpc.tracker import registered
from searchlab.run.study import Study


class Waiting(threading.Thread):
    """Adds up, ten times a second, what the processes of this one have had of the cores, and have waited for them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.last: dict[int, tuple[int, int]] = {}
        self.had = self.waited = 0
        self.ended = threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.ended.wait(0.1):
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
    def share(self) -> float:
        return self.waited / (self.had + self.waited) if self.had else 0.0


def wait_for_tracker(tracker: str) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(SearchlabError):
            registered(tracker)
            return
        time.sleep(0.2)
    sys.exit("the tracker did not start within two minutes")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2, help="servers under one key (2)")
    parser.add_argument("--builders", type=int, default=2, help="processes that build for a run (2)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of the study; the pilot has one more (2)")
    parser.add_argument("--trials", type=int, default=64, help="trials of a run (64)")
    parser.add_argument("--pilot-trials", type=int, default=0, help="trials of a run of the pilot (as many)")
    parser.add_argument("--batch", type=int, default=8, help="batch of all runs (8)")
    parser.add_argument("--workload", default="gemm:256x256x256")
    parser.add_argument("--space", default="knob-template")
    parser.add_argument("--policies", nargs="+", default=["random", "evolutionary", "xgb"])
    parser.add_argument("--out", type=Path, help="a directory that keeps the logs")
    options = parser.parse_args(arguments)
    port, *ports = free_ports(1 + options.devices)
    tracker = f"127.0.0.1:{port}"
    study: dict[str, Any] = {
        "workloads": [options.workload], "spaces": [options.space], "policies": options.policies,
        "seeds": list(range(options.seeds)), "trials": options.trials, "batch": options.batch,
        "target": {"kind": "native", "num-cores": 1},
        "measure": {"kind": "rpc", "tracker": tracker, "key": KEY, "workers": options.builders},
    }  # fmt: skip
    fleet = [Program("fleet", "tracker", "--port", str(port))]
    with contextlib.ExitStack() as ends:
        ends.callback(lambda: [program.kill() for program in fleet])
        folder = options.out or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        wait_for_tracker(tracker)
        for one in ports:
            fleet.append(Program("fleet", "server", "--port", str(one), "--tracker", tracker, "--key", KEY))
        wait_for_devices(tracker, options.devices)
        took: dict[str, tuple[float, float]] = {}
        for name, seeds, trials in (
            ("pilot", [options.seeds], options.pilot_trials or options.trials),
            ("study", study["seeds"], options.trials),
        ):
            made = Study.from_dict(study | {"seeds": seeds, "trials": trials})
            made.plan()
            jobs = 1 if name == "pilot" else options.jobs
            with Waiting() as waiting:
                start = time.monotonic()
                made.run(folder / name, jobs=jobs, progress=False)
                took[name] = time.monotonic() - start, waiting.share
            print(f"{name}: {took[name][0]:.1f} s, waiting for a core {100 * took[name][1]:.0f} % of its time", flush=True)
        runs, _ = Study.from_dict(study).plan()
        plan = plan_fleet(
            [replace(run) for run in runs], [folder / "pilot"],
            devices=[options.devices], builders=[options.builders], jobs=[options.jobs],
        )  # fmt: skip
        for note in plan.notes:
            print(f"note: {note}")
        seconds, share = took["study"]
        shares = ", ".join(f"{phase} {100 * part:.0f} %" for phase, part in plan.knee.waiting.items())
        print(f"simulated: {plan.knee.seconds:.1f} s ({shares})")
        print(f"the study took {100 * (seconds / plan.knee.seconds - 1):+.0f} % of that")
        (folder / "fleet_plan.json").write_text(
            json.dumps({"simulated": plan.knee.seconds, "measured": seconds, "waiting_for_a_core": share})
        )


if __name__ == "__main__":
    main(sys.argv[1:])
